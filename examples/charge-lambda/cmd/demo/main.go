// Command demo kills an order at every step of it, has its client send it again,
// and prints what the provider's ledger, the order table and the record say then:
// every order is paid once, written once, and has one receipt.
//
// Each request is a process of its own, on DynamoDB Local, and is killed with
// SIGKILL. The provider and the mailer are in this process, so that they outlive
// it. The first argument is the script that starts DynamoDB Local;
// DYNAMODB_ENDPOINT names one that runs.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	work := run
	if os.Getenv(envFlow) != "" {
		work = request
	}
	if err := work(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "charge-demo:", err)
		os.Exit(1)
	}
}
