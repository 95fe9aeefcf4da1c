// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/logs"
	"github.com/once-lambda/once/internal/timing"
)

// maxClaimRounds limits how often one claim retries because the record changed.
// Each round means that another writer made progress.
const maxClaimRounds = 8

var errContended = fmt.Errorf("the record changed %d times while it was being claimed", maxClaimRounds)

// claim makes this attempt the owner of its key, or returns why not. It returns
// either the record that this attempt owns (held), or a completed record to
// replay, or an error. The handler may be entered only for a held record.
func (a *attempt) claim(ctx context.Context, now time.Time) (held, replay *driver.Record, err error) {
	existing := a.cached(now) // the current record, if known
	var patience waiter
	defer func() {
		if patience.leave != nil {
			patience.leave()
		}
	}()
	for round := 0; round < maxClaimRounds; round++ {
		if err := a.late(ctx, now); err != nil {
			if round > 0 && existing != nil {
				return a.lastLook(ctx, existing, now, err)
			}
			return nil, nil, err
		}
		if existing == nil {
			if held, existing, err = a.reserve(ctx, now); held != nil || err != nil {
				return held, nil, err
			}
		}
		switch v := decide(existing, a.fp, now); v {
		case verdictReinsert:
			a.observe(ctx, event.ExpiredReplaced, existing, nil)
			existing = nil
		case verdictTakeOver:
			held, existing, err = a.takeOver(ctx, existing, now)
		case verdictMarkUnknown:
			existing, err = a.markUnknown(ctx, existing, now)
		case verdictInProgress:
			var again bool
			met := existing
			if existing, again, err = a.await(ctx, &patience, existing, now); err == nil && !again {
				return a.refuse(ctx, v, met, a.opts.now())
			}
			round = 0 // waiting is not contention
		default:
			return a.refuse(ctx, v, existing, now)
		}
		if held != nil || err != nil {
			return held, nil, err
		}
		now = a.opts.now()
	}
	err = &StoreError{RecordID: a.id, Op: driver.OpReplace, Err: errContended}
	a.observe(ctx, event.StoreError, existing, err)
	return nil, nil, err
}

// late returns an error if this attempt must not claim at now, because the time of its
// handler has ended. (Records store milliseconds, so less than one does not count.)
func (a *attempt) late(ctx context.Context, now time.Time) error {
	if a.window.HandlerEnd.Sub(now) < time.Millisecond || ctx.Err() != nil {
		return noTime(ctx, a.window.Deadline.Sub(now))
	}
	return nil
}

// lastLook returns the state that a request waited for until the end of its time, or
// late.
func (a *attempt) lastLook(ctx context.Context, r *driver.Record, now time.Time, late error) (held, replay *driver.Record, err error) {
	if v := decide(r, a.fp, now); v == verdictReplay || v == verdictInProgress {
		return a.refuse(ctx, v, r, now)
	}
	return nil, nil, late
}

// reserve inserts a new record for this attempt. It returns the record held, or the
// existing one.
func (a *attempt) reserve(ctx context.Context, now time.Time) (held, existing *driver.Record, err error) {
	a.mine = a.fresh(ctx, now)
	existing, err = a.insert(ctx, a.mine, now)
	switch {
	case err != nil:
		return nil, nil, a.giveUp(ctx, err)
	case existing == nil:
		a.observe(ctx, event.Reserved, &a.mine, nil)
		return &a.mine, nil, nil
	}
	return nil, existing, nil
}

// takeOver claims the record r for this attempt. It returns the record held, or the
// current one, which is nil if the store has deleted it.
func (a *attempt) takeOver(ctx context.Context, r *driver.Record, now time.Time) (held, current *driver.Record, err error) {
	if err := a.checkRecorded(r); err != nil {
		err = a.opts.unresolved(r, now, err)
		a.observe(ctx, event.Unresolved, r, err)
		return nil, nil, err
	}
	// Reading the record also took time.
	if err := a.late(ctx, a.opts.now()); err != nil {
		return nil, nil, err
	}
	a.mine = a.takeover(ctx, r, now)
	current, err = a.replace(ctx, a.mine, r.Version)
	switch {
	case errors.Is(err, ErrNoRecord): // the store deleted the expired record first
		return nil, nil, nil
	case err != nil:
		return nil, nil, a.giveUp(ctx, err)
	case current == nil:
		a.observe(ctx, event.TakenOver, &a.mine, nil)
		return &a.mine, nil, nil
	}
	return nil, current, nil
}

// markUnknown writes that the outcome of the record r is unknown. It returns the
// current record, which is nil if the store has deleted it.
func (a *attempt) markUnknown(ctx context.Context, r *driver.Record, now time.Time) (current *driver.Record, err error) {
	next := a.opts.transition(r, driver.StateUnknown, driver.ReasonLeaseEnded, now)
	next.Version = newVersion()
	current, err = a.replace(ctx, next, r.Version)
	switch {
	case errors.Is(err, ErrNoRecord):
		return nil, nil
	case err != nil:
		a.observe(ctx, event.StoreError, &next, err)
		return nil, err
	case current == nil:
		a.observe(ctx, event.MarkedUnknown, &next, nil)
		return &next, nil
	}
	return current, nil
}

// refuse returns the result of a claim that ends with verdict v.
func (a *attempt) refuse(ctx context.Context, v verdict, r *driver.Record, now time.Time) (held, replay *driver.Record, err error) {
	if v == verdictReplay {
		return nil, r, nil
	}
	kind, err := a.opts.refusal(v, r, a.fp, now)
	a.observe(ctx, kind, r, err)
	return nil, nil, err
}

// refusal returns the error of a request that ends with verdict v, and the event
// that reports it.
func (o *Options) refusal(v verdict, r *driver.Record, fp Fingerprint, now time.Time) (event.Kind, error) {
	switch v {
	case verdictInProgress:
		return event.InProgress, inProgress(r, now)
	case verdictMismatch:
		return event.Mismatch, &MismatchError{RecordID: r.ID}
	case verdictIncomparable:
		return event.ReplayFailed, &ReplayUnavailableError{RecordID: r.ID, Ref: r.Ref, Uncompared: true,
			Reason: fmt.Sprintf("it was written with fingerprint version %d and this code computes version %d", r.Fingerprint.Version(), fp.Version())}
	case verdictUnresolved:
		return event.Unresolved, o.unresolved(r, now, nil)
	default:
		return event.StoreError, &StoreError{RecordID: r.ID, Op: driver.OpUnreadable, Err: fmt.Errorf("the record's state is %s", r.State)}
	}
}

// unresolved returns the error for a request whose key waits for reconciliation,
// or for code that declares its recorded steps.
func (o *Options) unresolved(r *driver.Record, now time.Time, cause error) error {
	wait := r.Due.Sub(now)
	if wait <= 0 || r.Exhausted {
		wait = o.ReconcileAfter
	}
	return &UnresolvedError{RecordID: r.ID, RetryAfter: wait, Ref: r.Ref, Err: cause}
}

// giveUp ends a claim whose write is not known to have happened; the handler is
// not entered. If the write did happen, no handler runs under it, so giveUp
// releases the claim with one write. If that fails, the claim ages until its
// lease ends.
func (a *attempt) giveUp(ctx context.Context, err error) error {
	a.observe(ctx, event.StoreError, &a.mine, err)
	if !errors.Is(err, driver.ErrTooLarge) {
		a.release(ctx, driver.ReasonReleased, nil)
	}
	return err
}

// inProgress returns the error for a caller that must wait for the owner of r. The
// longer a handler has been running, the longer the caller waits, so that a short
// run is not answered with the whole lease. If the outcome is already settled,
// only the end of the lease counts.
func inProgress(r *driver.Record, now time.Time) *InProgressError {
	wait := max(0, r.LeaseEnd.Sub(now))
	if r.State == driver.StateInProgress {
		wait = min(wait, max(time.Second, now.Sub(r.StateSince())))
	}
	return &InProgressError{RecordID: r.ID, RetryAfter: wait, Until: r.LeaseEnd, Ref: r.Ref, settled: r.State != driver.StateInProgress}
}

// fresh returns the record of a new key, claimed at now.
func (a *attempt) fresh(ctx context.Context, now time.Time) driver.Record {
	return a.claimed(ctx, driver.Record{ID: a.id, Reason: driver.ReasonClaimed, Created: now}, now)
}

// takeover returns r, claimed for another attempt at now. Recorded steps are
// preserved.
func (a *attempt) takeover(ctx context.Context, r *driver.Record, now time.Time) driver.Record {
	next := *r
	next.Reason, next.Since = driver.ReasonTakenOver, now
	return a.claimed(ctx, next, now)
}

// claimed returns r as owned by this attempt. It stores the options that the
// current code declares, because the work that begins is this code's work.
func (a *attempt) claimed(ctx context.Context, r driver.Record, now time.Time) driver.Record {
	a.openBefore = r.OpenSince
	a.opts.declare(&r)
	switch {
	case r.Recovery != driver.Resume:
		r.OpenSince = time.Time{}
	case r.OpenSince.IsZero():
		r.OpenSince = now
	}
	r.State = driver.StateInProgress
	r.Owner = a.owner
	r.Version = newVersion()
	r.Attempt++
	r.Fingerprint = a.fp
	r.LeaseEnd = a.window.LeaseEnd
	setOutcome(&r, outcome{})
	r.ReconcileAttempts, r.Exhausted, r.Announced = 0, false, false
	if r.Ref == "" {
		r.Ref = a.ref
	}
	r.RequestID = a.opts.requestID(ctx)
	r.TraceParent = a.opts.traceParent(ctx)
	r.Schedule(now, a.opts.ReconcileAfter)
	return r
}

// declare stores in r the options that the operation declares for the run that
// begins. A default is stored as the zero value to keep the record small.
func (o *Options) declare(r *driver.Record) {
	r.Recovery = o.Recovery
	r.DeclareRetention(o.Retention)
	r.UnresolvedRetention = o.UnresolvedRetention
	r.DeclareCodec(o.Codec.Name(), o.Seal != nil)
	r.ResultVersion = o.ResultVersion
	r.StepNames = o.Steps
}

// checkRecorded returns an error if r contains a step that this code does not
// declare. Continuing could repeat that step's effect under another name.
func (a *attempt) checkRecorded(r *driver.Record) error {
	for _, s := range r.Steps {
		if !declares(a.opts.Steps, s.Name) {
			return &StepError{Step: s.Name, Problem: "recorded but not declared in Operation.Steps; deploy code that declares it, or resolve the record"}
		}
	}
	return nil
}

// insert and replace call the store and measure the duration. They recognize this
// attempt's own write in the returned record: the store may have retried after a
// lost reply, and the retry's condition then fails on the first try's write. Only
// the write id proves that. A record with this attempt's owner token may have
// been written by another party that judged its work.

func (a *attempt) insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	began := a.opts.Now()
	existing, err := a.guard.store.Insert(ctx, r, now)
	a.lastCall = a.opts.Now().Sub(began)
	if err != nil {
		return nil, storeError(r.ID, driver.OpInsert, err)
	}
	return foreign(existing, r.Version), nil
}

func (a *attempt) replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	began := a.opts.Now()
	current, err := a.guard.store.Replace(ctx, r, was)
	a.lastCall = a.opts.Now().Sub(began)
	if err != nil {
		return nil, storeError(r.ID, driver.OpReplace, err)
	}
	return foreign(current, r.Version), nil
}

// foreign returns r, or nil if r is the write with id own.
func foreign(r *driver.Record, own driver.Version) *driver.Record {
	if r != nil && r.Version == own {
		return nil
	}
	return r
}

// release releases the claim of a handler that was not entered.
func (a *attempt) release(ctx context.Context, reason driver.Reason, err error) {
	a.letGo(ctx, reason, err, a.released)
}

// letGo writes the claim of a handler that was not entered as next returns it. The answer
// waits for half of the time that is left until it is due, and at most for LeaseMargin.
// A write that does not end by then is tried once more, beside the answer: that succeeds if
// the platform lets the process run.
func (a *attempt) letGo(ctx context.Context, reason driver.Reason, err error, next func(*driver.Record, driver.Reason, time.Time) driver.Record) {
	c := change{
		opts:   a.opts,
		out:    outcome{state: driver.StateRetryable, reason: reason, err: err},
		rounds: 1, // if another write came first, it decided about this claim
		by: judgeFunc(func(current *driver.Record, now time.Time) judgement {
			return judgement{next: next(current, reason, now)}
		}),
	}
	ctx = context.WithoutCancel(ctx)
	limited, cancel := context.WithTimeout(ctx, a.window.ReleaseTime())
	defer cancel()
	r := a.guard.apply(limited, &a.mine, &c)
	if a.window.Bounded && r.end == endFailed && limited.Err() != nil {
		go a.letGoBeside(ctx, &c)
	}
	if r.end == endWritten {
		a.observe(ctx, event.Retryable, r.record, err)
	} else if reason == driver.ReasonNoTime {
		a.observe(ctx, event.CompletionFailed, r.record, storeError(a.id, driver.OpReplace, r.err))
	}
}

// letGoBeside applies c, which releases the claim of this attempt. The answer does not wait
// for it, so its end is no event.
func (a *attempt) letGoBeside(ctx context.Context, c *change) {
	ctx, cancel := context.WithTimeout(ctx, a.opts.LeaseMargin)
	defer cancel()
	logs.Shield(ctx, a.opts.logger(), "idempotent: the store", func() { a.guard.apply(ctx, &a.mine, c) }, slog.String("operation", a.id.Operation()))
}

// released returns the claim r of this attempt, whose handler was not entered,
// such that the next request can take it over. OpenSince has its value from before
// the claim.
func (a *attempt) released(r *driver.Record, reason driver.Reason, now time.Time) driver.Record {
	next := *r
	next.OpenSince = a.openBefore
	return a.opts.transition(&next, driver.StateRetryable, reason, now)
}

// undone is released for a claim that must leave no trace. The record of a new key
// has expired, by every clock that agrees with this one to within LeaseMargin, so
// that it does not bind the key to this request.
func (a *attempt) undone(r *driver.Record, reason driver.Reason, now time.Time) driver.Record {
	next := a.released(r, reason, now)
	if r.Attempt == 1 {
		next.Expires = now.Add(-a.opts.LeaseMargin)
	}
	return next
}

// maxWaiting is how many requests of one guard wait for one key at the same time.
// Each poll costs a read, and each waiting request occupies a client's connection.
const maxWaiting = 100

// Pauses of a request that waits for another one: about waitFirst before the
// first look, then each 1.5 times as long as the one before, at most waitMax.
const (
	waitFirst = 50 * time.Millisecond
	waitMax   = time.Second
)

// waiter holds the waiting state of one request.
type waiter struct {
	until time.Time // zero: waiting has not begun
	pause time.Duration
	leave func() // lets another request wait in place of this one; nil: waiting has not begun
}

// await pauses and then reads the record of the running request again, of which
// existing was read before. It returns false if the request must not wait longer:
// WaitFor has passed, the time of ctx, which is that of a handler, has ended, or enough
// other requests wait for the key.
func (a *attempt) await(ctx context.Context, w *waiter, existing *driver.Record, now time.Time) (r *driver.Record, again bool, err error) {
	if a.opts.WaitFor == 0 {
		return nil, false, nil
	}
	if w.until.IsZero() {
		if w.leave = a.guard.join(a.id); w.leave == nil {
			return nil, false, nil
		}
		w.until, w.pause = now.Add(a.opts.WaitFor), waitFirst
	}
	pause := w.pause/2 + rand.N(w.pause) // jitter: concurrent waiters should not poll at the same time
	if !now.Add(pause).Before(w.until) {
		return nil, false, nil
	}
	w.pause = min(w.pause*3/2, waitMax)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, false, nil
	}
	r, err = a.guard.store.Get(ctx, a.id)
	switch {
	case errors.Is(err, ErrNoRecord):
		return nil, true, nil
	case ctx.Err() != nil && !timing.TimeUp(ctx):
		return nil, false, nil // the caller canceled, which also caused the store's error
	case err != nil:
		err = storeError(a.id, driver.OpGet, err)
		a.observe(ctx, event.StoreError, existing, err)
		return nil, false, err
	}
	return r, true, nil
}

// join lets a request wait for the key of id until it calls leave. It returns nil
// if enough requests wait for it.
func (g *Guard) join(id RecordID) (leave func()) {
	w := &g.waiting
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count[id] == maxWaiting {
		return nil
	}
	if w.count == nil {
		w.count = map[RecordID]int{}
	}
	w.count[id]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.count[id]--; w.count[id] == 0 {
			delete(w.count, id)
		}
	}
}
