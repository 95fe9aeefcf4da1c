// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/once-lambda/once/internal/httpform"
)

// Problem describes to a client why it gets this response instead of the
// handler's. Its JSON form is a problem document of RFC 9457. It never contains
// the key.
//
// A [JSON] handler returns a *Problem as an error. Status is 422 by default then, or
// from 400 to 599. Type is "about:blank" by default, and Title and Code are the
// text of the status, "Not Found" and "not_found".
type Problem struct {
	// Situation is the reason. It is not used in a Problem that a handler returns.
	Situation Situation `json:"-"`
	// Type is a URI reference: Options.DocsURL, # and the situation, or
	// "about:blank".
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Code is for programs: the situation, "in-progress", or the code of an
	// idempotent.FinalError or of the handler.
	Code string `json:"code,omitempty"`
	// Resource is the reference that the key's first request set with
	// Execution.SetRef.
	Resource string `json:"resource,omitempty"`
	// Until is set if another request with the key is running: when that request
	// has certainly ended. Usually it ends much earlier; Retry-After is an estimate.
	Until time.Time `json:"until,omitzero"`
}

// blankType is the type of a problem that its status describes (RFC 9457, section
// 4.2.1).
const blankType = "about:blank"

// Error returns the status and the code.
func (p *Problem) Error() string {
	return strings.TrimRight(fmt.Sprintf("lambdahttp: problem %d %s", p.Status, p.Code), " ")
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

// StripeJSON renders p as {"error":{"type","code","message"}}. The type is
// idempotency_error for [KeyReused], api_error for 5xx, and otherwise
// invalid_request_error.
func StripeJSON(p Problem) Response {
	e := stripeError{Type: "invalid_request_error", Code: p.Code, Message: p.Detail, Resource: p.Resource, Until: p.Until}
	switch {
	case p.Situation == KeyReused:
		e.Type = "idempotency_error"
	case p.Status >= 500:
		e.Type = "api_error"
	}
	if p.Code == p.Situation.String() && int(p.Situation) < len(stripeCodes) {
		e.Code = stripeCodes[p.Situation]
	}
	body, _ := json.Marshal(map[string]stripeError{"error": e}) // strings always encode
	return Response{Status: p.Status, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
}

// stripeError is the error object of Stripe's v1 API.
type stripeError struct {
	Type     string    `json:"type"`
	Code     string    `json:"code"`
	Message  string    `json:"message"`
	Resource string    `json:"resource,omitempty"` // see Problem.Resource
	Until    time.Time `json:"until,omitzero"`     // see Problem.Until
}

// stripeCodes are the codes of the situations. Stripe itself defines
// idempotency_key_in_use; the others follow its style. A final outcome has the code
// of its error, if that is not empty.
var stripeCodes = [len(situations)]string{
	MissingKey: "idempotency_key_missing", InvalidKey: "idempotency_key_invalid", KeyNotAllowed: "idempotency_key_not_allowed",
	UnknownCaller: "caller_unknown", InvalidBody: "body_invalid", LengthRequired: "body_length_required", BodyTooLarge: "body_too_large", InvalidDigest: "content_digest_invalid",
	KeyReused: "idempotency_key_reused", InProgress: "idempotency_key_in_use", Accepted: "idempotency_key_in_use",
	OutcomeUnknown: "idempotency_outcome_unknown", ReplayUnavailable: "idempotency_replay_unavailable",
	StoreUnavailable: "idempotency_store_unavailable", NoTimeLeft: "idempotency_no_time_left", FinalOutcome: "final",
}

// Situation is the reason for a response that replaces the handler's. Its text
// is the suffix of the problem's type, for example "missing-key".
type Situation uint8

const (
	MissingKey        Situation = iota // no key, without idempotent.Operation.AllowMissingKey
	InvalidKey                         // more than one key, wrong syntax or length
	KeyNotAllowed                      // a key on a method of Profile.ForbiddenMethods
	UnknownCaller                      // the scope is empty
	InvalidBody                        // the body cannot be compared
	LengthRequired                     // the body is empty, and its length was not declared
	BodyTooLarge                       // the body is longer than Options.MaxRequestBody
	InvalidDigest                      // Content-Digest is missing, malformed or wrong
	KeyReused                          // the key belongs to another request
	InProgress                         // the first request is running
	Accepted                           // the first request is running, with Options.Accepted
	OutcomeUnknown                     // the first request may have had its effect
	ReplayUnavailable                  // the outcome is stored but cannot be replayed
	StoreUnavailable                   // nothing was executed: the store failed
	NoTimeLeft                         // nothing was executed: the deadline is too near
	FinalOutcome                       // the outcome is an idempotent.FinalError
)

// String returns the suffix of the problem's type.
func (s Situation) String() string {
	if int(s) >= len(situations) {
		return fmt.Sprintf("situation-%d", uint8(s))
	}
	return situations[s]
}

var situations = [...]string{
	MissingKey: "missing-key", InvalidKey: "invalid-key", KeyNotAllowed: "key-not-allowed",
	UnknownCaller: "unknown-caller", InvalidBody: "invalid-body", LengthRequired: "length-required", BodyTooLarge: "body-too-large", InvalidDigest: "invalid-digest",
	KeyReused: "key-reused", InProgress: "in-progress", Accepted: "accepted", OutcomeUnknown: "outcome-unknown",
	ReplayUnavailable: "replay-unavailable", StoreUnavailable: "store-unavailable", NoTimeLeft: "no-time-left",
	FinalOutcome: "final",
}

// Answers has one Answer for each [Situation].
type Answers [len(situations)]Answer

// Answer is the fixed part of a response: its status, its texts and its own
// headers. The title is the same at every occurrence (RFC 9457, section 3.1.3). In the
// detail, {key} stands for the place of the key: X-Request-Key header, or
// field "/id" of the body.
type Answer struct {
	Status        int
	Title, Detail string
	Header        map[string]string
}

// Response is an HTTP response, the same for every event type. It is the form
// in which responses are stored and problems are rendered.
type Response struct {
	Status int
	Header http.Header
	Body   []byte // as it is on the wire, never base64
	// Base64 makes the event carry the body in base64, which is required for a
	// body that is not UTF-8 text.
	Base64 bool

	// unstored is why the response cannot be stored: it was sent to the client
	// while the handler wrote it.
	unstored error
}

// The names of headers that this package sets, see headers.
const (
	nameReplayed = "Idempotent-Replayed"
	nameStatus   = "Idempotency-Status"
	nameExpires  = "Idempotency-Expires"
	nameExposed  = "Access-Control-Expose-Headers"
)

// optionalHeaders are the names that Profile.ResponseHeaders can have.
var optionalHeaders = []string{nameStatus, nameExpires, nameExposed}

// onceWords are the last words of header names whose value is made to be used
// once, or is a secret: "Csrf-Token", "Client-Secret", "Replay-Nonce".
var onceWords = []string{"Nonce", "Secret", "Token"}

// bodyHeaders are always stored: without them a client cannot read the body.
var bodyHeaders = []string{"Content-Encoding", "Content-Range", "Content-Type"}

// allHeaders, in Options.ReplayHeaders, stands for every header except those
// whose name ends with one of the onceWords.
const allHeaders = "*"

// headerRule is Options.ReplayHeaders: which headers are stored and replayed.
type headerRule struct {
	all   bool
	named []string // canonical
	key   string   // the canonical name of the key's header: a handler may repeat it in its response
}

func newHeaderRule(names []string, key string) headerRule {
	if len(names) == 0 {
		names = []string{allHeaders}
	}
	r := headerRule{named: slices.Clip(bodyHeaders), key: http.CanonicalHeaderKey(key)}
	for _, name := range names {
		if name == allHeaders {
			r.all = true
		} else {
			r.named = append(r.named, http.CanonicalHeaderKey(name))
		}
	}
	return r
}

// list returns the names of the replayed headers, sorted. Those that "*"
// includes are left out.
func (r headerRule) list() (names []string) {
	for _, name := range r.named {
		if !r.all || usedOnce(name) {
			names = append(names, name)
		}
	}
	if r.all {
		names = append(names, allHeaders)
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// omitted returns the names and patterns that "*" does not include, sorted. It
// returns nil for a rule without "*".
func (r headerRule) omitted() (names []string) {
	if !r.all {
		return nil
	}
	for _, group := range httpform.ExchangeHeaders {
		names = append(names, group.Names...)
	}
	for _, word := range onceWords {
		names = append(names, "*-"+word)
	}
	names = append(names, r.key)
	slices.Sort(names)
	return names
}

// filter returns the headers of h, whose names are canonical, that are stored
// and replayed.
func (r headerRule) filter(h http.Header) http.Header {
	out := httpform.Lasting(h)
	maps.DeleteFunc(out, func(name string, _ []string) bool {
		return name == r.key || !slices.Contains(r.named, name) && (!r.all || usedOnce(name))
	})
	return out
}

// usedOnce reports whether the name ends with one of the onceWords.
func usedOnce(name string) bool {
	return slices.Contains(onceWords, name[strings.LastIndexByte(name, '-')+1:])
}
