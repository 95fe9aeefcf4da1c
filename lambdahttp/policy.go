package lambdahttp

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
)

// Policy is what clients of a handler have to know about keys: what the draft,
// section 2.5, has a server publish. It is made of what the handler itself
// works with, so it cannot tell another story. [Policy.Markdown] and
// [Policy.OpenAPI] render it.
type Policy struct {
	Header   string // that carries the key; empty if a member of the body does
	Member   string // of the JSON body; empty if a header does
	Required bool   // a guarded request without a key is refused

	KeySyntax            string // in words
	KeyPattern           string // regular expression (ECMA-262) of the value
	KeyExample           string // a value
	MinLength, MaxLength int    // of the key itself, without quotes and escapes

	Methods          []string // that are guarded
	ForbiddenMethods []string // that must not come with a key
	Scope            string   // for whom a key is valid
	Extent           string   // what a key belongs to
	Fingerprint      string   // what two requests with one key must have in common
	Digest           bool     // a Content-Digest header is required

	Retention           time.Duration // how long an outcome is kept, from when it is stored
	UnresolvedRetention time.Duration // the same of an outcome that nobody knows; 0: until it is resolved
	WaitFor             time.Duration // how long a request waits for its twin; 0: not at all
	ServerErrors        string        // what a response of 5xx does to the key
	ReplayedHeaders     []string      // of a stored response

	// Marks are the headers that this package sets on a handler's own or stored
	// response.
	Marks []PolicyHeader
	// Answers are all that may be given in place of a handler's response, one for
	// each situation that can arise.
	Answers []PolicyAnswer

	DocsURL string
}

// PolicyHeader is a response header.
type PolicyHeader struct {
	Name        string
	Values      []string // all there are; nil: any
	Description string
	Always      bool // on every answer of its kind
}

// PolicyAnswer is an answer in place of the handler's response.
type PolicyAnswer struct {
	Situation           Situation
	Status              int
	Type, Title, Detail string
	RetryAfter          bool           // the answer says when to repeat the request
	Headers             []PolicyHeader // besides Content-Type and Content-Language
	Example             Response       // the answer itself, for a resource "/charges/ch_1"

	bare Response // the same without what is not always there
}

// NewPolicy returns the policy of a handler that is built with the same
// arguments. The error is what such a constructor panics with.
func NewPolicy(g *idempotent.Guard, optFns ...func(*Options)) (*Policy, error) {
	e, err := newEngine(g, optFns)
	if err != nil {
		return nil, err
	}
	var kept idempotent.Options // as they are in the end, with defaults
	if _, err := e.guard.With(func(o *idempotent.Options) { kept = *o }); err != nil {
		return nil, err
	}
	o, p := e.opts, &e.opts.Profile
	policy := &Policy{
		Header: p.Header, Member: o.KeyFrom.member, Required: o.RequireKey,
		KeySyntax: p.Syntax.Description, KeyPattern: p.KeyPattern(), KeyExample: p.Syntax.Example,
		MinLength: p.MinKeyLength, MaxLength: p.MaxKeyLength,
		Methods: slices.Clone(p.Methods), ForbiddenMethods: slices.Clone(p.ForbiddenMethods),
		Scope: o.Scope.Description, Extent: o.extent(), Fingerprint: o.Fingerprint.Description, Digest: o.Fingerprint.digest,
		Retention: kept.Retention, UnresolvedRetention: kept.UnresolvedRetention, WaitFor: kept.WaitFor,
		ServerErrors:    o.ServerErrors.meaning(kept.Recovery),
		ReplayedHeaders: slices.Compact(slices.Sorted(slices.Values(e.replayHeaders))),
		Marks:           e.markPolicy(),
		DocsURL:         o.DocsURL,
	}
	if policy.Member != "" {
		policy.Header = ""
		policy.KeySyntax, policy.KeyPattern, policy.KeyExample = bodyKeySyntax, p.bounded(bodyKeyPattern), exampleKey
	}
	for s := range Situation(len(situations)) {
		if e.gives(s) {
			policy.Answers = append(policy.Answers, e.answerPolicy(s))
		}
	}
	slices.SortStableFunc(policy.Answers, func(a, b PolicyAnswer) int { return cmp.Compare(a.Status, b.Status) })
	return policy, nil
}

// gives reports whether a request can get into that situation.
func (e *engine) gives(s Situation) bool {
	switch s {
	case MissingKey:
		return e.opts.RequireKey
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
	}
	return true
}

// extent says what a key belongs to, as Options.Operation has it.
func (o *Options) extent() string {
	switch {
	case o.ownOperation:
		return "one request of an operation"
	case o.Profile.Operation != "":
		return "one request of the whole API"
	}
	return "one request of a method and route"
}

// meaning says what a response of 5xx does to the key.
func (s ServerErrors) meaning(r idempotent.Recovery) string {
	switch {
	case s == StoreServerErrors:
		return "is stored and replayed like any other"
	case s == ReleaseServerErrors, s == FollowRecovery && r != idempotent.Reconcile:
		return "is not stored: the same request runs again"
	}
	return "leaves the outcome unknown: the same request is refused until that is clear"
}

// markPolicy returns the headers of a handler's own or stored response.
func (e *engine) markPolicy() []PolicyHeader {
	marks := []PolicyHeader{{Name: headerReplayed, Values: []string{"true"}, Description: "This is the stored response to an earlier request."}}
	status := PolicyHeader{Name: headerStatus, Description: "What became of the key:"}
	for _, s := range statuses {
		if e.opts.Profile.StatusHeader || s.value == statusNotStored {
			status.Values = append(status.Values, s.value)
			status.Description += " " + s.value + ", " + s.meaning + ";"
		}
	}
	status.Description = strings.TrimSuffix(status.Description, ";") + "."
	marks = append(marks, status)
	if e.opts.ExpiresHeader {
		marks = append(marks, PolicyHeader{Name: headerExpires, Description: "Until when a retry gets this response, as an HTTP date."})
	}
	return marks
}

// answerPolicy describes the answer of a situation by giving it: once with all
// that it can have, once with what it always has.
func (e *engine) answerPolicy(s Situation) PolicyAnswer {
	p := e.problem(s)
	a := PolicyAnswer{Situation: s, Status: p.Status, Type: p.Type, Title: p.Title, Detail: p.Detail, RetryAfter: waits[s]}
	bare := e.render(p)
	a.bare = *bare.response
	if s == FinalOutcome {
		p.Code = "card_declined"
	}
	if s == InProgress || s == Accepted || s == OutcomeUnknown || s == ReplayUnavailable {
		p.Resource = "/charges/ch_1"
	}
	full := e.renderLater(p, 12*time.Second)
	if s == Accepted {
		full = full.mark("Location", "/work/ch_1")
	}
	a.Example = *full.response
	for _, name := range slices.Sorted(maps.Keys(a.Example.Header)) {
		if name == "Content-Type" || name == "Content-Language" {
			continue
		}
		h := PolicyHeader{Name: name, Always: a.bare.Header.Get(name) != "", Description: answerHeaders[name]}
		if h.Always || name == headerStatus {
			h.Values = []string{a.Example.Header.Get(name)}
		}
		a.Headers = append(a.Headers, h)
	}
	return a
}

// answerHeaders describes the headers of answers.
var answerHeaders = map[string]string{
	"Retry-After": "How many seconds to wait before the request is repeated.",
	"Location":    "Tells how the work is going.",
	"Link":        "The page about keys.",
	headerStatus:  "What became of the key.",
}
