package lambdahttp_test

import (
	"context"
	"errors"
	"fmt"
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
	g, err := idempotent.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// panics returns what f panics with, as text.
func panics(f func()) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint(p)
		}
	}()
	f()
	return ""
}

func TestConstructionPanics(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		g := newGuard(t)
		for want, change := range map[string]func(*lambdahttp.Options){
			"Options.Scope":                            func(o *lambdahttp.Options) { o.Scope = nil },
			"Options.ServerErrors is 4":                func(o *lambdahttp.Options) { o.ServerErrors = 4 },
			"Options.ProblemBase":                      func(o *lambdahttp.Options) { o.ProblemBase = "https://%zz" },
			`Options.ReplayHeaders: "a b"`:             func(o *lambdahttp.Options) { o.ReplayHeaders = []string{"a b"} },
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
		} {
			got := panics(func() {
				on.build(g, created, func(o *lambdahttp.Options) { o.Scope = lambdahttp.SingleTenant }, change)
			})
			if !strings.Contains(got, want) {
				t.Errorf("panic %q does not say %q", got, want)
			}
		}
		if got := panics(func() { on.build(nil, created) }); !strings.Contains(got, on.constructor+" wants") {
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

// A profile of one's own is data, and the standard one stays what it is.
func TestOwnProfile(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newWorld(t, on, required, func(o *lambdahttp.Options) {
			o.Profile = lambdahttp.Profile{
				Header: "X-Operation-Id",
				Syntax: func(v string) (string, error) {
					if !strings.HasPrefix(v, "op-") {
						return "", errors.New("it has to begin with op-")
					}
					return v, nil
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
			"syntax":        {put(withHeader("x-operation-id", "1")), 400, "urn:example:problem#invalid-key|Idempotency-Key is invalid|The Idempotency-Key header cannot be used: it has to begin with op-."},
			"long":          {put(withHeader("x-operation-id", "op-456789")), 400, "urn:example:problem#invalid-key|Idempotency-Key is invalid|The Idempotency-Key header cannot be used: a key has 4 to 8 characters."},
			"longest, once": {put(withHeader("x-operation-id", "op-45678")), 201, `{"id"`},
		} {
			if a := w.post(c.r); a.status != c.status || !strings.HasPrefix(a.body, c.body) {
				t.Errorf("%s: got %d %s, want %d %s", name, a.status, a.body, c.status, c.body)
			}
		}
		if a := w.post(put(withBody("{}"))); a.status != 400 || !strings.HasPrefix(a.body, "urn:example:problem#key-reused|Reused|This Idempotency-Key was used") {
			t.Errorf("reused: got %d %s", a.status, a.body)
		}
		// Render gave no headers, and the engine sets its own all the same.
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
	w := newWorld(t, wires[0], guard(func(*idempotent.Options) { applied++ }))
	twice()(w)
	if applied != 1 {
		t.Errorf("applied %d times", applied)
	}
}

func TestSituationNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for s := lambdahttp.MissingKey; s <= lambdahttp.FinalOutcome; s++ {
		if seen[s.String()] || strings.HasPrefix(s.String(), "situation-") {
			t.Errorf("situation %d is called %q", s, s)
		}
		seen[s.String()] = true
	}
	if got := lambdahttp.Situation(200).String(); got != "situation-200" {
		t.Errorf("an unknown situation is called %q", got)
	}
}

func TestRequestView(t *testing.T) {
	t.Parallel()
	asked := false
	h := lambdahttp.APIGatewayV2(newGuard(t), func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		return events.APIGatewayV2HTTPResponse{StatusCode: http.StatusOK}, nil
	}, func(o *lambdahttp.Options) {
		o.Scope = func(_ context.Context, r *lambdahttp.Request) (string, error) {
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
		t.Errorf("asked: %t, error %v", asked, err)
	}
}
