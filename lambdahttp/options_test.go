// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdahttp"
)

func newGuard(t testing.TB) *idempotent.Guard {
	t.Helper()
	g, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Logger = slog.New(slog.DiscardHandler) })
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// panics returns the value that f panics with, as text.
func panics(f func()) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint(p)
		}
	}()
	f()
	return ""
}

// F09: construction fails without a scope, and with any other invalid option.
func TestConstructionPanics(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		g := newGuard(t)
		for want, change := range map[string]func(*lambdahttp.Options){
			"Options.Scope":                                          func(o *lambdahttp.Options) { o.Scope = lambdahttp.ScopeRule{Description: "no caller"} },
			"Options.ServerErrors is 5":                              func(o *lambdahttp.Options) { o.ServerErrors = 5 },
			"Options.ProblemBase":                                    func(o *lambdahttp.Options) { o.ProblemBase = "https://%zz" },
			`Options.ReplayHeaders: "a b"`:                           func(o *lambdahttp.Options) { o.ReplayHeaders = []string{"a b"} },
			"Options.ReplayHeaders: idempotency-key carries the key": func(o *lambdahttp.Options) { o.ReplayHeaders = []string{"idempotency-key"} },
			"Options.ReplayHeaders: X-REQUEST-KEY carries the key": func(o *lambdahttp.Options) {
				o.Profile.Header, o.ReplayHeaders = "X-Request-Key", []string{"*", "X-REQUEST-KEY"}
			},
			`Options.ReplayHeaders: "X-*"`:             func(o *lambdahttp.Options) { o.ReplayHeaders = []string{"*", "X-*"} },
			`Options.ReplayHeaders: ""`:                func(o *lambdahttp.Options) { o.ReplayHeaders = []string{""} },
			"Options.ReplayHeaders: set-cookie":        func(o *lambdahttp.Options) { o.ReplayHeaders = []string{"set-cookie"} },
			"Options.ReplayHeaders: ratelimit-reset":   func(o *lambdahttp.Options) { o.ReplayHeaders = []string{"ratelimit-reset"} },
			"Profile.Header":                           func(o *lambdahttp.Options) { o.Profile.Header = "a b" },
			"Profile.MinKeyLength (-1)":                func(o *lambdahttp.Options) { o.Profile.MinKeyLength = -1 },
			"Profile.MaxKeyLength (8)":                 func(o *lambdahttp.Options) { o.Profile.MaxKeyLength = 8 },
			"Profile.Methods is empty":                 func(o *lambdahttp.Options) { o.Profile.Methods = []string{} },
			`Profile.Methods: "PO ST"`:                 func(o *lambdahttp.Options) { o.Profile.Methods = []string{"PO ST"} },
			"Profile.Answers[key-reused].Status is 42": func(o *lambdahttp.Options) { o.Profile.Answers[lambdahttp.KeyReused].Status = 42 },
			"idempotent: Options.Retention":            func(o *lambdahttp.Options) { o.Guard = func(o *idempotent.Options) { o.Retention = -time.Hour } },
			"Options.KeyFrom":                          func(o *lambdahttp.Options) { o.Profile, o.KeyFrom = lambdahttp.UUID, lambdahttp.BodyField("k") },
			"Options.GatewayTimeout":                   func(o *lambdahttp.Options) { o.GatewayTimeout = -1 },
			`Options.DocsURL "docs"`:                   func(o *lambdahttp.Options) { o.DocsURL = "docs" },
			`Options.DocsURL "//example.com/keys"`:     func(o *lambdahttp.Options) { o.DocsURL = "//example.com/keys" },
			`Options.DocsURL "https://x/\"keys\""`:     func(o *lambdahttp.Options) { o.DocsURL = `https://x/"keys"` },
			`Options.DocsURL "https://x/?<keys>"`:      func(o *lambdahttp.Options) { o.DocsURL = "https://x/?<keys>" },
			`Options.DocsURL "https://x/>"`:            func(o *lambdahttp.Options) { o.DocsURL = "https://x/>" },
			`Options.DocsURL "https://%zz"`:            func(o *lambdahttp.Options) { o.DocsURL = "https://%zz" },
			"Profile.ServerErrors is 5":                func(o *lambdahttp.Options) { o.Profile.ServerErrors = 5 },
			"Profile.MinRetention is 59m59s":           func(o *lambdahttp.Options) { o.Profile.MinRetention = time.Hour - time.Second },
			"Profile.ForbiddenMethods contains POST":   func(o *lambdahttp.Options) { o.Profile.ForbiddenMethods = []string{"POST"} },
			`Profile.ForbiddenMethods: ""`:             func(o *lambdahttp.Options) { o.Profile.ForbiddenMethods = []string{""} },
			"Profile.Answers[accepted].Status is 409":  func(o *lambdahttp.Options) { o.Profile.Answers[lambdahttp.Accepted].Status = 409 },
			`Profile.Answers[final].Header: "a b"`: func(o *lambdahttp.Options) {
				o.Profile.Answers[lambdahttp.FinalOutcome].Header = map[string]string{"a b": ""}
			},
			"Options.ReplayHeaders: idempotency-expires": func(o *lambdahttp.Options) { o.ReplayHeaders = []string{"idempotency-expires"} },
		} {
			got := panics(func() {
				on.build(g, created, func(o *lambdahttp.Options) { o.Scope = lambdahttp.SingleTenant }, change)
			})
			if !strings.Contains(got, want) {
				t.Errorf("got panic %q, want %q in it", got, want)
			}
		}
		if got := panics(func() { on.build(nil, created) }); !strings.Contains(got, on.constructor+": the guard") {
			t.Errorf("without a guard: panic %q", got)
		}
	})
	if got := panics(func() { lambdahttp.APIGatewayV2(newGuard(t), nil) }); !strings.Contains(got, "APIGatewayV2") {
		t.Errorf("without a handler: panic %q", got)
	}
	if got := panics(func() { lambdahttp.Claim("") }); !strings.Contains(got, "Claim") {
		t.Errorf("without a claim: panic %q", got)
	}
}

// F70, HTTP-30: known and unknown outcomes are retained for at least as long as
// clients retry.
func TestHTTP30ShortRetentionIsRefused(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		for _, c := range []struct {
			profile  lambdahttp.Profile
			of       string
			kept     time.Duration
			accepted bool
		}{
			{lambdahttp.IETF, "Retention", time.Hour - time.Millisecond, false},
			{lambdahttp.IETF, "Retention", time.Hour, true},
			{lambdahttp.UUID, "Retention", time.Hour - time.Millisecond, false},
			{lambdahttp.UUID, "Retention", time.Hour, true},
			{lambdahttp.Stripe, "Retention", 24*time.Hour - time.Millisecond, false},
			{lambdahttp.Stripe, "Retention", 24 * time.Hour, true},
			{lambdahttp.Stripe, "Retention", 0, true}, // the default
			{lambdahttp.Profile{MinRetention: 2 * time.Hour}, "Retention", time.Hour, false},
			{lambdahttp.IETF, "UnresolvedRetention", time.Minute, false},
			{lambdahttp.IETF, "UnresolvedRetention", time.Hour, true},
		} {
			got := panics(func() {
				on.build(newGuard(t), created, func(o *lambdahttp.Options) {
					o.Scope, o.Profile = lambdahttp.SingleTenant, c.profile
					o.Guard = func(o *idempotent.Options) {
						if c.of == "Retention" {
							o.Retention = c.kept
						} else {
							o.UnresolvedRetention = c.kept
						}
					}
				})
			})
			if (got == "") != c.accepted || got != "" && !strings.Contains(got, "idempotent.Options."+c.of+" is ") {
				t.Errorf("%s of %s: panic %q, want accepted: %t", c.of, c.kept, got, c.accepted)
			}
		}
	})
	short, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Retention = time.Minute })
	if err != nil {
		t.Fatal(err)
	}
	if got := panics(func() {
		wires[0].build(short, created, func(o *lambdahttp.Options) { o.Scope = lambdahttp.SingleTenant })
	}); !strings.Contains(got, "Retention is 1m0s") {
		t.Errorf("a guard with a short retention: panic %q", got)
	}
}

// The type of a problem depends on ProblemBase and DocsURL. Its code does not.
func TestProblemBase(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ base, docs, want string }{
		{"", "", "about:blank"},
		{"", "https://a.example/keys", "https://a.example/keys#missing-key"},
		{"", "https://a.example/keys#top", "https://a.example/keys#missing-key"},
		{"", "/docs/keys", "/docs/keys#missing-key"},
		{"https://a.example/p", "https://a.example/keys", "https://a.example/p/missing-key"},
		{"https://a.example/p/", "", "https://a.example/p/missing-key"},
		{"/problems", "", "/problems/missing-key"},
		{"urn:example:p#", "", "urn:example:p#missing-key"},
	} {
		w := newFixture(t, wires[0], func(o *lambdahttp.Options) { o.ProblemBase, o.DocsURL = c.base, c.docs })
		var got struct{ Type, Code string }
		if a := w.post(charge(without("idempotency-key"))); json.Unmarshal([]byte(a.body), &got) != nil || got.Type != c.want || got.Code != "missing-key" {
			t.Errorf("base %q, docs %q: got %s, want the type %s", c.base, c.docs, a.body, c.want)
		}
	}
}

// A situation of a later version has a number.
func TestUnknownSituation(t *testing.T) {
	t.Parallel()
	later := lambdahttp.FinalOutcome + 1
	if got := string(lambdahttp.StripeJSON(lambdahttp.Problem{Situation: later, Status: 500, Code: later.String()}).Body); !strings.Contains(got, `"type":"api_error","code":"situation-16"`) {
		t.Errorf("got %s", got)
	}
}

// A problem that exposes headers itself keeps them exposed.
func TestExposedByAProblem(t *testing.T) {
	t.Parallel()
	w := newFixture(t, wires[0], exposing, func(o *lambdahttp.Options) {
		o.Profile.Answers[lambdahttp.OutcomeUnknown].Header = map[string]string{"Access-Control-Expose-Headers": "X-Trace"}
	})
	if got := vanished(w).header["Access-Control-Expose-Headers"]; got != "X-Trace, Access-Control-Expose-Headers, Retry-After" {
		t.Errorf("exposed are %q", got)
	}
}

// F64: only a response after which the client has to change something or to
// wait links to the page about keys.
func TestDocsURLLinks(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		for name, c := range map[string]struct {
			play func(*fixture) reply
			link bool
		}{
			"201":       {once(), false},
			"replay":    {twice(), false},
			"400":       {once(withKey("")), true},
			"403":       {once(withCaller("")), false},
			"409":       {meanwhile(), true},
			"422":       {meanwhile(withBody("")), true},
			"422 final": {func(w *fixture) reply { w.becomes(answers(0, idempotent.Final("a", ""))); return once()(w) }, false},
			"503": {func(w *fixture) reply {
				w.store.set(func(s *faultyStore) { s.insertErr = errDown })
				return once()(w)
			}, false},
		} {
			w := newFixture(t, on, documented)
			if a := c.play(w); (a.header["Link"] != "") != c.link || c.link && a.header["Link"] != docsLink["Link"] {
				t.Errorf("%s: status %d, Link %q", name, a.status, a.header["Link"])
			}
		}
	})
}

// A custom profile is plain data, and does not change the standard one.
func TestOwnProfile(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newFixture(t, on, func(o *lambdahttp.Options) {
			o.Profile = lambdahttp.Profile{
				Header: "X-Operation-Id",
				Syntax: lambdahttp.KeySyntax{
					Parse: func(v string) (string, error) { return v, nil },
					Canonical: func(v string) (string, error) {
						if !strings.HasPrefix(v, "op-") {
							return "", errors.New("it must begin with op-")
						}
						return v, nil
					},
				},
				MinKeyLength: 4,
				MaxKeyLength: 8,
				Methods:      []string{"PUT"},
				Render: func(p lambdahttp.Problem) lambdahttp.Response {
					return lambdahttp.Response{Status: p.Status, Body: []byte(p.Type + "|" + p.Title + "|" + p.Detail)}
				},
			}
			o.Profile.Answers[lambdahttp.KeyReused] = lambdahttp.Answer{Status: 400, Title: "Reused"}
			o.ProblemBase = "urn:example:"
			o.ProblemBase += "problem#"
		})
		put := func(mods ...func(*request)) request {
			return charge(append([]func(*request){withMethod("PUT"), withHeader("x-operation-id", "op-1")}, mods...)...)
		}
		for name, c := range map[string]struct {
			r      request
			status int
			body   string
		}{
			"first":         {put(), 201, `{"id"`},
			"POST":          {charge(), 201, `{"id"`},
			"missing":       {put(without("x-operation-id")), 400, "urn:example:problem#missing-key|Idempotency-Key is missing|"},
			"syntax":        {put(withHeader("x-operation-id", "1")), 400, "urn:example:problem#invalid-key|Idempotency-Key is invalid|The Idempotency-Key header cannot be used: it must begin with op-."},
			"long":          {put(withHeader("x-operation-id", "op-456789")), 400, "urn:example:problem#invalid-key|Idempotency-Key is invalid|The Idempotency-Key header cannot be used: a key must have 4 to 8 characters."},
			"longest, once": {put(withHeader("x-operation-id", "op-45678")), 201, `{"id"`},
		} {
			if a := w.post(c.r); a.status != c.status || !strings.HasPrefix(a.body, c.body) {
				t.Errorf("%s: got %d %s, want %d %s", name, a.status, a.body, c.status, c.body)
			}
		}
		if a := w.post(put(withBody("{}"))); a.status != 400 || !strings.HasPrefix(a.body, "urn:example:problem#key-reused|Reused|This Idempotency-Key was used") {
			t.Errorf("reused: got %d %s", a.status, a.body)
		}
		// Render returned no headers; the engine sets its own.
		w.becomes(duringRun(func() {
			if a := w.post(put(withHeader("x-operation-id", "op-2"))); a.status != 409 || a.header["Retry-After"] == "" {
				t.Errorf("in progress: got %d %v", a.status, a.header)
			}
		}))
		w.post(put(withHeader("x-operation-id", "op-2")))
	})
	if lambdahttp.IETF.Header != "Idempotency-Key" || lambdahttp.IETF.Answers[lambdahttp.KeyReused].Status != 422 {
		t.Error("a profile of one handler changed IETF")
	}
}

func TestGuardOptionIsAppliedOnce(t *testing.T) {
	t.Parallel()
	applied := 0
	w := newFixture(t, wires[0], guard(func(*idempotent.Options) { applied++ }))
	twice()(w)
	if applied != 1 {
		t.Errorf("Options.Guard was called %d times, want once", applied)
	}
}

func TestSituationNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for s := lambdahttp.MissingKey; s <= lambdahttp.FinalOutcome; s++ {
		if seen[s.String()] || strings.HasPrefix(s.String(), "situation-") {
			t.Errorf("the name of situation %d is %q", s, s)
		}
		seen[s.String()] = true
	}
	if got := lambdahttp.Situation(200).String(); got != "situation-200" {
		t.Errorf("the name of an unknown situation is %q", got)
	}
}

func TestRequestView(t *testing.T) {
	t.Parallel()
	asked := false
	h := lambdahttp.APIGatewayV2(newGuard(t), func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		return events.APIGatewayV2HTTPResponse{StatusCode: http.StatusOK}, nil
	}, func(o *lambdahttp.Options) {
		o.Scope.Of = func(_ context.Context, r *lambdahttp.Request) (string, error) {
			asked = true
			body, err := r.Body()
			if r.Method != "POST" || r.Path != "/charges" || r.Route != "/charges" || r.RawQuery != "expand=customer&dry_run=false" ||
				r.RequestID != "JKJaXmPLvHcESHA=" || r.Claim("iss") != "https://login.example.com/" || r.Claim("none") != "" ||
				len(r.Header("HOST")) != 1 || r.Header("none") != nil || len(body) != 35 || err != nil {
				t.Errorf("the view is %+v, its body %q %v", r, body, err)
			}
			return r.Event.(*events.APIGatewayV2HTTPRequest).RequestContext.AccountID, nil
		}
	})
	if _, err := h(t.Context(), load[events.APIGatewayV2HTTPRequest](t, "apigatewayv2-post.json")); err != nil || !asked {
		t.Errorf("Scope was called: %t, error %v", asked, err)
	}
}
