package lambdahttp_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/lambdahttp"
)

// Bounds: passing through costs at most 2 µs, a refusal at most 5 µs.
func BenchmarkAPIGatewayV2(b *testing.B) {
	post := load[events.APIGatewayV2HTTPRequest](b, "apigatewayv2-post.json")
	h := lambdahttp.APIGatewayV2(newGuard(b), func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		return events.APIGatewayV2HTTPResponse{StatusCode: 201, Headers: map[string]string{"Content-Type": "application/json"}, Body: `{"id":"ch_1"}`}, nil
	}, func(o *lambdahttp.Options) { o.Scope = lambdahttp.Claim("sub") })
	required := lambdahttp.APIGatewayV2(newGuard(b), func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		return events.APIGatewayV2HTTPResponse{}, nil
	}, func(o *lambdahttp.Options) { o.Scope, o.RequireKey = lambdahttp.Claim("sub"), true })
	uuid := lambdahttp.APIGatewayV2(newGuard(b), func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		return events.APIGatewayV2HTTPResponse{StatusCode: 200}, nil
	}, func(o *lambdahttp.Options) { o.Scope, o.Profile = lambdahttp.Claim("sub"), lambdahttp.UUID })
	keyless := post
	keyless.Headers = charge(func(r *request) { r.header = post.Headers }, without("idempotency-key")).header
	with := func(key string) events.APIGatewayV2HTTPRequest {
		ev := post
		ev.Headers = charge(func(r *request) { r.header = post.Headers }, withKey(key)).header
		return ev
	}

	for _, c := range []struct {
		name   string
		h      func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error)
		event  events.APIGatewayV2HTTPRequest
		status int
	}{
		{"pass/GET", h, load[events.APIGatewayV2HTTPRequest](b, "apigatewayv2-get.json"), 201},
		{"pass/GET/UUID", uuid, load[events.APIGatewayV2HTTPRequest](b, "apigatewayv2-get.json"), 200},
		{"pass/no-key", h, keyless, 201},
		{"refuse/no-key", required, keyless, 400},
		{"refuse/invalid-key", h, with(keyA), 400},
		{"refuse/invalid-key/UUID", uuid, with("order-7"), 400},
		{"replay", h, post, 201},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if a, err := c.h(b.Context(), c.event); err != nil || a.StatusCode != c.status {
					b.Fatal(a, err)
				}
			}
		})
	}
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			ev := post
			ev.Headers = map[string]string{"content-type": "application/json", "idempotency-key": fmt.Sprintf(`"%020d"`, i)}
			if a, err := h(b.Context(), ev); err != nil || a.StatusCode != 201 {
				b.Fatal(a, err)
			}
		}
	})
}
