// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// settlement is the result of settle.
type settlement struct {
	stored   bool           // a retry gets the reported outcome
	record   *driver.Record // if stored: the current record
	standing *driver.Record // another outcome is stored, and every caller gets it
	lost     bool           // another run owns the record
	as       outcome        // the outcome as it was judged last
}

// settle writes the outcome of the work w. It returns no error to the caller: an
// outcome that could not be stored is reported as an event, and the record
// follows its recovery when the lease ends.
func (a *attempt) settle(ctx context.Context, w *work, out outcome) (s settlement) {
	a.enter(phaseSettle)
	ctx, cancel := a.window.OutcomeContext(ctx)
	defer cancel()
	by := &outcomeWriter{a: a, w: w, out: out, kind: settledEvent(out.state)}
	r := a.guard.apply(ctx, w.seen, &change{opts: a.opts, by: by, out: out, rounds: maxRounds})
	s.as = by.out
	switch r.end {
	case endWritten:
		a.observe(ctx, by.kind, r.record, r.out.err)
		a.remember(r.record, r.out.result)
		s.stored, s.record = r.out.encoding != driver.EncodingOmitted, r.record
		return s
	case endAgreed: // the record is unknown or retryable as it should be
		return s
	case endApplied:
		a.observe(ctx, event.Completed, r.record, nil)
		s.standing = r.record
		return s
	case endStanding:
		a.observeStanding(ctx, r.record, out)
		s.standing = r.record
		return s
	case endLost:
		if r.err == nil {
			a.observe(ctx, event.LeaseLost, r.record, out.err)
			s.lost = true
			return s
		}
	case endRefused, endFailed, endContended:
	}
	a.observe(ctx, event.CompletionFailed, r.record, storeError(a.id, driver.OpReplace, r.err))
	return s
}

// observeStanding reports that an outcome other than out is stored: that of a
// later run, or evidence.
func (a *attempt) observeStanding(ctx context.Context, r *driver.Record, out outcome) {
	switch {
	case r.Owner != a.owner:
		a.observe(ctx, event.LeaseLost, r, out.err)
	default:
		if same, _ := a.guard.holds(ctx, a.opts, r, out); !same {
			a.observe(ctx, event.Contradicted, r, out.err)
		}
	}
}

// outcomeOf returns the outcome of the work w whose handler returned err, or
// panicked with it.
func outcomeOf(err error, w *work, panicked bool) outcome {
	failure := func(state driver.State, reason driver.Reason) outcome {
		return outcome{state: state, reason: reason, err: err, failed: true, panicked: panicked}
	}
	switch {
	case w.forgotten != nil:
		return failure(driver.StateUnknown, driver.ReasonKeysForgotten)
	case IsUnknown(err):
		return failure(driver.StateUnknown, driver.ReasonUnknown)
	}
	reason := driver.ReasonPanic
	if !panicked {
		if IsNotExecuted(err) && !w.began() {
			return failure(driver.StateRetryable, driver.ReasonNotExecuted)
		}
		if final, ok := AsFinal(err); ok && w.doubted() == nil {
			return outcome{state: driver.StateCompleted, reason: driver.ReasonFinal, encoding: driver.EncodingFinal, result: encodeFinal(final)}
		}
		reason = driver.ReasonHandlerError
	}
	switch next := w.next(); {
	case next.RunsAgain():
		return failure(driver.StateRetryable, reason)
	case next.Recovery != driver.Reconcile:
		reason = driver.ReasonInterrupted
	}
	return failure(driver.StateUnknown, reason)
}

// succeeded returns the outcome of a function that returned value. If value
// cannot be encoded, the outcome omits it: the effect has happened and the caller
// gets the value.
func (a *attempt) succeeded(ctx context.Context, held *driver.Record, value any) outcome {
	out := outcome{state: driver.StateCompleted, reason: driver.ReasonResult}
	var err error
	if out.encoding, out.result, err = encodeResult(a.opts.Codec, value); err != nil {
		a.observe(ctx, event.CompletionFailed, held, err)
		return out.omitted(err)
	}
	return out
}

// outcomeWriter writes the outcome of the work of an attempt.
type outcomeWriter struct {
	a    *attempt
	w    *work
	out  outcome
	kind event.Kind // event to report after the write
}

// meet continues from current. Evidence in it can change how a failed handler's
// outcome counts: a step that was interrupted is now finished, or an attempt that
// reports no effect had one.
func (o *outcomeWriter) meet(current *driver.Record) (applied bool) {
	if o.w.wrote(current.Version) {
		return true
	}
	o.kind = event.LateCompletion
	o.w.meet(current) // if another run owns it, judge ends the change
	if o.out.failed {
		o.out = outcomeOf(o.out.err, o.w, o.out.panicked)
	}
	return false
}

// judge returns how the outcome changes current. The handler has returned, so the
// record may expire before its lease ends.
func (o *outcomeWriter) judge(ctx context.Context, current *driver.Record, now time.Time) judgement {
	a, w := o.a, o.w
	next := *current
	next.Steps, next.Ref = w.steps, w.ref
	next.PredecessorAnswered = next.PredecessorAnswered || w.answered
	if !w.began() {
		next.OpenSince = a.openBefore
	}
	next = a.opts.transition(&next, o.out.state, o.out.reason, now)
	switch decideLate(current, a.owner, a.fp, &next, now) {
	case lateContradict:
		return judgement{next: next, contradicts: true}
	case lateWrite:
		return judgement{next: next}
	case lateAgreed:
		return judgement{end: endAgreed}
	case lateStanding:
		return judgement{end: endStanding}
	default:
		return judgement{end: endLost}
	}
}

func settledEvent(s driver.State) event.Kind {
	switch s {
	case driver.StateCompleted:
		return event.Completed
	case driver.StateRetryable:
		return event.Retryable
	case driver.StateUnknown, driver.StateInProgress:
	}
	return event.MarkedUnknown
}
