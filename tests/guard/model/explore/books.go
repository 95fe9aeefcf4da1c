// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/invariant"
)

// books are the facts for the invariants: what has happened to the record so
// far, and the result of the last step.
type books struct {
	record      *driver.Record // the current one
	generations []generation   // of the record; the last one is the record's
	lives       map[driver.Version]life

	change   *change // by the last step
	entered  *actor
	provided *actor
	answered *actor
}

// generation is one life of the record: from an insert to its expiry.
type generation struct {
	entries   int
	retryable int  // how often it was settled as retryable
	harmless  bool // one of its claims declared that running again is harmless
	effects   int
	finder    string    // whose effect is first in the provider's ledger
	charged   time.Time // when the provider had the last effect
	orders    int       // transactions of a step
	acked     string    // the completed outcome that a caller got
	discarded string    // the outcome that was forgotten before, in this life of the record

	open      bool                // under Resume, a run may have had an effect without evidence
	recovery  idempotent.Recovery // what the last run declared
	retention time.Duration
}

// life is the record after a write.
type life struct {
	gen   int
	value string // the outcome, of a completed record
}

// change is one write that was applied. by is nil for the time to live.
type change struct {
	invariant.Write
	by     *actor
	call   *call
	recurs bool // the record had this write id before
}

// newChange returns the change that a call of an actor made.
func (w *world) newChange(by *actor, c *call, before, after *driver.Record) *change {
	return &change{by: by, call: c, Write: invariant.Write{
		Before: before, After: after, Insert: c.kind == insert, Was: c.was, At: w.now, By: by.writer(),
		Owner: before != nil && by.owner == before.Owner,
	}}
}

// writer returns what the actor is to the invariants.
func (a *actor) writer() invariant.Writer {
	switch a.role {
	case resolver, courier:
		return invariant.Evidence
	case witness:
		return invariant.StepEvidence
	case reaper:
		return invariant.Reconciler
	case forgetter:
		return invariant.Forgetter
	case corrector:
		return invariant.Corrector
	case requeuer:
		return invariant.Requeuer
	default:
		return invariant.Request
	}
}

// writer names who wrote.
func (c *change) writer() string {
	if c.by == nil {
		return "the time to live"
	}
	return c.by.name
}

// forgets reports whether an operator has discarded a stored outcome.
func (c *change) forgets() bool { return c.by != nil && c.by.role == forgetter }

// changed books a write.
func (w *world) changed(c *change) {
	w.change = c
	r := c.After
	if r == nil {
		return
	}
	if w.expired(c.Before) {
		if c.Before != nil {
			w.facts |= factExpired
		}
		next := generation{}
		if c.Before != nil && c.call.kind != insert { // its owner writes it once more
			next.recovery, next.retention, next.open = w.generation().recovery, w.generation().retention, w.generation().open
		}
		w.generations = append(w.generations, next)
	}
	if c.forgets() {
		// The operator has undone the effect. So the work begins anew, in the same record.
		w.facts |= factForgotten
		before := w.generation()
		w.generations = append(w.generations, generation{recovery: before.recovery, retention: before.retention, discarded: outcome(c.Before)})
		for _, a := range w.actors {
			a.promised = ""
		}
	}
	if c.By == invariant.Corrector {
		// The same work has another outcome, which every caller gets from now on.
		w.facts |= factCorrected
		next := *w.generation()
		next.acked = outcome(r)
		w.generations = append(w.generations, next)
		for _, a := range w.actors {
			a.promised = ""
		}
	}
	written := life{gen: len(w.generations)}
	g := w.generation()
	switch own := c.by.requests() && c.by.owner == r.Owner; r.State {
	case driver.StateInProgress:
		if !c.by.requests() {
			break // evidence about a step
		}
		if c.Claims() {
			if c.by.openSince = (time.Time{}); !w.expired(c.Before) {
				c.by.openSince = c.Before.OpenSince
			}
			c.by.open, g.open = g.open, g.open || r.Recovery == idempotent.Resume
			g.recovery, g.retention = c.by.recovery(), c.by.retention()
		}
		c.by.owner, c.by.gen = r.Owner, len(w.generations)
		g.harmless = g.harmless || r.Recovery == idempotent.Rerun
	case driver.StateRetryable:
		if c.forgets() {
			break
		}
		g.retryable++
		switch {
		case c.By == invariant.Reconciler, c.By == invariant.Requeuer && c.Before.State == driver.StateInProgress:
			w.facts |= factReleased
		case c.by.role == resolver || c.by.role == courier:
			g.open = false
		case own && len(r.Steps) == 0: // nothing was begun, or it was undone
			g.open = c.by.open
		}
	case driver.StateCompleted:
		written.value = outcome(r)
		if written.value == earlier {
			w.facts |= factEarlier
		}
	case driver.StateUnknown:
	}
	if w.scenario.Foreign && !c.by.requests() {
		w.facts |= factForeign
	}
	if r.Announced {
		w.facts |= factAnnounced
	}
	if c.Before != nil && c.Before.Announced && r.State != driver.StateInProgress && c.by.owner == c.Before.Owner {
		w.facts |= factAnnouncedSettled
	} else if c.Before != nil && c.Before.Announced && c.by.owner != c.Before.Owner {
		w.facts |= factAnnouncedFound
	}
	_, c.recurs = w.lives[r.Version]
	w.lives[r.Version] = written
}

// refused books a write that changed nothing.
func (w *world) refused(c *call, r reply) {
	switch {
	case c.record.ID != keyID:
	case c.announces && !r.own(c):
		w.facts |= factAnnouncementRefused
	case errors.Is(r.err, idempotent.ErrNoRecord):
		w.facts |= factNoRecord
	case c.kind != insert && r.record != nil && !r.own(c):
		w.facts |= factRefused
		if r.record.State == driver.StateCompleted {
			w.facts |= factMetCompleted
			if w.names[r.record.Version].actor == w.names[c.record.Version].actor {
				w.facts |= factSecondCommit
			}
		}
	}
}

// enter books that a is in its handler.
func (w *world) enter(a *actor) {
	w.entered = a
	if a.gen == 0 {
		return
	}
	for _, b := range w.actors {
		if b != a && b.gen == a.gen && b.inHandler() {
			w.facts |= factOverlap
		}
	}
}

// provide books that a is about to call the provider.
func (w *world) provide(a *actor) {
	w.provided = a
	if a.gen == 0 {
		return
	}
	g := &w.generations[a.gen-1]
	if g.entries++; g.entries > 1 {
		w.facts |= factSecondRun
	}
}

// meet books the record at the time the store first served a: a must get an
// outcome that was acknowledged to a caller by then.
func (w *world) meet(a *actor) {
	if a.met || !a.requests() {
		return
	}
	a.met = true
	if !w.expired(w.record) && w.record.State == driver.StateCompleted && w.record.Fingerprint == a.fingerprint() {
		a.promised = w.generation().acked
	}
	if a.promised != "" {
		w.facts |= factPromised
	}
}

// answers books what the caller of a got.
func (w *world) answers(a *actor) {
	w.answered, w.answer = a, fmt.Sprintf("%s %q %t %v", a.name, a.value, a.stored, a.err)
	if l, written := w.lives[a.source()]; a.stored && written && w.generations[l.gen-1].acked == "" {
		w.generations[l.gen-1].acked = a.value
	}
	switch {
	case a.role == neighbour && a.entered:
		w.facts |= factNeighbour
	case errors.As(a.err, new(*idempotent.NoTimeError)):
		w.facts |= factNoTime
	case a.testifies() && errors.As(a.err, new(*idempotent.InProgressError)):
		w.facts |= factTooEarly
	case errors.As(a.err, new(*idempotent.StaleEvidenceError)):
		w.facts |= factStale
	case a.role == witness && a.err == nil:
		w.facts |= factStepProven
		for _, b := range w.actors {
			if b.inHandler() && !b.pastLease() {
				w.facts |= factStepProvenAtWork
			}
		}
	case errors.As(a.err, new(*idempotent.SettledError)):
		w.facts |= factSettled
	case a.role == requeuer && a.err == nil:
		w.facts |= factRequeued
	}
}

// generation returns the books of the current record.
func (w *world) generation() *generation { return &w.generations[len(w.generations)-1] }

// outcome returns the result of a completed record.
func outcome(r *driver.Record) string { return strings.Trim(string(r.Result), `"`) }
