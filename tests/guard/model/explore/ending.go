// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"fmt"

	"github.com/once-lambda/once/idempotent/driver"
)

// playEnd is the end of a schedule. All actors have ended, and calls in transit
// never arrive. Time passes, a request comes, evidence if it is needed, and
// more requests: they must find an outcome, the same for all. With bySteps the
// evidence is about the step that is open in the record, if its effect has happened
// and the handler did not declare the outcome unknown. Otherwise it is about the
// outcome.
func (w *world) playEnd(bySteps bool) {
	w.flights = nil
	for _, a := range w.actors {
		if a.effect == sent {
			a.effect = unsent
		}
	}
	if r := w.record; r != nil && (r.State == driver.StateInProgress || r.State == driver.StateUnknown) {
		w.facts |= factLeftOpen
	}
	w.now = w.now.Add(WholeLease)
	same, other := attempt, stranger
	if !w.expired(w.record) && w.record.Fingerprint == theirs {
		same, other = stranger, attempt
	}
	w.alone("P1", same)
	if r := w.record; r != nil && r.State == driver.StateUnknown {
		w.now = w.now.Add(WholeLease)
		by := resolver
		if s, _ := r.Step(stepName); bySteps && !s.Finished && r.Reason != driver.ReasonUnknown && w.generation().finder != "" {
			by = witness
			w.facts |= factStepEnding
		}
		if r := w.alone("PR", by); r.err != nil {
			w.fail("INV-9", fmt.Sprintf("the evidence was refused: %v", r.err))
		}
	}
	w.alone("P2", same)
	if last := w.alone("P3", same); !last.replayed {
		w.fail("INV-9", fmt.Sprintf("the last request got %q and %v, not a replay", last.value, last.err))
	}
	w.alone("PX", other)
	w.ended = true
}

// alone runs one more actor from beginning to end, without any other actor.
func (w *world) alone(name string, r role) *actor {
	if r == stranger {
		name = "X" + name
	}
	a := w.add(name, r, succeed)
	for !a.gone() && w.broken == nil {
		next := step{what: begin, actor: int8(a.index)}
		switch a.phase {
		case calling:
			next.what = serve
		case waiting:
			next.what = deliver
		case inside:
			next.what, next.plan = work, succeed
		case called, paused:
			next.what = end
		}
		w.perform(next)
	}
	return a
}
