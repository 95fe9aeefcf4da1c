// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"sync"
	"time"
)

// maxExact is how many entries of a list a run reads before it works. Up to so
// many it holds all that are due, and its counts are exact.
const maxExact = 100_000

// extent is how much of a list a run has read.
type extent struct {
	entries int
	behind  reading   // the entries behind the first ones
	passed  Report    // counts those of them that the run does not hold
	last    time.Time // when the last of these is due
	toEnd   bool      // the list was read to its end
}

// reading is how a run reads the entries behind the first ones.
type reading uint8

const (
	readsNone     reading = iota // it has not come to them
	readsOn                      // from the first of them
	readsContinue                // where the run before has ended
)

// progress is what the runs of one handler know about a list that is too long for
// one run.
type progress struct {
	first int // entries that a run reads before it works

	mu     sync.Mutex
	next   time.Time // the next run continues after the entries that are due then; zero: it does not
	sum    Report    // counts the entries behind the first ones up to there
	before Report    // counts all behind the first ones, when the runs last came to the end
	known  bool      // they did
}

func (p *progress) after() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}

// count adds to the report of a run what is known of the entries that it did not
// read, or does not hold.
func (p *progress) count(r *Report, l *extent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.behind != readsContinue && (l.toEnd || !l.last.IsZero()) {
		p.sum = Report{} // of an earlier list
	}
	p.sum.add(&l.passed)
	known := &p.before
	switch {
	case l.toEnd:
		p.before, p.known, p.next = p.sum, l.behind == readsContinue, time.Time{}
	case !p.known:
		known = &p.sum
	}
	if !l.toEnd && !l.last.IsZero() {
		p.next = l.last
	}
	r.add(known)
	r.Listed = l.toEnd || l.entries >= p.first
}
