// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/invariant"
	"github.com/once-lambda/once/tests/guard/model"
)

// A rule is one invariant of the design, checked after every step. It is broken by what
// check returns, or if package invariant says so of a write. A schedule that shows the
// premise is one to which the rule applies.
type rule struct {
	name    string
	says    string
	premise facts // one
	check   func(w *world) string
}

var invariants = []rule{
	{"INV-1", "of the requests whose leases are live at most one is in its handler", factInProgress, exclusion},
	{"INV-2", "under Reconcile and by Commit there is at most one effect, and under Reconcile one run more than were proven not executed", factSecondRun, atMostOnce},
	{"INV-3", "once a caller got an outcome, every caller gets it and no handler runs", factPromised, durableReplay},
	{"INV-4", "a completed record does not change until it expires", factMetCompleted, nil},
	{"INV-5", "a write replaces only the version that was read, and only a record that the writer may change", factRefused, fencing},
	{"INV-6", "another request under the key neither runs nor learns anything", factMismatch, fingerprint},
	{"INV-7", "requests of different scopes have different records", factNeighbour, scopes},
	{"INV-8", "only evidence or the owner changes an unknown record", factUnresolved, unknownAbsorbs},
	{"INV-9", "every record is listed or expires, and in the end has an outcome", factLeftOpen, liveness},
	{"INV-10", "a handler runs only under an acknowledged claim", factUncertain, failClosed},
	{"INV-11", "attempts increase by one, a finished step is stored and not run again, and no outcome skips it or its transaction", factStepReplayed, monotone},
	{"INV-12", "only a claim creates a record", factNoRecord, nil},
	{"FM48", "evidence about the whole operation is not accepted while the lease is live", factTooEarly, nil},
	{"declared", "a record expires, and runs again, as its last run declared, whichever guard writes it", factForeign, asDeclared},
	{"model", "a write makes of the record what the model of a key makes of it", factTakenOver, asTheModel},
	{"announced", "a run that is late announces itself with one write, which overlaps no other and stays until the record is settled", factAnnounced, announcement},
	{"in time", "no call of a request outlasts the time that is left until its answer is due", factReplayed, inTime},
	{"told", "a handler that learns that its transaction was not applied has no row", factDenied, toldTheTruth},
	{"discarded", "an outcome that was discarded does not come back from the predecessor", factForgotten, discardedStays},
	{"FM01", "no caller is refused because of its own record, or gets another result as its own", factClaimRecognised, trueAnswers},
}

// asked returns the invariants of these names, or all.
func asked(names []string) []rule {
	if names == nil {
		return invariants
	}
	return slices.DeleteFunc(slices.Clone(invariants), func(i rule) bool { return !slices.Contains(names, i.name) })
}

// check checks every invariant and records the first that is broken.
func (w *world) check() {
	for i := range w.asked {
		if w.broken != nil {
			return
		}
		if wrong := w.asked[i].broken(w); wrong != "" {
			w.broken = &Violation{Invariant: w.asked[i].name, Wrong: wrong}
		}
	}
}

func (r rule) broken(w *world) string {
	if w.change != nil {
		if why := w.change.Broken(r.name); why != "" {
			return w.change.writer() + " wrote: " + why
		}
	}
	if r.check == nil {
		return ""
	}
	return r.check(w)
}

// fail records that the end of a schedule breaks an invariant.
func (w *world) fail(name, wrong string) {
	if w.broken == nil && slices.ContainsFunc(w.asked, func(i rule) bool { return i.name == name }) {
		w.broken = &Violation{Invariant: name, Wrong: wrong}
	}
}

func exclusion(w *world) string {
	var in []string
	for _, a := range w.actors {
		if a.inHandler() && a.gen > 0 && !a.pastLease() {
			in = append(in, a.name)
		}
	}
	if len(in) > 1 {
		return strings.Join(in, " and ") + " are in their handlers, and their leases are live"
	}
	return ""
}

func atMostOnce(w *world) string {
	for i, g := range w.generations {
		switch {
		case g.orders > 1:
			return fmt.Sprintf("%d transactions were applied in generation %d of the record", g.orders, i+1)
		case g.harmless && !w.once():
		case g.effects > 1:
			return fmt.Sprintf("the provider saw %d effects in generation %d of the record", g.effects, i+1)
		case w.dedupes():
		case g.harmless: // with a transaction it may run again, but has no second effect
		case g.entries > 1+g.retryable:
			return fmt.Sprintf("the handler was entered %d times in generation %d of the record, which was retryable %d times", g.entries, i+1, g.retryable)
		}
	}
	return ""
}

// fencing: no write comes twice, and no claim after the deadline of its request.
func fencing(w *world) string {
	c := w.change
	switch {
	case c == nil || c.After == nil:
	case c.recurs:
		return fmt.Sprintf("the write id of %s was used before", c.by.name)
	case c.Claims() && !c.call.sent.Before(c.by.deadline):
		return fmt.Sprintf("%s claimed the record after its own deadline", c.by.name)
	}
	return ""
}

// hadEffect reports whether the effect of the actor of that name has happened,
// also if evidence names it.
func (w *world) hadEffect(name string) bool {
	name = strings.TrimPrefix(name, found)
	return slices.ContainsFunc(w.actors, func(a *actor) bool { return (a.name == name || a.applied == name) && a.effect == landed })
}

func scopes(w *world) string {
	if c := w.change; c != nil && c.by != nil && c.by.role == neighbour {
		return fmt.Sprintf("%s wrote the record of another scope", c.by.name)
	}
	if a := w.answered; a != nil && a.role == neighbour && a.reply.record != nil && !a.reply.own(&a.call) {
		return fmt.Sprintf("%s found the record of another scope: %q, %v", a.name, a.value, a.err)
	}
	return ""
}

func unknownAbsorbs(w *world) string {
	c := w.change
	switch {
	case c == nil || c.Before == nil || c.After == nil || !c.Owner:
	case !c.by.entered && c.After.State == driver.StateUnknown:
		return fmt.Sprintf("%s made its record unknown but has never run", c.by.name)
	case c.by.plan == unsure && c.After.State == driver.StateRetryable:
		return fmt.Sprintf("%s made its record retryable but does not know what happened", c.by.name)
	}
	return ""
}

// liveness: a record that waits for evidence is listed as due, and every other
// record expires, but not before its lease ends. The end of a schedule checks
// the rest.
func liveness(w *world) string {
	if r := w.record; r != nil {
		waits := r.State == driver.StateUnknown ||
			r.State == driver.StateInProgress && (r.Recovery != idempotent.Rerun || !invariant.RunsAgain(r)) ||
			r.State == driver.StateRetryable && r.Recovery == idempotent.Resume && (len(r.Steps) > 0 || w.generation().open)
		if waits == r.Due.IsZero() || waits != r.Expires.IsZero() {
			return fmt.Sprintf("the record is %s, due at %v, and expires at %v", r.State, r.Due, r.Expires)
		}
		if !r.Expires.IsZero() && r.Expires.Before(r.LeaseEnd) {
			return "the record expires before its lease ends"
		}
	}
	if a := w.answered; a != nil && a.role == requeuer && a.err == nil {
		if r := w.record; r != nil && r.State == driver.StateInProgress && !r.Due.IsZero() && !w.now.Before(r.LeaseEnd) {
			return "the record was requeued, and its lease has ended, but it is in progress"
		}
	}
	if w.ended && (w.record == nil || w.record.State != driver.StateCompleted) {
		return fmt.Sprintf("in the end the record is %s", stateOf(w.record))
	}
	return ""
}

func failClosed(w *world) string {
	a := w.entered
	switch {
	case a == nil || a.role == neighbour:
		return ""
	case a.gen == 0 || a.claim.record.State != driver.StateInProgress || a.claim.record.Owner != a.owner:
		return fmt.Sprintf("%s entered its handler without a claim", a.name)
	case a.grant.err != nil || a.grant.record != nil && !a.grant.own(&a.claim):
		return fmt.Sprintf("%s entered its handler although it learned that %s", a.name, a.grant.describe(&a.claim))
	case !w.now.Before(a.deadline):
		return fmt.Sprintf("%s entered its handler after its deadline", a.name)
	}
	return ""
}

// monotone: there is one recovery point, which is the step of the handler.
func monotone(w *world) string {
	if a := w.answered; a != nil && a.finished && a.reply.err == nil && w.record != nil &&
		w.record.Owner == a.owner && w.record.State != driver.StateCompleted {
		if s, _ := w.record.Step(stepName); !s.Finished {
			return fmt.Sprintf("%s has reported its outcome, but the record does not have its finished step", a.name)
		}
	}
	if a := w.provided; a != nil && w.scenario.Step != nil {
		if s, _ := a.claim.record.Step(stepName); s.Finished {
			return fmt.Sprintf("%s runs a step again that was finished when it took the record over", a.name)
		}
	}
	c := w.change
	if c == nil || c.Before == nil || c.After == nil || c.Insert || c.After.State != driver.StateCompleted || c.by.testifies() || c.By == invariant.Corrector {
		return ""
	}
	switch by := outcome(c.After); {
	case (w.stepped() || w.scenario.Commit) && !w.hadEffect(by):
		return fmt.Sprintf("%s completed the record with %q, but no handler returned it", c.by.name, by)
	case w.scenario.CommitStep && w.generation().orders == 0:
		return fmt.Sprintf("%s completed the record with %q, but its transaction was never applied", c.by.name, by)
	}
	return ""
}

// asDeclared: only a claim declares.
func asDeclared(w *world) string {
	c := w.change
	if c == nil || c.After == nil {
		return ""
	}
	g := w.generation()
	if c.After.Recovery != g.recovery {
		return fmt.Sprintf("the write of %s made the recovery %s, but the last run declared %s", c.by.name, c.After.Recovery, g.recovery)
	}
	settled := c.After.State == driver.StateCompleted || c.After.State == driver.StateRetryable
	if until := c.After.Expires; settled && !until.IsZero() && until.Before(c.After.Since.Add(g.retention)) {
		return fmt.Sprintf("the write of %s stores the record until %v, but the last run declared %s", c.by.name, until, g.retention)
	}
	return ""
}

// toldTheTruth: no transaction of a run is applied, before or after its handler was
// answered that nothing was written.
func toldTheTruth(w *world) string {
	for _, a := range w.actors {
		if a.denied && a.effect == landed {
			return fmt.Sprintf("%s learned that nothing was written, but its transaction with the result %q was applied", a.name, a.applied)
		}
		if a.misled {
			return fmt.Sprintf("%s learned that another outcome is stored, but that is its own result %q", a.name, a.applied)
		}
	}
	return ""
}

// inTime: the last 100 ms before the deadline of a request are for its answer. A call that
// begins later lasts at most half of what is left, or the margin after the deadline.
func inTime(w *world) string {
	for _, a := range w.actors {
		p := a.process()
		if !p.requests() || a.phase != calling {
			continue
		}
		left := p.deadline.Sub(a.call.since)
		most := left - 100*time.Millisecond
		switch {
		case left <= 0:
			most = margin
		case most <= 0:
			most = left / 2
		}
		if a.call.lasts > most {
			return fmt.Sprintf("%s waits for up to %s, and its deadline is %s away", a.name, a.call.lasts, left)
		}
	}
	return ""
}

// announcement: an announced record is due from the end of its lease, and stays
// announced while it is in progress and due.
func announcement(w *world) string {
	for _, n := range w.actors {
		switch a := n.run; {
		case a == nil:
		case !n.fired.IsZero() && n.fired.Before(a.deadline.Add(-400*time.Millisecond)):
			return fmt.Sprintf("%s begins %s before the deadline", n.name, a.deadline.Sub(n.fired))
		case n.writing() && a.writing():
			return fmt.Sprintf("%s and %s write at the same time", a.name, n.name)
		case n.writing() && a.committed:
			return fmt.Sprintf("%s writes, but its Commit has returned", n.name)
		case n.writing() && a.left && a.phase != blocked:
			return fmt.Sprintf("%s writes, but its handler has returned", n.name)
		}
	}
	c := w.change
	if c == nil || c.After == nil {
		return ""
	}
	before, after, due := c.Before, c.After, !c.After.Due.IsZero() && c.After.State == driver.StateInProgress
	was := before != nil && before.Announced && before.Owner == after.Owner
	switch {
	case after.Announced && (!due || !after.Due.Equal(after.LeaseEnd) || after.Exhausted):
		return fmt.Sprintf("an announced record is %s, and due at %v", after.State, after.Due)
	case c.call.announces && (before == nil || before.State != driver.StateInProgress || before.Owner != c.by.owner):
		return fmt.Sprintf("the announcement of %s changed a record that is %s", c.by.name, stateOf(before))
	case after.Announced != (due && (was || c.call.announces)):
		return fmt.Sprintf("the write of %s made the record announced: %t", c.by.name, after.Announced)
	}
	return ""
}

// discardedStays: who claims the key after an outcome was discarded does not store
// it again. (The late owner of that outcome may: that is an event.)
func discardedStays(w *world) string {
	c := w.change
	if c == nil || c.After == nil || c.After.State != driver.StateCompleted || c.by.gen != len(w.generations) {
		return ""
	}
	if outcome(c.After) == earlier && w.generation().discarded == earlier {
		return "the outcome of the predecessor is stored again, although it was discarded"
	}
	return ""
}

func stateOf(r *driver.Record) string {
	if r == nil {
		return "deleted"
	}
	return r.State.String()
}

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

// asTheModel: a write makes of the record what the model of a key makes of it,
// with its expiry, its due time, its step and everything else.
func asTheModel(w *world) string {
	c := w.change
	if c == nil || c.After == nil || c.by.role == neighbour || c.recurs {
		return ""
	}
	got, want := model.Of(c.After, stepName), c.modelled()
	if got != want {
		return fmt.Sprintf("the write of %s made the record\n%+v, in the model it is\n%+v; before, it was\n%+v", c.by.name, got, want, model.Of(c.Before, stepName))
	}
	return ""
}

// modelled returns what the model makes of the record.
func (c *change) modelled() model.Key {
	const self, other = 1, 2 // owners
	a := c.by
	p := model.Policy{Margin: margin.Milliseconds(), Retention: a.retention().Milliseconds(), ReconcileAfter: reconcileAfter.Milliseconds()}
	now := c.call.sent.UnixMilli()
	k, r := model.Of(c.Before, stepName), model.Request{
		Owner: self, Recovery: model.Recovery(a.recovery()), Retention: a.retention().Milliseconds(), Deadline: a.deadline.UnixMilli(),
		OpenBefore: model.Millis(a.openSince), Step: c.call.known, Forgotten: c.call.forgotten,
	}
	k.Owner = other
	if c.Before != nil && c.Before.Fingerprint != c.After.Fingerprint {
		r.Fingerprint++
	}
	own := c.Owner && !c.Claims()
	if own {
		k.Owner = self
	}
	switch {
	case a.testifies():
		k = p.Resolve(k, a.evidence.modelled(), now)
	case a.role == reaper:
		k = p.Sweep(k, now)
	case a.role == forgetter:
		k = p.Forget(k, now)
	case a.role == corrector:
		k = p.Correct(k, now)
	case a.role == requeuer:
		k = p.Requeue(k, now)
	case !own:
		if !c.Claims() { // it marks the record of another owner unknown, however late
			r.Deadline = now + 1
		}
		k = p.Claim(k, r, c.call.judged.UnixMilli())
	case !c.call.entered && c.After.State == driver.StateCompleted: // with the predecessor's outcome
		k = p.Settle(k, r, model.Outcome{Kind: model.Result}, now)
	case !c.call.entered:
		k = p.Release(k, r, now)
	case c.call.announces:
		k = p.Announce(k, r, now)
	case c.After.State == driver.StateInProgress:
		k = p.Mark(k, r, now)
	default:
		k = p.Settle(k, r, a.outcome(c.call.kind == commit), now)
	}
	return k.Nameless()
}

func (e evidence) modelled() model.Outcome {
	switch {
	case e.step:
		return model.Outcome{Kind: model.StepDone, Value: fmt.Sprintf("%q", e.value)}
	case e.value != "":
		return model.Outcome{Kind: model.Result}
	}
	return model.Outcome{Kind: model.NotExecuted}
}

// outcome returns how the handler of a ended. A handler ends a transaction that
// completes its record with a result.
func (a *actor) outcome(commits bool) model.Outcome {
	switch {
	case commits, a.left && a.failed == nil:
		return model.Outcome{Kind: model.Result}
	case idempotent.IsUnknown(a.failed):
		return model.Outcome{Kind: model.Maybe}
	case !a.w.stepped() && (a.plan == refuse || a.plan == lie):
		return model.Outcome{Kind: model.NotExecuted}
	}
	return model.Outcome{Kind: model.Failed}
}
