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
// happen, it happens again: undo it first. The outcome's steps are gone, so they
// run again too, with the same downstream keys.
//
// The token names the attempt whose outcome it is: [driver.Record.Token]. If the
// key ran again meanwhile, Forget writes nothing, so it is safe to repeat. A guard
// with Options.CacheEntries can return the outcome until its CacheAge has passed.
// Each call that changes a record is an [event.Forgotten]; package audit logs it.
//
// The error is [*InProgressError] while the lease of the attempt is live,
// [*StaleEvidenceError] for the token of another attempt, [*StoreError] if the
// store failed, and another error if the record has no stored outcome. It matches
// [ErrNoRecord] if there is no such record or it has expired.
func (g *Guard) Forget(ctx context.Context, id RecordID, token string) error {
	g.mustExist("Forget")
	if _, err := ParseRecordID(string(id)); err != nil {
		return err
	}
	_, err := g.rewrite(ctx, id, event.Forgotten, func(current *driver.Record, now time.Time) judgement {
		switch decideForget(current, token, now) {
		case forgetGone:
			return judgement{end: endRefused, err: fmt.Errorf("%w: %s has expired", ErrNoRecord, short(id))}
		case forgetStale:
			return judgement{end: endRefused, err: &StaleEvidenceError{RecordID: id, Attempt: current.Attempt}}
		case forgetTooEarly:
			return judgement{end: endRefused, err: inProgress(current, now)}
		case forgetAgreed:
			return judgement{end: endAgreed}
		case forgetNothing:
			return judgement{end: endRefused, err: fmt.Errorf("idempotent: Forget: %s is %s and has no stored outcome; use Resolve", short(id), current.State)}
		case forgetWrite:
		}
		next := g.opts.transition(current, driver.StateRetryable, driver.ReasonForgotten, now)
		setOutcome(&next, outcome{}) // large results expire by themselves
		next.Ref = ""
		return judgement{next: next}
	})
	return err
}
