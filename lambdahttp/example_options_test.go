package lambdahttp_test

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdahttp"
)

// A profile is plain data: copy one, and change it.
func ExampleProfile() {
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		panic(err)
	}
	handler := lambdahttp.APIGatewayV2(guard, pay, func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.SingleTenant
		o.Profile = lambdahttp.UUID
		o.Profile.Methods = append(o.Profile.Methods, "PUT", "DELETE")
		o.DocsURL = "https://api.example.com/docs/idempotency"
	})
	for _, key := range []string{"order-7", "8e03978e-40d5-43e8-bc93-6894a57f9324"} {
		answer, err := handler(context.Background(), newEvent("PUT", key, ""))
		fmt.Println(answer.StatusCode, answer.Headers["Link"], answer.Headers["Idempotency-Status"], err)
	}
	// Output:
	// 400 <https://api.example.com/docs/idempotency>; rel="describedby"; type="text/html"  <nil>
	// 201  created <nil>
}

// With the Stripe profile, a key belongs to one request of the whole API.
func ExampleProfile_stripe() {
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		panic(err)
	}
	handler := lambdahttp.APIGatewayV2(guard, pay, func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.SingleTenant
		o.Profile = lambdahttp.Stripe
	})
	request := newEvent("POST", "order-7", "")
	for _, path := range []string{"/charges", "/refunds"} {
		request.RawPath = path
		answer, err := handler(context.Background(), request)
		fmt.Println(answer.StatusCode, answer.Body[:min(26, len(answer.Body))], err)
	}
	// Output:
	// 201 {"id":"ch_1"} <nil>
	// 400 {"error":{"type":"idempote <nil>
}

// The policy for clients is computed from the options of the handler.
func ExampleNewPolicy() {
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		panic(err)
	}
	options := func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.Claim("sub")
		o.RequireKey = true
	}
	handler := lambdahttp.APIGatewayV2(guard, pay, options)
	rules, err := lambdahttp.NewPolicy(guard, options)
	if err != nil {
		panic(err)
	}
	fmt.Println(rules.Header, rules.Methods, rules.Retention)
	for _, a := range rules.Answers {
		if a.Status == 422 {
			fmt.Println(a.Situation, a.Title)
		}
	}
	_ = handler // in main: lambda.StartHandlerFunc(handler)
	// Output:
	// Idempotency-Key [POST PATCH] 24h0m0s
	// key-reused Idempotency-Key is already used
	// final The request has a final outcome
}

// An API key is shown once: it is not stored, and a retry gets a hint how to
// continue.
func ExampleNoStore() {
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		panic(err)
	}
	createKey := func(ctx context.Context, _ events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		lambdahttp.NoStore(ctx, "Roll the key to get a new secret.")
		return events.APIGatewayV2HTTPResponse{StatusCode: 201, Body: `{"secret":"sk_live_1"}`}, nil
	}
	handler := lambdahttp.APIGatewayV2(guard, createKey, func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.SingleTenant
	})
	for range 2 {
		answer, err := handler(context.Background(), newEvent("POST", `"8e03978e-40d5-43e8-bc93-6894a57f9324"`, ""))
		fmt.Println(answer.StatusCode, answer.Headers["Idempotency-Status"], err)
	}
	// Output:
	// 201 not-stored <nil>
	// 409  <nil>
}

// A rate limit refuses a request before it has an effect: the key can be used
// again.
func ExampleNotExecuted() {
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		panic(err)
	}
	open := false
	charge := func(ctx context.Context, ev events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		if !open {
			lambdahttp.NotExecuted(ctx)
			return events.APIGatewayV2HTTPResponse{StatusCode: 429, Body: "try again later"}, nil
		}
		return pay(ctx, ev)
	}
	handler := lambdahttp.APIGatewayV2(guard, charge, func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.SingleTenant
	})
	for range 2 {
		answer, err := handler(context.Background(), newEvent("POST", `"8e03978e-40d5-43e8-bc93-6894a57f9324"`, ""))
		fmt.Println(answer.StatusCode, answer.Headers["Idempotency-Status"], err)
		open = true
	}
	// Output:
	// 429 not-stored <nil>
	// 201  <nil>
}

// The key is in the body, only the amount is compared, the resource is checked
// before a replay, and a retry waits for the running request.
func ExampleOptions() {
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		panic(err)
	}
	deleted := map[string]bool{"/charges/ch_1": true}
	handler := lambdahttp.APIGatewayV2(guard, pay, func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.TrustedHeader("X-Tenant") // set by our own proxy
		o.KeyFrom = lambdahttp.BodyField("idempotency_key")
		o.Fingerprint = lambdahttp.Fields("/amount", "/currency")
		o.BeforeReplay = func(ctx context.Context, r *lambdahttp.Request, stored lambdahttp.Response) error {
			if deleted[stored.Header.Get("Location")] {
				return lambdahttp.RefuseReplay("The charge was deleted.")
			}
			return nil
		}
		o.ExpiresHeader = true
		o.Guard = func(o *idempotent.Options) {
			o.Retention = 72 * time.Hour
			o.WaitFor = 10 * time.Second
		}
	})
	for _, note := range []string{"first", "second"} {
		request := newEvent("POST", "", `{"idempotency_key":"8e03978e-40d5-43e8-bc93-6894a57f9324","amount":1250,"note":"`+note+`"}`)
		request.Headers["x-tenant"] = "acme"
		answer, err := handler(context.Background(), request)
		fmt.Println(answer.StatusCode, answer.Body[:min(13, len(answer.Body))], err)
	}
	// Output:
	// 201 {"id":"ch_1"} <nil>
	// 409 {"type":"http <nil>
}

// pay is the handler of these examples.
func pay(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	return events.APIGatewayV2HTTPResponse{StatusCode: 201, Headers: map[string]string{"Location": "/charges/ch_1"}, Body: `{"id":"ch_1"}`}, nil
}

// newEvent returns a request of these examples.
func newEvent(method, key, body string) events.APIGatewayV2HTTPRequest {
	var ev events.APIGatewayV2HTTPRequest
	ev.RequestContext.HTTP.Method, ev.RouteKey, ev.RawPath, ev.Body = method, "$default", "/charges", body
	ev.Headers = map[string]string{"content-type": "application/json"}
	if key != "" {
		ev.Headers["idempotency-key"] = key
	}
	return ev
}
