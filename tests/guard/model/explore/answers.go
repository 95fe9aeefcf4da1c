// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// The invariants about the answers that callers get.

// durableReplay (INV-3).
func durableReplay(w *world) string {
	if c := w.change; c != nil && c.After != nil && c.After.State == driver.StateInProgress {
		if acked := w.generation().acked; acked != "" {
			return fmt.Sprintf("%s claimed the key after a caller got %q", c.by.name, acked)
		}
	}
	a := w.answered
	if a == nil || a.role == neighbour || !a.requests() && a.role != resolver && a.role != courier {
		return ""
	}
	// A request that was refused before it ran may be repeated. Every other
	// caller gets the outcome that was acknowledged when it came, and the one
	// that it found at last.
	if a.requests() && !errors.As(a.err, new(*idempotent.StoreError)) && !errors.As(a.err, new(*idempotent.NoTimeError)) {
		stands := a.promised
		if met := a.reply.record; met != nil && met.State == driver.StateCompleted &&
			met.Fingerprint == a.fingerprint() && !w.expired(met) && !a.reply.own(&a.call) {
			stands = outcome(met)
		}
		if stands != "" && (a.value != stands || !a.replayed && a.applied != stands) {
			return fmt.Sprintf("%s got %q and %v, but the outcome is %q", a.name, a.value, a.err, stands)
		}
	}
	if !a.stored {
		return ""
	}
	l, written := w.lives[a.source()]
	if !written || l.value != a.value {
		return fmt.Sprintf("%s got %q as stored, but it never was", a.name, a.value)
	}
	if acked := w.generations[l.gen-1].acked; acked != a.value {
		return fmt.Sprintf("%s got %q after another caller got %q", a.name, a.value, acked)
	}
	if l.gen == len(w.generations) && !w.expired(w.record) && (w.record.State != driver.StateCompleted || outcome(w.record) != a.value) {
		return fmt.Sprintf("%s got %q, but the record is %s %s", a.name, a.value, w.record.State, w.record.Result)
	}
	return ""
}

// fingerprint (INV-6). A request that finds the record of another request
// learns only that, and neither its state nor its outcome.
func fingerprint(w *world) string {
	a := w.answered
	if a == nil || !a.requests() {
		return ""
	}
	if teller := strings.TrimPrefix(a.value, found); a.replayed && strings.HasPrefix(teller, "X") != (a.role == stranger) {
		return fmt.Sprintf("%s got %q, the outcome of another request", a.name, a.value)
	}
	if met := a.reply.record; met != nil && met.Fingerprint != a.fingerprint() &&
		(a.err == nil || errors.As(a.err, new(*idempotent.InProgressError)) || errors.As(a.err, new(*idempotent.UnresolvedError))) {
		return fmt.Sprintf("%s found the record of another request and got %v", a.name, a.err)
	}
	return ""
}

// trueAnswers (FM01, and the reverse): a caller that gets a result as its own
// has had its effect, and no other owner is on its record. No caller is refused
// or loses its lease because of its own record.
func trueAnswers(w *world) string {
	a := w.answered
	if a == nil || !a.requests() {
		return ""
	}
	met := a.reply.record
	switch {
	case a.err == nil && !a.replayed && w.stepped() && !w.hadEffect(a.value):
		return fmt.Sprintf("%s got %q as its own, but no handler returned it", a.name, a.value)
	case a.err == nil && !a.replayed && w.scenario.Commit && (a.value != a.applied || a.effect != landed):
		return fmt.Sprintf("%s got %q as its own, and its transaction stored %q", a.name, a.value, a.applied)
	case a.err == nil && !a.replayed && !w.stepped() && !w.scenario.Commit && (a.value != a.name || a.effect != landed):
		return fmt.Sprintf("%s got %q as its own", a.name, a.value)
	case a.err == nil && !a.replayed && met != nil && met.Owner != a.owner && a.role != neighbour:
		return fmt.Sprintf("%s got %q as its own, but the record has another owner", a.name, a.value)
	case errors.As(a.err, new(*idempotent.LeaseLostError)) && w.stepped():
		// Work does not continue in a record that has been resolved: its next
		// step is refused, even without a takeover.
		if r := w.record; r != nil && r.Owner == a.owner && r.State == driver.StateInProgress {
			return fmt.Sprintf("%s lost its lease, but no other write changed its record", a.name)
		}
	case errors.As(a.err, new(*idempotent.LeaseLostError)) && met != nil && met.Owner == a.owner && met.State != driver.StateCompleted:
		return fmt.Sprintf("%s lost its lease to itself: the record is %s", a.name, met.State)
	case errors.As(a.err, new(*idempotent.InProgressError)) && w.record != nil && w.record.Owner == a.owner && w.names[w.record.Version].actor == a.index:
		return fmt.Sprintf("%s was refused because of its own record", a.name)
	}
	return ""
}
