// SPDX-License-Identifier: Apache-2.0

package charge

import (
	"context"
	"net/http"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// Routes are the route keys of the function's API.
var Routes = []string{"POST /charges", "GET /charges/{id}", "GET " + pagePath}

// HandlerFunc is a Lambda handler for an API Gateway HTTP API. It is an alias
// because lambda.StartHandlerFunc takes no defined type.
type HandlerFunc = func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error)

// handler serves the function's routes. It is safe for concurrent use.
type handler struct {
	provider *Client
	render   func(lambdahttp.Problem) lambdahttp.Response // of the profile
}

// New returns the function's handler. Records are stored through guard, and
// customers are charged at provider. optFns are applied after the function's own
// options, see [Profile].
func New(guard *idempotent.Guard, provider *Client, optFns ...func(*lambdahttp.Options)) HandlerFunc {
	h := newHandler(provider, &optFns)
	create := h.create().APIGatewayV2(guard, optFns...)
	read := lambdahttp.APIGatewayV2(guard, h.find, optFns...) // also for GET, because a profile may refuse a key on it
	show := page(guard, optFns)
	return func(ctx context.Context, ev events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		switch route, refused := h.route(ev); route {
		case toCreate:
			return create(ctx, ev)
		case toRead:
			return read(ctx, ev)
		case toPage:
			return show(ctx, ev)
		default:
			return respond(refused)
		}
	}
}

// newHandler returns the handler for all kinds of events, and puts the
// function's own options before the caller's.
func newHandler(provider *Client, optFns *[]func(*lambdahttp.Options)) *handler {
	h := &handler{provider: provider, render: lambdahttp.ProblemJSON}
	*optFns = append(withKeys(*optFns), func(o *lambdahttp.Options) {
		if render := o.Profile.Render; render != nil {
			h.render = render // so that all problems of the API have the same format
		}
	})
	return h
}

// route is one of the function's routes.
type route uint8

const (
	toNothing route = iota
	toCreate        // POST /charges
	toRead          // GET /charges/{id}
	toPage          // GET /idempotency
)

// route returns the route that matches ev, or the response if none matches. It
// ignores the event's route key, so that the single route "$default" in front of
// the function is enough.
func (h *handler) route(ev events.APIGatewayV2HTTPRequest) (to route, refused lambdahttp.Response) {
	method, path := ev.RequestContext.HTTP.Method, strings.TrimPrefix(ev.RawPath, "/")
	collection, id, isItem := strings.Cut(path, "/")
	switch {
	case "/"+path == pagePath:
		return h.only(http.MethodGet, method, toPage)
	case collection != "charges" || isItem && (id == "" || strings.Contains(id, "/")):
		return toNothing, h.problem(http.StatusNotFound, "not_found", "There is nothing at this path. Charges are at /charges.")
	case isItem:
		return h.only(http.MethodGet, method, toRead)
	}
	return h.only(http.MethodPost, method, toCreate)
}

// only returns the route to a path that serves one method.
func (h *handler) only(allowed, method string, to route) (route, lambdahttp.Response) {
	if method != allowed {
		return toNothing, h.notAllowed(allowed)
	}
	return to, lambdahttp.Response{}
}

func (h *handler) notAllowed(allowed string) lambdahttp.Response {
	r := h.problem(http.StatusMethodNotAllowed, "method_not_allowed", "This path only serves "+allowed+".")
	r.Header.Set("Allow", allowed)
	return r
}
