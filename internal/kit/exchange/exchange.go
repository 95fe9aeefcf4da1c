// SPDX-License-Identifier: Apache-2.0

// Package exchange is one table of what clients with keys send, and of what they get.
// Two tests play it: lambdahttp in process, as events of each type, where it also looks
// at the record; and tests/promised/conformance as a client of running services.
package exchange

import (
	"cmp"
	"strings"
	"time"

	"github.com/once-lambda/once/lambdahttp"
)

// Case is a requirement of one or more documents, see docs/reports/conformance.md.
type Case struct {
	Name string
	Text string // in the words of this project
	Asks string // the documents and their sections: "D2.1 O4"
	// Rule names the source that wins where the documents contradict each other, and
	// the reason.
	Rule string
	Shop bool // it needs callers, routes, options or a clock that a test can set
	Rows []Row
}

// Row is requests that follow each other, and what each of them gets.
type Row struct {
	ID       string // of docs/reports/requirements.md
	Profiles string // names; "": all
	Shop     bool   // like Case.Shop
	Options  func(*lambdahttp.Options)
	Sends    []Send
	Runs     int    // of the handler, in total
	Record   string // the state of the record that was claimed last; "": no record
}

// Send is one request. The zero value is a POST of a charge with the row's key, and it
// runs the handler.
type Send struct {
	Method string
	Path   string // with the query
	Route  string // the template that matches the path, unless it is the path
	// Lines are the header lines with the key, see Profile.Line. nil: one, as the
	// profile spells the key.
	Lines    []string
	Name     string // of the header, in another letter case
	NoKey    bool
	Other    bool // another key
	Member   string
	Amount   int // in the body
	Currency string
	Caller   string

	Later  time.Duration // after the request before
	During bool          // while the request before that is not During runs

	Gets string // Created, Replay, Passed, or the code of a problem
	Of   int    // of a Replay: the index of the first response
}

const (
	Created = ""       // the handler's response, which is stored
	Passed  = "passed" // the same, without a guard
	Replay  = "replay"

	Somebody = "merchant-1"
	Nobody   = "nobody" // a caller that is not identified

	CatchAll = "*" // a route that matches every path
)

// Target returns the method and the path of a request, and its body for a customer.
func (s Send) Target(customer, key string) (method, path, body string) {
	amount := "4200"
	if s.Amount != 0 {
		amount = "9000"
	}
	return cmp.Or(s.Method, "POST"), cmp.Or(s.Path, "/charges"),
		`{` + strings.ReplaceAll(s.Member, "*", key) + `"amount":` + amount + `,"currency":"` + cmp.Or(s.Currency, "usd") + `","customer":"` + customer + `"}`
}

// Profile is what a client knows about a profile of the header.
type Profile struct {
	Name  string
	Value lambdahttp.Profile
	Spell func(key string) string // in the header
}

var Profiles = []*Profile{
	{"ietf", lambdahttp.IETF, quoted},
	{"stripe", lambdahttp.Stripe, bare},
	{"uuid", lambdahttp.UUID, bare},
}

func quoted(key string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}
func bare(key string) string { return key }

// In reports whether the profile is one of these names.
func (p *Profile) In(names string) bool {
	return names == "" || strings.Contains(" "+names+" ", " "+p.Name+" ")
}

// Line returns a header line: in it KEY and OTHER are two keys as the profile spells
// them, * is the first one alone, and ^ the same in capitals.
func (p *Profile) Line(line, key, other string) string {
	return strings.NewReplacer("KEY", p.Spell(key), "OTHER", p.Spell(other), "*", key, "^", strings.ToUpper(key)).Replace(line)
}

// problems are the statuses and titles of problems.
var problems = map[string]struct {
	status int
	title  string
	stripe string // the code in Stripe's form
	waits  bool   // it has Retry-After
}{
	"missing-key":        {400, "Idempotency-Key is missing", "idempotency_key_missing", false},
	"invalid-key":        {400, "Idempotency-Key is invalid", "idempotency_key_invalid", false},
	"key-not-allowed":    {400, "Idempotency-Key is not allowed here", "", false},
	"invalid-body":       {400, "The request body cannot be used", "", false},
	"invalid-digest":     {400, "Content-Digest is missing or wrong", "content_digest_invalid", false},
	"unknown-caller":     {403, "The caller is not identified", "caller_unknown", false},
	"key-reused":         {422, "Idempotency-Key is already used", "idempotency_key_reused", false},
	"in-progress":        {409, "A request is outstanding for this Idempotency-Key", "idempotency_key_in_use", true},
	"accepted":           {202, "The request is being processed", "idempotency_key_in_use", true},
	"outcome-unknown":    {409, "The outcome for this Idempotency-Key is unknown", "idempotency_outcome_unknown", true},
	"replay-unavailable": {409, "The response for this Idempotency-Key cannot be repeated", "idempotency_replay_unavailable", false},
	"store-unavailable":  {503, "Idempotency cannot be guaranteed at the moment", "idempotency_store_unavailable", true},
	"no-time-left":       {503, "Too little time is left for this request", "", true},
	"final":              {422, "The request has a final outcome", "", false},
}

// Status returns the status of a problem.
func (p *Profile) Status(code string) int {
	if p.Name == "stripe" {
		switch code {
		case "key-reused":
			return 400
		case "final":
			return 402
		}
	}
	return problems[code].status
}

// Title returns the title of a problem.
func Title(code string) string { return problems[code].title }

// Waits reports whether a problem says when to repeat the request.
func Waits(code string) bool { return problems[code].waits }

// StripeError returns the type and the code of a problem in Stripe's form.
func StripeError(code string) (kind, name string) {
	kind = "invalid_request_error"
	switch {
	case code == "key-reused":
		kind = "idempotency_error"
	case problems[code].status >= 500:
		kind = "api_error"
	}
	return kind, problems[code].stripe
}

// Says returns Idempotency-Status for a request with a key.
func Says(gets string) string {
	return map[string]string{
		Created: "created", Replay: "replayed", Passed: "ignored", "final": "replayed", "key-reused": "mismatch", "in-progress": "conflict",
		"accepted": "conflict", "replay-unavailable": "conflict", "outcome-unknown": "unknown",
	}[gets]
}
