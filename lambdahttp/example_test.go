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

// With AWS_IAM as the authorization of a function URL, the caller is in the
// event itself.
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

// A provider's webhook tells that the charge exists: retries get the response
// that the handler would have given.
func ExampleResolved() {
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	recordID := idempotent.Key{Operation: "POST /charges", Scope: idempotent.Global, ID: "8e03978e-40d5-43e8-bc93-6894a57f9324"}.RecordID()

	err = guard.Resolve(ctx, recordID, lambdahttp.Resolved(lambdahttp.Response{
		Status: 201,
		Header: http.Header{"Location": {"/charges/ch_1"}},
		Body:   []byte(`{"id":"ch_1"}`),
	}))
	fmt.Println(errors.Is(err, idempotent.ErrNoRecord)) // this guard has seen no request yet
	// Output: true
}
