// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/signal"
	"os/user"
	"strconv"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"golang.org/x/term"

	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/dynamostore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	os.Exit(run(ctx, system(), os.Args[1:]))
}

// system is the environment of the process.
func system() *operate.Env {
	e := &operate.Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Getenv: os.Getenv, Now: time.Now,
		StdinTTY:  term.IsTerminal(int(os.Stdin.Fd())),
		StderrTTY: term.IsTerminal(int(os.Stderr.Fd())),
		Width:     width(os.Stdout, os.Getenv("COLUMNS")),
		Dynamo:    func(cfg aws.Config) dynamostore.Client { return dynamostore.NewClient(cfg) },
	}
	if u, err := user.Current(); err == nil {
		e.User = u.Username
	}
	e.Host, _ = os.Hostname()
	return e
}

// width returns the maximum width of a line: COLUMNS, or the terminal's. Output
// into a pipe is not limited.
func width(f *os.File, columns string) int {
	if n, err := strconv.Atoi(columns); err == nil && n > 0 {
		return n
	}
	n, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return n
}
