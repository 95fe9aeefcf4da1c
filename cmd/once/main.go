// Command once is the operator's command line: it lists the records of a store,
// shows one record, settles an unknown outcome by evidence, and checks the table.
//
//	once list --state unknown --table once-records
//	once show charge --scope acme --key order-17
//	once resolve charge --scope acme --key order-17 --not-executed --reason '…'
//
// It works on a DynamoDB table (AWS, LocalStack, DynamoDB Local) and on a file of
// package boltstore. docs/operate.md shows all commands with examples; once --help
// lists the exit codes.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	os.Exit(run(ctx, system(), os.Args[1:]))
}
