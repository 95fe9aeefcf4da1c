// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"fmt"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/tests/guard/model"
)

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
