// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/outage"
)

// This file reconciles one record: it processes the end of its lease, claims it,
// asks its resolver, and settles it, postpones it or gives it up.

// reconciler is one run of Reconciler.
type reconciler struct {
	guard      *Guard
	progress   *progress
	lister     driver.DueLister
	resolverOf func(operation string) ResolveFunc // nil result: no resolver
	opts       ReconcileOptions

	began   time.Time
	share   time.Duration   // time for one record
	timeout time.Duration   // of a call of the resolver, part of share
	broken  map[string]bool // operations whose resolver kept failing

	scanning bool
	scanned  map[RecordID]driver.Listed // waiting records that only the scan has shown

	mu         sync.Mutex
	report     Report
	worked     int               // records that were read and are due
	unreadable int               // records that the list could not read
	failed     map[RecordID]bool // records that Report.Failed counts
}

const (
	// settling is the time for a record besides the call of its resolver: half for
	// the end of a call that is cut off, and half for the writes.
	settling = 2 * time.Second
	// leastShare is the least time for a record.
	leastShare = 500 * time.Millisecond
)

// plan sets the times of the run.
func (r *reconciler) plan(ctx context.Context) {
	r.began = r.guard.opts.now()
	r.share, r.timeout = r.opts.Timeout+settling, r.opts.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		if half := deadline.Sub(r.guard.opts.Now()) / 2; half < r.share {
			r.timeout = time.Duration(float64(r.timeout) * float64(half) / float64(r.share))
			r.share = half
		}
	}
}

// part is the context of a part of the run: the scan, or a list. It ends by its own
// timer, and its Deadline is by the clock of the guard. The context in it has a
// deadline by the clock of the process, for the store.
type part struct {
	context.Context
	deadline time.Time
}

func (p *part) Deadline() (time.Time, bool) { return p.deadline, !p.deadline.IsZero() }

// half returns the context of a part of the run, which ends when half of the time
// left has passed.
func (r *reconciler) half(ctx context.Context) (*part, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return &part{Context: ctx}, func() {}
	}
	left := deadline.Sub(r.guard.opts.Now())
	timed, cancel := context.WithTimeout(ctx, left/2)
	return &part{timed, deadline.Add(-left / 2)}, cancel
}

// ended reports whether the time of a part of the run has passed.
func (r *reconciler) ended(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !r.guard.opts.Now().Before(deadline)
}

// timeFor reports whether there is time to begin another record.
func (r *reconciler) timeFor(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	deadline, ok := ctx.Deadline()
	return !ok || deadline.Sub(r.guard.opts.Now()) >= max(r.share, leastShare)
}

func (r *reconciler) count(f func(*Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.report)
}

// waits counts a record that waits after the run. What the scan found is counted
// after the list, which may show it too.
func (r *reconciler) waits(e driver.Listed) {
	if !r.selects(e.ID.Operation()) {
		return
	}
	r.count(func(p *Report) {
		if r.scanning {
			r.scanned[e.ID] = e
			return
		}
		p.wait(e.ID.Operation(), e, r.began)
	})
}

// fails counts and reports a failure with a record.
func (r *reconciler) fails(ctx context.Context, kind event.Kind, record *driver.Record, err error) {
	r.hasFailed(record.ID)
	r.guard.opts.observe(ctx, kind, record.ID, record, err)
}

// hasFailed counts a record with a failure, once.
func (r *reconciler) hasFailed(id RecordID) {
	r.count(func(p *Report) {
		if !r.failed[id] {
			r.failed[id] = true
			p.Failed++
		}
	})
}

// cut counts a record whose read or write was cut off by the end of ctx, and
// reports whether it was. That is no failure of the store.
func (r *reconciler) cut(ctx context.Context, e driver.Listed) bool {
	if ctx.Err() == nil {
		return false
	}
	r.count(func(p *Report) { p.Incomplete = true })
	r.waits(e)
	return true
}

// selects reports whether the run asks about records of the operation, and counts
// them. It processes the end of a lease whatever the operation: the scan does not
// come to the record again before its next pass.
func (r *reconciler) selects(operation string) bool {
	return len(r.opts.Operations) == 0 || slices.Contains(r.opts.Operations, operation)
}

// call is how the call of a resolver ended.
type call uint8

const (
	callNone     call = iota // it was not called
	callAnswered             // it answered, with evidence or with Later
	callFailed
)

// one reconciles a listed record. If resolve is nil, it only processes the end of
// the lease.
func (r *reconciler) one(ctx context.Context, resolve ResolveFunc, e driver.Listed) call {
	o := &r.guard.opts
	record, err := r.guard.store.Get(ctx, e.ID)
	switch {
	case errors.Is(err, ErrNoRecord):
		r.count(func(p *Report) { p.Stale++ })
		return callNone
	case err != nil:
		if r.count(func(*Report) { r.worked++ }); r.cut(ctx, e) {
			return callNone
		}
		r.fails(ctx, event.StoreError, &driver.Record{ID: e.ID}, storeError(e.ID, driver.OpGet, err))
		r.waits(e)
		return callNone
	}
	now := o.now()
	next, kind, done := *record, event.Kind(""), func(*Report) {}
	switch verdict := decideSweep(record, now); verdict {
	case sweepStale:
		r.count(func(p *Report) { p.Stale++ })
		r.waits(record.Listed())
		return callNone
	case sweepMarkUnknown:
		next, kind = o.swept(record, verdict, now)
		done = func(p *Report) { p.MarkedUnknown++ }
	case sweepRelease:
		next, kind = o.swept(record, verdict, now)
		done = func(p *Report) { p.Released++ }
	case sweepResolve:
	}
	if !r.selects(record.ID.Operation()) {
		done = func(p *Report) { p.Other++ }
	}
	r.count(func(*Report) { r.worked++ })
	// A released record without effects does not wait for anything.
	asks := resolve != nil && !next.Due.IsZero()
	shown := next
	if asks {
		r.reschedule(&next, now)
	}
	if (asks || kind != "") && !r.write(ctx, &next, record) {
		return callNone
	}
	r.count(done)
	if kind != "" {
		r.observe(ctx, kind, &next, nil)
	}
	if !asks {
		r.waits(next.Listed())
		return callNone
	}
	return r.ask(ctx, resolve, &next, r.guard.Pending(shown))
}

// reschedule makes a record due again after its next pause. It is written before the
// resolver is called: meanwhile no other reconciler asks about the record, and a
// call without evidence needs no other write.
func (r *reconciler) reschedule(next *driver.Record, now time.Time) {
	next.ReconcileAttempts++
	next.Due = now.Add(max(r.pause(next.ReconcileAttempts), r.share)).Truncate(time.Millisecond)
}

// pause returns the pause after that many calls of the resolver.
func (r *reconciler) pause(calls int) time.Duration {
	pause := r.opts.Backoff
	for range calls - 1 {
		pause = min(2*pause, r.opts.MaxBackoff)
	}
	return pause
}

// write replaces record with next, sets next's version, and reports whether it
// succeeded. If not, it counts the record.
func (r *reconciler) write(ctx context.Context, next, record *driver.Record) bool {
	if r.opts.DryRun {
		return true
	}
	c := change{
		opts:   &r.guard.opts,
		rounds: 1, // after another write, next no longer applies
		by:     judgeFunc(func(*driver.Record, time.Time) judgement { return judgement{next: *next} }),
	}
	switch w := r.guard.apply(ctx, record, &c); w.end {
	case endWritten:
		*next = *w.record
		return true
	case endLost:
		r.count(func(p *Report) { p.Stale++ })
	case endContended:
		r.count(func(p *Report) { p.Stale++ })
		r.waits(w.record.Listed())
	default:
		if !r.cut(ctx, record.Listed()) {
			r.fails(ctx, event.StoreError, next, storeError(record.ID, driver.OpReplace, w.err))
			r.waits(record.Listed())
		}
	}
	return false
}

// ask calls the resolver about a claimed record, which it sees as it was before,
// and writes its answer.
func (r *reconciler) ask(ctx context.Context, resolve ResolveFunc, record *driver.Record, shown PendingRecord) call {
	answer, err := limited(ctx, r.timeout, (r.share-r.timeout)/2, "resolver", func(ctx context.Context) (Resolution, error) {
		return resolve(ctx, shown)
	})
	if err == nil && answer.what != 0 {
		var waits bool
		if waits, err = r.submit(ctx, record, answer); err == nil && !waits {
			return callAnswered
		}
	}
	asked := callAnswered
	running, stays := errors.AsType[*InProgressError](err) // the record is not given up
	switch {
	case err == nil:
	case IsUnknown(err) && record.State == driver.StateRetryable:
		r.markUnknown(ctx, record, err)
		return callAnswered
	case IsUnknown(err): // as the record says
	case running != nil:
		answer.later = running.RetryAfter
	default:
		asked, stays = callFailed, errors.As(err, new(*outage.Error))
		r.hasFailed(record.ID)
		r.observe(ctx, event.ReconcileFailed, record, err)
	}
	r.postpone(ctx, record, answer.later, stays)
	return asked
}

// markUnknown makes a released record unknown, because its work cannot continue.
func (r *reconciler) markUnknown(ctx context.Context, record *driver.Record, err error) {
	next := r.guard.opts.transition(record, driver.StateUnknown, driver.ReasonUnknown, r.guard.opts.now())
	if r.write(ctx, &next, record) {
		r.count(func(p *Report) { p.MarkedUnknown++ })
		r.observe(ctx, event.MarkedUnknown, &next, err)
		r.waits(next.Listed())
	}
}

// limited returns what call returns, or an error if it panics, or if it returns
// neither before the timeout nor soon after. Then it is left behind: its goroutine
// ends when call returns.
func limited[T any](ctx context.Context, timeout, soon time.Duration, what string, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		got := result{err: fmt.Errorf("idempotent: the %s ended its goroutine", what)}
		defer func() {
			if p := recover(); p != nil {
				got.err = fmt.Errorf("idempotent: the %s panicked with a %T", what, p)
			}
			done <- got
		}()
		got.value, got.err = call(ctx)
	}()
	var late <-chan time.Time
	for ended := ctx.Done(); ; {
		select {
		case got := <-done:
			return got.value, got.err
		case <-ended:
			timer := time.NewTimer(soon)
			defer timer.Stop()
			ended, late = nil, timer.C
		case <-late:
			var none T
			return none, fmt.Errorf("idempotent: the %s did not return although its context had ended after at most %s: %w", what, timeout, context.Cause(ctx))
		}
	}
}

// submit writes evidence. It reports whether the record already said so and still
// waits. An error means that the evidence cannot be used.
func (r *reconciler) submit(ctx context.Context, record *driver.Record, answer Resolution) (waits bool, err error) {
	done := func(p *Report) { p.Completed++ }
	switch answer.what {
	case claimsNotExecuted:
		done = func(p *Report) { p.NotExecuted++ }
	case claimsStep, claimsCorrection:
		done = func(p *Report) { p.Steps++ }
	case claimsOutcome, claimsInstead, claimsNoOutcome:
	}
	if r.opts.DryRun {
		if _, err := r.guard.encodeEvidence(ctx, record, answer); err != nil {
			return false, err
		}
		r.count(done)
		return false, nil
	}
	settled, err := r.guard.resolve(ctx, record, answer)
	switch {
	case err == nil && settled.Version == record.Version:
		return true, nil
	case err == nil:
		r.count(done)
		r.waits(settled.Listed())
	case errors.As(err, new(*SettledError)), errors.As(err, new(*InProgressError)), errors.Is(err, ErrNoRecord),
		errors.As(err, new(*StaleEvidenceError)) && answer.token == record.Token():
		r.count(func(p *Report) { p.Stale++ })
	case errors.As(err, new(*StoreError)): // already reported to the observer; the record is due again
		r.hasFailed(record.ID)
		r.waits(record.Listed())
	default:
		return false, err
	}
	return false, nil
}

// postpone leaves a claimed record until its pause has passed, or for later if
// that is set, or gives it up unless it stays.
func (r *reconciler) postpone(ctx context.Context, record *driver.Record, later time.Duration, stays bool) {
	o := &r.guard.opts
	now := o.now()
	limit := r.opts.GiveUpAfter
	if record.State == driver.StateRetryable {
		limit = r.opts.ReleasedFor
	}
	if !stays && !now.Before(record.StateSince().Add(limit)) && r.exhaust(ctx, record, now) {
		return
	}
	next := *record
	if pause := r.pause(record.ReconcileAttempts); later <= 0 && pause < r.share {
		later = pause // the claim had to be longer
	}
	if later > 0 {
		next.Due = now.Add(later).Truncate(time.Millisecond)
		if !r.write(ctx, &next, record) {
			return
		}
	}
	r.count(func(p *Report) { p.Postponed++ })
	r.observe(ctx, event.ReconcileScheduled, &next, nil)
	r.waits(next.Listed())
}

// exhaust gives a record up and reports whether it did. It calls OnExhausted
// before the write, so that the record is always in a list.
func (r *reconciler) exhaust(ctx context.Context, record *driver.Record, now time.Time) bool {
	given := *record
	given.Due, given.Exhausted = now, true
	kind, handOver := event.ReconcileExhausted, r.opts.OnExhausted
	if record.State == driver.StateRetryable {
		kind, handOver = event.ReleasedGivenUp, nil
	}
	if handOver != nil && !r.opts.DryRun {
		pending := r.guard.Pending(given)
		_, err := limited(ctx, r.timeout, (r.share-r.timeout)/2, "function OnExhausted", func(ctx context.Context) (struct{}, error) {
			return struct{}{}, handOver(ctx, pending)
		})
		if err != nil {
			r.hasFailed(record.ID)
			r.observe(ctx, event.ReconcileFailed, record, err)
			return false
		}
	}
	if r.write(ctx, &given, record) {
		r.count(func(p *Report) { p.Exhausted++ })
		r.observe(ctx, kind, &given, nil)
	}
	return true
}

// observe reports an event to the observer, except in a dry run.
func (r *reconciler) observe(ctx context.Context, kind event.Kind, record *driver.Record, err error) {
	if !r.opts.DryRun {
		r.guard.opts.observe(ctx, kind, record.ID, record, err)
	}
}
