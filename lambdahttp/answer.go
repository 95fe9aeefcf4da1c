// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/errtype"
)

// RefuseReplay returns the error with which [Options.BeforeReplay] refuses to
// replay a stored response. The detail is shown to the client and should say
// what has changed: "The charge was deleted." An empty detail leaves the
// standard text.
func RefuseReplay(detail string) error { return &replayRefused{detail} }

type replayRefused struct{ detail string }

func (e *replayRefused) Error() string { return "lambdahttp: replay refused: " + e.detail }

// responder makes the responses that the caller gets instead of the handler's. It
// is immutable.
type responder struct {
	opts    *Options
	headers [len(situations)][]mark // extra headers of problems, besides those of Render
}

// replay returns the response for a stored outcome: a response, or the
// FinalError err. It filters the headers again, because the record may be older
// than the current rules.
func (e *responder) replay(ctx context.Context, r *Request, out idempotent.Outcome[stored], err error) (answer, error) {
	var final *idempotent.FinalError
	if errors.As(err, &final) {
		return e.replayed(e.final(final), out), nil
	}
	if out.Value.withheld {
		return e.unavailable(out.Ref, out.Value.hint), nil
	}
	response := out.Value.Response
	response.Header = e.opts.replayed.filter(response.Header)
	if e.opts.BeforeReplay != nil {
		err := e.opts.BeforeReplay(ctx, r, response)
		var refused *replayRefused
		switch {
		case errors.As(err, &refused):
			return e.unavailable(out.Ref, refused.detail), nil
		case err != nil:
			return answer{}, err
		}
	}
	return e.replayed(answer{response: &response}, out), nil
}

func (e *responder) replayed(a answer, out idempotent.Outcome[stored]) answer {
	a = e.status(a.mark(headerReplayed, "true"), statusReplayed)
	return e.expires(a, out.Expires)
}

// refused converts an error of the guard to a response to r, which is nil if
// the request had no key.
func (e *responder) refused(r *Request, err error) (answer, error) {
	// Inside another operation the guard's errors are wrapped.
	if g, ok := errors.AsType[*idempotent.InProgressError](err); ok {
		return e.inProgress(r, g), nil
	}
	if g, ok := errors.AsType[*idempotent.LeaseLostError](err); ok {
		// The attempt that took the record over is running, or has just finished.
		return e.inProgress(r, &idempotent.InProgressError{RecordID: g.RecordID, RetryAfter: soon}), nil
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

// inProgress answers a request while another with its key is running.
func (e *responder) inProgress(r *Request, running *idempotent.InProgressError) answer {
	situation, location := InProgress, ""
	if e.opts.Accepted != nil {
		situation, location = Accepted, e.opts.Accepted(r, running.RecordID)
	}
	p := e.problem(situation)
	p.Resource, p.Until = running.Ref, running.Until
	a := e.renderLater(p, running.RetryAfter)
	if location != "" {
		a = a.mark("Location", location)
	}
	return a
}

func (e *responder) outcomeUnknown(resource string, wait time.Duration) answer {
	p := e.problem(OutcomeUnknown)
	p.Resource = resource
	return e.renderLater(p, wait)
}

// unavailable returns the response for a stored outcome that cannot be
// replayed.
func (e *responder) unavailable(resource, detail string) answer {
	p := e.problem(ReplayUnavailable)
	p.Resource = resource
	if detail != "" {
		p.Detail = detail
	}
	return e.render(p)
}

func (e *responder) invalidKey(err error) answer {
	p := e.problem(InvalidKey)
	p.Detail = because(p.Detail, err.Error())
	return e.render(p)
}

// invalidBody answers a request that Request.Body or a FingerprintRule refused.
func (e *responder) invalidBody(err error) (answer, error) {
	var refused *BodyError
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return e.render(e.problem(BodyTooLarge)), nil
	case !errors.As(err, &refused):
		return answer{}, err
	}
	p := e.problem(cmp.Or(refused.situation, InvalidBody))
	p.Detail = because(p.Detail, refused.Detail)
	return e.render(p), nil
}

// unprepared answers a request that was refused before its key was claimed.
func (e *responder) unprepared(err error) (answer, error) {
	p, ok := problemIn(err)
	if !ok {
		return e.invalidBody(err)
	}
	response, err := e.ownProblem(p)
	return answer{response: &response}, err
}

// problemIn returns the problem that an error of the API's own code declares.
func problemIn(err error) (*Problem, bool) {
	p, _ := errtype.Declared[*Problem](err)
	return p, p != nil
}

// ownProblem returns the response for a problem of the API itself.
func (e *responder) ownProblem(p *Problem) (Response, error) {
	if p.Status < 400 || p.Status > 599 {
		return Response{}, fmt.Errorf("lambdahttp: the handler returned a Problem whose Status is %d; it must be 400 to 599", p.Status)
	}
	full := *p
	full.Type = cmp.Or(p.Type, blankType)
	full.Title = cmp.Or(p.Title, http.StatusText(p.Status))
	full.Code = cmp.Or(p.Code, strings.ReplaceAll(strings.ToLower(http.StatusText(p.Status)), " ", "_"), "error")
	return e.opts.Profile.Render(full), nil
}

// because appends a reason to a sentence.
func because(sentence, reason string) string {
	if reason == "" {
		return sentence
	}
	return strings.TrimSuffix(sentence, ".") + ": " + strings.TrimSuffix(reason, ".") + "."
}

func (e *responder) final(f *idempotent.FinalError) answer {
	p := e.problem(FinalOutcome)
	p.Code = cmp.Or(f.Code, p.Code)
	if f.Message != "" {
		p.Detail = f.Message
	}
	return e.render(p)
}

// problem returns the standard problem of a situation.
func (e *responder) problem(s Situation) Problem {
	a := &e.opts.Profile.Answers[s]
	p := Problem{Situation: s, Type: blankType, Title: a.Title, Status: a.Status, Detail: a.Detail, Code: s.String()}
	if base := e.opts.ProblemBase; base != "" {
		p.Type = base + s.String()
	}
	return p
}

// soon is the default of Retry-After.
const soon = time.Second

// renderLater is render with Retry-After, for a situation that waits.
func (e *responder) renderLater(p Problem, wait time.Duration) answer {
	return e.render(p).retryAfter(max(wait, soon))
}

// render returns the response for a problem.
func (e *responder) render(p Problem) answer {
	r := e.opts.Profile.Render(p)
	a := answer{response: &r}
	for _, h := range e.headers[p.Situation] {
		a = a.mark(h.name, h.value)
	}
	return e.status(a, statusOf(p.Situation))
}

// problemHeaders returns the headers of each situation's response besides those
// of Render: the profile's headers, and a link to the page about keys if the
// client has to change something or to wait (the draft, section 2.7).
func problemHeaders(o *Options) (headers [len(situations)][]mark) {
	for s, a := range o.Profile.Answers {
		if o.DocsURL != "" && Situation(s) != FinalOutcome && (a.Status == 400 || a.Status == 409 || a.Status == 422) {
			headers[s] = append(headers[s], mark{"Link", "<" + o.DocsURL + `>; rel="describedby"; type="text/html"`})
		}
		for _, name := range slices.Sorted(maps.Keys(a.Header)) {
			headers[s] = append(headers[s], mark{http.CanonicalHeaderKey(name), a.Header[name]})
		}
	}
	return headers
}

// expires sets Idempotency-Expires, if the options enable it: the expiry of the
// outcome as an HTTP date (RFC 9110, section 5.6.7), rounded down.
func (e *responder) expires(a answer, at time.Time) answer {
	if !e.opts.ExpiresHeader {
		return a
	}
	return a.mark(headerExpires, at.Format(http.TimeFormat))
}

// status sets Idempotency-Status, if the profile enables it.
func (e *responder) status(a answer, value string) answer {
	if !e.opts.Profile.StatusHeader || value == "" {
		return a
	}
	return a.mark(headerStatus, value)
}

// statusOf returns the status of the key in a situation, or "" if it is not
// known.
func statusOf(s Situation) string {
	switch s {
	case InProgress, Accepted, ReplayUnavailable:
		return statusConflict
	case KeyReused:
		return statusMismatch
	case OutcomeUnknown:
		return statusUnknown
	case MissingKey, InvalidKey, KeyNotAllowed, UnknownCaller, InvalidBody, LengthRequired, BodyTooLarge, InvalidDigest, StoreUnavailable,
		NoTimeLeft, FinalOutcome:
	}
	return ""
}

// The values of Idempotency-Status. All but the last are sent with
// Profile.StatusHeader only.
const (
	statusCreated   = "created"
	statusReplayed  = "replayed"
	statusConflict  = "conflict"
	statusMismatch  = "mismatch"
	statusUnknown   = "unknown"
	statusIgnored   = "ignored"
	statusNotStored = "not-stored"
)

// statuses describes each value.
var statuses = []struct{ value, meaning string }{
	{statusCreated, "the request was executed, and its response is stored"},
	{statusReplayed, "this is the stored response"},
	{statusConflict, "the first request is running, or its response is gone"},
	{statusMismatch, "the key belongs to another request"},
	{statusUnknown, "the outcome is unknown"},
	{statusIgnored, "the request has a key, but its method is not guarded"},
	{statusNotStored, "a retry will not get this response"},
}

// answer is the response that the caller gets.
type answer struct {
	response *Response // nil: the response that the handler returned
	// marks are headers to be set on the handler's own response. In response they
	// are already set.
	marks  []mark
	marked []string // names of all headers that were set by mark
}

type mark struct{ name, value string }

// mark sets a header. The name must be canonical.
func (a answer) mark(name, value string) answer {
	a.marked = append(a.marked, name)
	if a.response == nil {
		a.marks = append(a.marks, mark{name, value})
		return a
	}
	if a.response.Header == nil {
		a.response.Header = http.Header{}
	}
	a.response.Header.Set(name, value)
	return a
}

// retryAfter sets Retry-After in whole seconds (RFC 9110, section 10.2.3),
// rounded up, so that the client does not retry too early.
func (a answer) retryAfter(wait time.Duration) answer {
	seconds := (wait + time.Second - 1) / time.Second
	return a.mark("Retry-After", strconv.FormatInt(int64(seconds), 10))
}
