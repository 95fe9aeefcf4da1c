// SPDX-License-Identifier: Apache-2.0

// Package describe has the description of a guarded handler, which package lambdahttp
// makes and package lambdahttp/policy renders.
package describe

import (
	"net/http"
	"time"
)

// Handler is a handler of package lambdahttp that describes itself.
type Handler interface {
	Describe() *Policy
}

// Policy describes to clients how a handler uses keys. It is computed from the options of
// the handler, so the two always agree.
type Policy struct {
	Header   string // request header with the key; empty if a field of the body has it
	Field    string // JSON Pointer to the field of the body with the key; empty if a header has it
	Required bool   // a guarded request without a key is refused

	KeySyntax            string // in words
	KeyPattern           string // regular expression (ECMA-262) of the value
	KeyExample           string // a valid value
	MinLength, MaxLength int    // of the key itself, without quotes and escapes; see lambdahttp.Profile

	Methods          []string // guarded methods
	ForbiddenMethods []string // methods whose requests must not have a key
	Scope            string   // the callers for whom a key is valid
	Extent           string   // the requests that a key identifies
	Fingerprint      string   // what two requests with one key must have in common
	Digest           bool     // a Content-Digest header is required

	Retention           time.Duration // how long an outcome is retained after it is stored
	UnresolvedRetention time.Duration // how long an unknown outcome is retained; 0: until it is settled
	WaitFor             time.Duration // how long a request waits for a running one with its key; 0: no wait
	ServerErrors        string        // what a response of 5xx does to the key
	ReplayedHeaders     []string      // headers of a stored response; "*": all but OmittedHeaders
	OmittedHeaders      []string      // headers, or patterns such as "*-Token", that "*" does not include

	AddedHeaders []Header // of a handler's own or stored response
	Answers      []Answer // one for each situation that can occur, instead of the handler's response

	DocsURL string
}

// Header is a response header.
type Header struct {
	Name        string
	Values      []string // all possible values; nil: any
	Description string
	Always      bool // on every response of this kind
}

// Answer is a response that replaces the handler's.
type Answer struct {
	Situation           string // the name of the lambdahttp.Situation
	Status              int
	Type, Title, Detail string
	RetryAfter          bool     // the response has a Retry-After header
	Headers             []Header // besides Content-Type and Content-Language
	Example             Response // the response for a resource "/charges/ch_1"
	Minimal             Response // Example without its optional parts
}

// Response is a response with the status of its Answer.
type Response struct {
	Header http.Header
	Body   []byte
}
