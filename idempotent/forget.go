// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"fmt"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

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
