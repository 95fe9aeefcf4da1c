// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
)

// Policy describes to clients how a handler uses keys, which a server should
// publish (the draft, section 2.5). It is computed from the options of the
// handler, so the two always agree. Package lambdahttp/policy renders it as
// Markdown and as OpenAPI.
type Policy struct {
	Header   string // request header with the key; empty if a field of the body has it
	Field    string // JSON Pointer to the field of the body with the key; empty if a header has it
	Required bool   // a guarded request without a key is refused

	KeySyntax            string // in words
	KeyPattern           string // regular expression (ECMA-262) of the value
	KeyExample           string // a valid value
	MinLength, MaxLength int    // of the key itself, without quotes and escapes; see Profile

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

	// AddedHeaders are the headers that this package sets on a handler's own or
	// stored response.
	AddedHeaders []PolicyHeader
	// Answers are the responses that replace the handler's, one for each situation
	// that can occur.
	Answers []PolicyAnswer

	DocsURL string
}

// PolicyHeader is a response header.
type PolicyHeader struct {
	Name        string
	Values      []string // all possible values; nil: any
	Description string
	Always      bool // on every response of this kind
}

// PolicyAnswer is a response that replaces the handler's.
type PolicyAnswer struct {
	Situation           Situation
	Status              int
	Type, Title, Detail string
	RetryAfter          bool           // the response has a Retry-After header
	Headers             []PolicyHeader // besides Content-Type and Content-Language
	Example             Response       // the response for a resource "/charges/ch_1"
	Minimal             Response       // Example without its optional parts
}

// NewPolicy returns the policy of a handler that is built with the same
// arguments. It returns the error with which the handler's constructor would
// panic.
func NewPolicy(g *idempotent.Guard, optFns ...func(*Options)) (*Policy, error) {
	e, err := newEngine(g, translator{}, optFns)
	if err != nil {
		return nil, err
	}
	var kept idempotent.Options // the final options, with defaults
	_, err = e.guard.With(func(o *idempotent.Options) { kept = *o })
	o, p := e.opts, &e.opts.Profile
	policy := &Policy{
		Header: p.Header, Field: o.KeyFrom.pointer, Required: !kept.AllowMissingKey,
		KeySyntax: p.Syntax.Description, KeyPattern: p.bounded(p.Syntax.Pattern), KeyExample: p.Syntax.Example,
		MinLength: p.MinKeyLength, MaxLength: p.MaxKeyLength,
		Methods: slices.Clone(p.Methods), ForbiddenMethods: slices.Clone(p.ForbiddenMethods),
		Scope: o.Scope.Description, Extent: o.extent(), Fingerprint: o.Fingerprint.Description, Digest: o.Fingerprint.digest,
		Retention: kept.Retention, UnresolvedRetention: kept.UnresolvedRetention, WaitFor: kept.WaitFor,
		ServerErrors:    o.ServerErrors.meaning(kept.Recovery),
		ReplayedHeaders: o.replayed.list(),
		OmittedHeaders:  o.replayed.omitted(),
		AddedHeaders:    o.addedHeaders(),
		DocsURL:         o.DocsURL,
	}
	if policy.Field != "" {
		policy.Header = ""
		policy.KeySyntax, policy.KeyPattern, policy.KeyExample = bodyKeySyntax, p.bounded(bodyKeyPattern), exampleKey
	}
	for s := range Situation(len(situations)) {
		if e.gives(s, policy.Required) {
			policy.Answers = append(policy.Answers, e.answerPolicy(s))
		}
	}
	slices.SortStableFunc(policy.Answers, func(a, b PolicyAnswer) int { return cmp.Compare(a.Status, b.Status) })
	return policy, err
}

// gives reports whether the situation can occur with these options, if a key is
// required or not.
func (e *engine) gives(s Situation, required bool) bool {
	switch s {
	case MissingKey:
		return required
	case KeyNotAllowed:
		return len(e.opts.Profile.ForbiddenMethods) > 0
	case UnknownCaller:
		return !e.opts.Scope.everybody
	case InvalidDigest:
		return e.opts.Fingerprint.digest
	case InProgress:
		return e.opts.Accepted == nil
	case Accepted:
		return e.opts.Accepted != nil
	case InvalidKey, InvalidBody, LengthRequired, BodyTooLarge, KeyReused, OutcomeUnknown, ReplayUnavailable, StoreUnavailable, NoTimeLeft,
		FinalOutcome:
	}
	return true
}

// extent describes the requests that a key identifies, see Options.Operation.
func (o *Options) extent() string {
	extent := "one request of a method and endpoint"
	switch whole := o.Profile.Operation != ""; {
	case o.Profile.PerResource && o.ownOperation:
		extent = "one request of an operation and path"
	case o.Profile.PerResource && whole:
		extent = "one request of a path"
	case o.Profile.PerResource:
		extent = "one request of a method and path"
	case o.ownOperation:
		extent = "one request of an operation"
	case whole:
		extent = "one request of the whole API"
	}
	if o.Profile.PerResource {
		return extent + "; at another path it is another key"
	}
	return extent + "; at another path it can be refused as already used"
}

// meaning describes what a response of 5xx does to the key.
func (s ServerErrors) meaning(r idempotent.Recovery) string {
	switch {
	case s == StoreServerErrors:
		return "is stored and replayed like any other"
	case s == ReleaseServerErrors, s == FollowRecovery && r != idempotent.Reconcile:
		return "is not stored: the same request runs again"
	}
	return "leaves the outcome unknown: the same request is refused until that is clear"
}

// addedHeaders returns the headers of a handler's own or stored response.
func (o *Options) addedHeaders() (added []PolicyHeader) {
	for _, h := range headers {
		sent := !slices.Contains(optionalHeaders, h.name) || o.Profile.sets(h.name)
		p := PolicyHeader{Name: h.name, Description: h.meaning}
		var meanings []string
		for _, v := range h.values {
			if sent || v.text == statusNotStored {
				p.Values = append(p.Values, v.text)
				meanings = append(meanings, v.text+", "+v.meaning)
			}
		}
		if h.values != nil && h.values[0].meaning != "" {
			p.Description = strings.TrimSuffix(h.meaning, ".") + ": " + strings.Join(meanings, "; ") + "."
		}
		if h.own && (sent || p.Values != nil) {
			added = append(added, p)
		}
	}
	return added
}

// answerPolicy describes the response of a situation. It makes the response twice:
// with all facts that it can carry, and without them.
func (e *engine) answerPolicy(s Situation) PolicyAnswer {
	p := e.problem(s)
	a := PolicyAnswer{Situation: s, Status: p.Status, Type: p.Type, Title: p.Title, Detail: p.Detail, RetryAfter: carries[s].wait}
	if carries[s].code {
		p.Code = "" // that of the error
	}
	a.Minimal = *e.expose(e.complete(p, facts{}), nil).response
	a.Example = *e.expose(e.complete(p, facts{
		code: "card_declined", resource: "/charges/ch_1", until: time.Date(2026, time.January, 1, 12, 0, 12, 0, time.UTC),
		wait: 12 * time.Second, location: "/work/ch_1",
	}), nil).response
	for _, name := range slices.Sorted(maps.Keys(a.Example.Header)) {
		if name == "Content-Type" || name == "Content-Language" {
			continue
		}
		h := PolicyHeader{Name: name, Always: a.Minimal.Header[name] != nil}
		if slices.Equal(a.Minimal.Header[name], a.Example.Header[name]) {
			h.Values = []string{a.Example.Header.Get(name)}
		}
		for _, known := range headers {
			if known.name == name {
				h.Description = known.meaning
			}
		}
		a.Headers = append(a.Headers, h)
	}
	return a
}
