package main

import (
	"io"
	"os"
	"os/user"
	"strconv"
	"time"

	"golang.org/x/term"
)

// world is what a command meets outside of itself.
type world struct {
	stdin          io.Reader
	stdout, stderr io.Writer // programs write to stderr side by side
	getenv         func(string) string
	now            func() time.Time

	stdinTTY, stderrTTY bool
	width               int // of a line on stdout, in columns; 0: as long as it takes

	user, host string // who is at work, for the audit
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

// width returns how wide lines may be: what COLUMNS says, or the terminal. What
// goes into a pipe is not cut.
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
