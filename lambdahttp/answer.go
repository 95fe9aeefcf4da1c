// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/errtype"
	"github.com/once-lambda/once/internal/timing"
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
	now     func() time.Time        // of the guard
	logger  *slog.Logger            // of the guard; nil: slog.Default
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
		return e.unavailable(out), nil
	}
	response := out.Value.Response
	response.Header = e.opts.replayed.filter(response.Header)
	if e.opts.BeforeReplay != nil {
		err := timing.Do(ctx, e.now, func(ctx context.Context) error { return e.opts.BeforeReplay(ctx, r, response) })
		var refused *replayRefused
		switch {
		case errors.As(err, &refused):
			return e.respond(ReplayUnavailable, facts{resource: out.Ref, detail: refused.detail}), nil
		case err != nil:
			return e.failed(ctx, "Options.BeforeReplay", err)
		}
	}
	return e.replayed(answer{response: &response}, out), nil
}

// unavailable returns the response for an outcome whose response cannot be sent.
func (e *responder) unavailable(out idempotent.Outcome[stored]) answer {
	return e.respond(ReplayUnavailable, facts{resource: out.Ref, detail: out.Value.hint})
}

func (e *responder) replayed(a answer, out idempotent.Outcome[stored]) answer {
	a = e.status(a.mark(&replayedHeader, "true"), statusReplayed)
	return e.expires(a, out.Expires)
}

// refused converts an error of the guard to a response to r, which is nil if
// the request had no key.
func (e *responder) refused(ctx context.Context, r *Request, err error) (answer, error) {
	// Inside another operation the guard's errors are wrapped.
	if g, ok := errors.AsType[*idempotent.InProgressError](err); ok {
		return e.inProgress(ctx, r, g), nil
	}
	if g, ok := errors.AsType[*idempotent.LeaseLostError](err); ok {
		// The attempt that took the record over is running, or has just finished.
		return e.inProgress(ctx, r, &idempotent.InProgressError{RecordID: g.RecordID}), nil
	}
	if g, ok := errors.AsType[*idempotent.UnresolvedError](err); ok {
		return e.respond(OutcomeUnknown, facts{resource: g.Ref, wait: g.RetryAfter}), nil
	}
	if g, ok := errors.AsType[*idempotent.ReplayUnavailableError](err); ok {
		return e.respond(ReplayUnavailable, facts{resource: g.Ref}), nil
	}
	if g, ok := errors.AsType[*idempotent.InvalidKeyError](err); ok && g.Field == "ID" {
		return e.respond(MissingKey, facts{}), nil
	}
	switch {
	case errors.As(err, new(*idempotent.MismatchError)):
		return e.respond(KeyReused, facts{}), nil
	case errors.As(err, new(*idempotent.NoTimeError)):
		return e.respond(NoTimeLeft, facts{}), nil
	case inDoubt(err):
		return e.respond(OutcomeUnknown, facts{}), nil
	case errors.As(err, new(*idempotent.StoreError)):
		return e.respond(StoreUnavailable, facts{}), nil
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
func (e *responder) inProgress(ctx context.Context, r *Request, running *idempotent.InProgressError) answer {
	f := facts{resource: running.Ref, until: running.Until, wait: running.RetryAfter}
	if e.opts.Accepted == nil {
		return e.respond(InProgress, f)
	}
	half, cancel := timing.Half(ctx, e.now)
	defer cancel()
	if f.location = e.opts.Accepted(half, r, running.RecordID); timing.Late(half) {
		return e.late(ctx, "Options.Accepted")
	}
	return e.respond(Accepted, f)
}

// failed answers a request for which a function of the API failed with err: with 503 if it
// did not return in its time. Any other error is returned to Lambda.
func (e *responder) failed(ctx context.Context, function string, err error) (answer, error) {
	if !errors.As(err, new(*timing.LateError)) {
		return answer{}, err
	}
	return e.late(ctx, function), nil
}

// late answers a request for which a function of the API did not return in its time.
func (e *responder) late(ctx context.Context, function string) answer {
	e.log().LogAttrs(ctx, slog.LevelWarn, "lambdahttp: a function did not return in half of the time that was left, so a request got 503 and did not run",
		slog.String("function", function))
	return e.respond(NoTimeLeft, facts{})
}

// log returns the guard's logger.
func (e *responder) log() *slog.Logger { return cmp.Or(e.logger, slog.Default()) }

// invalidBody answers a request that Request.Body or a FingerprintRule refused.
func (e *responder) invalidBody(err error) (answer, error) {
	var refused *BodyError
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return e.respond(BodyTooLarge, facts{}), nil
	case !errors.As(err, &refused):
		return answer{}, err
	}
	return e.respond(cmp.Or(refused.situation, InvalidBody), facts{reason: refused.Detail}), nil
}

// unprepared answers a request that was refused before its key was claimed.
func (e *responder) unprepared(ctx context.Context, err error) (answer, error) {
	if errors.As(err, new(*timing.LateError)) {
		return e.late(ctx, "JSON.Check"), nil
	}
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
	full := *p
	full.Status = cmp.Or(p.Status, http.StatusUnprocessableEntity)
	if full.Status < 400 || full.Status > 599 {
		return Response{}, fmt.Errorf("lambdahttp: the handler returned a Problem whose Status is %d; it must be 400 to 599", p.Status)
	}
	full.Type = cmp.Or(p.Type, blankType)
	full.Title = cmp.Or(p.Title, http.StatusText(full.Status))
	full.Code = cmp.Or(p.Code, strings.ReplaceAll(strings.ToLower(http.StatusText(full.Status)), " ", "_"), "error")
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
	return e.respond(FinalOutcome, facts{code: f.Code, detail: f.Message})
}

// problem returns the standard problem of a situation.
func (e *responder) problem(s Situation) Problem {
	a := &e.opts.Profile.Answers[s]
	p := Problem{Situation: s, Type: blankType, Title: a.Title, Status: a.Status, Detail: a.Detail, Code: s.String()}
	if page, _, _ := strings.Cut(e.opts.DocsURL, "#"); page != "" {
		p.Type = page + "#" + s.String()
	}
	return p
}

// facts are what is known about a request besides its situation. A response has those
// that carries lists for the situation.
type facts struct {
	reason   string        // why, for the end of the standard detail
	detail   string        // instead of the standard one
	code     string        // see Problem.Code
	resource string        // see Problem.Resource
	until    time.Time     // see Problem.Until
	wait     time.Duration // Retry-After; at least soon
	location string        // see Options.Accepted
}

// carries are the facts that the response of a situation can have, besides a detail.
//
//lint:ignore exhaustive the others have none
var carries = [len(situations)]struct{ code, resource, until, wait, location bool }{
	InProgress:        {resource: true, until: true, wait: true},
	Accepted:          {resource: true, until: true, wait: true, location: true},
	OutcomeUnknown:    {resource: true, wait: true},
	ReplayUnavailable: {resource: true},
	StoreUnavailable:  {wait: true},
	NoTimeLeft:        {wait: true},
	FinalOutcome:      {code: true},
}

// soon is the least Retry-After.
const soon = time.Second

// respond returns the response for a situation.
func (e *responder) respond(s Situation, f facts) answer { return e.complete(e.problem(s), f) }

// complete returns the response for a problem with the facts that it carries.
func (e *responder) complete(p Problem, f facts) answer {
	c := carries[p.Situation]
	p.Detail = cmp.Or(f.detail, because(p.Detail, f.reason))
	if c.code {
		p.Code = cmp.Or(f.code, p.Code)
	}
	if c.resource {
		p.Resource = f.resource
	}
	if c.until {
		p.Until = f.until
	}
	r := e.opts.Profile.Render(p)
	a := answer{response: &r}
	for _, h := range e.headers[p.Situation] {
		a = a.set(h.name, h.value)
	}
	a = e.status(a, statusOf(p.Situation))
	if c.wait {
		a = a.retryAfter(max(f.wait, soon))
	}
	if c.location && f.location != "" {
		a = a.mark(&locationHeader, f.location)
	}
	return a
}

// problemHeaders returns the headers of each situation's response besides those
// of Render: the profile's headers, and a link to the page about keys if the
// client has to change something or to wait (the draft, section 2.7).
func problemHeaders(o *Options) (headers [len(situations)][]mark) {
	for s, a := range o.Profile.Answers {
		if o.DocsURL != "" && Situation(s) != FinalOutcome && (a.Status == 400 || a.Status == 409 || a.Status == 422) {
			headers[s] = append(headers[s], mark{linkHeader.name, "<" + o.DocsURL + `>; rel="describedby"; type="text/html"`})
		}
		for _, name := range slices.Sorted(maps.Keys(a.Header)) {
			headers[s] = append(headers[s], mark{http.CanonicalHeaderKey(name), a.Header[name]})
		}
	}
	return headers
}

// expires sets Idempotency-Expires, if the profile has it: the expiry of the
// outcome as an HTTP date (RFC 9110, section 5.6.7), rounded down.
func (e *responder) expires(a answer, at time.Time) answer {
	if !e.opts.Profile.sets(nameExpires) {
		return a
	}
	return a.mark(&expiresHeader, at.Format(http.TimeFormat))
}

// status sets Idempotency-Status, if the profile has it.
func (e *responder) status(a answer, value string) answer {
	if !e.opts.Profile.sets(nameStatus) || value == "" {
		return a
	}
	return a.mark(&statusHeader, value)
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

// The values of Idempotency-Status. All but the last are sent only if
// Profile.ResponseHeaders has that name, see addedHeaders.
const (
	statusCreated   = "created"
	statusReplayed  = "replayed"
	statusConflict  = "conflict"
	statusMismatch  = "mismatch"
	statusUnknown   = "unknown"
	statusIgnored   = "ignored"
	statusNotStored = "not-stored"
)

// header is a header that this package sets. The responses and what clients know of
// them are made from these, see addedHeaders.
type header struct {
	name    string
	meaning string  // for clients
	values  []value // all that are possible; nil: any
	own     bool    // the handler's own response, or a stored one, can have it; otherwise only the response of a situation
}

type value struct{ text, meaning string }

var (
	replayedHeader = header{nameReplayed, "This is the stored response to an earlier request.", []value{{text: "true"}}, true}
	statusHeader   = header{nameStatus, "How the key was handled.", []value{
		{statusCreated, "the request was executed, and its response is stored"},
		{statusReplayed, "this is the stored response"},
		{statusConflict, "the first request is running, or its response is gone"},
		{statusMismatch, "the key belongs to another request"},
		{statusUnknown, "the outcome is unknown"},
		{statusIgnored, "the request has a key, but its method is not guarded"},
		{statusNotStored, "a retry will not get this response"},
	}, true}
	expiresHeader  = header{nameExpires, "When the stored response expires, as an HTTP date.", nil, true}
	exposedHeader  = header{nameExposed, "The headers that scripts of other origins can read.", nil, true}
	retryHeader    = header{"Retry-After", "How many seconds to wait before repeating the request.", nil, false}
	locationHeader = header{"Location", "The resource that reports progress.", nil, false}
	linkHeader     = header{"Link", "The page about keys.", nil, false}

	headers = []*header{&replayedHeader, &statusHeader, &expiresHeader, &exposedHeader, &retryHeader, &locationHeader, &linkHeader}
)

// answer is the response that the caller gets.
type answer struct {
	response *Response // nil: the response that the handler returned
	// marks are headers to be set on the handler's own response. In response they
	// are already set.
	marks  []mark
	marked []string // names of all headers that were set
}

type mark struct{ name, value string }

// mark sets a header of this package.
func (a answer) mark(h *header, value string) answer { return a.set(h.name, value) }

// set sets a header. The name must be canonical.
func (a answer) set(name, value string) answer {
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
	return a.mark(&retryHeader, strconv.FormatInt(int64(seconds), 10))
}
