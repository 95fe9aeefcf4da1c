// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/logs"
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

// Report counts what a run of [Reconciler] did, or in a dry run would have done. Each
// count is made after the write. A record whose lease had ended counts twice: as
// marked or released, and by the resolver's answer.
type Report struct {
	Due           int // records that were listed and due, and that the run can work on; with SweepOnly, all that are due
	MarkedUnknown int // no outcome was reported, and an effect may have happened
	Released      int // no outcome was reported, and they may be continued
	Completed     int // resolved with a result or a Final error
	NotExecuted   int // resolved: they may run again
	Steps         int // resolved: evidence recorded a step
	Postponed     int // due again later
	Exhausted     int // given up
	Stale         int // another writer was faster
	Failed        int // the resolver or the store failed at least once; after a resolver's failure the record is also postponed
	Skipped       int // left to the next run, because the resolver of their operation kept failing
	// Other counts records of operations outside [ReconcileOptions.Operations] whose
	// lease had ended: the run made them unknown or released them, and left the rest to
	// their own reconciler. No other count includes them.
	Other int
	// Incomplete reports that the time ended before every due record was worked on.
	Incomplete bool
	// Scan is what the run read to find records in progress that no list shows, if the
	// store is a [driver.AbandonedLister].
	Scan driver.Scanned

	// Listed reports that the list of waiting records was read to its end, or that it
	// has more than 100,000 entries. If it is false, the following fields do not cover
	// all of them: do not publish them. Up to 100,000 entries they are exact. Above,
	// they are those of the entries that this run read, and of the others at the time
	// when the runs of this [Reconciler] last read them. Until these have come to the
	// end of the list once, the counts are too low.
	Listed bool
	// Pending is how many records are left whose outcome is unknown, due or not,
	// except those given up.
	Pending int
	// Oldest is when the oldest of them became unknown, or its lease ended if that
	// was earlier; zero if there is no such record.
	Oldest time.Time
	// PendingReleased is how many records are left that were released under [Resume]
	// and wait for a request to continue them, due or not, except those given up.
	PendingReleased int
	// OldestReleased is since when the oldest of them has waited; zero if there is no
	// such record.
	OldestReleased time.Time
	// Operations has Pending and Oldest of each operation with such records.
	Operations map[string]Waiting
}

// Waiting counts the records of an operation whose outcome is unknown, in a
// [Report].
type Waiting struct {
	Pending int
	Oldest  time.Time
	// NoResolver reports that the reconciler has no resolver for the operation and
	// does not ask about its records.
	NoResolver bool
}

// restart prepares another list.
func (r *Report) restart() {
	r.Listed, r.Operations = false, nil
	r.Pending, r.Oldest, r.PendingReleased, r.OldestReleased = 0, time.Time{}, 0, time.Time{}
}

// wait counts a record that is left waiting at now. A record in progress whose
// lease has ended counts as unknown: the run could not process it.
func (r *Report) wait(operation string, e driver.Listed, now time.Time) {
	since := e.LeaseEnd
	if !e.Since.IsZero() {
		since = earlier(since, e.Since)
	}
	switch {
	case e.Due.IsZero(), e.State == driver.StateInProgress && e.Due.After(now):
	case e.State == driver.StateRetryable:
		r.PendingReleased++
		r.OldestReleased = earlier(r.OldestReleased, since)
	default:
		r.Pending++
		r.Oldest = earlier(r.Oldest, since)
		if r.Operations == nil {
			r.Operations = map[string]Waiting{}
		}
		w := r.Operations[operation]
		w.Pending++
		w.Oldest = earlier(w.Oldest, since)
		r.Operations[operation] = w
	}
}

// add adds what waits by another report.
func (r *Report) add(other *Report) {
	r.Pending, r.PendingReleased = r.Pending+other.Pending, r.PendingReleased+other.PendingReleased
	for _, oldest := range [][2]*time.Time{{&r.Oldest, &other.Oldest}, {&r.OldestReleased, &other.OldestReleased}} {
		if !oldest[1].IsZero() {
			*oldest[0] = earlier(*oldest[0], *oldest[1])
		}
	}
	for operation, w := range other.Operations {
		if r.Operations == nil {
			r.Operations = map[string]Waiting{}
		}
		sum := r.Operations[operation]
		r.Operations[operation] = Waiting{Pending: sum.Pending + w.Pending, Oldest: earlier(sum.Oldest, w.Oldest)}
	}
}

// earlier returns the earlier of two times. A zero t is not set.
func earlier(t, other time.Time) time.Time {
	if t.IsZero() || other.Before(t) {
		return other
	}
	return t
}

// String returns the nonzero counts on one line.
func (r Report) String() string {
	s := fmt.Sprintf("%d due", r.Due)
	for _, c := range []struct {
		count int
		what  string
	}{
		{r.MarkedUnknown, "marked unknown"}, {r.Released, "released"}, {r.Completed, "completed"},
		{r.NotExecuted, "not executed"}, {r.Steps, "with a step recorded"}, {r.Postponed, "postponed"}, {r.Exhausted, "exhausted"},
		{r.Stale, "stale"}, {r.Failed, "failed"}, {r.Skipped, "skipped because their resolver kept failing"},
		{r.Other, "of other operations processed after their lease"},
	} {
		if c.count > 0 {
			s += fmt.Sprintf(", %d %s", c.count, c.what)
		}
	}
	if r.Incomplete {
		s += "; incomplete: the time ended before every due record was worked on"
	}
	return s
}

// observe passes the report to an observer that receives reports, and to those
// that it consists of.
func (r Report) observe(ctx context.Context, o *Options) {
	var tell func(event.Observer)
	tell = func(observer event.Observer) {
		if parts, ok := observer.(interface{ Unwrap() []event.Observer }); ok {
			for _, part := range parts.Unwrap() {
				tell(part)
			}
		}
		if o, ok := observer.(interface{ Reconciled(context.Context, Report) }); ok {
			o.Reconciled(ctx, r)
		}
	}
	logs.Shield(ctx, o.logger(), "idempotent: the observer", func() { tell(o.Observer) }, slog.String("report", r.String()))
}
