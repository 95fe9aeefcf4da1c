// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdaurl"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdahttp"
)

func ExampleAPIGatewayV2() {
	charge := func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		fmt.Println("charging 12.50 EUR")
		return events.APIGatewayV2HTTPResponse{StatusCode: 201, Body: `{"id":"ch_1"}`}, nil
	}

	guard, err := idempotent.New(memstore.New()) // in production: dynamostore
	if err != nil {
		panic(err)
	}
	handler := lambdahttp.APIGatewayV2(guard, charge, func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.Claim("sub") // a key is valid for one caller
	})
	// In main: lambda.StartHandlerFunc(handler)

	var event events.APIGatewayV2HTTPRequest
	event.RequestContext.HTTP.Method = "POST"
	event.RouteKey, event.RawPath = "POST /charges", "/charges"
	event.Headers = map[string]string{"idempotency-key": `"8e03978e-40d5-43e8-bc93-6894a57f9324"`}
	event.Body = `{"amount":1250,"currency":"eur"}`
	event.RequestContext.Authorizer = &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{
		JWT: &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: map[string]string{"sub": "merchant-1"}},
	}
	for range 2 {
		answer, err := handler(context.Background(), event)
		fmt.Println(answer.StatusCode, answer.Body, answer.Headers, err)
	}
	// Output:
	// charging 12.50 EUR
	// 201 {"id":"ch_1"} map[] <nil>
	// 201 {"id":"ch_1"} map[Idempotent-Replayed:true] <nil>
}

// A JSON handler gets the decoded body, and only bodies that pass the check use
// their key.
func ExampleJSON() {
	type payment struct {
		Order  string `json:"-"` // from the path
		Amount int64  `json:"amount"`
	}
	type receipt struct {
		ID string `json:"id"`
	}
	charge := func(_ context.Context, p payment) (receipt, error) {
		fmt.Println("charging", p.Amount, "for order", p.Order)
		return receipt{ID: "re_1"}, nil
	}
	guard, err := idempotent.New(memstore.New()) // in production: dynamostore.Open
	if err != nil {
		panic(err)
	}

	create := lambdahttp.JSON[payment, receipt]{
		Check: func(_ context.Context, r *lambdahttp.Request, p *payment) error {
			p.Order = r.PathValue("id")
			if p.Amount < 1 {
				return &lambdahttp.Problem{Status: 422, Code: "invalid_amount", Detail: "The amount must be at least 1."}
			}
			return nil
		},
		Handle: charge, // func(context.Context, payment) (receipt, error)
		Respond: func(r *lambdahttp.Response, out receipt) {
			r.Status = 201
			r.Header.Set("Location", "/receipts/"+out.ID)
		},
	}
	handler := create.APIGatewayV2(guard, func(o *lambdahttp.Options) { o.Scope = lambdahttp.Claim("sub") })

	var event events.APIGatewayV2HTTPRequest
	event.RequestContext.HTTP.Method = "POST"
	event.RouteKey, event.RawPath, event.PathParameters = "POST /orders/{id}/payments", "/orders/o-1/payments", map[string]string{"id": "o-1"}
	event.Headers = map[string]string{"idempotency-key": `"8e03978e-40d5-43e8-bc93-6894a57f9324"`, "content-type": "application/json"}
	event.RequestContext.Authorizer = &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{
		JWT: &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: map[string]string{"sub": "merchant-1"}},
	}
	for _, event.Body = range []string{`{"amount":0}`, `{"amount":1250}`, `{"amount":1250}`} {
		answer, err := handler(context.Background(), event)
		fmt.Println(answer.StatusCode, answer.Body, err)
	}
	// Output:
	// 422 {"type":"about:blank","title":"Unprocessable Entity","status":422,"detail":"The amount must be at least 1.","code":"invalid_amount"} <nil>
	// charging 1250 for order o-1
	// 201 {"id":"re_1"} <nil>
	// 201 {"id":"re_1"} <nil>
}

// If a function URL uses AWS_IAM authorization, the caller is in the event. It
// has no routes, so the operation gets a name.
func ExampleFunctionURL() {
	refund := func(context.Context, events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
		return events.LambdaFunctionURLResponse{StatusCode: 202}, nil
	}

	guard, err := idempotent.New(memstore.New())
	if err != nil {
		panic(err)
	}
	handler := lambdahttp.FunctionURL(guard, refund, func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.IAMRole // a service is one caller in all its sessions
		o.Operation = func(*lambdahttp.Request) string { return "refund" }
	})

	var event events.LambdaFunctionURLRequest
	event.RequestContext.HTTP.Method = "POST"
	event.Headers = map[string]string{"idempotency-key": `"8e03978e-40d5-43e8-bc93-6894a57f9324"`}
	answer, err := handler(context.Background(), event)
	fmt.Println(answer.StatusCode, err)

	for _, instance := range []string{"i-0123456789abcdef0", "i-0fedcba9876543210"} {
		event.RequestContext.Authorizer = &events.LambdaFunctionURLRequestContextAuthorizerDescription{
			IAM: &events.LambdaFunctionURLRequestContextAuthorizerIAMDescription{UserARN: "arn:aws:sts::123456789012:assumed-role/shop/" + instance},
		}
		answer, err = handler(context.Background(), event)
		fmt.Println(answer.StatusCode, answer.Headers, err)
	}
	// Output:
	// 403 <nil>
	// 202 map[] <nil>
	// 202 map[Idempotent-Replayed:true] <nil>
}

// A provider's webhook reports that the charge exists: retries get the response
// that the handler would have returned. While the handler is running the
// webhook is refused, and the provider sends it again.
func ExampleResolved() {
	guard, err := idempotent.New(memstore.New()) // in production: dynamostore
	if err != nil {
		panic(err)
	}
	webhook := func(ctx context.Context, event events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		recordID := idempotent.RecordID(event.Headers["x-record-id"]) // in production: from the signed body
		err := guard.Resolve(ctx, recordID, lambdahttp.Resolved(lambdahttp.Response{
			Status: 201,
			Header: http.Header{"Location": {"/charges/ch_1"}},
			Body:   []byte(`{"id":"ch_1"}`),
		}))
		if errors.As(err, new(*idempotent.InProgressError)) { // the provider sends it again
			return events.APIGatewayV2HTTPResponse{StatusCode: 503}, nil
		}
		if errors.As(err, new(*idempotent.SettledError)) { // the handler's own response was stored
			return events.APIGatewayV2HTTPResponse{StatusCode: 204}, nil
		}
		return events.APIGatewayV2HTTPResponse{StatusCode: 204}, err
	}

	var notice events.APIGatewayV2HTTPRequest
	charge := func(ctx context.Context, _ events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		execution, _ := idempotent.FromContext(ctx)
		notice.Headers = map[string]string{"x-record-id": string(execution.RecordID())} // sent as the charge's metadata
		early, err := webhook(ctx, notice)
		fmt.Println("webhook", early.StatusCode, err)
		return events.APIGatewayV2HTTPResponse{StatusCode: 504}, nil // the provider did not respond
	}
	handler := lambdahttp.APIGatewayV2(guard, charge, func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.Claim("sub")
	})

	request := newEvent("POST", `"8e03978e-40d5-43e8-bc93-6894a57f9324"`, "")
	first, err := handler(context.Background(), request)
	fmt.Println("charge ", first.StatusCode, err)
	again, err := webhook(context.Background(), notice)
	fmt.Println("webhook", again.StatusCode, err)
	retry, err := handler(context.Background(), request)
	fmt.Println("charge ", retry.StatusCode, retry.Body, err)
	// Output:
	// webhook 503 <nil>
	// charge  504 <nil>
	// webhook 204 <nil>
	// charge  201 {"id":"ch_1"} <nil>
}

// A profile is plain data: copy one, and change it.
func ExampleProfile() {
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		panic(err)
	}
	handler := lambdahttp.APIGatewayV2(guard, pay, func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.Claim("sub")
		o.Profile = lambdahttp.UUID
		o.Profile.Methods = append(o.Profile.Methods, "PUT", "DELETE")
		o.DocsURL = "https://api.example.com/docs/idempotency"
	})
	for _, key := range []string{"not-a-uuid", "8e03978e-40d5-43e8-bc93-6894a57f9324"} {
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
		o.Scope = lambdahttp.Claim("sub")
		o.Profile = lambdahttp.Stripe
	})
	request := newEvent("POST", "8e03978e-40d5-43e8-bc93-6894a57f9324", "")
	for _, path := range []string{"/charges", "/refunds"} {
		request.RouteKey, request.RawPath = "POST "+path, path
		answer, err := handler(context.Background(), request)
		fmt.Println(answer.StatusCode, answer.Body[:min(26, len(answer.Body))], err)
	}
	// Output:
	// 201 {"id":"ch_1"} <nil>
	// 400 {"error":{"type":"idempote <nil>
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
		o.Scope = lambdahttp.Claim("sub")
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
func ExampleAPIGatewayV2_notExecuted() {
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		panic(err)
	}
	open := false
	charge := func(ctx context.Context, ev events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		if !open {
			return events.APIGatewayV2HTTPResponse{StatusCode: 429, Body: "try again later"}, idempotent.NotExecuted(errors.New("rate limit"))
		}
		return pay(ctx, ev)
	}
	handler := lambdahttp.APIGatewayV2(guard, charge, func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.Claim("sub")
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
		o.KeyFrom = lambdahttp.BodyField("/idempotency_key")
		o.Fingerprint = lambdahttp.Fields("/amount", "/currency")
		o.BeforeReplay = func(ctx context.Context, r *lambdahttp.Request, stored lambdahttp.Response) error {
			if deleted[stored.Header.Get("Location")] {
				return lambdahttp.RefuseReplay("The charge was deleted.")
			}
			return nil
		}
		o.Profile.ResponseHeaders = append(o.Profile.ResponseHeaders, "Idempotency-Expires")
		o.Guard = func(o *idempotent.Operation) {
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
	// 409 {"type":"abou <nil>
}

// pay is the handler of these examples.
func pay(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	return events.APIGatewayV2HTTPResponse{StatusCode: 201, Headers: map[string]string{"Location": "/charges/ch_1"}, Body: `{"id":"ch_1"}`}, nil
}

// newEvent returns a request of these examples.
func newEvent(method, key, body string) events.APIGatewayV2HTTPRequest {
	var ev events.APIGatewayV2HTTPRequest
	ev.RequestContext.HTTP.Method, ev.RouteKey, ev.RawPath, ev.Body = method, method+" /charges", "/charges", body
	ev.RequestContext.Authorizer = &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{
		JWT: &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: map[string]string{"sub": "merchant-1"}},
	}
	ev.Headers = map[string]string{"content-type": "application/json"}
	if key != "" {
		ev.Headers["idempotency-key"] = key
	}
	return ev
}

func ExampleMiddleware() {
	charge := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("charging 12.50 EUR for", r.PathValue("id"))
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "/charges/ch_1")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"id":"ch_1"}`)
	})

	guard, err := idempotent.New(memstore.New()) // in production: dynamostore
	if err != nil {
		panic(err)
	}
	guarded := lambdahttp.Middleware(guard, func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.TrustedHeader("X-Tenant") // or the caller that your authentication has found
	})
	mux := http.NewServeMux()
	mux.Handle("POST /customers/{id}/charges", guarded(charge))
	// In main: http.ListenAndServe(address, mux)

	for range 2 {
		r := httptest.NewRequest("POST", "/customers/cus_1/charges", strings.NewReader(`{"amount":1250,"currency":"eur"}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Tenant", "merchant-1") // set by our own proxy
		r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43e8-bc93-6894a57f9324"`)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Body, w.Header())
	}
	// Output:
	// charging 12.50 EUR for cus_1
	// 201 {"id":"ch_1"} map[Content-Type:[application/json] Location:[/charges/ch_1]]
	// 201 {"id":"ch_1"} map[Content-Type:[application/json] Idempotent-Replayed:[true] Location:[/charges/ch_1]]
}

// A handler that streams says so before its first flush. Its client gets each part at once,
// and a retry gets the hint.
func ExampleNoStore_stream() {
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		panic(err)
	}
	charge := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lambdahttp.NoStore(r.Context(), "Read the events at /charges/ch_1/events.")
		w.Header().Set("Content-Type", "text/event-stream")
		out := http.NewResponseController(w)
		for _, state := range []string{"authorised", "captured"} {
			fmt.Fprintf(w, "data: %s\n\n", state)
			_ = out.Flush() // the client has it now
		}
	})
	mux := http.NewServeMux()
	mux.Handle("POST /charges", lambdahttp.Middleware(guard, func(o *lambdahttp.Options) { o.Scope = lambdahttp.TrustedHeader("X-Tenant") })(charge))

	for range 2 {
		r := httptest.NewRequest("POST", "/charges", strings.NewReader(`{"amount":1250}`))
		r.Header.Set("X-Tenant", "merchant-1")
		r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43e8-bc93-6894a57f9324"`)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("Idempotency-Status"), w.Flushed)
		fmt.Println(strings.TrimSpace(w.Body.String()))
	}
	// Output:
	// 200 not-stored true
	// data: authorised
	//
	// data: captured
	// 409  false
	// {"type":"about:blank","title":"The response for this Idempotency-Key cannot be repeated","status":409,"detail":"Read the events at /charges/ch_1/events.","code":"replay-unavailable"}
}

// proxyTo returns a reverse proxy that reads the whole answer of its upstream.
func proxyTo(upstream *url.URL) *httputil.ReverseProxy {
	proxy := httputil.NewSingleHostReverseProxy(upstream)
	proxy.ModifyResponse = func(a *http.Response) error { // a body that breaks off is an error, and not an outcome
		body, err := io.ReadAll(a.Body)
		a.Body = io.NopCloser(bytes.NewReader(body))
		return err
	}
	return proxy
}

// Under lambdaurl an http.Handler serves a function URL in RESPONSE_STREAM
// mode. If the URL uses AWS_IAM authorization, the caller is in the event.
func ExampleMiddleware_lambdaurl() {
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		panic(err)
	}
	guarded := lambdahttp.Middleware(guard, func(o *lambdahttp.Options) {
		o.Scope.Of = func(ctx context.Context, _ *lambdahttp.Request) (string, error) {
			event, ok := lambdaurl.RequestFromContext(ctx)
			if !ok || event.RequestContext.Authorizer == nil || event.RequestContext.Authorizer.IAM == nil {
				return "", nil // refused with 403
			}
			return event.RequestContext.Authorizer.IAM.UserARN, nil // a role with another session name is another caller
		}
	})
	closed := true
	mux := http.NewServeMux()
	mux.Handle("POST /refunds", guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if closed {
			w.WriteHeader(http.StatusServiceUnavailable)
			lambdahttp.SetError(r.Context(), idempotent.NotExecuted(nil)) // the key may run again
			return
		}
		fmt.Println("refunding")
		w.WriteHeader(http.StatusAccepted)
	})))
	// In main: lambdaurl.Start(mux)
	handler := lambdaurl.Wrap(mux)

	event := &events.LambdaFunctionURLRequest{RawPath: "/refunds", Body: `{"charge":"ch_1"}`}
	event.RequestContext.HTTP.Method = "POST"
	event.RequestContext.DomainName = "abcdefghijklmnopqrstuvwxyz012345.lambda-url.eu-central-1.on.aws"
	event.Headers = map[string]string{"idempotency-key": `"8e03978e-40d5-43e8-bc93-6894a57f9324"`}
	event.RequestContext.Authorizer = &events.LambdaFunctionURLRequestContextAuthorizerDescription{
		IAM: &events.LambdaFunctionURLRequestContextAuthorizerIAMDescription{UserARN: "arn:aws:iam::123456789012:user/merchant-1"},
	}
	for range 3 { // a client that repeats its request
		answer, err := handler(context.Background(), event)
		if err != nil {
			panic(err)
		}
		fmt.Println(answer.StatusCode, answer.Headers)
		_, _ = io.Copy(io.Discard, answer.Body) // as the runtime does
		closed = false
	}
	// Output:
	// 503 map[Idempotency-Status:not-stored]
	// refunding
	// 202 map[]
	// 202 map[Idempotent-Replayed:true]
}
