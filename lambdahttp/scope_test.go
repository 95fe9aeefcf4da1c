package lambdahttp_test

import (
	"context"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// A claim that looks like the shared scope is no claim.
func TestFM52GlobalIsNoCaller(t *testing.T) {
	t.Parallel()
	w := newWorld(t, wires[0])
	if a := w.post(charge(withCaller(idempotent.Global))); a.status != 403 || w.store.calls != 0 {
		t.Errorf("status %d after %d calls of the store, want 403 after none", a.status, w.store.calls)
	}
}

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
					t.Errorf("%s was answered with %q", tenant, a.body)
				}
			}
		}
		if w.runs != 2 {
			t.Errorf("the handler ran %d times for two tenants", w.runs)
		}
		// The same key over a malformed request does not bring the answer back.
		if a := w.post(charge(withCaller(""))); a.status != 403 || a.body == "merchant-1" {
			t.Errorf("without a caller: %d %s", a.status, a.body)
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

// A request that came through another authorizer has no claims.
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
