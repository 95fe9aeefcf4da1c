// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"errors"
	"fmt"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

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
