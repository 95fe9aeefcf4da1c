// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/invariant"
)

var (
	began   = time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	discard = slog.New(slog.DiscardHandler)

	key       = keyOf("acme", "request")
	reused    = keyOf("acme", "another request")
	elsewhere = keyOf("globex", "request")

	keyID       = key.RecordID()
	elsewhereID = elsewhere.RecordID()

	// The fingerprints as stored.
	ours   = invariant.StoredFingerprint(key)
	theirs = invariant.StoredFingerprint(reused)
	beyond = invariant.StoredFingerprint(elsewhere)
)

func keyOf(scope, content string) idempotent.Key {
	return idempotent.Key{Operation: "charge", Scope: scope, ID: "1", Fingerprint: idempotent.FingerprintBytes([]byte(content))}
}

// world is one key and everything around it, at one moment of a schedule.
type world struct {
	scenario *Scenario
	asked    []rule
	fibers   *fibers
	store    driver.Store // as the actors see it
	kept     driver.Store // the real content

	now     time.Time
	ticks   int // number of movements of the clock so far
	actors  []*actor
	flights []flight // writes whose senders no longer wait for them
	names   map[driver.Version]name

	born    time.Time // by the clock of the bubble
	passing bool      // the clock is moving

	progress
	books
	facts facts
}

// flight is a write that the store may still serve late.
type flight struct {
	from *actor
	call call
}

// name represents a write id in states that are compared across schedules.
type name struct{ actor, n byte }

func (s *Scenario) setUp(f *fibers) stage {
	w := &world{scenario: s, asked: asked(s.Ask), fibers: f, now: began, born: time.Now(), names: map[driver.Version]name{}}
	w.lives, f.threads = map[driver.Version]life{}, s.Announce
	w.newStore()
	plans := s.Plans
	switch {
	case plans != nil:
	case s.Recovery != idempotent.Reconcile:
		plans = []plan{succeed, fail, unsure} // fail is equivalent to refuse there
	default:
		plans = []plan{succeed, refuse, fail} // and equivalent to unsure here
	}
	for i := range s.Attempts {
		w.add(string(rune('A'+i)), attempt, plans...)
	}
	for i := range s.Sweepers {
		w.add("S"+digit(i), sweeper, succeed)
	}
	for i := range s.Strangers {
		w.add("X"+digit(i), stranger, succeed)
	}
	for i := range s.Neighbours {
		w.add("N"+digit(i), neighbour, succeed)
	}
	for i := range s.Reapers {
		w.add("Q"+digit(i), reaper)
	}
	for i := range s.Resolvers {
		w.add("R"+digit(i), resolver)
	}
	for i := range s.Couriers {
		w.add("K"+digit(i), courier)
	}
	for i := range s.Witnesses {
		w.add("W"+digit(i), witness)
	}
	for i := range s.Forgetters {
		w.add("F"+digit(i), forgetter)
	}
	for i := range s.Correctors {
		w.add("C"+digit(i), corrector)
	}
	for i := range s.Requeuers {
		w.add("D"+digit(i), requeuer)
	}
	for _, a := range w.actors {
		if s.Announce && a.requests() {
			a.announcer = w.add(a.name+"'s announcement", announcer)
			a.announcer.run, a.announcer.fiber = a, &fiber{turns: make(chan struct{})}
		}
	}
	return w
}

// abandon ends the actors that are still running.
func (w *world) abandon() {
	for _, a := range w.actors {
		if a.active() || !a.fired.IsZero() && !a.gone() {
			a.crash()
		}
	}
}

func (w *world) shown() iter.Seq[string] { return w.facts.names() }

// ending returns the record in the end.
func (w *world) ending() string {
	return fmt.Sprintf("%s %s %d", w.record.State, w.record.Result, w.record.Attempt)
}

func digit(i int) string { return string(rune('1' + i)) }

func (w *world) newStore() {
	w.kept = memstore.New()
	w.store = w.kept
	if w.scenario.Store != nil {
		w.store = w.scenario.Store(w.kept)
	}
}

func (w *world) add(name string, r role, plans ...plan) *actor {
	a := &actor{w: w, name: name, index: byte(len(w.actors)), role: r, plans: plans, turn: true}
	w.actors = append(w.actors, a)
	return a
}

// nameVersion names a write id by the actor that drew it, and by its number
// among that actor's.
func (w *world) nameVersion(a *actor, v driver.Version) {
	if _, known := w.names[v]; !known {
		a.versions++
		w.names[v] = name{a.index, a.versions}
	}
}

// serve makes the store serve a call of a, and books the change.
func (w *world) serve(a *actor, c *call) reply {
	ctx := context.Background()
	var r reply
	switch c.kind {
	case insert:
		r.record, r.err = w.store.Insert(ctx, c.record, c.now)
	case replace, commit:
		r.record, r.err = w.store.Replace(ctx, c.record, c.was)
	default:
		r.record, r.err = w.store.Get(ctx, c.record.ID)
		return r
	}
	before := w.record
	w.record, _ = w.kept.Get(ctx, keyID)
	if version(before) != version(w.record) {
		w.changed(w.newChange(a.process(), c, before, w.record))
		if c.kind == commit {
			w.facts |= factCommitted
			w.transacted(a)
		}
	} else {
		w.refused(c, r)
		if c.kind == commit && w.scenario.Torn {
			w.transacted(a)
		}
	}
	return r
}

// transacted books that the handler's own writes in a transaction were applied.
func (w *world) transacted(a *actor) {
	if w.scenario.CommitStep {
		w.order(a)
	} else {
		a.applied = outcome(w.record)
		w.land(a)
	}
}

func version(r *driver.Record) (v driver.Version) {
	if r != nil {
		v = r.Version
	}
	return v
}

// pass moves the clock. If it moves by as long as records are stored, writes
// without a waiting sender, and calls to the provider without a reply, are lost.
func (w *world) pass() {
	d := w.scenario.Clock[w.ticks]
	w.ticks++
	w.now = w.now.Add(d)
	if w.scenario.Announce {
		w.passing = true
		time.Sleep(d) // timers fire
		synctest.Wait()
		w.passing = false
	}
	if d >= retention {
		w.flights = nil
	}
	for _, a := range w.actors {
		if d >= retention && a.effect == sent {
			a.effect = unsent
		}
		a.turn = true
	}
}

// expired reports whether r counts as missing.
func (w *world) expired(r *driver.Record) bool { return invariant.Expired(r, w.now) }

// deletable reports whether the time to live may delete the record by now.
func (w *world) deletable() bool {
	r := w.record
	return r != nil && !r.Expires.IsZero() && !w.now.Before(r.Expires.Add(grace))
}

// delete removes the record, as the time to live does.
func (w *world) delete() {
	before := w.record
	other, _ := w.kept.Get(context.Background(), elsewhereID)
	w.newStore()
	if other != nil {
		w.kept.Insert(context.Background(), *other, w.now)
	}
	w.record = nil
	w.changed(&change{Write: invariant.Write{Before: before, At: w.now}})
}

// forget drops the writes in transit that the store would refuse at any time:
// the versions that they replace do not come back, because the actors that drew
// them have ended. A broken store may not refuse them.
func (w *world) forget() {
	if w.scenario.Store != nil {
		return
	}
	w.flights = slices.DeleteFunc(w.flights, func(f flight) bool {
		if f.call.record.ID != keyID {
			return false
		}
		if f.call.kind == insert {
			return !w.expired(w.record)
		}
		writer := w.actors[w.names[f.call.was].actor]
		return f.call.was != version(w.record) && !writer.active() &&
			!slices.ContainsFunc(w.flights, func(other flight) bool { return other.call.record.Version == f.call.was })
	})
}

func (w *world) observe(e event.Event) {
	w.facts |= factOf[e.Kind]
	if e.Reason == driver.ReasonKeysForgotten {
		w.facts |= factKeysForgotten
	}
	var lost *idempotent.StoreError
	if errors.As(e.Err, &lost) {
		w.facts |= factStoreFailed
	}
}
