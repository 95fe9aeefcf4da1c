// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"errors"
	"fmt"
	"slices"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// step is one thing that may happen next.
type step struct {
	what  what
	actor int8 // or the flight
	plan  plan // of a handler
}

type what byte

const (
	begin       what = iota // a request arrives, or evidence is looked up
	serve                   // the store serves a call; the reply is in transit
	deliver                 // the reply arrives
	work                    // the handler works, and ends unless its effect has happened
	end                     // the handler returns after its effect
	land                    // an effect happens whose call got no reply
	fly                     // the store serves a write whose sender no longer waits
	pass                    // the clock moves
	expire                  // the time to live deletes the record
	finish                  // no process runs: the end is played, without faults, and with evidence about the outcome
	finishSteps             // likewise, with evidence about the step where there is some
	stay                    // an actor gives up its turn: it does nothing before the clock moves, or is served first

	// Faults.
	giveUp // no reply comes; the write may still be served later
	lose   // the reply is lost
	resend // the reply is lost and the client sends the call again
	deny   // the store refuses a transaction for good
	crash  // the process dies; what it sent may still be served

	// Faults of the position of a scan.
	damage
	predate
)

func (s step) fault() bool { return s.what >= giveUp || s.what == work && s.plan == interrupted }

// Some steps concern only their actor: a reply arrives, a request is sent, a
// process dies. Whether they happen before or after a step of another actor makes
// no difference, as long as the clock does not move in between. So an actor has a
// turn, after each of its own steps and after every movement of the clock. In its
// turn it takes such steps, or leaves them until the clock moves again. Only then
// come the steps that others can see: what the store serves, what handlers do,
// what resolvers find. No state at the end is lost, and no handler is entered
// later or left earlier because of it while others are inside. With allOrders
// there are no turns.

// steps returns everything that may happen next.
func (w *world) steps() []step {
	if w.ended {
		return nil
	}
	faults := w.faults < w.scenario.Faults
	if !w.allOrders {
		for _, a := range w.actors {
			if own := a.turnSteps(faults); len(own) > 0 {
				return own
			}
		}
	}
	var all []step
	quiet := true
	for _, a := range w.actors {
		quiet = quiet && !a.active()
		if w.allOrders || a.mayLand() || a.run != nil {
			all = a.ownSteps(all, faults)
		}
		all = a.sharedSteps(all, faults)
	}
	if w.deletable() {
		all = append(all, step{what: expire})
	}
	for i := range w.flights {
		all = append(all, step{what: fly, actor: int8(i)})
	}
	if w.mayPass() {
		all = append(all, step{what: pass})
	}
	if quiet {
		all = append(all, step{what: finish})
		if w.scenario.Step != nil && w.scenario.Recovery != idempotent.Reconcile {
			all = append(all, step{what: finishSteps})
		}
	}
	return all
}

// turnSteps returns what a may do in its turn; nothing if it has none. An actor
// whose end would still prevent its effect has no turn, because others may wait
// for either.
func (a *actor) turnSteps(faults bool) []step {
	if a.run != nil || !a.turn || a.mayLand() && a.pastLease() {
		return nil
	}
	own := a.ownSteps(nil, faults)
	if len(own) == 0 {
		return nil
	}
	moves := a.w.ticks < len(a.w.scenario.Clock)
	if moves || a.phase == idle || a.phase == calling || a.phase >= inside && a.phase != called {
		own = append(own, step{what: stay, actor: int8(a.index)})
	}
	return own
}

// ownSteps appends the steps of a, and the events for a, that concern no other
// actor.
func (a *actor) ownSteps(all []step, faults bool) []step {
	add := func(what what) { all = append(all, step{what: what, actor: int8(a.index)}) }
	switch a.phase {
	case idle:
		if !a.looks() && a.mayBegin() {
			add(begin)
		}
	case waiting:
		add(deliver)
		if faults {
			add(lose)
			if a.call.write() && a.w.now.Sub(a.call.sent) < retention {
				add(resend)
			}
		}
	case called:
		add(end)
	}
	if faults {
		if a.phase == calling {
			add(giveUp)
			if a.call.kind == commit && !a.call.resent {
				add(deny)
			}
		}
		if a.active() && a.run == nil {
			add(crash)
		}
	}
	return all
}

// sharedSteps appends the steps of a that others can see.
func (a *actor) sharedSteps(all []step, faults bool) []step {
	add := func(what what, p plan) { all = append(all, step{what, int8(a.index), p}) }
	switch a.phase {
	case idle:
		if a.looks() && a.mayBegin() {
			add(begin, 0)
		}
	case calling:
		add(serve, 0)
	case inside:
		for _, p := range a.plans {
			add(work, p)
		}
		if faults {
			add(work, interrupted)
		}
	case paused:
		add(end, 0)
	}
	if a.mayLand() {
		add(land, 0)
	}
	return all
}

// looks reports whether an actor comes because of what it sees.
func (a *actor) looks() bool {
	return a.testifies() || a.role == sweeper || a.role == reaper || a.role == forgetter || a.role == corrector || a.role == requeuer || a.role == announcer
}

// mayBegin makes a sweeper, a reaper and a resolver come only if there is
// something for them. Of actors that differ only in their name, the first begins
// first.
func (a *actor) mayBegin() bool {
	switch r := a.w.record; a.role {
	case announcer:
		return !a.fired.IsZero()
	case sweeper, reaper:
		if a.w.expired(r) || r.State != driver.StateInProgress || a.w.now.Before(r.LeaseEnd) {
			return false
		}
	case resolver, courier, witness:
		if !a.look().any() {
			return false
		}
	case forgetter, corrector:
		if a.w.expired(r) || r.State != driver.StateCompleted || a.w.now.Before(r.LeaseEnd) {
			return false
		}
	case requeuer:
		if a.w.expired(r) || r.Due.IsZero() || r.State == driver.StateInProgress && a.w.now.Before(r.LeaseEnd) {
			return false
		}
	}
	if a.index == 0 {
		return true
	}
	before := a.w.actors[a.index-1]
	return before.role != a.role || before.phase != idle
}

// mayPass ensures that no write stays in transit for as long as records are
// stored, and that no worker waits for as long as a provider remembers its keys.
func (w *world) mayPass() bool {
	if w.ticks == len(w.scenario.Clock) {
		return false
	}
	return w.scenario.Clock[w.ticks] < retention ||
		!slices.ContainsFunc(w.actors, func(a *actor) bool { return a.phase == calling || a.phase == inside && w.dedupes() })
}

// mayLand reports whether a call to the provider without a reply may still have
// its effect.
func (a *actor) mayLand() bool {
	return a.effect == sent && (!a.pastLease() || !a.gone())
}

func (a *actor) pastLease() bool { return !a.w.now.Before(a.leaseEnd) }

var plansInWords = [...]string{
	succeed:     "has its effect",
	refuse:      "reports that it did nothing",
	fail:        "calls the provider, gets no reply and fails",
	unsure:      "calls the provider, gets no reply and reports so",
	lie:         "has its effect and reports that it did nothing",
	stumble:     "has its effect, and will fail after its step",
	interrupted: "calls the provider and the process dies",
}

// describe describes the step s.
func (w *world) describe(s step) string {
	switch s.what {
	case fly:
		f := w.flights[s.actor]
		return fmt.Sprintf("%s: the store serves, late, its %s", f.from.name, f.call.describe())
	case pass:
		return fmt.Sprintf("the clock advances by %s", w.scenario.Clock[w.ticks])
	case expire:
		return "the time to live deletes the record"
	case finish, finishSteps:
		return fmt.Sprintf("no process runs any more, nothing in transit arrives, and the clock advances by %s", WholeLease)
	default:
		a := w.actors[s.actor]
		return a.name + ": " + a.describe(s)
	}
}

func (a *actor) describe(s step) string {
	switch s.what {
	case begin:
		switch a.role {
		case announcer:
			return "its handler is late"
		case resolver:
			return "looks into the provider's ledger and reads the record"
		case courier, witness:
			return "looks into the provider's ledger"
		case forgetter:
			return "an operator undoes the effect and discards the outcome"
		case corrector:
			return "an operator reads the record, and corrects the outcome"
		case requeuer:
			return "an operator requeues the record"
		case reaper:
			return "the reconciler's schedule fires"
		}
		return "a request arrives"
	case serve:
		return fmt.Sprintf("the store serves its %s", a.call.describe())
	case deliver:
		return fmt.Sprintf("learns that %s", a.reply.describe(&a.call))
	case work:
		return "its handler " + plansInWords[s.plan]
	case end:
		if a.phase == paused {
			return "its handler goes on"
		}
		return "its handler returns"
	case land:
		return "its effect happens after all"
	case giveUp:
		return fmt.Sprintf("gives up its %s, which is still in transit", a.call.describe())
	case lose:
		return fmt.Sprintf("the reply to its %s is lost", a.call.describe())
	case deny:
		return fmt.Sprintf("the store refuses its %s", a.call.describe())
	case resend:
		return fmt.Sprintf("the reply to its %s is lost, and it is sent again", a.call.describe())
	default:
		return "the process dies"
	}
}

func (c *call) describe() string {
	switch c.kind {
	case insert:
		return "insert"
	case commit:
		return fmt.Sprintf("transaction that makes the record %s", c.record.State)
	case replace:
		if c.announces {
			return "write"
		}
		if _, step := c.record.Step(stepName); step && c.record.State == driver.StateInProgress {
			return "write of in_progress with its step"
		}
		return fmt.Sprintf("write of %s", c.record.State)
	default:
		return "read"
	}
}

func (r reply) describe(c *call) string {
	switch {
	case errors.Is(r.err, idempotent.ErrNoRecord):
		return "there is no record"
	case r.err != nil:
		return r.err.Error()
	case c.kind == get:
		return fmt.Sprintf("the record is %s", r.record.State)
	case r.record == nil:
		return "it is written"
	case r.own(c):
		return "its own write is the current one"
	default:
		return fmt.Sprintf("another write is the current one: %s, attempt %d", r.record.State, r.record.Attempt)
	}
}
