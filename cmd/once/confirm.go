package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
)

// confirm asks on the terminal, and returns nil if the answer is word.
func (e *env) confirm(ctx context.Context, word string) error {
	if !e.stdinTTY {
		return usage("confirmation needs a terminal as standard input; use --yes to write without asking")
	}
	fmt.Fprintf(e.stderr, "Type %s to write it: ", word)
	line := make(chan string, 1)
	go func() {
		s, err := bufio.NewReader(e.stdin).ReadString('\n')
		if err != nil && err != io.EOF {
			s = ""
		}
		line <- s
	}()
	select {
	case s := <-line:
		if strings.TrimSpace(s) == word {
			return nil
		}
	case <-ctx.Done():
		fmt.Fprintln(e.stderr)
	}
	return refuse("not confirmed; nothing was written")
}
