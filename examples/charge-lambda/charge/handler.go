// SPDX-License-Identifier: Apache-2.0

// Package charge is the Lambda function of the example: it charges a customer
// once per Idempotency-Key.
//
//	POST /charges       charges a customer             201, 402, 400
//	GET  /charges/{id}  asks the provider for a charge  200, 404
//
// Read its files in this order:
//
//	handler.go    how the API uses idempotency keys, and what routes and guards an event
//	charge.go     the work behind the guard: one call to the payment provider; and how
//	              the body is read and validated, before the key is claimed
//	client.go     the provider's API, and what its answers are evidence of
//	reconcile.go  settles an unknown outcome on a schedule
package charge

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// Operation is the operation name of the records. It is a constant because it is
// part of every record's id: records must still be found after a route is renamed.
const Operation = "POST /charges"

// Keys sets how the API uses idempotency keys. Pass it to policy.New of
// lambdahttp/policy to publish that to clients.
func Keys(o *lambdahttp.Options) {
	o.Scope = lambdahttp.SingleTenant // there is no authentication; an API with callers sets lambdahttp.Claim("sub") here
	o.Operation = func(*lambdahttp.Request) string { return Operation }
	o.Guard = func(o *idempotent.Operation) { o.Recovery = idempotent.Reconcile }
}

// RecordIDOf returns the id of the record of a client's Idempotency-Key, in the scope
// of [Keys].
func RecordIDOf(key string) idempotent.RecordID {
	return idempotent.Key{Operation: Operation, Scope: idempotent.Global, ID: key}.RecordID()
}

// HandlerFunc is a Lambda handler for an API Gateway HTTP API or a function URL. It
// is an alias because lambda.StartHandlerFunc takes no defined type.
type HandlerFunc = func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error)

// New returns the function's handler. Records are stored through guard, and
// customers are charged at provider. optFns are applied after [Keys].
func New(guard *idempotent.Guard, provider *Client, optFns ...func(*lambdahttp.Options)) HandlerFunc {
	a := newAPI(provider, optFns)
	create := a.create().APIGatewayV2(guard, a.optFns...)
	other := func(ctx context.Context, ev events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		r := a.other(ctx, ev.RequestContext.HTTP.Method, ev.RawPath)
		return events.APIGatewayV2HTTPResponse{StatusCode: r.Status, Headers: headers(r), Body: string(r.Body)}, nil
	}
	get := lambdahttp.APIGatewayV2(guard, other, a.optFns...) // so that a profile can refuse a key on a GET
	return func(ctx context.Context, ev events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		return route(ev.RequestContext.HTTP.Method, ev.RawPath, create, get, other)(ctx, ev)
	}
}

// RESTHandlerFunc is a Lambda handler for an API Gateway REST API.
type RESTHandlerFunc = func(context.Context, events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error)

// NewREST is [New] for an API Gateway REST API. Both share the records: a key that
// was used on one API counts as used on the other, if both have the same scope.
func NewREST(guard *idempotent.Guard, provider *Client, optFns ...func(*lambdahttp.Options)) RESTHandlerFunc {
	a := newAPI(provider, optFns)
	create := a.create().APIGatewayV1(guard, a.optFns...)
	other := func(ctx context.Context, ev events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
		r := a.other(ctx, ev.HTTPMethod, ev.Path)
		return events.APIGatewayProxyResponse{StatusCode: r.Status, Headers: headers(r), Body: string(r.Body)}, nil
	}
	get := lambdahttp.APIGatewayV1(guard, other, a.optFns...)
	return func(ctx context.Context, ev events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
		return route(ev.HTTPMethod, ev.Path, create, get, other)(ctx, ev)
	}
}

// route returns the handler of a request. It ignores the event's route key, so that
// the single route "$default" in front of the function is enough.
func route[H any](method, path string, create, get, other H) H {
	switch {
	case method == http.MethodPost && path == "/charges":
		return create
	case method == http.MethodGet:
		return get
	}
	return other
}

// api answers the requests, whatever the type of their events. It is safe for
// concurrent use.
type api struct {
	provider *Client
	optFns   []func(*lambdahttp.Options)
	render   func(lambdahttp.Problem) lambdahttp.Response
}

func newAPI(provider *Client, optFns []func(*lambdahttp.Options)) *api {
	a := &api{provider: provider, render: lambdahttp.ProblemJSON}
	a.optFns = append(append([]func(*lambdahttp.Options){Keys}, optFns...), func(o *lambdahttp.Options) {
		if o.Profile.Render != nil { // so that all problems of the API have the profile's format
			a.render = o.Profile.Render
		}
	})
	return a
}

// other answers every request but POST /charges. It only reads, so it needs no key
// and stores no record.
func (a *api) other(ctx context.Context, method, path string) lambdahttp.Response {
	id, inCharges := strings.CutPrefix(path, "/charges/")
	switch {
	case path == "/charges":
		return a.notAllowed(http.MethodPost)
	case !inCharges || id == "" || strings.Contains(id, "/"):
		return a.problem(http.StatusNotFound, "not_found", "There is nothing at this path. Charges are at /charges.")
	case method != http.MethodGet:
		return a.notAllowed(http.MethodGet)
	}
	charge, _, err := a.provider.Get(ctx, id)
	switch {
	case errors.Is(err, ErrNoCharge):
		return a.problem(http.StatusNotFound, "not_found", "There is no charge with this id.")
	case err != nil:
		return a.problem(http.StatusBadGateway, "provider_unavailable", "The payment provider does not answer. Repeat the request later.")
	}
	found, _ := lambdahttp.JSON[Request, Charge]{}.Response(charge) // strings and numbers always encode
	return found
}

func (a *api) notAllowed(allowed string) lambdahttp.Response {
	r := a.problem(http.StatusMethodNotAllowed, "method_not_allowed", "This path only serves "+allowed+".")
	r.Header.Set("Allow", allowed)
	return r
}

// problem returns an error response. RFC 9457 defines the type about:blank for
// problems that the status describes fully.
func (a *api) problem(status int, code, detail string) lambdahttp.Response {
	return a.render(lambdahttp.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: detail})
}

func headers(r lambdahttp.Response) map[string]string {
	single := map[string]string{}
	for name := range r.Header {
		single[name] = r.Header.Get(name)
	}
	return single
}
