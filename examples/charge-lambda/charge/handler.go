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
var Routes = []string{"POST /charges", "GET /charges/{id}"}

// HandlerFunc is a Lambda handler for an API Gateway HTTP API. It is an alias
// because lambda.StartHandlerFunc takes no defined type.
type HandlerFunc = func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error)

// handler serves the function's routes. It is safe for concurrent use.
type handler struct {
	provider *Client
	render   func(lambdahttp.Problem) lambdahttp.Response // of the profile
	create   HandlerFunc                                  // guarded
	read     HandlerFunc                                  // too: a profile may refuse a key on GET
}

// New returns the function's handler. It keeps its records in guard and
// charges at provider. The options come after the function's own, see
// [Profile].
func New(guard *idempotent.Guard, provider *Client, optFns ...func(*lambdahttp.Options)) HandlerFunc {
	h := &handler{provider: provider, render: lambdahttp.ProblemJSON}
	optFns = append(withKeys(optFns), func(o *lambdahttp.Options) {
		if render := o.Profile.Render; render != nil {
			h.render = render // so that all of the API's problems have one form
		}
	})
	h.create = lambdahttp.APIGatewayV2(guard, h.charge, optFns...)
	h.read = lambdahttp.APIGatewayV2(guard, h.find, optFns...)
	return h.serve
}

// serve finds the route. It does not go by the event's route key, so that one
// route "$default" in front of the function is enough.
func (h *handler) serve(ctx context.Context, ev events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	method, path := ev.RequestContext.HTTP.Method, strings.TrimPrefix(ev.RawPath, "/")
	collection, id, isItem := strings.Cut(path, "/")
	switch {
	case collection != "charges" || isItem && (id == "" || strings.Contains(id, "/")):
		return respond(h.problem(http.StatusNotFound, "not_found", "There is nothing at this path. Charges are at /charges."))
	case isItem:
		if method != http.MethodGet {
			return h.notAllowed(http.MethodGet)
		}
		return h.read(ctx, ev)
	case method != http.MethodPost:
		return h.notAllowed(http.MethodPost)
	}
	if _, err := parseRequest(ev); err != nil {
		return respond(h.problem(http.StatusBadRequest, "invalid_charge", err.Error()))
	}
	return h.create(ctx, ev)
}

func (h *handler) notAllowed(allowed string) (events.APIGatewayV2HTTPResponse, error) {
	r := h.problem(http.StatusMethodNotAllowed, "method_not_allowed", "This path only serves "+allowed+".")
	r.Header.Set("Allow", allowed)
	return respond(r)
}
