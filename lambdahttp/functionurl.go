package lambdahttp

import (
	"context"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
)

// FunctionURL is [APIGatewayV2] for the events of a Lambda function URL. They
// have no routes, so the default operation is the method and the path. They
// have no claims; with AWS_IAM authorization use [IAMPrincipal] for the caller.
//
// A function URL passes path and query unchanged. Its InvokeMode must be
// BUFFERED, which is the default; for RESPONSE_STREAM use [Middleware] under
// lambdaurl.
func FunctionURL(
	g *idempotent.Guard,
	h func(context.Context, events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error),
	optFns ...func(*Options),
) func(context.Context, events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
	return adapt(translation[events.LambdaFunctionURLRequest, events.LambdaFunctionURLResponse]{
		name: "FunctionURL",
		request: func(ev *events.LambdaFunctionURLRequest) Request {
			r := Request{
				Method:    ev.RequestContext.HTTP.Method,
				Path:      ev.RawPath,
				RawQuery:  ev.RawQueryString,
				RequestID: ev.RequestContext.RequestID,
				Event:     ev,
				wants:     "an event of a function URL in payload format 2.0",
				header:    ev.Headers,
				cookies:   ev.Cookies,
				body:      ev.Body,
				base64:    ev.IsBase64Encoded,
			}
			if a := ev.RequestContext.Authorizer; a != nil && a.IAM != nil {
				r.identity.principal = a.IAM.UserARN
			}
			return r
		},
		status: func(a *events.LambdaFunctionURLResponse) int { return a.StatusCode },
		response: func(a *events.LambdaFunctionURLResponse) (Response, error) {
			body, err := bodyOf(a.Body, a.IsBase64Encoded)
			return Response{Status: a.StatusCode, Header: headersOf(a.Headers, nil), Body: body, Base64: a.IsBase64Encoded}, err
		},
		answer: func(_ *events.LambdaFunctionURLRequest, r Response) events.LambdaFunctionURLResponse {
			return events.LambdaFunctionURLResponse{
				StatusCode: r.Status, Headers: joined(r.Header), Body: r.eventBody(), IsBase64Encoded: r.Base64,
			}
		},
		set: func(_ *events.LambdaFunctionURLRequest, a *events.LambdaFunctionURLResponse, name, value string) {
			a.Headers = setHeader(a.Headers, name, value)
		},
	}, g, h, optFns)
}
