package lambdahttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdaurl"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdahttp"
)

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
		o.Scope = lambdahttp.SingleTenant // or the caller that your authentication has found
		o.RequireKey = true
	})
	mux := http.NewServeMux()
	mux.Handle("POST /customers/{id}/charges", guarded(charge))
	// In main: http.ListenAndServe(address, mux)

	for range 2 {
		r := httptest.NewRequest("POST", "/customers/cus_1/charges", strings.NewReader(`{"amount":1250,"currency":"eur"}`))
		r.Header.Set("Content-Type", "application/json")
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
			return event.RequestContext.Authorizer.IAM.UserARN, nil
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
