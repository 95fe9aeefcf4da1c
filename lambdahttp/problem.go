package lambdahttp

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"
)

// Problem describes to a client why it gets this response instead of the
// handler's. Its JSON form is a problem document of RFC 9457. It never contains
// the key.
type Problem struct {
	// Situation is the reason.
	Situation Situation `json:"-"`
	Type      string    `json:"type"` // URI: Options.ProblemBase and the situation
	Title     string    `json:"title"`
	Status    int       `json:"status"`
	Detail    string    `json:"detail,omitempty"`
	// Code is the code of an idempotent.FinalError.
	Code string `json:"code,omitempty"`
	// Resource is the reference that the key's first request set with
	// Execution.SetRef.
	Resource string `json:"resource,omitempty"`
}

// ProblemJSON renders p as application/problem+json (RFC 9457, section 3). A
// status below 400 is not a problem: it is rendered as application/json with
// the same members.
func ProblemJSON(p Problem) Response {
	media := "application/problem+json"
	if p.Status < 400 {
		media = "application/json"
	}
	body, _ := json.Marshal(p) // strings and a number always encode
	return Response{
		Status: p.Status,
		Header: http.Header{"Content-Type": {media}, "Content-Language": {"en"}},
		Body:   body,
	}
}

// problem returns the standard problem of a situation.
func (e *engine) problem(s Situation) Problem {
	a := &e.opts.Profile.Answers[s]
	return Problem{Situation: s, Type: e.opts.ProblemBase + s.String(), Title: a.Title, Status: a.Status, Detail: a.Detail}
}

// render returns the response for a problem.
func (e *engine) render(p Problem) answer {
	r := e.opts.Profile.Render(p)
	a := answer{response: &r}
	for _, h := range e.headers[p.Situation] {
		a = a.mark(h.name, h.value)
	}
	return e.status(a, statusOf(p.Situation))
}

// renderLater is render with Retry-After, in situations that have it.
func (e *engine) renderLater(p Problem, wait time.Duration) answer {
	a := e.render(p)
	if !waits[p.Situation] {
		return a
	}
	return a.retryAfter(max(wait, soon))
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
