package lambdahttp

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
)

// soon is the default of Retry-After.
const soon = time.Second

// refused converts an error of the guard to a response to r, which is nil if
// the request had no key.
func (e *engine) refused(r *Request, err error) (answer, error) {
	// Inside another operation the guard's errors are wrapped.
	if g, ok := errors.AsType[*idempotent.InProgressError](err); ok {
		return e.inProgress(r, g.RecordID, g.Ref, g.RetryAfter), nil
	}
	if g, ok := errors.AsType[*idempotent.LeaseLostError](err); ok {
		// The attempt that took the record over is running, or has just finished.
		return e.inProgress(r, g.RecordID, "", soon), nil
	}
	if g, ok := errors.AsType[*idempotent.UnresolvedError](err); ok {
		return e.outcomeUnknown(g.Ref, g.RetryAfter), nil
	}
	if g, ok := errors.AsType[*idempotent.ReplayUnavailableError](err); ok {
		return e.unavailable(g.Ref, ""), nil
	}
	switch {
	case errors.As(err, new(*idempotent.NoKeyError)):
		return e.render(e.problem(MissingKey)), nil
	case errors.As(err, new(*idempotent.MismatchError)):
		return e.render(e.problem(KeyReused)), nil
	case errors.As(err, new(*idempotent.NoTimeError)):
		return e.renderLater(e.problem(NoTimeLeft), soon), nil
	case inDoubt(err):
		return e.outcomeUnknown("", soon), nil
	case errors.As(err, new(*idempotent.StoreError)):
		return e.renderLater(e.problem(StoreUnavailable), soon), nil
	}
	return answer{}, err // an invalid Operation: a programming error
}

// inDoubt reports whether err, from a handler that ran, means that one of its
// effects may have happened.
func inDoubt(err error) bool {
	if s, ok := errors.AsType[*idempotent.StoreError](err); ok {
		return s.Entered
	}
	_, ok := errors.AsType[*idempotent.UnknownError](err)
	return ok
}

func (e *engine) outcomeUnknown(resource string, wait time.Duration) answer {
	p := e.problem(OutcomeUnknown)
	p.Resource = resource
	return e.renderLater(p, wait)
}

// inProgress answers a request while another with its key is running.
func (e *engine) inProgress(r *Request, record idempotent.RecordID, resource string, wait time.Duration) answer {
	situation, location := InProgress, ""
	if e.opts.Accepted != nil {
		situation, location = Accepted, e.opts.Accepted(r, record)
	}
	p := e.problem(situation)
	p.Resource = resource
	a := e.renderLater(p, wait)
	if location != "" {
		a = a.mark("Location", location)
	}
	return a
}

func (e *engine) invalidKey(err error) answer {
	p := e.problem(InvalidKey)
	p.Detail = because(p.Detail, err.Error())
	return e.render(p)
}

// invalidBody answers a request that Request.Body or a FingerprintRule refused.
func (e *engine) invalidBody(err error) (answer, error) {
	var refused *BodyError
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return e.render(e.problem(BodyTooLarge)), nil
	case !errors.As(err, &refused):
		return answer{}, err
	}
	p := e.problem(InvalidBody)
	if refused.digest {
		p = e.problem(InvalidDigest)
	}
	p.Detail = because(p.Detail, refused.Detail)
	return e.render(p), nil
}

// because appends a reason to a sentence.
func because(sentence, reason string) string {
	if reason == "" {
		return sentence
	}
	return strings.TrimSuffix(sentence, ".") + ": " + strings.TrimSuffix(reason, ".") + "."
}
