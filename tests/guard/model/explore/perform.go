// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"fmt"
	"slices"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// perform performs one step and checks the invariants.
func (w *world) perform(s step) {
	if w.tracing {
		w.trace = append(w.trace, w.describe(s))
	}
	w.do(s)
	w.check()
}

// do performs one step.
func (w *world) do(s step) {
	w.change, w.entered, w.provided, w.answered, w.answer = nil, nil, nil, nil, ""
	if s.fault() {
		w.faults++
	}
	switch s.what {
	case fly:
		f := w.flights[s.actor]
		w.flights = append(w.flights[:s.actor:s.actor], w.flights[s.actor+1:]...)
		w.facts |= factLateWrite
		w.serve(f.from, &f.call)
	case pass:
		w.pass()
	case expire:
		w.facts |= factDeleted
		w.delete()
	case finish, finishSteps:
		w.playEnd(s.what == finishSteps)
	default:
		w.actors[s.actor].do(s)
	}
	w.forget()
}

func (a *actor) do(s step) {
	w := a.w
	a.turn = s.what != stay
	switch s.what {
	case begin:
		a.begin()
		if a.role == resolver && a.phase == calling {
			// Reading the ledger, reading the record and judging it is one
			// step; a courier takes several.
			a.serve()
			a.deliver()
		}
	case serve:
		a.serve()
	case deliver:
		a.deliver()
	case work:
		a.work(s.plan)
	case end:
		a.tell('e')
		a.goOn()
	case land:
		w.facts |= factLateEffect
		w.land(a)
	case giveUp:
		w.facts |= factGaveUp
		a.launch()
		a.hearNothing()
	case lose:
		w.facts |= factReplyLost
		a.hearNothing()
	case resend:
		w.facts |= factSentTwice
		a.call.resent = true
		a.phase = calling
	case deny:
		w.facts |= factDenied
		if w.scenario.Liar {
			a.serve()
		}
		a.reply = reply{err: errDenied}
		a.deliver()
	case crash:
		w.facts |= factCrashed
		for _, b := range a.threads() {
			if b.phase == calling {
				b.launch()
			}
		}
		a.crash()
	}
}

func (a *actor) serve() {
	a.w.meet(a)
	a.reply = a.w.serve(a, &a.call)
	a.phase = waiting
}

// launch leaves the call in the network.
func (a *actor) launch() {
	if a.call.write() {
		a.w.flights = append(a.w.flights, flight{a, a.call})
	}
}

func (a *actor) deliver() {
	a.tellReply()
	if a.run != nil && a.reply.record != nil && !a.reply.own(&a.call) {
		a.run.reply = a.reply // its run continues from the record
	}
	if a.reply.own(&a.call) && a.run == nil {
		if a.call.record.State == driver.StateInProgress {
			a.w.facts |= factClaimRecognised
		} else {
			a.w.facts |= factOutcomeRecognised
		}
	}
	a.goOn()
}

// hearNothing makes the actor's call fail without a reply.
func (a *actor) hearNothing() {
	if a.call.record.State == driver.StateInProgress {
		a.w.facts |= factUncertain
	}
	a.reply = reply{err: errLost}
	a.deliver()
}

// work lets a handler call the provider.
func (a *actor) work(p plan) {
	a.plan = p
	if p == succeed { // and return later: the time of the effect makes no difference
		a.told = append(a.told, 's')
	} else {
		a.tell('w', byte(p))
	}
	switch p {
	case succeed, stumble:
		a.w.land(a)
		a.phase = called
	case lie:
		a.w.land(a)
		a.goOn()
	case fail, unsure:
		a.effect = sent
		a.goOn()
	case interrupted:
		a.effect = sent
		a.w.facts |= factCrashed
		a.crash()
	default:
		a.goOn()
	}
}

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
