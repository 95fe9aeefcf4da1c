// SPDX-License-Identifier: Apache-2.0

// Command playground serves the charge example on 127.0.0.1, with and without once,
// together with simulated payment providers and a page that shows what happens. See
// its README for what to try.
//
//	playground                 serves
//	playground policy          prints what clients have to know about keys, in Markdown
//	playground policy openapi  the same as an OpenAPI 3.1 document
//
// It starts itself again as its workers, with the argument "worker", and as those of
// the half without once, with the arguments "worker without-once".
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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	if err := command(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(1)
	}
}

// command runs the command that the arguments name.
func command(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	switch {
	case len(args) == 0:
		return run(ctx, getenv, stdout, stderr)
	case slices.Equal(args, []string{"worker"}):
		return work(getenv, newLogger(stderr), true)
	case slices.Equal(args, []string{"worker", withoutOnce}):
		return work(getenv, newLogger(stderr).With("half", withoutOnce), false)
	case slices.Equal(args, []string{"policy"}):
		return printPolicy(getenv, stdout, false)
	case slices.Equal(args, []string{"policy", "openapi"}):
		return printPolicy(getenv, stdout, true)
	}
	return errors.New("invalid arguments: want none to serve, \"policy\" or \"policy openapi\"")
}
