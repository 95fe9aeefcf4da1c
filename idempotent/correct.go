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
)

// Requeue makes the record id due now, as if it had become unknown now: the next
// run of a reconciler asks its resolver, pauses grow from the first one again, and
// [ReconcileOptions.GiveUpAfter] counts anew. Use it for a record that
// reconciliation gave up, or to end a long pause. If the record's lease has ended
// without an outcome, Requeue first makes it unknown, or retryable, as a reconciler
// does.
//
// The error matches [ErrNoRecord] if there is no such record or it has expired. It
// is [*InProgressError] while the owner's lease is live, [*StoreError] if the store
// failed, and another error if the record does not wait for evidence.
func (g *Guard) Requeue(ctx context.Context, id RecordID) error {
	g.mustExist("Requeue")
	if _, err := ParseRecordID(string(id)); err != nil {
		return err
	}
	_, err := g.requeue(ctx, id, false)
	return err
}

// requeueParallel is how many records RequeueExhausted reads and writes at a time.
const requeueParallel = 8

// RequeueExhausted requeues every record that reconciliation has given up, as
// [Guard.Requeue] does, and returns how many. If operations are given, it only
// reads and requeues their records. A record that fails does not stop the others;
// the error then has one of the failures. Call it again to requeue the rest.
func (g *Guard) RequeueExhausted(ctx context.Context, operations ...string) (requeued int, err error) {
	g.mustExist("RequeueExhausted")
	lister, ok := g.store.(driver.DueLister)
	if !ok {
		return 0, fmt.Errorf("idempotent: RequeueExhausted: the store %T does not implement driver.DueLister", g.store)
	}
	var (
		workers sync.WaitGroup
		mu      sync.Mutex
		failed  int
		failure error // one of them
		slots   = make(chan struct{}, requeueParallel)
	)
	for e, listErr := range lister.Exhausted(ctx) {
		if listErr != nil && e.ID == "" {
			err = &StoreError{Op: driver.OpListDue, Err: listErr}
			g.opts.observe(ctx, event.StoreError, "", nil, err)
			break
		}
		if len(operations) > 0 && !slices.Contains(operations, e.ID.Operation()) {
			continue
		}
		slots <- struct{}{}
		workers.Go(func() {
			defer func() { <-slots }()
			written, err := g.requeue(ctx, e.ID, true)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case written:
				requeued++
			case err != nil && !errors.Is(err, ErrNoRecord):
				failed++
				failure = err
			}
		})
	}
	workers.Wait()
	if err == nil && failed > 0 {
		err = fmt.Errorf("idempotent: RequeueExhausted: %d of %d records failed, one of them with: %w", failed, failed+requeued, failure)
	}
	return requeued, err
}

// requeue requeues a record and reports whether it did. With exhausted, it leaves
// every other record as it is.
func (g *Guard) requeue(ctx context.Context, id RecordID, exhausted bool) (bool, error) {
	report := event.Event{}
	return g.rewrite(ctx, id, &report, func(current *driver.Record, now time.Time) judgement {
		report.Kind = event.ReconcileScheduled
		switch {
		case current.Expired(now):
			return refuseGone(current)
		case exhausted && !current.Exhausted:
			return judgement{end: endAgreed}
		case current.Waits():
			next := *current
			next.Since, next.Due, next.ReconcileAttempts, next.Exhausted = now, now, 0, false
			return judgement{next: next}
		case current.State == driver.StateInProgress && !current.LeaseEnded(now):
			return refuse(inProgress(current, now))
		case current.State == driver.StateInProgress:
			next, kind := g.opts.swept(current, decideEnded(current), now)
			if report.Kind = kind; !next.Due.IsZero() {
				next.Due = now
			}
			return judgement{next: next}
		}
		return refuse(fmt.Errorf("idempotent: Requeue: %s is %s and does not wait for evidence", short(id), current.State))
	})
}

// swept returns the record r, whose lease has ended without an outcome, after that
// end is processed at now, and the event that reports it.
func (o *Options) swept(r *driver.Record, v sweepVerdict, now time.Time) (next driver.Record, kind event.Kind) {
	if v == sweepRelease {
		return o.transition(r, driver.StateRetryable, driver.ReasonLeaseEnded, now), event.Retryable
	}
	return o.transition(r, driver.StateUnknown, driver.ReasonLeaseEnded, now), event.MarkedUnknown
}

// Forget discards the stored outcome of the record id, because it is wrong, so
// that the next request with the key and the same payload runs. If the effect did
// happen, it happens again: undo it first, or correct the outcome with
// [Resolution.InsteadOf]. The outcome's steps are gone, so they run again too, with
// the same downstream keys.
//
// If the outcome came from [Operation.Predecessor], the predecessor is not asked again
// until the record expires. Correct the outcome in the other system before that:
// from then on the guard asks it again and stores its answer.
//
// If the key ran again since the attempt of the token, Forget writes nothing, so it
// is safe to repeat. Another guard with Options.CacheEntries can return the outcome
// until its CacheAge has passed. Each call that changes a record is an [event.Forgotten]
// with the actor and the reason; package audit logs it.
//
// The error is [*InProgressError] while the lease of the attempt is live,
// [*StaleEvidenceError] for the token of another attempt, [*StoreError] if the
// store failed, and another error if the record has no stored outcome, or if the
// actor or the reason is missing, longer than 1,024 bytes or not valid UTF-8. It
// matches [ErrNoRecord] if there is no such record or it has expired.
func (g *Guard) Forget(ctx context.Context, id RecordID, c Correction) error {
	g.mustExist("Forget")
	if _, err := ParseRecordID(string(id)); err != nil {
		return err
	}
	if err := c.validate("Forget"); err != nil {
		return err
	}
	report := event.Event{Kind: event.Forgotten, Actor: c.Actor, Note: c.Reason}
	_, err := g.rewrite(ctx, id, &report, func(current *driver.Record, now time.Time) judgement {
		switch decideForget(current, c.Token, now) {
		case forgetGone:
			return refuseGone(current)
		case forgetStale:
			return refuseStale(current)
		case forgetTooEarly:
			return refuse(inProgress(current, now))
		case forgetAgreed:
			return judgement{end: endAgreed}
		case forgetNothing:
			return refuse(fmt.Errorf("idempotent: Forget: %s is %s and has no stored outcome; use Resolve", short(id), current.State))
		case forgetWrite:
		}
		next := g.opts.transition(current, driver.StateRetryable, driver.ReasonForgotten, now)
		setOutcome(&next, outcome{}) // large results expire by themselves
		next.Ref = ""
		return judgement{next: next}
	})
	g.cache.remove(id) // also after an error: the write may have been applied
	return err
}
