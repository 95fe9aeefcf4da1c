package lambdahttp

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// Problem is what a client is told in place of the handler's response. Its
// JSON form is a problem document of RFC 9457. It never holds the key.
type Problem struct {
	Type   string `json:"type"` // URI: Options.ProblemBase and the situation
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Code is the code of an idempotent.FinalError.
	Code string `json:"code,omitempty"`
	// Resource is what the key's first request set with Execution.SetRef.
	Resource string `json:"resource,omitempty"`
}

// ProblemJSON renders p as application/problem+json (RFC 9457, section 3).
func ProblemJSON(p Problem) Response {
	body, _ := json.Marshal(p) // strings and a number always encode
	return Response{
		Status: p.Status,
		Header: http.Header{"Content-Type": {"application/problem+json"}, "Content-Language": {"en"}},
		Body:   body,
	}
}

// problem returns the standard problem of a situation.
func (e *engine) problem(s Situation) Problem {
	a := &e.opts.Profile.Answers[s]
	return Problem{Type: e.opts.ProblemBase + s.String(), Title: a.Title, Status: a.Status, Detail: a.Detail}
}

// render returns the answer for a problem. A positive retryAfter is told in
// whole seconds (RFC 9110, section 10.2.3), rounded up: who comes too early
// comes in vain.
func (e *engine) render(p Problem, retryAfter time.Duration) answer {
	r := e.opts.Profile.Render(p)
	a := answer{response: &r}
	if retryAfter > 0 {
		seconds := (retryAfter + time.Second - 1) / time.Second
		a = a.mark("Retry-After", strconv.FormatInt(int64(seconds), 10))
	}
	return a
}

// mark sets a header on a response of ours.
func (a answer) mark(name, value string) answer {
	if a.response.Header == nil {
		a.response.Header = http.Header{}
	}
	a.response.Header.Set(name, value)
	return a
}
