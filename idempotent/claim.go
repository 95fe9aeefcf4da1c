// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// maxClaimRounds limits how often one claim retries because the record changed.
// Each round means that another writer made progress.
const maxClaimRounds = 8

var errContended = fmt.Errorf("the record changed %d times while it was being claimed", maxClaimRounds)

// claim makes this attempt the owner of its key, or returns why not. It returns
// either the record that this attempt owns (held), or a completed record to
// replay, or an error. The handler may be entered only for a held record.
func (a *attempt) claim(ctx context.Context, now time.Time) (held, replay *driver.Record, err error) {
	existing := a.guard.cache.get(a.id, now) // the current record, if known
	var patience waiter
	defer patience.stop()
	for round := 0; round < maxClaimRounds; round++ {
		// An attempt past its own deadline no longer claims. (Records store
		// milliseconds, so less than one does not count.)
		if left := a.window.deadline.Sub(now); left < time.Millisecond || ctx.Err() != nil {
			// If the request waited until now, it can still get the state it waited for.
			if round > 0 && existing != nil {
				if v := decide(existing, a.fp, now); v == verdictReplay || v == verdictInProgress {
					return a.refuse(ctx, v, existing, now)
				}
			}
			return nil, nil, noTime(ctx, left)
		}
		if existing == nil {
			a.mine = a.fresh(ctx, now)
			existing, err = a.insert(ctx, a.mine, now)
			if err != nil {
				return nil, nil, a.giveUp(ctx, err)
			}
			if existing == nil {
				a.observe(ctx, event.Reserved, &a.mine, nil)
				return &a.mine, nil, nil
			}
		}
		switch v := decide(existing, a.fp, now); v {
		case verdictReinsert:
			a.observe(ctx, event.ExpiredReplaced, existing, nil)
			existing = nil
		case verdictTakeOver:
			if err := a.opts.checkRecorded(existing); err != nil {
				err = a.opts.unresolved(existing, now, err)
				a.observe(ctx, event.Unresolved, existing, err)
				return nil, nil, err
			}
			// Reading the record also took time.
			if left := a.window.deadline.Sub(a.opts.now()); left < time.Millisecond {
				return nil, nil, noTime(ctx, left)
			}
			a.mine = a.takeover(ctx, existing, now)
			existing, err = a.replace(ctx, a.mine, existing.Version)
			switch {
			case errors.Is(err, ErrNoRecord): // the store deleted the expired record first
			case err != nil:
				return nil, nil, a.giveUp(ctx, err)
			case existing == nil:
				a.observe(ctx, event.TakenOver, &a.mine, nil)
				return &a.mine, nil, nil
			}
		case verdictMarkUnknown:
			next := a.opts.transition(existing, driver.StateUnknown, driver.ReasonLeaseEnded, now)
			next.Version = newVersion()
			existing, err = a.replace(ctx, next, existing.Version)
			switch {
			case errors.Is(err, ErrNoRecord):
			case err != nil:
				a.observe(ctx, event.StoreError, &next, err)
				return nil, nil, err
			case existing == nil:
				a.observe(ctx, event.MarkedUnknown, &next, nil)
				existing = &next
			}
		case verdictInProgress:
			met, again, err := a.await(ctx, &patience, now)
			if err != nil {
				a.observe(ctx, event.StoreError, existing, err)
				return nil, nil, err
			}
			if !again {
				return a.refuse(ctx, v, existing, a.opts.now())
			}
			existing = met
			round = 0 // waiting is not contention
		default:
			return a.refuse(ctx, v, existing, now)
		}
		now = a.opts.now()
	}
	err = &StoreError{RecordID: a.id, Op: driver.OpReplace, Err: errContended}
	a.observe(ctx, event.StoreError, existing, err)
	return nil, nil, err
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
	leave func() // nil: waiting has not begun
}

// stop lets another request wait in place of this one.
func (w *waiter) stop() {
	if w.leave != nil {
		w.leave()
	}
}

// await pauses and then reads the record of the running request again. It returns
// false if the request must not wait longer: WaitFor has passed, the rest of the
// time is the handler's own, or enough other requests wait for the key.
func (a *attempt) await(ctx context.Context, w *waiter, now time.Time) (r *driver.Record, again bool, err error) {
	if a.opts.WaitFor == 0 {
		return nil, false, nil
	}
	if w.until.IsZero() {
		if w.leave = a.guard.waiting.join(a.id); w.leave == nil {
			return nil, false, nil
		}
		w.until, w.pause = now.Add(a.opts.WaitFor), waitFirst
		if w.until.After(a.window.handlerEnd) {
			w.until = a.window.handlerEnd
		}
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
	case ctx.Err() != nil:
		return nil, false, nil // the caller canceled, which also caused the store's error
	case err != nil:
		return nil, false, storeError(a.id, driver.OpGet, err)
	}
	return r, true, nil
}
