package lambdahttp

import (
	"context"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
)

// APIGatewayV2 guards h, a handler for an API Gateway HTTP API with payload
// format 2.0. Start the result with lambda.StartHandlerFunc. It is safe for
// concurrent use if h is.
//
// It panics if an argument is nil or an option is invalid: that is a
// programming error, which should surface at start-up and not after a payment.
//
// An HTTP API passes the path decoded, so "/a%2Fb" and "/a/b" are one path
// here, as they are for h, and cuts it off at a decoded "?". It joins several
// lines of one header with commas, and separates cookies from the headers. It
// ignores MultiValueHeaders in a response; a replay has those values joined
// with commas (RFC 9110, section 5.3).
func APIGatewayV2(
	g *idempotent.Guard,
	h func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error),
	optFns ...func(*Options),
) func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	return adapt(translation[events.APIGatewayV2HTTPRequest, events.APIGatewayV2HTTPResponse]{
		name: "APIGatewayV2",
		request: func(ev *events.APIGatewayV2HTTPRequest) Request {
			r := Request{
				Method:    ev.RequestContext.HTTP.Method,
				Path:      ev.RawPath,
				Route:     routeOf(ev.RouteKey),
				RawQuery:  ev.RawQueryString,
				RequestID: ev.RequestContext.RequestID,
				Event:     ev,
				wants:     "an event of an HTTP API in payload format 2.0",
				header:    ev.Headers,
				cookies:   ev.Cookies,
				body:      ev.Body,
				base64:    ev.IsBase64Encoded,
			}
			if a := ev.RequestContext.Authorizer; a != nil && a.JWT != nil {
				r.claims = a.JWT.Claims
			}
			if a := ev.RequestContext.Authorizer; a != nil && a.IAM != nil {
				r.identity = identity{principal: a.IAM.UserARN, cognitoIdentity: a.IAM.CognitoIdentity.IdentityID}
			}
			return r
		},
		status: func(a *events.APIGatewayV2HTTPResponse) int { return a.StatusCode },
		response: func(a *events.APIGatewayV2HTTPResponse) (Response, error) {
			body, err := bodyOf(a.Body, a.IsBase64Encoded)
			return Response{Status: a.StatusCode, Header: headersOf(a.Headers, a.MultiValueHeaders), Body: body, Base64: a.IsBase64Encoded}, err
		},
		answer: func(_ *events.APIGatewayV2HTTPRequest, r Response) events.APIGatewayV2HTTPResponse {
			return events.APIGatewayV2HTTPResponse{
				StatusCode: r.Status, Headers: joined(r.Header), Body: r.eventBody(), IsBase64Encoded: r.Base64,
			}
		},
		set: func(_ *events.APIGatewayV2HTTPRequest, a *events.APIGatewayV2HTTPResponse, name, value string) {
			a.Headers = setHeader(a.Headers, name, value)
		},
	}, g, h, optFns)
}

// routeOf returns the template of a route key such as "POST /charges/{id}" or
// "ANY /{proxy+}", and "" for "$default".
func routeOf(key string) string {
	_, route, _ := strings.Cut(key, " ")
	return route
}
