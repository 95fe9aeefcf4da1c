package lambdahttp_test

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// request, reply and handler are the tests' own types; a wire translates them to
// events of one type.
type request struct {
	method, path, route, query string
	header                     map[string]string
	body                       string
	base64                     bool
	caller                     string // the authenticated principal; "": missing
}

type reply struct {
	status  int
	header  map[string]string
	body    string
	base64  bool
	cookies []string
}

type handler func(context.Context, request) (reply, error)
type sender func(context.Context, request) (reply, error)

// wire sends requests as events of one type.
type wire struct {
	name        string
	constructor string // of the package
	wants       string // in the EventError for an event of another type
	build       func(*idempotent.Guard, handler, ...func(*lambdahttp.Options)) sender
	scope       lambdahttp.ScopeRule
	// carried returns the part of a handler's reply that the caller sees; ok is
	// false if the reply cannot be expressed. nil: the whole reply.
	carried func(reply) (_ reply, ok bool)
}

// wires are the event types; every rule applies to each.
var wires = []wire{
	{name: "APIGatewayV2", constructor: "APIGatewayV2", wants: "2.0", build: buildV2, scope: lambdahttp.Claim("sub")},
	{name: "FunctionURL", constructor: "FunctionURL", wants: "2.0", build: buildURL, scope: lambdahttp.ScopeRule{Of: scopeOfURL}},
	{name: "APIGatewayV1", constructor: "APIGatewayV1", wants: "1.0", build: buildV1, scope: lambdahttp.Claim("sub")},
	{name: "ALB", constructor: "ALB", wants: "Load Balancer", build: buildALB(false), scope: lambdahttp.ScopeRule{Of: scopeOfALB}},
	{name: "ALBMultiValue", constructor: "ALB", wants: "Load Balancer", build: buildALB(true), scope: lambdahttp.ScopeRule{Of: scopeOfALB}},
	{name: "Middleware", constructor: "Middleware", wants: "method", build: buildHTTP, scope: lambdahttp.ScopeRule{Of: scopeOfHTTP}, carried: carriedHTTP},
}

// carries returns the part of the handler's reply a that the caller sees.
func (w wire) carries(a reply) (reply, bool) {
	if w.carried == nil {
		return a, true
	}
	return w.carried(a)
}

func onEachWire(t *testing.T, f func(*testing.T, wire)) {
	for _, w := range wires {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			f(t, w)
		})
	}
}

// load reads an event of testdata.
func load[Ev any](t testing.TB, file string) (ev Ev) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &ev); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return ev
}
