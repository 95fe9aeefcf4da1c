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

// F09, F11, F23, FM52, G08, INV-7: scopes and keys that a naive join would confuse are
// distinct. Every caller gets exactly the response to that caller and key.
func TestINV7AdversarialCallersAndKeys(t *testing.T) {
	t.Parallel()
	pieces := []string{"a", "b", "ab", "a|b", "b|a", "a#b", "a:b", "a/b", "1:a", "a ", "A", "14", "\\", `\"`, "global", "%00", "a;b=c", "http#a"}
	onEachWire(t, func(t *testing.T, on wire) {
		for _, p := range exchange.Profiles {
			w := newFixture(t, on, func(o *lambdahttp.Options) {
				o.Profile = p.Value
				o.Profile.MinKeyLength = 1
				if p.Name == "uuid" {
					o.Profile.Syntax, o.Profile.MaxKeyLength = lambdahttp.QuotedOrBareKey, 255
				}
			})
			w.becomes(func(_ context.Context, r request) (reply, error) {
				return reply{status: 200, body: r.header["x-secret"]}, nil
			})
			callers := append([]string{"é", "e\u0301"}, pieces...)
			for _, replayed := range []string{"", "true"} {
				for _, caller := range callers {
					for _, key := range pieces {
						secret := fmt.Sprintf("%q's %q", caller, key)
						a := w.post(charge(withCaller(caller), withKey(exchange.Profiles[0].Spell(key)), withHeader("x-secret", secret)))
						if a.status != 200 || a.body != secret || a.header["Idempotent-Replayed"] != replayed {
							t.Errorf("%s %s: got %d %s, replayed %q", p.Name, secret, a.status, a.body, a.header["Idempotent-Replayed"])
						}
					}
				}
			}
			if w.runs != len(callers)*len(pieces) {
				t.Errorf("%s: got %d runs", p.Name, w.runs)
			}
		}
	})
}

// F09: each source reads a value that the gateway has verified. If it is
// missing, the request is refused before any call of the store, because
// unidentified callers must not share a scope.
func TestScopeSources(t *testing.T) {
	t.Parallel()
	type authorizers = events.APIGatewayV2HTTPRequestContextAuthorizerDescription
	by := func(a *authorizers) func(*v2Event) { return func(ev *v2Event) { ev.RequestContext.Authorizer = a } }
	iam := func(arn, cognito string) func(*v2Event) {
		a := &events.APIGatewayV2HTTPRequestContextAuthorizerIAMDescription{UserARN: arn}
		a.CognitoIdentity.IdentityID = cognito
		return by(&authorizers{IAM: a})
	}
	authorizer := func(values map[string]any) func(*v2Event) { return by(&authorizers{Lambda: values}) }
	jwt := func(claims map[string]string) func(*v2Event) {
		return by(&authorizers{JWT: &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: claims}})
	}
	header := func(name, value string) func(*v2Event) { return func(ev *v2Event) { ev.Headers[name] = value } }
	nothing := func(*v2Event) {}
	tenant := func(id string) context.Context {
		return lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{TenantID: id})
	}
	const role = "arn:aws:sts::123456789012:assumed-role/app/"
	for name, c := range map[string]struct {
		scope  lambdahttp.ScopeRule
		ctx    context.Context // nil: t.Context()
		change func(*v2Event)
		want   string // the scope; "": refused
	}{
		"claim":                            {lambdahttp.Claim("sub"), nil, jwt(map[string]string{"sub": "merchant-1"}), "merchant-1"},
		"no claim":                         {lambdahttp.Claim("sub"), nil, nothing, ""},
		"claim, no JWT":                    {lambdahttp.Claim("sub"), nil, authorizer(map[string]any{"sub": "merchant-1"}), ""},
		"claim, no claims":                 {lambdahttp.Claim("sub"), nil, jwt(nil), ""},
		"claim like the shared scope":      {lambdahttp.Claim("sub"), nil, jwt(map[string]string{"sub": idempotent.Global}), ""},
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
		"trusted header, two spellings": {lambdahttp.TrustedHeader("X-Tenant"), nil, func(ev *v2Event) {
			ev.Headers["x-tenant"], ev.Headers["X-Tenant"] = "acme", "evil"
		}, ""},
		"trusted header like the shared scope": {lambdahttp.TrustedHeader("X-Tenant"), nil, header("x-tenant", idempotent.Global), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ev := load[v2Event](t, "apigatewayv2/post")
			ev.RequestContext.Authorizer = nil
			c.change(&ev)
			ctx := c.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			wantScope(t, ctx, lambdahttp.APIGatewayV2, ev, c.scope, c.want)
		})
	}
	for name, missing := range map[string]func(){
		"TrustedHeader": func() { lambdahttp.TrustedHeader("X Tenant") }, "Authorizer": func() { lambdahttp.Authorizer("") }, "Claim": func() { lambdahttp.Claim("") },
	} {
		if got := panics(missing); !strings.Contains(got, name) {
			t.Errorf("%s without a valid name: panic %q", name, got)
		}
	}
}

// wantScope sends an event and checks the scope of its record. Without a scope it is
// refused, and the store is not called.
func wantScope[Ev, Ans any](t *testing.T, ctx context.Context, build builder[Ev, Ans], ev Ev, rule lambdahttp.ScopeRule, want string) {
	t.Helper()
	w := newFixture(t, wires[0])
	a, err := build(w.guard, counted[Ev](&w.runs, transcoded[Ans](t, map[string]any{"statusCode": 201})), func(o *lambdahttp.Options) {
		o.Scope, o.Operation = rule, func(*lambdahttp.Request) string { return "charge" }
	})(ctx, ev)
	status := transcoded[echoed](t, a).StatusCode
	switch rec := w.store.record(t); {
	case err != nil:
		t.Error(err)
	case want == "":
		if status != 403 || w.runs+w.store.calls != 0 {
			t.Errorf("status %d after %d runs and %d calls of the store, want 403 after none", status, w.runs, w.store.calls)
		}
	case status != 201 || rec == nil || rec.ID != idempotent.Key{Operation: "charge", Scope: want, ID: keyA}.RecordID():
		t.Errorf("status %d and record %v, want the one of scope %q", status, rec, want)
	}
}

// A service that repeats its request from another instance signs it in another
// session of its role. IAMRole is one caller for all sessions, IAMPrincipal is
// another caller for each.
func TestSessionsOfARole(t *testing.T) {
	t.Parallel()
	ev := load[urlEvent](t, "functionurl/post")
	for _, c := range []struct {
		scope lambdahttp.ScopeRule
		runs  int
	}{{lambdahttp.IAMRole, 1}, {lambdahttp.IAMPrincipal, 2}} {
		runs := 0
		h := lambdahttp.FunctionURL(newGuard(t), counted[urlEvent](&runs, urlAnswer{StatusCode: 201}),
			func(o *lambdahttp.Options) { o.Scope = c.scope })
		for _, session := range []string{"i-0123456789abcdef0", "i-0fedcba9876543210"} {
			ev.RequestContext.Authorizer = principalOf("arn:aws:sts::123456789012:assumed-role/orders/" + session)
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
		ev := load[urlEvent](t, "functionurl/post")
		ev.RequestContext.Authorizer = principalOf(principal)
		wantScope(t, t.Context(), lambdahttp.FunctionURL, ev, lambdahttp.IAMRole, want)
		if strings.HasPrefix(want, "arn:") || principal == "" {
			wantScope(t, t.Context(), lambdahttp.FunctionURL, ev, lambdahttp.IAMPrincipal, principal)
		}
	}
	wantScope(t, t.Context(), lambdahttp.FunctionURL, load[urlEvent](t, "functionurl/post"), lambdahttp.Claim("sub"), "")
}

func principalOf(arn string) *events.LambdaFunctionURLRequestContextAuthorizerDescription {
	if arn == "" {
		return &events.LambdaFunctionURLRequestContextAuthorizerDescription{}
	}
	return &events.LambdaFunctionURLRequestContextAuthorizerDescription{IAM: &events.LambdaFunctionURLRequestContextAuthorizerIAMDescription{UserARN: arn}}
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
		wantScope(t, t.Context(), lambdahttp.APIGatewayV1, ev, lambdahttp.Authorizer(name), want)
	}
	// Claims are strings.
	for _, c := range []struct {
		authorizer map[string]any
		want       string
	}{
		{map[string]any{"claims": map[string]any{"sub": "merchant-1"}}, "merchant-1"},
		{nil, ""},
		{map[string]any{"principalId": "merchant-1", "sub": "merchant-1"}, ""},
		{map[string]any{"claims": nil}, ""},
		{map[string]any{"claims": `{"sub":"merchant-1"}`}, ""},
		{map[string]any{"claims": map[string]any{"sub": 9007199254740993.0}}, ""},
		{map[string]any{"claims": map[string]any{"sub": []any{"merchant-1"}}}, ""},
		{map[string]any{"claims": map[string]any{"sub": ""}}, ""},
		{map[string]any{"claims": map[string]any{"sub": "\x00global"}}, ""},
	} {
		ev.RequestContext.Authorizer = c.authorizer
		wantScope(t, t.Context(), lambdahttp.APIGatewayV1, ev, lambdahttp.Claim("sub"), c.want)
	}
}
