package main

import (
	"io"
	"os"
	"os/user"
	"strconv"
	"time"

	"golang.org/x/term"
)

// world is everything outside of the program that a command uses.
type world struct {
	stdin          io.Reader
	stdout, stderr io.Writer // several programs write to stderr in parallel
	getenv         func(string) string
	now            func() time.Time

	stdinTTY, stderrTTY bool
	width               int // of a line on stdout, in columns; 0: unlimited

	user, host string // the operator, for the audit
}

// system is the world of the process.
func system() *world {
	w := &world{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		getenv: os.Getenv, now: time.Now,
		stdinTTY:  term.IsTerminal(int(os.Stdin.Fd())),
		stderrTTY: term.IsTerminal(int(os.Stderr.Fd())),
		width:     width(os.Stdout, os.Getenv("COLUMNS")),
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
