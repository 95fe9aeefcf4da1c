package charge

import (
	"context"
	"net/http"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// Operation names what is done once per key. It is written down here because
// it is part of every record's id: a renamed route must not forget what ran.
const Operation = "POST /charges"

// Routes are the route keys of the function's API.
var Routes = []string{"POST /charges", "GET /charges/{id}"}

// HandlerFunc is a Lambda handler for an API Gateway HTTP API. It is an alias
// because lambda.StartHandlerFunc takes no defined type.
type HandlerFunc = func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error)

// handler serves the function's routes. It is safe for concurrent use.
type handler struct {
	provider *Client
	create   HandlerFunc // guarded
}

// New returns the function's handler. It keeps its records in guard and
// charges at provider.
func New(guard *idempotent.Guard, provider *Client) HandlerFunc {
	h := &handler{provider: provider}
	h.create = lambdahttp.APIGatewayV2(guard, h.charge, func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.SingleTenant // an API with tenants says lambdahttp.Claim("sub") here
		o.RequireKey = true
		o.Operation = func(*lambdahttp.Request) string { return Operation }
		o.Guard = func(o *idempotent.Options) { o.Recovery = idempotent.Reconcile }
	})
	return h.serve
}

// serve finds the route. It does not go by the event's route key, so that one
// route "$default" in front of the function is enough.
func (h *handler) serve(ctx context.Context, ev events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	method, path := ev.RequestContext.HTTP.Method, strings.TrimPrefix(ev.RawPath, "/")
	collection, id, isItem := strings.Cut(path, "/")
	switch {
	case collection != "charges" || isItem && (id == "" || strings.Contains(id, "/")):
		return respond(problem(http.StatusNotFound, "There is nothing at this path. Charges are at /charges."))
	case isItem:
		if method != http.MethodGet {
			return notAllowed(http.MethodGet)
		}
		return h.read(ctx, id)
	case method != http.MethodPost:
		return notAllowed(http.MethodPost)
	}
	if _, err := parseRequest(ev); err != nil {
		return respond(problem(http.StatusBadRequest, err.Error()))
	}
	return h.create(ctx, ev)
}

func notAllowed(allowed string) (events.APIGatewayV2HTTPResponse, error) {
	r := problem(http.StatusMethodNotAllowed, "This path only serves "+allowed+".")
	r.Header.Set("Allow", allowed)
	return respond(r)
}
