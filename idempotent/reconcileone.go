package idempotent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// one reconciles a listed record.
func (r *reconciler) one(ctx context.Context, record *driver.Record) {
	o := &r.guard.opts
	now := o.now()
	switch decideSweep(record, now) {
	case sweepStale:
		r.count(func(p *Report) { p.Stale++ })
		return
	case sweepMarkUnknown:
		r.count(func(p *Report) { p.Due++; p.MarkedUnknown++ })
		record = r.sweep(ctx, record, driver.StateUnknown, event.MarkedUnknown, now)
	case sweepRelease:
		r.count(func(p *Report) { p.Due++; p.Released++ })
		record = r.sweep(ctx, record, driver.StateRetryable, event.Retryable, now)
	default:
		r.count(func(p *Report) { p.Due++ })
	}
	// A released record without effects does not wait for anything.
	switch {
	case record == nil || record.Due.IsZero():
	case r.opts.SweepOnly:
		r.unresolved(record)
	default:
		r.ask(ctx, record)
	}
}

// unresolved counts a record that still waits.
func (r *reconciler) unresolved(record *driver.Record) {
	r.count(func(p *Report) {
		oldest := &p.Oldest
		if record.State == driver.StateRetryable {
			oldest = &p.OldestReleased
		}
		if oldest.IsZero() || record.Created.Before(*oldest) {
			*oldest = record.Created
		}
	})
}

// sweep writes the state that follows from an ended lease. It returns nil if the
// write failed.
func (r *reconciler) sweep(ctx context.Context, record *driver.Record, state driver.State, kind event.Kind, now time.Time) *driver.Record {
	next := r.guard.opts.transition(record, state, driver.ReasonLeaseEnded, now)
	if !r.write(ctx, &next, record) {
		return nil
	}
	r.observe(ctx, kind, &next, nil)
	return &next
}

// write replaces record with next, sets next's version, and reports whether it
// succeeded.
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
	case endLost, endContended:
		r.count(func(p *Report) { p.Stale++ })
	default:
		err := storeError(record.ID, driver.OpReplace, w.err)
		r.count(func(p *Report) { p.Failed++ })
		r.guard.opts.observe(ctx, event.StoreError, next.ID.Operation(), next, err)
	}
	return false
}

// ask calls the resolver and writes its answer.
func (r *reconciler) ask(ctx context.Context, record *driver.Record) {
	answer, err := r.callResolver(ctx, record)
	if err == nil && answer.what != 0 {
		var waits bool
		if waits, err = r.settle(ctx, record, answer); err == nil && !waits {
			return
		}
	}
	if err != nil {
		r.count(func(p *Report) { p.Failed++ })
		r.observe(ctx, event.ReconcileFailed, record, err)
	}
	r.unresolved(record)
	r.postpone(ctx, record, answer.later)
}

// callResolver calls the resolver with a timeout and recovers a panic.
func (r *reconciler) callResolver(ctx context.Context, record *driver.Record) (answer Resolution, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.opts.Timeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("idempotent: the resolver panicked with a %T", p)
		}
	}()
	return r.resolve(ctx, r.guard.Pending(*record))
}

// settle writes evidence. It reports whether the record already said so and still
// waits. An error means that the evidence cannot be used.
func (r *reconciler) settle(ctx context.Context, record *driver.Record, answer Resolution) (waits bool, err error) {
	done := func(p *Report) { p.Completed++ }
	switch answer.what {
	case claimsNotExecuted:
		done = func(p *Report) { p.NotExecuted++ }
	case claimsStep, claimsCorrection:
		done = func(p *Report) { p.Steps++ }
	}
	if r.opts.DryRun {
		if _, err := r.guard.encodeEvidence(record, answer); err != nil {
			return false, err
		}
		r.count(done)
		return false, nil
	}
	settled, err := r.guard.settleByEvidence(ctx, record, answer)
	switch {
	case err == nil && settled.Version == record.Version:
		return true, nil
	case err == nil:
		r.count(done)
		if !settled.Due.IsZero() {
			r.unresolved(settled)
		}
	case errors.As(err, new(*SettledError)), errors.As(err, new(*InProgressError)), errors.Is(err, ErrNoRecord),
		errors.As(err, new(*StaleEvidenceError)) && answer.token == record.Token():
		r.count(func(p *Report) { p.Stale++ })
	case errors.As(err, new(*StoreError)): // already reported to the observer; the record is still due
		r.count(func(p *Report) { p.Failed++ })
	default:
		return false, err
	}
	return false, nil
}

// postpone writes when the record is due again, or gives the record up.
func (r *reconciler) postpone(ctx context.Context, record *driver.Record, later time.Duration) {
	o := &r.guard.opts
	now := o.now()
	next := *record
	givenUp := record.ReconcileAttempts+1 >= r.opts.MaxAttempts
	if record.State == driver.StateRetryable {
		givenUp = !now.Before(record.Created.Add(r.opts.ReleasedFor))
	}
	if givenUp && r.exhaust(ctx, record, next, now) {
		return
	}
	next.ReconcileAttempts = min(record.ReconcileAttempts+1, r.opts.MaxAttempts-1)
	if later <= 0 {
		later = r.pause(next.ReconcileAttempts)
	}
	next.Due = now.Add(later).Truncate(time.Millisecond)
	if r.write(ctx, &next, record) {
		r.count(func(p *Report) { p.Postponed++ })
		r.observe(ctx, event.ReconcileScheduled, &next, nil)
	}
}

// pause returns the pause after that many attempts.
func (r *reconciler) pause(attempts int) time.Duration {
	pause := r.opts.Backoff
	for range attempts - 1 {
		if pause *= 2; pause >= r.opts.MaxBackoff {
			return r.opts.MaxBackoff
		}
	}
	return pause
}

// exhaust gives a record up and reports whether it did. It calls OnExhausted
// before the write, so that the record is always in a list.
func (r *reconciler) exhaust(ctx context.Context, record *driver.Record, next driver.Record, now time.Time) bool {
	given := &next // the caller's copy does not change
	given.ReconcileAttempts++
	given.Due, given.Exhausted = now, true
	kind, handOver := event.ReconcileExhausted, r.opts.OnExhausted
	if record.State == driver.StateRetryable {
		kind, handOver = event.ReleasedGivenUp, nil
	}
	if handOver != nil && !r.opts.DryRun {
		if err := handOver(ctx, r.guard.Pending(*given)); err != nil {
			r.count(func(p *Report) { p.Failed++ })
			r.observe(ctx, event.ReconcileFailed, record, err)
			return false
		}
	}
	if r.write(ctx, given, record) {
		r.count(func(p *Report) { p.Exhausted++ })
		r.observe(ctx, kind, given, nil)
	}
	return true
}

// observe reports an event to the observer, except in a dry run.
func (r *reconciler) observe(ctx context.Context, kind event.Kind, record *driver.Record, err error) {
	if !r.opts.DryRun {
		r.guard.opts.observe(ctx, kind, record.ID.Operation(), record, err)
	}
}
