// SPDX-License-Identifier: Apache-2.0

package idempotencyclient

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Problem describes a response that is no success. It is read from a problem
// document (RFC 9457), or from Stripe's {"error":{…}}. Without either, it has only
// what the status and the headers say.
type Problem struct {
	Status              int
	Type, Title, Detail string
	// Code names the problem for programs: "in-progress".
	Code string
	// Resource is a reference to the result of the key's first request, if the
	// server has one.
	Resource string
	// Until is when a request that is still running has certainly ended.
	Until time.Time
	// RetryAfter is the time from the response until the server expects a retry. 0:
	// the server did not say.
	RetryAfter time.Duration
	// Replayed reports that this is the stored response to an earlier request.
	Replayed bool
}

// Check returns nil for a success, and a [*Problem] for a status of 400 or above
// and for a 202 that says that the first request is still running. It reads the
// beginning of a JSON body, and leaves the response as if it had not.
func Check(resp *http.Response) error {
	p := readProblem(resp)
	if p.Status < 400 && !p.waits() {
		return nil
	}
	return p
}

// Unknown reports that the response is not the outcome of the request, which may
// have been executed, or may be running. A request with another key could then have
// the effect a second time. The method is true for each answer that a [Transport]
// repeats, for a replay that is not available, and for a 409 that has neither a code
// nor a type.
func (p *Problem) Unknown() bool {
	return p.repeatable() || p.unnamed() || slices.Contains(lostCodes, p.Code)
}

// Error returns the status, the code and what to do.
func (p *Problem) Error() string {
	text := fmt.Sprintf("idempotencyclient: the server answered %d %s", p.Status, http.StatusText(p.Status))
	if p.Code != "" {
		text += fmt.Sprintf(" (%.64q)", p.Code)
	}
	switch {
	case slices.Contains(lostCodes, p.Code):
		text += ": the request was executed, and its response is not available; look up its result, and do not use a new key"
	case slices.Contains(reusedCodes, p.Code):
		text += ": the key belongs to another request; send that one unchanged, or use a new key for this one"
	case p.Unknown():
		text += ": the request may have been executed; send it again later, with the same key only"
	}
	return text
}

// The codes of problems, as package lambdahttp of this project has them, and in
// the style of Stripe.
var (
	waitingCodes = []string{"in-progress", "accepted", "outcome-unknown", "idempotency_key_in_use", "idempotency_outcome_unknown"}
	lostCodes    = []string{"replay-unavailable", "idempotency_replay_unavailable"}
	reusedCodes  = []string{"key-reused", "idempotency_key_reused"}
)

// waits reports whether the first request is running, or has an unknown outcome. A
// 409 says so by its code, by the same name in its type, or by Retry-After: any other
// can be an answer of the API. A handler can answer 202 with such a code, but does not
// say when to repeat the request.
func (p *Problem) waits() bool {
	_, situation, _ := strings.Cut(p.Type, "#") // as package lambdahttp writes a type
	switch {
	case p.Replayed:
		return false
	case p.Status == http.StatusConflict && (p.RetryAfter > 0 || slices.Contains(waitingCodes, situation)):
		return true
	case p.Status == http.StatusAccepted && p.RetryAfter == 0:
		return false
	}
	return slices.Contains(waitingCodes, p.Code)
}

// unnamed reports whether this is a 409 that does not say what the conflict is. It is
// not repeated, and can mean that the first request is running, as in the IETF draft.
func (p *Problem) unnamed() bool {
	return p.Status == http.StatusConflict && !p.Replayed && p.Code == "" && (p.Type == "" || p.Type == "about:blank")
}

// repeatable reports whether the same request with the same key can get another
// answer.
func (p *Problem) repeatable() bool {
	switch p.Status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return !p.Replayed
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return false
	}
	return p.waits() || p.Status >= 500 && !p.Replayed
}

// maxProblem is how many bytes of a body are read for a problem.
const maxProblem = 64 << 10

// readProblem reads the problem of a response, and puts back what it read.
func readProblem(resp *http.Response) *Problem {
	p := Problem{}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if described := resp.StatusCode >= 400 || resp.StatusCode == http.StatusAccepted; described &&
		(media == "application/json" || media == "application/problem+json") {
		data, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem)) // the caller reads on, and gets the error
		resp.Body = prefixed(data, resp.Body)
		p = parseProblem(data)
	}
	p.Status, p.RetryAfter = resp.StatusCode, retryAfter(resp.Header)
	p.Replayed = resp.Header.Get("Idempotent-Replayed") == "true"
	return &p
}

// members are those of a problem document, and of Stripe's error.
type members struct {
	Type, Title, Detail, Message, Code, Resource, Until string
}

// parseProblem ignores members of another type (RFC 9457, section 3.1).
func parseProblem(data []byte) Problem {
	var doc struct {
		members
		Error members
	}
	_ = json.Unmarshal(data, &doc) // sets the members that it can, or nothing if the JSON is invalid
	m := doc.members
	if doc.Error.Code != "" {
		m = doc.Error
	}
	until, _ := time.Parse(time.RFC3339, m.Until)
	return Problem{Type: m.Type, Title: m.Title, Detail: cmp.Or(m.Detail, m.Message), Code: m.Code, Resource: m.Resource, Until: until}
}

// retryAfter returns the time from the response until the moment that Retry-After
// names in seconds or as a date. A date counts from the server's own Date, so that
// the clock of this machine does not matter. Centuries stand for a longer time.
func retryAfter(h http.Header) time.Duration {
	value := h.Get("Retry-After")
	seconds, err := strconv.ParseUint(value, 10, 33) // more do not fit into a Duration
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(seconds) * time.Second
	}
	until, _ := http.ParseTime(value) // or long ago
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return max(0, until.Sub(now))
}

// prefixed returns a body of data and then of the rest.
func prefixed(data []byte, rest io.ReadCloser) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(data), rest), rest}
}

// Error reports that a request has no complete response. http.Client wraps it in a
// *url.Error, so use errors.As.
type Error struct {
	Method, Host string
	// Attempts counts the times that the request was given to [Options.Base], which
	// can repeat it. It is 0 if the request was refused before.
	Attempts int
	// Sent reports that the server may have received the request, so that its effect
	// may have happened. It is false only if the request was refused, or if it was
	// written to no connection, neither by an attempt nor by a repetition of
	// http.Transport. It says nothing about earlier requests with the same key.
	Sent bool
	// Err is the cause: the error of the last attempt, or the cause of the context's
	// end.
	Err error

	hint string
}

// Error returns what failed, why, and what to do.
func (e *Error) Error() string {
	failed := fmt.Sprintf("no complete response after %d attempts", e.Attempts)
	switch e.Attempts {
	case 0:
		failed = "the request was not sent"
	case 1:
		failed = "no complete response"
	}
	text := fmt.Sprintf("idempotencyclient: %s %s: %s: %v", e.Method, e.Host, failed, e.Err)
	if e.hint != "" {
		text += "; " + e.hint
	}
	return text
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }
