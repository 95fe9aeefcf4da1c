// SPDX-License-Identifier: Apache-2.0

package explore

import (
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
