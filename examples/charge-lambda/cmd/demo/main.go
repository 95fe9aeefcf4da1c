// Command demo kills an order at each of its steps, lets the client send it
// again, and prints the final state in the provider's ledger, the order table and
// the record: every order is paid once, written once, and has one receipt.
//
// Each request runs in its own process, on DynamoDB Local, and is killed with
// SIGKILL. The provider and the mailer run in this process, so that they survive.
// The first argument is the script that starts DynamoDB Local. If
// DYNAMODB_ENDPOINT is set, the demo uses that address instead.
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
