// SPDX-License-Identifier: Apache-2.0

// Command local serves the charge example on 127.0.0.1, together with a
// simulated payment provider. See the example's README for what to try.
//
//	local                 serves
//	local policy          prints what clients have to know about keys, in Markdown
//	local policy openapi  the same as an OpenAPI 3.1 document
//
// It starts itself again as its workers, with the argument "worker", and as those of
// the playground's half without once, with the arguments "worker without-once".
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/once-lambda/once/idempotent"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	if err := command(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "charge-local:", err)
		os.Exit(1)
	}
}

// command runs the command that the arguments name.
func command(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	switch {
	case len(args) == 0:
		return run(ctx, getenv, stdout, stderr)
	case slices.Equal(args, []string{"worker"}):
		return work(getenv, newLogger(stderr))
	case slices.Equal(args, []string{"worker", withoutOnce}):
		return work(getenv, newLogger(stderr).With("half", withoutOnce), func(o *idempotent.Options) { o.Disabled = true })
	case slices.Equal(args, []string{"policy"}):
		return printPolicy(getenv, stdout, false)
	case slices.Equal(args, []string{"policy", "openapi"}):
		return printPolicy(getenv, stdout, true)
	}
	return errors.New("invalid arguments: want none to serve, \"policy\" or \"policy openapi\"")
}
