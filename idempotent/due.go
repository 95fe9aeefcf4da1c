// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// This file lists what is due, and passes it to the workers of each operation.

// maxFailures is how many calls of a resolver may fail in a row before the run
// leaves the other records of its operation to the next run.
const maxFailures = 5

// rounds lists what is due and works on it until nothing is left. It lists again
// only for records that it could not hold.
func (r *reconciler) rounds(ctx context.Context) error {
	for first := true; ; first = false {
		worked := r.worked
		l := &dueList{reconciler: r, ctx: ctx, first: first, of: map[string]*queue{}}
		err := l.work()
		switch {
		case err != nil:
			return err
		case r.report.Incomplete && r.worked == 0:
			return fmt.Errorf("idempotent: reconciliation: the time ended before the first record; a run needs at least %s, and more if the store or the resolver is slow: give the function a longer time-out, for example 1 min", 2*leastShare)
		case r.opts.DryRun, !l.again(), r.worked == worked: // a dry run would work on the same records again
			return nil
		case !r.timeFor(ctx):
			r.report.Incomplete = true
			return nil
		}
	}
}

// dueList is a list of due records that a run reads and works on.
type dueList struct {
	*reconciler
	ctx   context.Context // of the run
	part  *part           // the time for reading: half of what was left
	first bool            // the run has not listed before

	quarter time.Time                       // when a quarter of the time left has passed; zero: never
	rest    iter.Seq2[driver.Listed, error] // the entries at which the run continues, if it does
	extent

	queues  []*queue
	of      map[string]*queue // the queue of an operation
	working bool              // the workers have started
	drains  sync.WaitGroup
}

// work reads the list and works on it until no record is left that it holds.
func (l *dueList) work() (err error) {
	var cancel context.CancelFunc
	l.part, cancel = l.half(l.ctx)
	defer cancel()
	if half, ok := l.part.Deadline(); ok {
		l.quarter = half.Add(-half.Sub(l.guard.opts.Now()) / 2)
	}
	l.report.restart()
	err = l.read(l.lister.Due(l.part.Context, time.Time{}))
	if l.behind == readsContinue {
		err = l.read(l.rest)
	}
	l.start()
	for _, q := range l.queues {
		q.close()
	}
	l.drains.Wait()
	for _, q := range l.queues {
		l.countLeft(q)
	}
	if err != nil {
		return err
	}
	for _, e := range l.scanned { // the list does not show them yet
		l.waits(e)
	}
	l.progress.count(&l.report, &l.extent)
	return nil
}

// read reads entries until enough of them were read, or the time has passed. A list that
// has not begun by then is incomplete too, although it may be empty.
func (l *dueList) read(entries iter.Seq2[driver.Listed, error]) error {
	if l.late() {
		return nil
	}
	for e, err := range entries {
		switch {
		case l.late():
			return nil
		case err != nil && e.ID == "":
			err = &StoreError{Op: driver.OpListDue, Err: err}
			l.guard.opts.observe(l.ctx, event.StoreError, "", nil, err)
			return err
		case l.entries == l.progress.first && !l.goesOn(e):
			return nil
		case l.behind != readsNone && l.pastQuarter():
			return nil
		}
		l.entries++
		l.sees(e, err)
	}
	l.toEnd = true
	return nil
}

// late reports whether the time for reading has passed, and counts that it has.
func (l *dueList) late() bool {
	if !l.ended(l.part) {
		return false
	}
	l.count(func(p *Report) { p.Incomplete = true })
	return true
}

// goesOn decides how the run reads on behind the first entries, of which e is the
// next one. It starts the workers, and reports whether e is read.
func (l *dueList) goesOn(e driver.Listed) bool {
	l.start()
	if l.behind == readsContinue { // this is the second list
		return true
	}
	l.behind = readsOn
	if after := l.progress.after(); after.After(e.Due) {
		l.behind, l.rest = readsContinue, l.lister.Due(l.part.Context, after)
		return false
	}
	return true
}

// pastQuarter reports whether a quarter of the time left has passed.
func (l *dueList) pastQuarter() bool {
	return !l.quarter.IsZero() && !l.guard.opts.Now().Before(l.quarter)
}

// sees counts an entry, and passes it to the queue of its operation if it is due.
func (l *dueList) sees(e driver.Listed, err error) {
	operation := e.ID.Operation()
	_, swept := l.scanned[e.ID] // and counted
	delete(l.scanned, e.ID)
	selected := l.selects(operation)
	count := func() {
		if l.first && selected && !swept {
			l.count(func(p *Report) { p.Due++ })
		}
	}
	switch {
	case !selected && e.State != driver.StateInProgress: // an entry with an error has no state
		return
	case err != nil:
		if l.first {
			l.count(func(p *Report) { p.Due++; l.unreadable++ })
			l.fails(l.ctx, event.StoreError, &driver.Record{ID: e.ID}, err)
		}
		return
	}
	resolve := l.resolverOf(operation)
	if !selected {
		resolve = nil
	}
	switch {
	case e.Due.After(l.began):
		l.passes(e)
		return
	case l.broken[operation] || resolve == nil && e.State != driver.StateInProgress:
		if l.opts.SweepOnly {
			count()
		}
		l.passes(e)
		return
	}
	if resolve == nil {
		operation = "" // of all operations without a resolver
	}
	q := l.of[operation]
	if q == nil {
		q = newQueue(operation, resolve)
		l.of[operation], l.queues = q, append(l.queues, q)
		if l.working {
			l.drains.Go(func() { l.drain(l.ctx, q) })
		}
	}
	count()
	if !q.add(e, l.behind == readsNone, l.progress.first/16) {
		l.passes(e)
	}
}

// passes counts an entry that the run does not work on.
func (l *dueList) passes(e driver.Listed) {
	if l.behind == readsNone {
		l.waits(e)
		return
	}
	l.last = e.Due
	if l.selects(e.ID.Operation()) {
		l.passed.wait(e.ID.Operation(), e, l.began)
	}
}

// start starts the workers of all queues, so that a slow resolver does not delay
// other operations.
func (l *dueList) start() {
	if l.working {
		return
	}
	l.working = true
	for _, q := range l.queues {
		l.drains.Go(func() { l.drain(l.ctx, q) })
	}
}

// again reports whether there are records that the run could not hold and can work on.
func (l *dueList) again() bool {
	return slices.ContainsFunc(l.queues, func(q *queue) bool { return q.overflow > 0 && !q.broken() })
}

// queue holds the records of an operation that a run works on, the earliest due
// first; or those of all operations without a resolver whose lease has ended.
type queue struct {
	operation string
	resolve   ResolveFunc // nil: only process the end of the lease

	mu       sync.Mutex
	changed  sync.Cond // of entries, closed, working, failures or answered
	entries  []driver.Listed
	added    int  // entries so far
	overflow int  // records that were not added
	closed   bool // no more are added
	working  int  // records that are being worked on
	failures int  // calls of the resolver that failed in a row
	answered bool // a call of the resolver has succeeded in this run
}

func newQueue(operation string, resolve ResolveFunc) *queue {
	q := &queue{operation: operation, resolve: resolve}
	q.changed.L = &q.mu
	return q
}

// add adds an entry of the first ones of the list, or another one if the queue has had
// fewer than the given number. It reports whether it did.
func (q *queue) add(e driver.Listed, first bool, most int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !first && q.added >= most {
		q.overflow++
		return false
	}
	q.entries = append(q.entries, e)
	q.added++
	q.changed.Broadcast()
	return true
}

// close ends the queue: its workers end when it is empty.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changed.Broadcast()
}

// take removes the next record, unless the resolver keeps failing. It waits for one
// until the queue is closed. Until the resolver has answered in this run, and after
// a failure, no more records are worked on than calls may still fail: take then
// waits for one of them.
func (q *queue) take() (e driver.Listed, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		switch {
		case q.broken(), q.closed && len(q.entries) == 0:
			return e, false
		case len(q.entries) == 0, q.doubtful() && q.failures+q.working >= maxFailures:
			q.changed.Wait()
		default:
			e, q.entries = q.entries[0], q.entries[1:]
			q.working++
			return e, true
		}
	}
}

// doubtful reports whether the next call of the resolver may well fail.
func (q *queue) doubtful() bool { return q.resolve != nil && (!q.answered || q.failures > 0) }

// putBack puts back a record that was taken.
func (q *queue) putBack(e driver.Listed) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.entries = slices.Insert(q.entries, 0, e)
}

// done ends the work on a record that was taken.
func (q *queue) done(c call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.working--
	switch c {
	case callFailed:
		q.failures++
	case callAnswered:
		q.failures, q.answered = 0, true
	case callNone:
	}
	q.changed.Broadcast()
}

// broken reports whether the resolver keeps failing. No record is being worked on,
// or the caller holds the lock.
func (q *queue) broken() bool { return q.failures >= maxFailures }

// drain works on the records of a queue, Concurrency at a time.
func (r *reconciler) drain(ctx context.Context, q *queue) {
	var workers sync.WaitGroup
	for range r.opts.Concurrency - 1 {
		workers.Go(func() {
			for r.next(ctx, q) {
			}
		})
	}
	for r.next(ctx, q) {
	}
	workers.Wait()
}

// next works on the next record of a queue, and reports whether there was one and
// time for it.
func (r *reconciler) next(ctx context.Context, q *queue) bool {
	e, ok := q.take()
	if !ok {
		return false
	}
	if !r.timeFor(ctx) {
		q.putBack(e)
		q.done(callNone)
		return false
	}
	q.done(r.one(ctx, q.resolve, e))
	return true
}

// countLeft counts the records that were not begun.
func (r *reconciler) countLeft(q *queue) {
	for _, e := range q.entries {
		r.waits(e)
	}
	switch left := len(q.entries) + q.overflow; {
	case q.broken():
		r.report.Skipped += left
		r.broken[q.operation] = true
	case len(q.entries) > 0:
		r.report.Incomplete = true
	}
}
