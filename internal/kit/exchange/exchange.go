// SPDX-License-Identifier: Apache-2.0

// Package exchange is one table of what clients with keys send, and of what they get.
// Two tests play it: lambdahttp in process, as events of each type, where it also looks
// at the record; and tests/promised/conformance as a client of running services.
package exchange

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
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

// Valid and Invalid are header lines with a key, and without one, in each profile.
var (
	Valid = map[string][]string{
		"ietf": {
			`"*"`, `"clkyoesmbgybucifusbbtdsbohtyuuwz"`, `"8e03978e-40d5-43e8-bc93-6894a57f9324"`,
			`"\"quoted\"-and-\\-*"`, `"with spaces *"`, `"*";version=1`,
		},
		"stripe": {`*`, `order-2026-*`, `A`, `clkyoesmbgybucifusbbtdsbohtyuuwz`, `"*"`},
		"uuid":   {`*`, `"*"`, `018f3c5e-7b1a-7cc2-9f7d-3a5b8c9d0e1f`, `8e03978e-40d5-43e8-bc93-6894a57f9324`},
	}
	Invalid = map[string][]string{
		"ietf": {
			`*`, `'*'`, `"*`, `*"`, `"*" "*"`, `"*"x`, `:MTIzNDU2Nzg5MDEyMzQ1Ng==:`, `1234567890123456`, `?1`, `""`, ``,
			`"schlüssel-*"`, "\"tab\t*\"", `"unfinished \x escape *"`,
		},
		"stripe": {`*,*`, ``, `schlüssel-*`},
		"uuid": {
			`8e03978e-40d5-13e8-bc93-6894a57f9324`, `8e03978e-40d5-53e8-bc93-6894a57f9324`, `8e03978e-40d5-43e8-cc93-6894a57f9324`,
			`00000000-0000-0000-0000-000000000000`, `{*}`, `urn:uuid:*`, `8e03978e40d543e8bc936894a57f9324`, `*0`, `"*`, ``,
			`8e03978e-40d5-43e8-bc93-6894a57f932`, `8e03978e-40d5-43e8-bc93-6894a57f932g`, `clkyoesmbgybucifusbbtdsbohtyuuwz`,
		},
	}
	hostile = []string{`'; DROP TABLE charges; --*`, `../../../etc/passwd?*`, `{"$ne": null}<script>*`, `${jndi:ldap://127.0.0.1/a}*`, `%00%0d%0aSet-Cookie: a=1*`}
)

// accepted are rows of lines with a key: sent again, they get the first response.
func accepted(profile string, lines ...string) (rows []Row) {
	for _, line := range lines {
		lines := []string{line}
		rows = append(rows, Row{ID: "HTTP-02", Profiles: profile, Sends: []Send{{Lines: lines}, {Lines: lines, Gets: Replay}}, Runs: 1, Record: "completed"})
	}
	return rows
}

// refused are rows of lines without a valid key.
func refused(profile string, lines ...string) (rows []Row) {
	for _, line := range lines {
		rows = append(rows, Row{ID: "HTTP-07", Profiles: profile, Sends: []Send{{Lines: []string{line}, Gets: "invalid-key"}}})
	}
	return rows
}

func each(lines []string, f func(string) string) (out []string) {
	for _, line := range lines {
		out = append(out, f(line))
	}
	return out
}

// filler makes of a UUID a key of 255 characters.
var filler = strings.Repeat("k", 255-36)

var Cases = []Case{
	// How a key is sent, and which requests have one.
	{
		Name: "key-format", Text: "A key in the format of the profile is accepted, any other text is not", Asks: "D2.1 D2.2 D5 D6 O4 O5 O7 B1",
		Rule: "The draft asks for a quoted String, B leaves the choice, O fixes UUIDs. Each profile has one syntax and publishes it. Parameters after a String are ignored, and UUIDs may be quoted.",
		Rows: slices.Concat(
			accepted("ietf", Valid["ietf"]...), refused("ietf", Invalid["ietf"]...),
			accepted("stripe", Valid["stripe"]...), refused("stripe", Invalid["stripe"]...),
			accepted("uuid", Valid["uuid"]...), refused("uuid", Invalid["uuid"]...),
		),
	},
	{
		Name: "key-length", Text: "A key has at most 255 characters, and in the draft's profile at least 16", Asks: "D5 B3 P2",
		Rule: "B refuses less than 16 characters, P describes Stripe, which does not. The minimum holds in the profiles ietf and uuid.",
		Rows: slices.Concat(
			accepted("ietf", `"*`+filler+`"`, `"0123456789abcdef"`), refused("ietf", `"*`+filler+`k"`, `"0123456789abcde"`),
			accepted("stripe", `*`+filler, `0123456789abcde`), refused("stripe", `*`+filler+`k`),
		),
	},
	{
		Name: "padded-key", Text: "Spaces do not make a short key long enough", Asks: "B3",
		Rows: append(refused("ietf", `"01234567        "`, `"    01234567     89abcde"`, `"                "`), accepted("ietf", `"01234567 89abcdef"`)...),
	},
	{
		Name: "uuid-value", Text: "A UUID is one key in upper and lower case, quoted or not", Asks: "O4",
		Rows: []Row{{ID: "HTTP-02", Profiles: "uuid", Runs: 1, Record: "completed", Sends: []Send{
			{}, {Lines: []string{`"*"`}, Gets: Replay}, {Lines: []string{`^`}, Gets: Replay}, {Lines: []string{`"^"`}, Gets: Replay},
		}}},
	},
	{
		Name: "hostile-key", Text: "Code in a key has no effect: it is refused, or it is text", Asks: "D5",
		Rows: slices.Concat(accepted("ietf", each(hostile, quoted)...), accepted("stripe", hostile...), refused("uuid", hostile...)),
	},
	{
		Name: "one-key", Text: "A request with more than one key is refused", Asks: "D2.1(–04)",
		Rows: []Row{{ID: "HTTP-06", Sends: []Send{
			{Lines: []string{"KEY", "OTHER"}, Gets: "invalid-key"}, {Lines: []string{"KEY", "KEY"}, Gets: "invalid-key"}, {Lines: []string{"KEY, OTHER"}, Gets: "invalid-key"},
		}}},
	},
	{
		Name: "header-only", Text: "The key is in the header Idempotency-Key, in any letter case, and not in the body", Asks: "D2.5 O4",
		Rows: []Row{{ID: "HTTP-01", Runs: 1, Record: "completed", Sends: []Send{
			{NoKey: true, Member: `"idempotency_key":"*","Idempotency-Key":"*",`, Gets: "missing-key"},
			{Name: "idempotency-key"}, {Name: "IDEMPOTENCY-Key", Gets: Replay, Of: 1},
		}}},
	},
	{
		Name: "missing-key", Text: "Where a key is required, a request without one gets 400; the server does not make one up", Asks: "D2.7 O5 P2 Pa",
		Rows: []Row{{ID: "HTTP-04", Sends: []Send{{NoKey: true, Gets: "missing-key"}}}},
	},
	{
		Name: "optional-key", Text: "Keys can be optional: without one, a request is executed each time", Asks: "O4", Shop: true,
		Rule: "O prefers optional keys; all documents want payments to have one. They are required unless AllowMissingKey is set.",
		Rows: []Row{{ID: "HTTP-05", Runs: 3, Record: "completed",
			Options: func(o *lambdahttp.Options) {
				o.Guard = func(o *idempotent.Operation) { o.AllowMissingKey = true }
			},
			Sends: []Send{{NoKey: true, Gets: Passed}, {NoKey: true, Gets: Passed}, {}, {Gets: Replay, Of: 2}},
		}},
	},
	{
		Name: "read-with-key", Text: "GET and HEAD refuse a key", Asks: "O3 O4",
		Rule: "Only O refuses the key. The other profiles ignore it.",
		Rows: []Row{
			{ID: "HTTP-03", Profiles: "uuid", Sends: []Send{{Method: "GET", Path: "/charges/ch_1", Route: "/charges/{id}", Gets: "key-not-allowed"}}},
			{ID: "HTTP-03", Profiles: "uuid", Shop: true, Sends: []Send{{Method: "HEAD", Path: "/charges/ch_1", Route: "/charges/{id}", Gets: "key-not-allowed"}}},
		},
	},
	{
		Name: "put-delete", Text: "PUT and DELETE need no key, and ignore one", Asks: "D2.5(04) Pq Pa R6", Shop: true,
		Rows: []Row{
			{ID: "HTTP-03", Runs: 3, Sends: []Send{{Method: "PUT", NoKey: true, Gets: Passed}, {Method: "PUT", Gets: Passed}, {Method: "PUT", Gets: Passed}}},
			{ID: "HTTP-03", Runs: 3, Sends: []Send{{Method: "DELETE", NoKey: true, Gets: Passed}, {Method: "DELETE", Gets: Passed}, {Method: "DELETE", Gets: Passed}}},
		},
	},
	{
		Name: "put-delete-opt-in", Text: "An API can guard PUT and DELETE too", Asks: "D2.2(05) O3", Shop: true,
		Rows: []Row{
			{ID: "HTTP-03", Options: guarding("PUT"), Runs: 1, Record: "completed", Sends: []Send{{Method: "PUT"}, {Method: "PUT", Gets: Replay}}},
			{ID: "HTTP-03", Options: guarding("DELETE"), Runs: 1, Record: "completed", Sends: []Send{{Method: "DELETE"}, {Method: "DELETE", Gets: Replay}}},
		},
	},
	{
		Name: "patch", Text: "PATCH takes keys like POST", Asks: "D1 D2.2(05) O3 R6", Shop: true,
		Rule: "Stripe, P and R need keys for POST alone. The profile stripe ignores them on PATCH.",
		Rows: []Row{
			{ID: "HTTP-03", Profiles: "ietf uuid", Runs: 1, Record: "completed", Sends: []Send{{Method: "PATCH"}, {Method: "PATCH", Gets: Replay}}},
			{ID: "HTTP-03", Profiles: "stripe", Runs: 2, Sends: []Send{{Method: "PATCH", Gets: Passed}, {Method: "PATCH", Gets: Passed}}},
		},
	},

	// For whom and for what a key is valid.
	{
		Name: "new-key", Text: "The same request with another key is another request", Asks: "D2.5 B5 R7",
		Rows: []Row{{ID: "HTTP-08", Runs: 2, Record: "completed", Sends: []Send{{}, {Other: true}, {Gets: Replay}, {Other: true, Gets: Replay, Of: 1}}}},
	},
	{
		Name: "other-caller", Text: "A key is valid for one caller, and does not show another caller's response", Asks: "D5 B5 P3 Pa", Shop: true,
		Rows: []Row{{ID: "HTTP-31", Runs: 2, Record: "completed", Sends: []Send{
			{}, {Caller: "merchant-2"}, {Gets: Replay}, {Caller: "merchant-2", Gets: Replay, Of: 1},
		}}},
	},
	{
		Name: "no-caller", Text: "A key grants nothing: a caller that is not identified is refused", Asks: "B5", Shop: true,
		Rows: []Row{{ID: "HTTP-21", Runs: 1, Record: "completed", Sends: []Send{
			{}, {Caller: Nobody, Gets: "unknown-caller"}, {Other: true, Caller: Nobody, Gets: "unknown-caller"},
		}}},
	},
	{
		Name: "other-endpoint", Text: "At another endpoint, a key is another key", Asks: "O4 B5", Shop: true,
		Rule: "O and B separate endpoints. With Stripe a key belongs to the whole API, so another endpoint is another request: 400.",
		Rows: []Row{
			{ID: "HTTP-31", Profiles: "ietf uuid", Runs: 2, Record: "completed", Sends: []Send{{}, {Path: "/refunds"}, {Path: "/refunds", Gets: Replay, Of: 1}, {Gets: Replay}}},
			{ID: "HTTP-31", Profiles: "stripe", Runs: 1, Record: "completed", Sends: []Send{{}, {Path: "/refunds", Gets: "key-reused"}, {Gets: Replay}}},
		},
	},
	{
		Name: "other-method", Text: "With another method, a key is another key", Asks: "O4", Shop: true,
		Rows: []Row{{ID: "HTTP-31", Profiles: "ietf uuid", Runs: 2, Record: "completed", Sends: []Send{{}, {Method: "PATCH"}, {Method: "PATCH", Gets: Replay, Of: 1}, {Gets: Replay}}}},
	},
	{
		Name: "other-resource", Text: "At another resource of an endpoint, a key is another key", Asks: "O4", Shop: true,
		Rule: "Only O separates resources. In the other profiles another path can be refused; see other-path.",
		Rows: []Row{{ID: "HTTP-31", Profiles: "uuid", Runs: 2, Record: "completed", Sends: []Send{
			charges("/accounts/1/charges"), charges("/accounts/2/charges"), again(charges("/accounts/1/charges"), 0), again(charges("/accounts/2/charges"), 1),
		}}},
	},
	{
		Name: "catch-all", Text: "Behind one route for all endpoints, each endpoint has its own keys", Asks: "O4 B5", Shop: true,
		Rows: []Row{{ID: "HTTP-31", Profiles: "ietf uuid", Runs: 2, Record: "completed", Sends: []Send{
			anywhere("/any/orders"), anywhere("/any/payments"), again(anywhere("/any/orders"), 0), again(anywhere("/any/payments"), 1),
		}}},
	},

	// Which requests with one key are the same request.
	{
		Name: "other-payload", Text: "A key with another payload is refused; nothing is executed, and the first response stays", Asks: "D2.2 D2.4 D2.7 B0 B1 B3 P1 P2 P3 Pa Pq O2 O5 R2 R4 R7",
		Rule: "422 in D, B, O and R; 400 in P's description of Stripe, and in its profile.",
		Rows: []Row{
			{ID: "HTTP-10", Runs: 2, Record: "completed", Sends: []Send{
				{}, {Amount: 9000, Gets: "key-reused"}, {Currency: "eur", Gets: "key-reused"}, {Gets: Replay}, {Other: true, Amount: 9000},
			}},
			{ID: "HTTP-10", Shop: true, Runs: 1, Record: "completed", Sends: []Send{{}, {Path: "/charges?dry_run=true", Gets: "key-reused"}, {Gets: Replay}}},
		},
	},
	{
		Name: "payload-first", Text: "Another payload is reported whatever the state of the first request is", Asks: "B7",
		Rows: []Row{{ID: "HTTP-12", Runs: 1, Record: "completed", Sends: []Send{{}, {Amount: 9000, During: true, Gets: "key-reused"}}}},
	},
	{
		Name: "selected-values", Text: "The comparison can be limited to some values of the payload", Asks: "D2.4", Shop: true,
		Rows: []Row{{ID: "HTTP-10", Runs: 1, Record: "completed",
			Options: func(o *lambdahttp.Options) { o.Fingerprint = lambdahttp.Fields("/amount", "/currency", "/customer") },
			Sends:   []Send{{}, {Member: `"note":"sent again",`, Gets: Replay}, {Amount: 9000, Gets: "key-reused"}},
		}},
	},

	// What a retry gets.
	{
		Name: "replay", Text: "The first request is executed as usual; each retry gets its status, headers and body, with a mark, and has no effect", Asks: "D1(–03) D2.6 B0 B1 B5 B6 P1 Pq O2 O4 R1 R2",
		Rule: "B allows a retry another status if the API says so. Here 201 stays 201, as D, O and R ask.",
		Rows: []Row{{ID: "HTTP-09", Runs: 1, Record: "completed", Sends: append([]Send{{}}, slices.Repeat([]Send{{Gets: Replay}}, 9)...)}},
	},
	{
		Name: "retention", Text: "A key is honoured for 24 hours, and counts as new afterwards", Asks: "D2.3 D2.5 B7 P2 P7 Pa Pq O4 R2 R5", Shop: true,
		Rule: "O asks for an hour at least, B, P and R for a day.",
		Rows: []Row{{ID: "HTTP-17", Runs: 2, Record: "completed", Sends: []Send{
			{}, {Later: time.Hour, Gets: Replay}, {Later: 23*time.Hour - time.Millisecond, Gets: Replay},
			{Later: time.Millisecond, Amount: 9000}, {Amount: 9000, Gets: Replay, Of: 3},
		}}},
	},
	{
		Name: "uncorrected", Text: "A request that is repeated without correction gets the same error", Asks: "D2.7",
		Rows: []Row{{ID: "HTTP-21", Runs: 1, Record: "completed", Sends: []Send{
			{}, {NoKey: true, Gets: "missing-key"}, {NoKey: true, Gets: "missing-key"}, {Amount: 9000, Gets: "key-reused"}, {Amount: 9000, Gets: "key-reused"},
			{Lines: []string{"not, a key"}, Gets: "invalid-key"}, {Lines: []string{"not, a key"}, Gets: "invalid-key"},
		}}},
	},
	{
		Name: "at-once", Text: "While the first request runs, another one gets 409 and has no effect; afterwards it gets the response", Asks: "D2.6 D2.7 B1 B3 B7 P1 P2 P4 Pq O5 O6 R7",
		Rows: []Row{{ID: "HTTP-11", Runs: 1, Record: "completed", Sends: []Send{{}, {During: true, Gets: "in-progress"}, {Gets: Replay}}}},
	},
	{
		Name: "accepted", Text: "A server can answer 202 with Retry-After instead of 409", Asks: "D2.6(04) B1 B7", Shop: true,
		Rows: []Row{{ID: "HTTP-26", Runs: 1, Record: "completed",
			Options: func(o *lambdahttp.Options) {
				o.Accepted = func(context.Context, *lambdahttp.Request, idempotent.RecordID) string { return "/progress/1" }
			},
			Sends: []Send{{}, {During: true, Gets: "accepted"}, {Gets: Replay}},
		}},
	},
	{
		Name: "problems", Text: "Errors of keys are problem documents: type, title and detail, in the draft's words", Asks: "D2.7 R4",
		Rule: "P describes Stripe's form of errors, which the profile stripe has.",
		Rows: []Row{{ID: "HTTP-27", Profiles: "ietf uuid", Runs: 1, Record: "completed", Sends: []Send{
			{NoKey: true, Gets: "missing-key"}, {}, {Amount: 9000, During: true, Gets: "key-reused"}, {During: true, Gets: "in-progress"},
		}}},
	},
	{
		// Both tests search every response for the key. These are the kinds of responses.
		Name: "silent", Text: "No answer contains the key", Asks: "B5",
		Rule: "An example of R shows the key in the problem. B treats keys as confidential, and wins.",
		Rows: []Row{{ID: "HTTP-27", Runs: 1, Record: "completed", Sends: []Send{
			{}, {During: true, Gets: "in-progress"}, {Amount: 9000, During: true, Gets: "key-reused"}, {Lines: []string{"KEY, x"}, Gets: "invalid-key"}, {Gets: Replay},
		}}},
	},
}

// guarding adds a method to those that are guarded.
func guarding(method string) func(*lambdahttp.Options) {
	return func(o *lambdahttp.Options) { o.Profile.Methods = append(slices.Clone(o.Profile.Methods), method) }
}

func charges(path string) Send  { return Send{Path: path, Route: "/accounts/{id}/charges"} }
func anywhere(path string) Send { return Send{Path: path, Route: CatchAll} }

// again is a retry of s, which gets the response at that index.
func again(s Send, of int) Send {
	s.Gets, s.Of = Replay, of
	return s
}
