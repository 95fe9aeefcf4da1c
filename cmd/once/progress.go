package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/once-lambda/once/dynamostore"
)

// meter tells on standard error how far a long read has come: on a terminal in
// one line that changes, elsewhere in a line now and then.
type meter struct {
	env   *env
	what  string
	about int // how many items there may be; 0: unknown

	mu    sync.Mutex
	state dynamostore.ScanProgress
	next  time.Time // when to tell again
	told  int       // how long the line on the terminal is
}

// The pauses between two words about progress.
const (
	tellTerminal = 200 * time.Millisecond
	tellElse     = 5 * time.Second
)

func (e *env) meter(what string, about int) *meter {
	return &meter{env: e, what: what, about: about, next: e.now().Add(tellTerminal)}
}

// read notes what was read so far. It is safe for concurrent use.
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

// end says the last word, and returns what was read.
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
