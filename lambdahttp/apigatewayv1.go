package lambdahttp

import (
	"context"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
)

// APIGatewayV1 is [APIGatewayV2] for the events of an API Gateway REST API, and
// of an HTTP API with payload format 1.0.
//
// Claims are those of a Cognito user pool authorizer, or of the JWT authorizer
// of an HTTP API. A header that was sent on several lines has several values.
//
// A REST API passes the path unchanged, without the stage, and the query
// decoded: [Request.RawQuery] is encoded again, in one spelling and sorted by
// name. Replays set MultiValueHeaders.
func APIGatewayV1(
	g *idempotent.Guard,
	h func(context.Context, events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error),
	optFns ...func(*Options),
) func(context.Context, events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
	return adapt(translation[events.APIGatewayProxyRequest, events.APIGatewayProxyResponse]{
		name: "APIGatewayV1",
		request: func(ev *events.APIGatewayProxyRequest) Request {
			r := Request{
				Method:    ev.HTTPMethod,
				Path:      ev.Path,
				Route:     resourceOf(ev.Resource),
				RequestID: ev.RequestContext.RequestID,
				Event:     ev,
				query:     queryV1,
				wants:     "an event of API Gateway in payload format 1.0",
				header:    ev.Headers,
				headers:   ev.MultiValueHeaders,
				body:      ev.Body,
				base64:    ev.IsBase64Encoded,
			}
			caller := &ev.RequestContext.Identity
			r.identity = identity{principal: caller.UserArn, apiKeyID: caller.APIKeyID, cognitoIdentity: caller.CognitoIdentityID}
			r.claimValues, _ = ev.RequestContext.Authorizer["claims"].(map[string]any)
			return r
		},
		status: func(a *events.APIGatewayProxyResponse) int { return a.StatusCode },
		response: func(a *events.APIGatewayProxyResponse) (Response, error) {
			body, err := bodyOf(a.Body, a.IsBase64Encoded)
			return Response{Status: a.StatusCode, Header: headersOf(a.Headers, a.MultiValueHeaders), Body: body, Base64: a.IsBase64Encoded}, err
		},
		answer: func(_ *events.APIGatewayProxyRequest, r Response) events.APIGatewayProxyResponse {
			return events.APIGatewayProxyResponse{
				StatusCode: r.Status, MultiValueHeaders: r.Header, Body: r.eventBody(), IsBase64Encoded: r.Base64,
			}
		},
		// The gateway merges both maps.
		set: func(_ *events.APIGatewayProxyRequest, a *events.APIGatewayProxyResponse, name, value string) {
			a.Headers = setHeader(a.Headers, name, value)
		},
	}, g, h, optFns)
}

func queryV1(r *Request) string {
	ev := r.Event.(*events.APIGatewayProxyRequest)
	return encodedQuery(ev.MultiValueQueryStringParameters, ev.QueryStringParameters)
}

// resourceOf returns the template of a resource such as "/charges/{id}", and ""
// for the "$default" route of an HTTP API.
func resourceOf(resource string) string {
	if strings.TrimPrefix(resource, "/") == "$default" {
		return ""
	}
	return resource
}
