package explore

import (
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// The provider has the effects of the handlers and lists them in its ledger,
// where a resolver looks for evidence.

// effect is the state of a handler's call to the provider.
type effect byte

const (
	unsent effect = iota
	sent          // may land until the lease ends, or as long as its worker lives
	landed
)

// land lets the effect of a happen.
func (w *world) land(a *actor) {
	a.effect = landed
	if a.gen == 0 {
		return
	}
	g := &w.generations[a.gen-1]
	if !w.dedupes() || g.finder == "" {
		g.effects++
	}
	if g.finder == "" {
		g.finder = a.name
	}
}

// dedupes reports whether the provider knows a downstream key again.
func (w *world) dedupes() bool {
	return w.scenario.Step != nil && *w.scenario.Step == idempotent.AtLeastOnce
}

// evidence is what the provider's ledger and the list of workers say.
type evidence struct {
	value string // the effect has happened, and this is its result
	none  bool   // it has not, and whoever worked on it is dead
}

func (e evidence) any() bool { return e.none || e.value != "" }

func (e evidence) resolution() idempotent.Resolution {
	if e.value != "" {
		return idempotent.Resolved(e.value)
	}
	return idempotent.ProvenNotExecuted()
}

// lookAtProvider returns what a resolver can say of the record that stands. An
// effect is told by whose it was, in other words than the handler's own, so
// that a mix-up shows. "Not executed" is only said where nobody is free to run
// and whoever claimed the record is dead, or has not begun and is too late to.
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
