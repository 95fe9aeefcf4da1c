package model_test

import (
	"errors"
	"fmt"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/tests/model"
)

// This file is where the guard's words become the model's, and back.

// ending is how a handler ends.
type ending struct {
	model.Outcome
	panics bool
	raised error // what it returns or panics with
}

func newEnding(o model.Outcome, panics bool) ending {
	e := ending{Outcome: o, panics: panics}
	switch o.Kind {
	case model.Final:
		e.raised = idempotent.Final("declined", o.Value)
	case model.NotExecuted:
		e.raised = idempotent.NotExecuted(errors.New("nothing happened"))
	case model.Maybe:
		e.raised = idempotent.Unknown(errors.New("no answer"))
	default:
		e.raised = errors.New("the handler failed")
	}
	return e
}

// end ends a handler.
func (e ending) end() (string, error) {
	switch {
	case e.panics:
		panic(e.raised)
	case e.Kind == model.Result:
		return e.Value, nil
	}
	return "", e.raised
}

// outcome is what the model is to make of it: a panic with a business outcome
// declares nothing.
func (e ending) outcome() model.Outcome {
	if e.panics && (e.Kind == model.Final || e.Kind == model.Result) {
		return model.Outcome{Kind: model.Failed}
	}
	return e.Outcome
}

// reply is what a request came to, as its caller sees it.
type reply struct {
	value    idempotent.Outcome[string]
	err      error
	panicked any
}

// panicked is the verdict on a handler that panicked: the model knows only
// what it leaves behind.
const panicked model.Verdict = "panicked"

// answer returns r in the model's words. The handler of the request, if it was
// entered, ended with e.
func (r reply) answer(e ending) model.Answer {
	var (
		running    *idempotent.InProgressError
		unresolved *idempotent.UnresolvedError
		final      *idempotent.FinalError
		a          = model.Answer{Stored: r.value.Stored}
	)
	a.Verdict = model.Own
	if r.value.Replayed {
		a.Verdict = model.Replayed
	}
	switch {
	case r.panicked != nil:
		a.Verdict, a.Outcome = panicked, e.Outcome
		if r.panicked != any(e.raised) {
			a.Verdict = "another panic than the handler's"
		}
	case r.err == nil:
		a.Outcome = model.Outcome{Kind: model.Result, Value: r.value.Value}
	case r.err == e.raised:
		a.Outcome = e.Outcome
	case errors.Is(r.err, idempotent.ErrLeaseLost): // may hold the handler's error, so it comes first
		a.Verdict = model.Lost
	case errors.As(r.err, &final):
		a.Outcome = model.Outcome{Kind: model.Final, Value: final.Message}
	case errors.As(r.err, &running):
		a.Verdict, a.RetryAfter = model.Running, running.RetryAfter.Milliseconds()
	case errors.As(r.err, &unresolved):
		a.Verdict, a.RetryAfter = model.Unresolved, unresolved.RetryAfter.Milliseconds()
	case errors.Is(r.err, idempotent.ErrMismatch):
		a.Verdict = model.Mismatch
	case errors.Is(r.err, idempotent.ErrNoTime):
		a.Verdict = model.NoTime
	default:
		a.Verdict = unforeseen(r.err)
	}
	return a
}

// unforeseen is the verdict on an error that the model does not have.
func unforeseen(err error) model.Verdict { return model.Verdict(fmt.Sprintf("%T", err)) }

// resolution turns evidence into the guard's form.
func resolution(o model.Outcome) idempotent.Resolution {
	switch o.Kind {
	case model.Result:
		return idempotent.Resolved(o.Value)
	case model.Final:
		return idempotent.ResolvedFinal("declined", o.Value)
	default:
		return idempotent.ProvenNotExecuted()
	}
}

// resolved returns what Resolve returned, in the model's words.
func resolved(err error) model.Answer {
	var running *idempotent.InProgressError
	switch {
	case err == nil:
		return model.Answer{Verdict: model.Done}
	case errors.As(err, &running):
		return model.Answer{Verdict: model.Running, RetryAfter: running.RetryAfter.Milliseconds()}
	case errors.Is(err, idempotent.ErrSettled):
		return model.Answer{Verdict: model.Settled}
	case errors.Is(err, idempotent.ErrNoRecord):
		return model.Answer{Verdict: model.Gone}
	default:
		return model.Answer{Verdict: unforeseen(err)}
	}
}

// seen returns what a record says in the model's words, without the names that
// the model has for its fingerprint and its owner, and without its outcome:
// replays tell that.
func seen(r *driver.Record) model.Key {
	if r == nil {
		return model.Key{}
	}
	k := model.Key{
		State:    model.State(r.State.Code()[0]),
		Rerun:    r.Recovery == idempotent.Rerun,
		Attempt:  r.Attempt,
		LeaseEnd: r.LeaseEnd.UnixMilli(),
	}
	if !r.Expires.IsZero() {
		k.Expires = r.Expires.UnixMilli()
	}
	if !r.Due.IsZero() {
		k.Due = r.Due.UnixMilli()
	}
	return k
}
