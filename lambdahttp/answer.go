package lambdahttp

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

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

// status sets Idempotency-Status, if the profile enables it.
func (e *engine) status(a answer, value string) answer {
	if !e.opts.Profile.StatusHeader || value == "" {
		return a
	}
	return a.mark(headerStatus, value)
}

// expires sets Idempotency-Expires, if the options enable it: the expiry of the
// outcome as an HTTP date (RFC 9110, section 5.6.7), rounded down.
func (e *engine) expires(a answer, at time.Time) answer {
	if !e.opts.ExpiresHeader || at.IsZero() {
		return a
	}
	return a.mark(headerExpires, at.UTC().Format(http.TimeFormat))
}

// expose lets scripts of another origin read the headers that this package set
// (Fetch, "CORS protocol"), besides those that the response exposes itself. A
// browser hides all but a few headers.
func (e *engine) expose(a answer, w work) answer {
	if !e.opts.ExposeHeaders || len(a.marked) == 0 {
		return a
	}
	var own http.Header
	if a.response != nil {
		own = a.response.Header
	} else {
		r, _ := w.response() // the headers are there, whatever the body is
		own = r.Header
	}
	return a.mark(headerExpose, strings.Join(append(slices.Clone(own[headerExpose]), a.marked...), ", "))
}

// retryAfter sets Retry-After in whole seconds (RFC 9110, section 10.2.3),
// rounded up, so that the client does not retry too early.
func (a answer) retryAfter(wait time.Duration) answer {
	seconds := (wait + time.Second - 1) / time.Second
	return a.mark("Retry-After", strconv.FormatInt(int64(seconds), 10))
}
