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

	"github.com/once-lambda/once/dynamostore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	os.Exit(run(ctx, system(), os.Args[1:]))
}

// system is the environment of the process.
func system() *environment {
	w := &environment{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		getenv: os.Getenv, now: time.Now,
		stdinTTY:  term.IsTerminal(int(os.Stdin.Fd())),
		stderrTTY: term.IsTerminal(int(os.Stderr.Fd())),
		width:     width(os.Stdout, os.Getenv("COLUMNS")),
		dynamo:    func(cfg aws.Config) dynamostore.Client { return dynamostore.NewClient(cfg) },
	}
	if u, err := user.Current(); err == nil {
		w.user = u.Username
	}
	w.host, _ = os.Hostname()
	return w
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
