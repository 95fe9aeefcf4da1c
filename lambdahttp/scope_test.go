// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// FM52: a claim that looks like the shared scope does not identify a caller.
func TestFM52GlobalIsNoCaller(t *testing.T) {
	t.Parallel()
	w := newWorld(t, wires[0])
	if a := w.post(charge(withCaller(idempotent.Global))); a.status != 403 || w.store.calls != 0 {
		t.Errorf("status %d after %d calls of the store, want 403 after none", a.status, w.store.calls)
	}
}

// F09, G08: two tenants with one key each get their own response.
func TestTenantsNeverMeet(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newWorld(t, on)
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
		for name, profile := range profiles {
			profile.MinKeyLength = 1
			if name == "UUID" {
				profile.Syntax = lambdahttp.QuotedOrBareKey
				profile.MaxKeyLength = 255
			}
			w := newWorld(t, on, func(o *lambdahttp.Options) { o.Profile = profile })
			w.becomes(func(_ context.Context, r request) (reply, error) {
				return reply{status: 200, body: r.header["x-secret"]}, nil
			})
			answered := 0
			for _, replayed := range []string{"", "true"} {
				for _, caller := range append([]string{"é", "e\u0301"}, pieces...) {
					for _, key := range pieces {
						if name == "Stripe" && strings.Contains(key, ",") {
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
		w := newWorld(t, on, func(o *lambdahttp.Options) { o.Scope = lambdahttp.SingleTenant })
		w.post(charge(withCaller("merchant-1")))
		if a := w.post(charge(withCaller(""))); a.status != 201 || w.runs != 1 {
			t.Errorf("status %d after %d runs, want the one stored response", a.status, w.runs)
		}
	})
}

// A request that passed another kind of authorizer has no claims.
func TestClaimWithoutJWT(t *testing.T) {
	t.Parallel()
	w := newWorld(t, wires[0])
	h := lambdahttp.APIGatewayV2(w.guard, func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		return events.APIGatewayV2HTTPResponse{StatusCode: 200}, nil
	}, func(o *lambdahttp.Options) { o.Scope = lambdahttp.Claim("sub") })
	ev := load[events.APIGatewayV2HTTPRequest](t, "apigatewayv2-post.json")
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
		"IAM principal":                  {lambdahttp.IAMPrincipal, nil, iam(role+"session", ""), role + "session"},
		"IAM principal of Cognito":       {lambdahttp.IAMPrincipal, nil, iam(role+"CognitoIdentityCredentials", "eu-west-1:1"), ""},
		"IAM principal with an identity": {lambdahttp.IAMPrincipal, nil, iam(role+"session", "eu-west-1:1"), ""},
		"Cognito role, identity missing": {lambdahttp.IAMPrincipal, nil, iam(role+"CognitoIdentityCredentials", ""), ""},
		"no IAM principal":               {lambdahttp.IAMPrincipal, nil, nothing, ""},
		"empty IAM principal":            {lambdahttp.IAMPrincipal, nil, iam("", ""), ""},
		"Cognito identity":               {lambdahttp.CognitoIdentity, nil, iam(role+"CognitoIdentityCredentials", "eu-west-1:1"), "eu-west-1:1"},
		"no Cognito identity":            {lambdahttp.CognitoIdentity, nil, iam(role+"session", ""), ""},
		"no API key":                     {lambdahttp.APIKeyID, nil, header("x-api-key", "secret"), ""},
		"tenant":                         {lambdahttp.LambdaTenant, tenant("acme"), nothing, "acme"},
		"no tenant":                      {lambdahttp.LambdaTenant, tenant(""), nothing, ""},
		"tenant, not on Lambda":          {lambdahttp.LambdaTenant, nil, nothing, ""},
		"tenant like the shared scope":   {lambdahttp.LambdaTenant, tenant(idempotent.Global), nothing, ""},
		"trusted header":                 {lambdahttp.TrustedHeader("X-Tenant"), nil, header("x-tenant", " acme "), "acme"},
		"trusted header, missing":        {lambdahttp.TrustedHeader("X-Tenant"), nil, nothing, ""},
		"trusted header, empty":          {lambdahttp.TrustedHeader("X-Tenant"), nil, header("x-tenant", " "), ""},
		"trusted header, two joined":     {lambdahttp.TrustedHeader("X-Tenant"), nil, header("x-tenant", "acme,evil"), ""},
		"trusted header, two spellings": {lambdahttp.TrustedHeader("X-Tenant"), nil, func(ev *events.APIGatewayV2HTTPRequest) {
			ev.Headers["x-tenant"], ev.Headers["X-Tenant"] = "acme", "evil"
		}, ""},
		"trusted header like the shared scope": {lambdahttp.TrustedHeader("X-Tenant"), nil, header("x-tenant", idempotent.Global), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, wires[0])
			h := lambdahttp.APIGatewayV2(w.guard, func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
				return events.APIGatewayV2HTTPResponse{StatusCode: 200}, nil
			}, func(o *lambdahttp.Options) { o.Scope = c.scope })
			ev := load[events.APIGatewayV2HTTPRequest](t, "apigatewayv2-post.json")
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
		t.Errorf("without a name: panic %q", got)
	}
}

// The event of a function URL with AWS_IAM authorization has the principal too.
func TestIAMPrincipalOfFunctionURL(t *testing.T) {
	t.Parallel()
	w := newWorld(t, wires[0])
	h := lambdahttp.FunctionURL(w.guard, func(context.Context, events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
		return events.LambdaFunctionURLResponse{StatusCode: 200}, nil
	}, func(o *lambdahttp.Options) { o.Scope = lambdahttp.IAMPrincipal })
	ev := load[events.LambdaFunctionURLRequest](t, "functionurl-post.json")
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
