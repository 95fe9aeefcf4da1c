// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"slices"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// The provider has the effects of the handlers and lists them in its ledger,
// where a resolver looks for evidence.

// effect is the state of a handler's call to the provider.
type effect byte

const (
	unsent effect = iota
	sent          // may happen until the lease ends, or while its worker lives
	landed
)

// land makes the effect of a happen.
func (w *world) land(a *actor) {
	a.effect = landed
	if a.gen == 0 {
		return
	}
	g := &w.generations[a.gen-1]
	if known := w.dedupes() && g.finder != "" && w.now.Sub(g.charged) < downstream; !known {
		g.effects++
		g.charged = w.now
	}
	if g.finder == "" {
		g.finder = a.name
	}
}

// order books that the transaction of a's step was applied.
func (w *world) order(a *actor) {
	if a.gen > 0 {
		w.generations[a.gen-1].orders++
	}
}

// dedupes reports whether the provider recognises a downstream key.
func (w *world) dedupes() bool {
	return w.scenario.CommitStep || w.scenario.Step != nil && *w.scenario.Step == driver.AtLeastOnce
}

// once reports whether an effect happens at most once whatever the recovery: the
// record keeps it from running again.
func (w *world) once() bool {
	return w.scenario.Commit || w.scenario.Step != nil && *w.scenario.Step == driver.AtMostOnce
}

// stepped reports whether the handlers have a step.
func (w *world) stepped() bool { return w.scenario.CommitStep || w.scenario.Step != nil }

// evidence is what the provider's ledger and the list of workers show.
type evidence struct {
	value string // the effect has happened, and this is its result
	step  bool   // it is that of the step
	none  bool   // it has not, and its worker is dead

	attempt driver.Owner // of the record, when the evidence was looked up
	by      byte         // index of its actor
}

func (e evidence) any() bool { return e.none || e.value != "" }

func (e evidence) resolution() idempotent.Resolution {
	switch {
	case e.step:
		return idempotent.ResolvedStep(stepName, e.value)
	case e.value != "":
		return idempotent.Resolved(e.value)
	}
	r := driver.Record{Owner: e.attempt}
	return idempotent.ProvenNotExecuted(r.Token())
}

func (e evidence) encode(b []byte) []byte { return text(append(b, e.by), e.value) }

// look returns the evidence that the actor can find.
func (a *actor) look() evidence {
	e := a.w.lookAtProvider()
	if a.role == courier && slices.ContainsFunc(a.w.actors, func(b *actor) bool { return b.mayLand() }) {
		e.none = false // this may change before the evidence is submitted
	}
	if a.role == witness {
		e.step, e.none = true, false
		if r := a.w.record; r != nil && r.State == driver.StateCompleted {
			e.value = ""
		}
	}
	if r := a.w.record; r != nil {
		e.attempt = r.Owner
		for _, b := range a.w.actors {
			if b.owner == r.Owner {
				e.by = b.index
			}
		}
	}
	return e
}

// lookAtProvider returns the evidence of a resolver about the current record.
// An effect is reported with the name of its worker, in other words than the
// handler's own, so that a mix-up is noticed. "Not executed" is only reported
// if no attempt may run and the worker of the claim is dead, or has not begun
// and is too late to.
func (w *world) lookAtProvider() (e evidence) {
	if w.expired(w.record) {
		return e
	}
	if finder := w.generation().finder; finder != "" {
		return evidence{value: found + finder}
	}
	if s := w.record.State; s != driver.StateUnknown && s != driver.StateInProgress {
		return e
	}
	for _, a := range w.actors {
		alive := a.gen == len(w.generations) && !a.gone() && (a.entered || w.now.Before(a.deadline))
		if alive && !w.scenario.Rash {
			return e
		}
	}
	return evidence{none: true}
}

// found begins a resolver's result.
const found = "found "
