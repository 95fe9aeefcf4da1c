package idempotent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// one reconciles a record that was listed.
func (r *reconciler) one(ctx context.Context, record *driver.Record) {
	o := &r.guard.opts
	now := o.now()
	switch decideSweep(record, now) {
	case sweepStale:
		r.count(func(p *Report) { p.Stale++ })
		return
	case sweepMarkUnknown:
		r.count(func(p *Report) { p.Due++; p.MarkedUnknown++ })
		record = r.sweep(ctx, record, driver.StateUnknown, EventMarkedUnknown, now)
	case sweepRelease:
		r.count(func(p *Report) { p.Due++; p.Released++ })
		record = r.sweep(ctx, record, driver.StateRetryable, EventRetryable, now)
	default:
		r.count(func(p *Report) { p.Due++ })
	}
	// A record that was released and has nothing behind it waits for nobody.
	switch {
	case record == nil || record.Due.IsZero():
	case r.opts.SweepOnly:
		r.unresolved(record)
	default:
		r.ask(ctx, record)
	}
}

// unresolved counts a record that waits on.
func (r *reconciler) unresolved(record *driver.Record) {
	r.count(func(p *Report) {
		if p.Oldest.IsZero() || record.Created.Before(p.Oldest) {
			p.Oldest = record.Created
		}
	})
}

// sweep writes what follows from a lease that ended. It returns nil if it was
// not written.
func (r *reconciler) sweep(ctx context.Context, record *driver.Record, state driver.State, kind EventKind, now time.Time) *driver.Record {
	next := r.guard.opts.transition(record, state, driver.ReasonLeaseEnded, newVersion(), now)
	if !r.write(ctx, &next, record.Version) {
		return nil
	}
	r.observe(ctx, kind, &next, nil)
	return &next
}

// write replaces a record, and reports whether it did.
func (r *reconciler) write(ctx context.Context, next *driver.Record, was driver.Version) bool {
	if r.opts.DryRun {
		return true
	}
	current, err := r.guard.replace(ctx, *next, was)
	switch {
	case errors.Is(err, ErrNoRecord):
		r.count(func(p *Report) { p.Stale++ })
	case err != nil:
		r.count(func(p *Report) { p.Failed++ })
		r.guard.opts.observe(ctx, EventStoreError, next.ID.Operation(), next, err)
	case current != nil:
		r.count(func(p *Report) { p.Stale++ })
	default:
		return true
	}
	return false
}

// ask asks the resolver and writes its answer.
func (r *reconciler) ask(ctx context.Context, record *driver.Record) {
	answer, err := r.callResolver(ctx, record)
	if err == nil && answer.state != 0 {
		err = r.settle(ctx, record, answer)
		if err == nil {
			return
		}
	}
	if err != nil {
		r.count(func(p *Report) { p.Failed++ })
		r.observe(ctx, EventReconcileFailed, record, err)
	}
	r.unresolved(record)
	r.postpone(ctx, record, answer.later)
}

// callResolver calls the resolver, with a copy: the record is ours.
func (r *reconciler) callResolver(ctx context.Context, record *driver.Record) (answer Resolution, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.opts.Timeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("idempotent: the resolver panicked with a %T", p)
		}
	}()
	return r.resolve(ctx, *record.Clone())
}

// settle writes evidence. An error means that the evidence cannot be used.
func (r *reconciler) settle(ctx context.Context, record *driver.Record, answer Resolution) error {
	done := func(p *Report) { p.Completed++ }
	if answer.state == driver.StateRetryable {
		if record.State == driver.StateRetryable {
			return errors.New("idempotent: the record is retryable already; answer Later until it was continued, or complete it")
		}
		done = func(p *Report) { p.NotExecuted++ }
	}
	if r.opts.DryRun {
		r.count(done)
		return nil
	}
	want, err := r.guard.opts.resolutionOutcome(answer)
	if err != nil {
		return err
	}
	err = r.guard.settleByEvidence(ctx, record, want)
	switch {
	case err == nil:
		r.count(done)
	case errors.Is(err, ErrSettled), errors.Is(err, ErrInProgress), errors.Is(err, ErrNoRecord):
		r.count(func(p *Report) { p.Stale++ })
	case errors.Is(err, ErrStore): // the observer knows; the record is still due
		r.count(func(p *Report) { p.Failed++ })
	default:
		return err
	}
	return nil
}

// postpone writes when the record is due again, or that it is not any more.
func (r *reconciler) postpone(ctx context.Context, record *driver.Record, later time.Duration) {
	o := &r.guard.opts
	now := o.now()
	next := *record
	next.Version = newVersion()
	if record.ReconcileAttempts+1 >= r.opts.MaxAttempts && r.exhaust(ctx, record, next, now) {
		return
	}
	next.ReconcileAttempts = min(record.ReconcileAttempts+1, r.opts.MaxAttempts-1)
	if later <= 0 {
		later = r.pause(next.ReconcileAttempts)
	}
	next.Due = now.Add(later).Truncate(time.Millisecond)
	if r.write(ctx, &next, record.Version) {
		r.count(func(p *Report) { p.Postponed++ })
		r.observe(ctx, EventReconcileScheduled, &next, nil)
	}
}

// pause returns how long to wait after that many attempts.
func (r *reconciler) pause(attempts int) time.Duration {
	pause := r.opts.Backoff
	for range attempts - 1 {
		if pause *= 2; pause >= r.opts.MaxBackoff {
			return r.opts.MaxBackoff
		}
	}
	return pause
}

// exhaust gives a record up, and reports whether it did: it is handed over
// first, so that it is never in nobody's list.
func (r *reconciler) exhaust(ctx context.Context, record *driver.Record, next driver.Record, now time.Time) bool {
	given := &next // the caller's stays as it is
	given.ReconcileAttempts++
	given.Due, given.Exhausted = now, true
	if r.opts.OnExhausted != nil && !r.opts.DryRun {
		if err := r.opts.OnExhausted(ctx, *given.Clone()); err != nil {
			r.count(func(p *Report) { p.Failed++ })
			r.observe(ctx, EventReconcileFailed, record, err)
			return false
		}
	}
	if r.write(ctx, given, record.Version) {
		r.count(func(p *Report) { p.Exhausted++ })
		r.observe(ctx, EventReconcileExhausted, given, nil)
	}
	return true
}

// observe tells the observer what happened; in a dry run nothing did.
func (r *reconciler) observe(ctx context.Context, kind EventKind, record *driver.Record, err error) {
	if !r.opts.DryRun {
		r.guard.opts.observe(ctx, kind, record.ID.Operation(), record, err)
	}
}
