package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/once-lambda/once/dynamostore"
)

// meter prints the progress of a long read on standard error: on a terminal in one
// line that changes, elsewhere as a new line now and then.
type meter struct {
	env   *env
	what  string
	about int // approximate number of items; 0: unknown

	mu    sync.Mutex
	state dynamostore.ScanProgress
	next  time.Time // when to print again
	told  int       // length of the line on the terminal
}

// The pauses between two prints of the progress.
const (
	tellTerminal = 200 * time.Millisecond
	tellElse     = 5 * time.Second
)

func (e *env) meter(what string, about int) *meter {
	return &meter{env: e, what: what, about: about, next: e.now().Add(tellTerminal)}
}

// read stores the amount read so far and prints it if it is time. It is safe for
// concurrent use.
func (m *meter) read(p dynamostore.ScanProgress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = p
	now := m.env.now()
	if !m.env.progress || now.Before(m.next) {
		return
	}
	line := m.line()
	if m.env.stderrTTY {
		m.next = now.Add(tellTerminal)
		fmt.Fprintf(m.env.stderr, "\r%-*s", m.told, line)
		m.told = len(line)
	} else {
		m.next = now.Add(tellElse)
		fmt.Fprintln(m.env.stderr, line)
	}
}

func (m *meter) line() string {
	of := ""
	if m.about > m.state.Items {
		of = " of about " + grouped(m.about)
	}
	return fmt.Sprintf("%s: %s%s items, %.1f read units", m.what, grouped(m.state.Items), of, m.state.ReadUnits)
}

// end prints the final progress, and returns the amount read.
func (m *meter) end() dynamostore.ScanProgress {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.env.progress || m.state == dynamostore.ScanProgress{}:
	case m.env.stderrTTY:
		fmt.Fprintf(m.env.stderr, "\r%s\r", strings.Repeat(" ", m.told))
	default:
		fmt.Fprintln(m.env.stderr, m.line())
	}
	return m.state
}
