package idempotent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// settlement is what became of an outcome.
type settlement struct {
	stored   bool           // a retry gets what we reported
	record   *driver.Record // if stored: as it stands now
	standing *driver.Record // another outcome stands, and is everybody's answer
	lost     bool           // somebody else owns the record
}

// maxSettleRounds bounds how often an outcome is written again because the
// record changed under it while it was still ours: a sweeper, a webhook and a
// reconciler, each once, and one to spare.
const maxSettleRounds = 4

// settle writes the outcome of the work w. It never fails the caller: an
// outcome that could not be stored is an event, and the record follows its
// recovery when the lease ends.
func (a *attempt) settle(ctx context.Context, w *work, out outcome) settlement {
	ctx, cancel := a.opts.outcomeContext(ctx, a.window)
	defer cancel()
	now := a.opts.now()
	kind := settledEvent(out.state)
	version := driver.Version(a.random.draw()) // the chunks are kept under it
	if a.guard.keepsBeside(out) {
		out = a.putLarge(ctx, w.held, version, out, now)
	}
	for range maxSettleRounds {
		next := a.opts.transition(w.held, out.state, out.reason, version, now)
		setOutcome(&next, out)
		current, err := a.guard.replace(ctx, next, w.held.Version)
		switch {
		case errors.Is(err, ErrTooLarge) && out.encoding != driver.EncodingOmitted:
			a.observe(ctx, EventCompletionFailed, &next, err)
			out = out.omitted(err)
			continue
		case err != nil:
			// Including ErrNoRecord: the record is gone, and an outcome creates none.
			a.observe(ctx, EventCompletionFailed, &next, err)
			return settlement{}
		case current == nil:
			a.observe(ctx, kind, &next, out.err)
			if a.guard.cache != nil {
				whole := next
				whole.Result = out.result
				a.guard.cache.put(&whole, now)
			}
			return settlement{stored: out.encoding != driver.EncodingOmitted, record: &next}
		}
		now = a.opts.now()
		switch decideLate(current, a.owner, a.fp, out.state, now) {
		case lateContradict:
			a.observe(ctx, EventContradicted, current, out.err)
			kind = EventLateCompletion
		case lateWrite:
			kind = EventLateCompletion
		case lateAgreed:
			return settlement{stored: true, record: current}
		case lateStanding:
			switch {
			case current.Version == w.doubts[""].version:
				// Our own transaction was applied after all.
				a.observe(ctx, EventCompleted, current, nil)
			case current.Owner != a.owner:
				a.observe(ctx, EventLeaseLost, current, out.err)
			case !out.equals(current):
				a.observe(ctx, EventContradicted, current, out.err)
			}
			return settlement{standing: current}
		case lateLost:
			a.observe(ctx, EventLeaseLost, current, out.err)
			return settlement{lost: true}
		}
		// Still ours: keep what others wrote into it, on the version that stands.
		// A completed record stays, so a completion that met another write was
		// not applied, and its id serves the next round. Any other outcome may
		// have been applied and replaced before the reply came: its id must not
		// come back.
		if out.state != driver.StateCompleted {
			version = a.random.draw()
		}
		w.meet(current)
	}
	a.observe(ctx, EventCompletionFailed, w.held, fmt.Errorf("the record changed %d times while its outcome was being written", maxSettleRounds))
	return settlement{}
}

func settledEvent(s driver.State) EventKind {
	switch s {
	case driver.StateCompleted:
		return EventCompleted
	case driver.StateRetryable:
		return EventRetryable
	default:
		return EventMarkedUnknown
	}
}

// putLarge writes a large result beside the record held, ahead of the outcome
// and with a time budget of its own: two thirds of what is left, the rest is
// the record's. A result that does not fit in is omitted.
func (a *attempt) putLarge(ctx context.Context, held *driver.Record, version driver.Version, out outcome, now time.Time) outcome {
	ctx, cancel := withinTwoThirds(ctx)
	defer cancel()
	expires := a.opts.transition(held, out.state, out.reason, version, now).Expires
	chunked, err := a.guard.putChunks(ctx, a.id, version, out, expires)
	if err != nil {
		a.observe(ctx, EventCompletionFailed, held, err)
		return out.omitted(err)
	}
	return chunked
}

// withinTwoThirds returns ctx, which has a deadline, with two thirds of its time.
func withinTwoThirds(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, _ := ctx.Deadline()
	return context.WithTimeout(ctx, time.Until(deadline)*2/3)
}

// omitted returns the outcome without its result.
func (o outcome) omitted(err error) outcome {
	return outcome{state: o.state, reason: driver.ReasonOmitted, encoding: driver.EncodingOmitted, version: o.version, err: err}
}
