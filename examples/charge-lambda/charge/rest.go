// SPDX-License-Identifier: Apache-2.0

package charge

import (
	"context"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// RESTHandlerFunc is a Lambda handler for an API Gateway REST API. It is an alias
// because lambda.StartHandlerFunc takes no defined type.
type RESTHandlerFunc = func(context.Context, events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error)

// NewREST is [New] for an API Gateway REST API. Both share the records: a key
// that was used on one API counts as used on the other, if both have the same
// scope.
func NewREST(guard *idempotent.Guard, provider *Client, optFns ...func(*lambdahttp.Options)) RESTHandlerFunc {
	h := newHandler(provider, &optFns)
	rest := func(f HandlerFunc) RESTHandlerFunc {
		return func(ctx context.Context, ev events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
			r, err := f(ctx, fromREST(ev))
			return events.APIGatewayProxyResponse{StatusCode: r.StatusCode, Headers: r.Headers, Body: r.Body, IsBase64Encoded: r.IsBase64Encoded}, err
		}
	}
	create := h.create().APIGatewayV1(guard, optFns...)
	read := lambdahttp.APIGatewayV1(guard, rest(h.find), optFns...)
	show := rest(page(guard, optFns))
	return func(ctx context.Context, ev events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
		switch route, refused := h.route(fromREST(ev)); route {
		case toCreate:
			return create(ctx, ev)
		case toRead:
			return read(ctx, ev)
		case toPage:
			return show(ctx, ev)
		default:
			return rest(func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
				return respond(refused)
			})(ctx, ev)
		}
	}
}

// fromREST returns the parts of an event that this package reads.
func fromREST(ev events.APIGatewayProxyRequest) events.APIGatewayV2HTTPRequest {
	r := events.APIGatewayV2HTTPRequest{RawPath: ev.Path}
	r.RequestContext.HTTP.Method = ev.HTTPMethod
	return r
}
