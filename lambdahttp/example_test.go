package lambdahttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/aws-lambda-go/events"

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
		o.RequireKey = true
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

// If a function URL uses AWS_IAM authorization, the caller is in the event
// itself.
func ExampleFunctionURL() {
	refund := func(context.Context, events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
		return events.LambdaFunctionURLResponse{StatusCode: 202}, nil
	}

	guard, err := idempotent.New(memstore.New())
	if err != nil {
		panic(err)
	}
	handler := lambdahttp.FunctionURL(guard, refund, func(o *lambdahttp.Options) {
		o.Scope.Of = func(_ context.Context, r *lambdahttp.Request) (string, error) {
			caller := r.Event.(*events.LambdaFunctionURLRequest).RequestContext.Authorizer
			if caller == nil || caller.IAM == nil {
				return "", nil // refused with 403
			}
			return caller.IAM.UserARN, nil
		}
		o.Operation = func(*lambdahttp.Request) string { return "refund" }
	})

	var event events.LambdaFunctionURLRequest
	event.RequestContext.HTTP.Method = "POST"
	event.Headers = map[string]string{"idempotency-key": `"8e03978e-40d5-43e8-bc93-6894a57f9324"`}
	answer, err := handler(context.Background(), event)
	fmt.Println(answer.StatusCode, err)

	event.RequestContext.Authorizer = &events.LambdaFunctionURLRequestContextAuthorizerDescription{
		IAM: &events.LambdaFunctionURLRequestContextAuthorizerIAMDescription{UserARN: "arn:aws:iam::123456789012:user/merchant-1"},
	}
	answer, err = handler(context.Background(), event)
	fmt.Println(answer.StatusCode, err)
	// Output:
	// 403 <nil>
	// 202 <nil>
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
		o.Scope = lambdahttp.SingleTenant
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
