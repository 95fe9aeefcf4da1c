// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp/internal/describe"
)

// Describe returns the policy of a handler. It implements describe.Handler, for package
// lambdahttp/policy.
func (e *engine) Describe() *describe.Policy {
	var kept idempotent.Options                                    // the final options, with defaults
	_, _ = e.guard.With(func(o *idempotent.Options) { kept = *o }) // the same options were valid before
	o, p := e.opts, &e.opts.Profile
	policy := &describe.Policy{
		Header: p.Header, Field: o.KeyFrom.pointer, Required: !kept.AllowMissingKey,
		KeySyntax: p.Syntax.Description, KeyPattern: p.bounded(p.Syntax.Pattern), KeyExample: p.Syntax.Example,
		MinLength: p.MinKeyLength, MaxLength: p.MaxKeyLength,
		Methods: p.Methods, ForbiddenMethods: p.ForbiddenMethods,
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
			policy.Answers = append(policy.Answers, e.describeAnswer(s))
		}
	}
	slices.SortStableFunc(policy.Answers, func(a, b describe.Answer) int { return cmp.Compare(a.Status, b.Status) })
	return policy
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
func (o *Options) addedHeaders() (added []describe.Header) {
	for _, h := range headers {
		sent := !slices.Contains(optionalHeaders, h.name) || o.Profile.sets(h.name)
		p := describe.Header{Name: h.name, Description: h.meaning}
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

// describeAnswer describes the response of a situation. It makes the response twice:
// with all facts that it can carry, and without them.
func (e *engine) describeAnswer(s Situation) describe.Answer {
	p := e.problem(s)
	a := describe.Answer{Situation: s.String(), Status: p.Status, Type: p.Type, Title: p.Title, Detail: p.Detail, RetryAfter: carries[s].wait}
	if carries[s].code {
		p.Code = "" // that of the error
	}
	with := func(f facts) describe.Response {
		r := e.expose(e.complete(p, f), nil).response
		return describe.Response{Header: r.Header, Body: r.Body}
	}
	a.Minimal = with(facts{})
	a.Example = with(facts{
		code: "card_declined", resource: "/charges/ch_1", until: time.Date(2026, time.January, 1, 12, 0, 12, 0, time.UTC),
		wait: 12 * time.Second, location: "/work/ch_1",
	})
	for _, name := range slices.Sorted(maps.Keys(a.Example.Header)) {
		if name == "Content-Type" || name == "Content-Language" {
			continue
		}
		h := describe.Header{Name: name, Always: a.Minimal.Header[name] != nil}
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
