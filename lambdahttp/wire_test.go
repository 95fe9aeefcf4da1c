package lambdahttp_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// request, reply and handler are what the tests speak; a wire carries them as
// events of one type.
type request struct {
	method, path, route, query string
	header                     map[string]string
	body                       string
	base64                     bool
	caller                     string // the authenticated principal; "": none
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

type wire struct {
	name  string
	build func(*idempotent.Guard, handler, ...func(*lambdahttp.Options)) sender
	scope lambdahttp.ScopeFunc
}

// wires are the event types; every rule holds for each.
var wires = []wire{
	{"APIGatewayV2", buildV2, lambdahttp.Claim("sub")},
	{"FunctionURL", buildURL, func(_ context.Context, r *lambdahttp.Request) (string, error) {
		a := r.Event.(*events.LambdaFunctionURLRequest).RequestContext.Authorizer
		if a == nil || a.IAM == nil {
			return "", nil
		}
		return a.IAM.UserID, nil
	}},
}

func onEachWire(t *testing.T, f func(*testing.T, wire)) {
	for _, w := range wires {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			f(t, w)
		})
	}
}

func buildV2(g *idempotent.Guard, h handler, optFns ...func(*lambdahttp.Options)) sender {
	guarded := lambdahttp.APIGatewayV2(g, func(ctx context.Context, ev events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		a, err := h(ctx, request{
			method: ev.RequestContext.HTTP.Method, path: ev.RawPath, query: ev.RawQueryString,
			header: ev.Headers, body: ev.Body, base64: ev.IsBase64Encoded,
		})
		return events.APIGatewayV2HTTPResponse{StatusCode: a.status, Headers: a.header, Body: a.body, IsBase64Encoded: a.base64, Cookies: a.cookies}, err
	}, optFns...)
	return func(ctx context.Context, r request) (reply, error) {
		var ev events.APIGatewayV2HTTPRequest
		ev.RequestContext.HTTP.Method, ev.RawPath, ev.RouteKey, ev.RawQueryString = r.method, r.path, "$default", r.query
		if r.route != "" {
			ev.RouteKey = r.method + " " + r.route
		}
		ev.RequestContext.RequestID = "req-1"
		ev.Headers, ev.Body, ev.IsBase64Encoded = maps.Clone(r.header), r.body, r.base64
		if r.caller != "" {
			ev.RequestContext.Authorizer = &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{
				JWT: &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: map[string]string{"sub": r.caller}}}
		}
		a, err := guarded(ctx, ev)
		return reply{a.StatusCode, a.Headers, a.Body, a.IsBase64Encoded, a.Cookies}, err
	}
}

func buildURL(g *idempotent.Guard, h handler, optFns ...func(*lambdahttp.Options)) sender {
	guarded := lambdahttp.FunctionURL(g, func(ctx context.Context, ev events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
		a, err := h(ctx, request{
			method: ev.RequestContext.HTTP.Method, path: ev.RawPath, query: ev.RawQueryString,
			header: ev.Headers, body: ev.Body, base64: ev.IsBase64Encoded,
		})
		return events.LambdaFunctionURLResponse{StatusCode: a.status, Headers: a.header, Body: a.body, IsBase64Encoded: a.base64, Cookies: a.cookies}, err
	}, optFns...)
	return func(ctx context.Context, r request) (reply, error) {
		var ev events.LambdaFunctionURLRequest
		ev.RequestContext.HTTP.Method, ev.RawPath, ev.RawQueryString = r.method, r.path, r.query
		ev.RequestContext.RequestID = "req-1"
		ev.Headers, ev.Body, ev.IsBase64Encoded = maps.Clone(r.header), r.body, r.base64
		if r.caller != "" {
			ev.RequestContext.Authorizer = &events.LambdaFunctionURLRequestContextAuthorizerDescription{
				IAM: &events.LambdaFunctionURLRequestContextAuthorizerIAMDescription{UserID: r.caller}}
		}
		a, err := guarded(ctx, ev)
		return reply{a.StatusCode, a.Headers, a.Body, a.IsBase64Encoded, a.Cookies}, err
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
