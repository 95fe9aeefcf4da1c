package model_test

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/tests/model"
)

// This file translates between the guard's answers and the model's.

// ending is how a handler ends.
type ending struct {
	model.Outcome // what the error that it returns would declare by itself
	panics        bool
	wrapping      wrapping
	raised        error // what it returns or panics with
}

// wrapping is what a handler does with an error before it returns it.
type wrapping string

const (
	asItIs  wrapping = "as it is"
	wrapped wrapping = "wrapped"
	inAJoin wrapping = "joined with another"
)

func newEnding(o model.Outcome, panics bool, w wrapping) ending {
	e := ending{Outcome: o, panics: panics, wrapping: w}
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
	switch w {
	case wrapped:
		e.raised = fmt.Errorf("charge: %w", e.raised)
	case inAJoin:
		e.raised = errors.Join(e.raised, errors.New("and the connection did not close"))
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

// outcome returns what the ending declares: Unknown counts anywhere, Final in a
// returned error that is not joined, NotExecuted only by itself.
func (e ending) outcome() model.Outcome {
	switch {
	case e.Kind == model.Maybe:
	case e.panics,
		e.Kind == model.Final && e.wrapping == inAJoin,
		e.Kind == model.NotExecuted && e.wrapping != asItIs:
		return model.Outcome{Kind: model.Failed}
	}
	return e.Outcome
}

// reply is the result of a request, as its caller sees it.
type reply struct {
	value    idempotent.Outcome[string]
	err      error
	panicked any
}

// panicked is the verdict on a handler that panicked: the model has only its
// effect on the record.
const panicked model.Verdict = "panicked"

// answer returns r as an answer of the model. The handler of the request, if it
// was entered, ended with e.
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
		a.Outcome = e.outcome()
	case errors.As(r.err, new(*idempotent.LeaseLostError)): // may wrap the handler's error, so it comes first
		a.Verdict = model.Lost
	case errors.As(r.err, &final):
		a.Outcome = model.Outcome{Kind: model.Final, Value: final.Message}
	case errors.As(r.err, &running):
		a.Verdict, a.RetryAfter = model.Running, running.RetryAfter.Milliseconds()
	case errors.As(r.err, &unresolved):
		a.Verdict, a.RetryAfter = model.Unresolved, unresolved.RetryAfter.Milliseconds()
	case errors.As(r.err, new(*idempotent.MismatchError)):
		a.Verdict = model.Mismatch
	case errors.As(r.err, new(*idempotent.NoTimeError)):
		a.Verdict = model.NoTime
	case errors.As(r.err, new(*idempotent.StepError)) && idempotent.IsUnknown(r.err):
		a.Verdict = model.Forgotten
	default:
		a.Verdict = unforeseen(r.err)
	}
	return a
}

// unforeseen is the verdict on an error that the model does not have.
func unforeseen(err error) model.Verdict { return model.Verdict(fmt.Sprintf("%T", err)) }

// stepName is the step of every handler.
const stepName = "charge"

// resolution returns evidence in the guard's form; token names the attempt that
// it is about.
func resolution(o model.Outcome, token string) idempotent.Resolution {
	switch o.Kind {
	case model.Result:
		return idempotent.Resolved(o.Value)
	case model.Final:
		return idempotent.ResolvedFinal("declined", o.Value)
	case model.StepDone:
		return idempotent.ResolvedStep(stepName, o.Value)
	case model.StepCorrect:
		return idempotent.CorrectedStep(stepName, o.Value)
	default:
		return idempotent.ProvenNotExecuted(token)
	}
}

// resolved returns the result of Resolve as an answer of the model.
func resolved(err error) model.Answer {
	var running *idempotent.InProgressError
	switch {
	case err == nil:
		return model.Answer{Verdict: model.Done}
	case errors.As(err, &running):
		return model.Answer{Verdict: model.Running, RetryAfter: running.RetryAfter.Milliseconds()}
	case errors.As(err, new(*idempotent.SettledError)):
		return model.Answer{Verdict: model.Settled}
	case errors.As(err, new(*idempotent.StaleEvidenceError)):
		return model.Answer{Verdict: model.Stale}
	case errors.Is(err, idempotent.ErrNoRecord):
		return model.Answer{Verdict: model.Gone}
	default:
		return model.Answer{Verdict: unforeseen(err)}
	}
}

// seen returns a record in the model's form, without the model's names for its
// fingerprint and its owner, and without its outcome, which replays check.
func seen(r *driver.Record) model.Key {
	if r == nil {
		return model.Key{}
	}
	k := model.Key{
		State:     model.State(r.State.Code()[0]),
		Recovery:  model.Recovery(r.Recovery),
		Retention: cmp.Or(r.Retention, 24*time.Hour).Milliseconds(),
		Attempt:   r.Attempt,
		LeaseEnd:  r.LeaseEnd.UnixMilli(),
		Ref:       r.Ref,
	}
	if s, begun := r.Step(stepName); begun {
		k.Step = model.Step{Begun: true, Once: s.Mode == driver.AtMostOnce, Finished: s.Finished}
		if _, err := new(idempotent.Guard).Pending(*r).Step(stepName, &k.Step.Value); err != nil {
			k.Step.Value = "not decodable"
		}
	}
	if !r.OpenSince.IsZero() {
		k.OpenSince = r.OpenSince.UnixMilli()
	}
	if !r.Expires.IsZero() {
		k.Expires = r.Expires.UnixMilli()
	}
	if !r.Due.IsZero() {
		k.Due = r.Due.UnixMilli()
	}
	return k
}
