// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/kit/exchange"
	"github.com/once-lambda/once/lambdahttp"
)

// FM52: a claim that looks like the shared scope does not identify a caller.
func TestFM52GlobalIsNoCaller(t *testing.T) {
	t.Parallel()
	w := newFixture(t, wires[0])
	if a := w.post(charge(withCaller(idempotent.Global))); a.status != 403 || w.store.calls != 0 {
		t.Errorf("status %d after %d calls of the store, want 403 after none", a.status, w.store.calls)
	}
}

// F09, G08: two tenants with one key each get their own response.
func TestTenantsNeverMeet(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newFixture(t, on)
		w.becomes(func(_ context.Context, r request) (reply, error) {
			return reply{status: 200, body: r.header["x-secret"]}, nil
		})
		for range 2 {
			for _, tenant := range []string{"merchant-1", "merchant-2"} {
				a := w.post(charge(withCaller(tenant), withHeader("x-secret", tenant)))
				if a.body != tenant {
					t.Errorf("%s got the response %q", tenant, a.body)
				}
			}
		}
		if w.runs != 2 {
			t.Errorf("the handler ran %d times for two tenants", w.runs)
		}
		// The same key without a caller does not get the response.
		if a := w.post(charge(withCaller(""))); a.status != 403 || a.body == "merchant-1" {
			t.Errorf("without a caller: %d %s", a.status, a.body)
		}
	})
}

// F23, INV-7: scopes and keys that a naive join would confuse are distinct.
// Every caller gets exactly the response to that caller and key.
func TestINV7AdversarialCallersAndKeys(t *testing.T) {
	t.Parallel()
	pieces := []string{"a", "b", "ab", "a|b", "b|a", "a#b", "a:b", "a/b", "a,b", "1:a", "a ", "A", "4", "14", "\\", `\"`, "global", "null", "%00", "a;b=c", "http#a"}
	onEachWire(t, func(t *testing.T, on wire) {
		for _, p := range exchange.Profiles {
			name, profile := p.Name, p.Value
			profile.MinKeyLength = 1
			if name == "uuid" {
				profile.Syntax = lambdahttp.QuotedOrBareKey
				profile.MaxKeyLength = 255
			}
			w := newFixture(t, on, func(o *lambdahttp.Options) { o.Profile = profile })
			w.becomes(func(_ context.Context, r request) (reply, error) {
				return reply{status: 200, body: r.header["x-secret"]}, nil
			})
			answered := 0
			for _, replayed := range []string{"", "true"} {
				for _, caller := range append([]string{"é", "e\u0301"}, pieces...) {
					for _, key := range pieces {
						if name == "stripe" && strings.Contains(key, ",") {
							continue
						}
						quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
						secret := fmt.Sprintf("%q's %q", caller, key)
						a := w.post(charge(withCaller(caller), withKey(quoted), withHeader("x-secret", secret)))
						if a.status != 200 || a.body != secret || a.header["Idempotent-Replayed"] != replayed {
							t.Errorf("%s %s: got %d %s, replayed %q", name, secret, a.status, a.body, a.header["Idempotent-Replayed"])
						}
						answered++
					}
				}
			}
			if answered < 2*20*20 || w.runs*2 != answered {
				t.Errorf("%s: got %d runs for %d responses", name, w.runs, answered)
			}
		}
	})
}

func TestSingleTenantShares(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newFixture(t, on, func(o *lambdahttp.Options) { o.Scope = lambdahttp.SingleTenant })
		w.post(charge(withCaller("merchant-1")))
		if a := w.post(charge(withCaller(""))); a.status != 201 || w.runs != 1 {
			t.Errorf("status %d after %d runs, want the one stored response", a.status, w.runs)
		}
	})
}

// A request that passed another kind of authorizer has no claims.
func TestClaimWithoutJWT(t *testing.T) {
	t.Parallel()
	w := newFixture(t, wires[0])
	h := lambdahttp.APIGatewayV2(w.guard, func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		return events.APIGatewayV2HTTPResponse{StatusCode: 200}, nil
	}, func(o *lambdahttp.Options) { o.Scope = lambdahttp.Claim("sub") })
	ev := load[events.APIGatewayV2HTTPRequest](t, "apigatewayv2/post")
	for name, a := range map[string]*events.APIGatewayV2HTTPRequestContextAuthorizerDescription{
		"none":   nil,
		"Lambda": {Lambda: map[string]any{"sub": "merchant-1"}},
		"claims": {JWT: &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{}},
	} {
		ev.RequestContext.Authorizer = a
		if a, err := h(t.Context(), ev); err != nil || a.StatusCode != 403 || w.store.calls != 0 {
			t.Errorf("%s: got %d %v after %d calls of the store, want 403 after none", name, a.StatusCode, err, w.store.calls)
		}
	}
}

// F09: each source reads a value that the gateway has verified. If it is
// missing, the request is refused before any call of the store, because
// unidentified callers must not share a scope.
func TestScopeSources(t *testing.T) {
	t.Parallel()
	iam := func(arn, cognito string) func(*events.APIGatewayV2HTTPRequest) {
		return func(ev *events.APIGatewayV2HTTPRequest) {
			a := &events.APIGatewayV2HTTPRequestContextAuthorizerIAMDescription{UserARN: arn}
			a.CognitoIdentity.IdentityID = cognito
			ev.RequestContext.Authorizer = &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{IAM: a}
		}
	}
	authorizer := func(values map[string]any) func(*events.APIGatewayV2HTTPRequest) {
		return func(ev *events.APIGatewayV2HTTPRequest) {
			ev.RequestContext.Authorizer = &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{Lambda: values}
		}
	}
	header := func(name, value string) func(*events.APIGatewayV2HTTPRequest) {
		return func(ev *events.APIGatewayV2HTTPRequest) { ev.Headers[name] = value }
	}
	nothing := func(*events.APIGatewayV2HTTPRequest) {}
	tenant := func(id string) context.Context {
		return lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{TenantID: id})
	}
	const role = "arn:aws:sts::123456789012:assumed-role/app/"
	for name, c := range map[string]struct {
		scope  lambdahttp.ScopeRule
		ctx    context.Context
		change func(*events.APIGatewayV2HTTPRequest)
		want   string // the scope; "": refused
	}{
		"IAM principal":                    {lambdahttp.IAMPrincipal, nil, iam(role+"session", ""), role + "session"},
		"IAM principal of Cognito":         {lambdahttp.IAMPrincipal, nil, iam(role+"CognitoIdentityCredentials", "eu-west-1:1"), ""},
		"IAM principal with an identity":   {lambdahttp.IAMPrincipal, nil, iam(role+"session", "eu-west-1:1"), ""},
		"Cognito role, identity missing":   {lambdahttp.IAMPrincipal, nil, iam(role+"CognitoIdentityCredentials", ""), ""},
		"no IAM principal":                 {lambdahttp.IAMPrincipal, nil, nothing, ""},
		"empty IAM principal":              {lambdahttp.IAMPrincipal, nil, iam("", ""), ""},
		"IAM role":                         {lambdahttp.IAMRole, nil, iam(role+"i-0123456789abcdef0", ""), strings.TrimSuffix(role, "/")},
		"IAM role of Cognito":              {lambdahttp.IAMRole, nil, iam(role+"CognitoIdentityCredentials", ""), ""},
		"IAM role with an identity":        {lambdahttp.IAMRole, nil, iam(role+"session", "eu-west-1:1"), ""},
		"no IAM role":                      {lambdahttp.IAMRole, nil, nothing, ""},
		"Authorizer":                       {lambdahttp.Authorizer("tenant"), nil, authorizer(map[string]any{"tenant": "acme"}), "acme"},
		"Authorizer, another value":        {lambdahttp.Authorizer("tenant"), nil, authorizer(map[string]any{"user": "acme"}), ""},
		"Authorizer, JWT":                  {lambdahttp.Authorizer("tenant"), nil, authorizer(nil), ""},
		"no Authorizer":                    {lambdahttp.Authorizer("tenant"), nil, nothing, ""},
		"Authorizer like the shared scope": {lambdahttp.Authorizer("tenant"), nil, authorizer(map[string]any{"tenant": idempotent.Global}), ""},
		"Cognito identity":                 {lambdahttp.CognitoIdentity, nil, iam(role+"CognitoIdentityCredentials", "eu-west-1:1"), "eu-west-1:1"},
		"no Cognito identity":              {lambdahttp.CognitoIdentity, nil, iam(role+"session", ""), ""},
		"no API key":                       {lambdahttp.APIKeyID, nil, header("x-api-key", "secret"), ""},
		"tenant":                           {lambdahttp.LambdaTenant, tenant("acme"), nothing, "acme"},
		"no tenant":                        {lambdahttp.LambdaTenant, tenant(""), nothing, ""},
		"tenant, not on Lambda":            {lambdahttp.LambdaTenant, nil, nothing, ""},
		"tenant like the shared scope":     {lambdahttp.LambdaTenant, tenant(idempotent.Global), nothing, ""},
		"trusted header":                   {lambdahttp.TrustedHeader("X-Tenant"), nil, header("x-tenant", " acme "), "acme"},
		"trusted header, missing":          {lambdahttp.TrustedHeader("X-Tenant"), nil, nothing, ""},
		"trusted header, empty":            {lambdahttp.TrustedHeader("X-Tenant"), nil, header("x-tenant", " "), ""},
		"trusted header, two joined":       {lambdahttp.TrustedHeader("X-Tenant"), nil, header("x-tenant", "acme,evil"), ""},
		"trusted header, two spellings": {lambdahttp.TrustedHeader("X-Tenant"), nil, func(ev *events.APIGatewayV2HTTPRequest) {
			ev.Headers["x-tenant"], ev.Headers["X-Tenant"] = "acme", "evil"
		}, ""},
		"trusted header like the shared scope": {lambdahttp.TrustedHeader("X-Tenant"), nil, header("x-tenant", idempotent.Global), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t, wires[0])
			h := lambdahttp.APIGatewayV2(w.guard, func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
				return events.APIGatewayV2HTTPResponse{StatusCode: 200}, nil
			}, func(o *lambdahttp.Options) { o.Scope = c.scope })
			ev := load[events.APIGatewayV2HTTPRequest](t, "apigatewayv2/post")
			ev.RequestContext.Authorizer = nil
			c.change(&ev)
			ctx := c.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			a, err := h(ctx, ev)
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "" {
				if a.StatusCode != 403 || w.store.calls != 0 {
					t.Errorf("status %d after %d calls of the store, want 403 after none", a.StatusCode, w.store.calls)
				}
				return
			}
			want := idempotent.Key{Operation: "POST /charges", Scope: c.want, ID: strings.Trim(ev.Headers["idempotency-key"], `"`)}.RecordID()
			if got := w.store.record(t); a.StatusCode != 200 || got == nil || got.ID != want {
				t.Errorf("status %d and record %v, want the one of scope %q", a.StatusCode, got, c.want)
			}
		})
	}
	if got := panics(func() { lambdahttp.TrustedHeader("X Tenant") }); !strings.Contains(got, "TrustedHeader") {
		t.Errorf("with an invalid name: panic %q", got)
	}
	if got := panics(func() { lambdahttp.Authorizer("") }); !strings.Contains(got, "Authorizer") {
		t.Errorf("without a name: panic %q", got)
	}
}

// A service that repeats its request from another instance signs it in another
// session of its role. IAMRole is one caller for all sessions, IAMPrincipal is
// another caller for each.
func TestSessionsOfARole(t *testing.T) {
	t.Parallel()
	ev := load[events.LambdaFunctionURLRequest](t, "functionurl/post")
	for _, c := range []struct {
		scope lambdahttp.ScopeRule
		runs  int
	}{{lambdahttp.IAMRole, 1}, {lambdahttp.IAMPrincipal, 2}} {
		runs := 0
		h := lambdahttp.FunctionURL(newGuard(t), counted[events.LambdaFunctionURLRequest](&runs, events.LambdaFunctionURLResponse{StatusCode: 201}),
			func(o *lambdahttp.Options) { o.Scope = c.scope })
		for _, session := range []string{"i-0123456789abcdef0", "i-0fedcba9876543210"} {
			ev.RequestContext.Authorizer = &events.LambdaFunctionURLRequestContextAuthorizerDescription{
				IAM: &events.LambdaFunctionURLRequestContextAuthorizerIAMDescription{UserARN: "arn:aws:sts::123456789012:assumed-role/orders/" + session}}
			if a, err := h(t.Context(), ev); err != nil || a.StatusCode != 201 {
				t.Errorf("got %+v %v", a, err)
			}
		}
		if runs != c.runs {
			t.Errorf("%s: the handler ran %d times, want %d", c.scope.Description, runs, c.runs)
		}
	}
}

func TestIAMRoles(t *testing.T) {
	t.Parallel()
	for principal, want := range map[string]string{
		"arn:aws:sts::123456789012:assumed-role/orders/i-0123456789abcdef0":                "arn:aws:sts::123456789012:assumed-role/orders",
		"arn:aws:sts::123456789012:assumed-role/orders/task=1,a.b@c-d_e+f":                 "arn:aws:sts::123456789012:assumed-role/orders",
		"arn:aws:sts::210987654321:assumed-role/orders/i-0123456789abcdef0":                "arn:aws:sts::210987654321:assumed-role/orders",
		"arn:aws-cn:sts::123456789012:assumed-role/orders/s":                               "arn:aws-cn:sts::123456789012:assumed-role/orders",
		"arn:aws-us-gov:sts::123456789012:assumed-role/orders/s":                           "arn:aws-us-gov:sts::123456789012:assumed-role/orders",
		"arn:aws:iam::123456789012:user/merchant-1":                                        "arn:aws:iam::123456789012:user/merchant-1",
		"arn:aws:iam::123456789012:user/shops/eu/merchant-1":                               "arn:aws:iam::123456789012:user/shops/eu/merchant-1",
		"arn:aws:iam::123456789012:root":                                                   "arn:aws:iam::123456789012:root",
		"arn:aws:sts::123456789012:assumed-role/AWSReservedSSO_Admin_0123456789abcdef/ana": "",
		"arn:aws:sts::123456789012:assumed-role/app/CognitoIdentityCredentials":            "",
		"arn:aws:sts::123456789012:federated-user/ana":                                     "",
		"arn:aws:sts::123456789012:assumed-role/orders":                                    "",
		"arn:aws:sts::123456789012:assumed-role/orders/":                                   "",
		"arn:aws:sts::123456789012:assumed-role//s":                                        "",
		"arn:aws:sts:::assumed-role/orders/s":                                              "",
		"arn:aws:iam::123456789012:user/":                                                  "",
		"arn:aws:iam::123456789012:role/orders":                                            "",
		"arn:aws:iam::123456789012:role/shops/orders":                                      "",
		"123456789012": "",
		"":             "",
	} {
		runs := 0
		var scope string
		h := lambdahttp.FunctionURL(newGuard(t), counted[events.LambdaFunctionURLRequest](&runs, events.LambdaFunctionURLResponse{StatusCode: 201}), func(o *lambdahttp.Options) {
			o.Scope.Of = func(ctx context.Context, r *lambdahttp.Request) (_ string, err error) {
				scope, err = lambdahttp.IAMRole.Of(ctx, r)
				return scope, err
			}
		})
		ev := load[events.LambdaFunctionURLRequest](t, "functionurl/post")
		ev.RequestContext.Authorizer = &events.LambdaFunctionURLRequestContextAuthorizerDescription{
			IAM: &events.LambdaFunctionURLRequestContextAuthorizerIAMDescription{UserARN: principal}}
		status := map[bool]int{true: 403, false: 201}[want == ""]
		if a, err := h(t.Context(), ev); err != nil || a.StatusCode != status || scope != want {
			t.Errorf("%s: got %d %v and the scope %q, want %d and %q", principal, a.StatusCode, err, scope, status, want)
		}
	}
}

// An authorizer of a REST API, or of an HTTP API with payload format 1.0, has its
// values beside principalId and claims. A value that is not exact text is no
// caller.
func TestAuthorizerOfAPIGatewayV1(t *testing.T) {
	t.Parallel()
	var authorizer map[string]any
	if err := json.Unmarshal([]byte(`{
		"principalId": "merchant-1", "tenant": "7", "account": 123456789012345, "zero": -0, "negative": -5, "exponent": 12e3,
		"long": 1234567890123456, "edge": 1000000000000000, "below": 999999999999999, "collides": 9007199254740993, "fraction": 0.5, "flag": true, "nothing": null, "empty": "",
		"list": ["merchant-1"], "claims": {"sub": "merchant-1"}, "global": "\u0000global"
	}`), &authorizer); err != nil {
		t.Fatal(err)
	}
	ev := load[v1Event](t, "apigatewayv1/post")
	ev.RequestContext.Authorizer = authorizer
	for name, want := range map[string]string{
		"principalId": "merchant-1", "tenant": "7", "account": "123456789012345", "zero": "0", "negative": "-5", "exponent": "12000",
		"long": "", "edge": "", "below": "999999999999999", "collides": "", "fraction": "", "flag": "", "nothing": "", "empty": "", "list": "", "claims": "", "global": "", "missing": "",
	} {
		w := newFixture(t, wires[0])
		runs := 0
		h := lambdahttp.APIGatewayV1(w.guard, counted[v1Event](&runs, v1Answer{StatusCode: 201}), func(o *lambdahttp.Options) {
			o.Scope = lambdahttp.Authorizer(name)
			o.Operation = func(*lambdahttp.Request) string { return "charge" }
		})
		got, err := h(t.Context(), ev)
		if err != nil {
			t.Fatal(err)
		}
		if want == "" {
			if got.StatusCode != 403 || runs+w.store.calls != 0 {
				t.Errorf("%s: got %d after %d runs, want 403 after none", name, got.StatusCode, runs)
			}
			continue
		}
		id := idempotent.Key{Operation: "charge", Scope: want, ID: keyA}.RecordID()
		if rec := w.store.record(t); got.StatusCode != 201 || rec == nil || rec.ID != id {
			t.Errorf("%s: got %d and the record %v, want the one of scope %q", name, got.StatusCode, rec, want)
		}
	}
}

// The event of a function URL with AWS_IAM authorization has the principal too.
func TestIAMPrincipalOfFunctionURL(t *testing.T) {
	t.Parallel()
	w := newFixture(t, wires[0])
	h := lambdahttp.FunctionURL(w.guard, func(context.Context, events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
		return events.LambdaFunctionURLResponse{StatusCode: 200}, nil
	}, func(o *lambdahttp.Options) { o.Scope = lambdahttp.IAMPrincipal })
	ev := load[events.LambdaFunctionURLRequest](t, "functionurl/post")
	ev.RequestContext.Authorizer = &events.LambdaFunctionURLRequestContextAuthorizerDescription{
		IAM: &events.LambdaFunctionURLRequestContextAuthorizerIAMDescription{UserARN: "arn:aws:iam::123456789012:user/merchant-1"}}
	if a, err := h(t.Context(), ev); err != nil || a.StatusCode != 200 || w.store.record(t) == nil {
		t.Errorf("got %+v %v", a, err)
	}
	ev.RequestContext.Authorizer.IAM = nil
	if a, err := h(t.Context(), ev); err != nil || a.StatusCode != 403 {
		t.Errorf("without a principal: got %+v %v", a, err)
	}
}
