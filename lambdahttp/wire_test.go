// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// request, reply and handler are the tests' own types; a wire translates them to
// events of one type.
type request struct {
	method, path, query string
	// route is the template of the matched route, catchAll, or "" if the front
	// does not know it.
	route string
	// mount is what an API Gateway puts in front of the path: "/prod", the stage
	// of an HTTP API, or the base path of a REST API's custom domain.
	mount  string
	header map[string]string
	body   string
	base64 bool
	caller string // the authenticated principal; "": missing
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

// catchAll is a route that matches every path, in the spelling of each front.
const catchAll = "*"

// apiRoute returns the template of the request's route as API Gateway spells it,
// and the path parameters that API Gateway finds.
func (r request) apiRoute() (template string, params map[string]string) {
	if r.route == catchAll {
		return "/{proxy+}", map[string]string{"proxy": strings.TrimPrefix(r.path, "/")}
	}
	names, values := strings.Split(r.route, "/"), strings.Split(r.path, "/")
	for i, name := range names {
		if strings.HasPrefix(name, "{") {
			if params == nil {
				params = map[string]string{}
			}
			params[strings.Trim(name, "{}")] = values[i]
		}
	}
	return r.route, params
}

// wire sends requests as events of one type.
type wire struct {
	name        string
	constructor string // of the package
	wants       string // in the EventError for an event of another type
	build       func(*idempotent.Guard, handler, ...func(*lambdahttp.Options)) sender
	bare        func(handler) sender // without a guard
	scope       lambdahttp.ScopeRule
	// carried returns the part of a handler's reply that the caller sees; ok is
	// false if the reply cannot be expressed. nil: the whole reply.
	carried func(reply) (_ reply, ok bool)
}

// wires are the event types; every rule applies to each.
var wires = []wire{
	{name: "APIGatewayV2", constructor: "APIGatewayV2", wants: "HTTP API in payload format 2.0, with requestContext.http.method", build: buildV2, bare: func(h handler) sender { return sendV2(handleV2(h)) }, scope: lambdahttp.Claim("sub")},
	{name: "FunctionURL", constructor: "FunctionURL", wants: "function URL in payload format 2.0, with requestContext.http.method", build: buildURL, bare: func(h handler) sender { return sendURL(handleURL(h)) }, scope: lambdahttp.ScopeRule{Of: scopeOfURL}},
	{name: "APIGatewayV1", constructor: "APIGatewayV1", wants: "1.0, with httpMethod", build: buildV1, bare: func(h handler) sender { return sendV1(handleV1(h)) }, scope: lambdahttp.Claim("sub")},
	{name: "ALB", constructor: "ALB", wants: "Load Balancer, with httpMethod", build: buildALB(false), bare: func(h handler) sender { return sendALB(false, handleALB(false, h)) }, scope: lambdahttp.ScopeRule{Of: scopeOfALB}},
	{name: "ALBMultiValue", constructor: "ALB", wants: "Load Balancer, with httpMethod", build: buildALB(true), bare: func(h handler) sender { return sendALB(true, handleALB(true, h)) }, scope: lambdahttp.ScopeRule{Of: scopeOfALB}},
	{name: "Middleware", constructor: "Middleware", wants: "method", build: buildHTTP, bare: func(h handler) sender { return sendHTTP(handleHTTP(h)) }, scope: lambdahttp.ScopeRule{Of: scopeOfHTTP}, carried: carriedHTTP},
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

// recorded is an event of testdata, and the rules' view of it.
type recorded struct {
	Event json.RawMessage `json:"event"`
	View  seen            `json:"view"`
}

// recordings returns the events of one type, by name.
func recordings(t testing.TB, kind string) (all map[string]recorded) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + kind + ".json")
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// bytes returns an event as it arrives: JSON, or what a server reads, of which the file
// has each byte as a character.
func (r recorded) bytes() (data []byte) {
	var text string
	if json.Unmarshal(r.Event, &text) != nil {
		return r.Event
	}
	for _, c := range text {
		data = append(data, byte(c))
	}
	return data
}

// load returns an event by its type and name.
func load[Ev any](t testing.TB, which string) (ev Ev) {
	t.Helper()
	kind, name, _ := strings.Cut(which, "/")
	if err := json.Unmarshal(recordings(t, kind)[name].Event, &ev); err != nil {
		t.Fatalf("%s: %v", which, err)
	}
	return ev
}

// builder is a constructor of the package.
type builder[Ev, Ans any] = func(*idempotent.Guard, func(context.Context, Ev) (Ans, error), ...func(*lambdahttp.Options)) func(context.Context, Ev) (Ans, error)

// The events and responses of each type.
type (
	v2Event   = events.APIGatewayV2HTTPRequest
	v2Answer  = events.APIGatewayV2HTTPResponse
	urlEvent  = events.LambdaFunctionURLRequest
	urlAnswer = events.LambdaFunctionURLResponse
	v1Event   = events.APIGatewayProxyRequest
	v1Answer  = events.APIGatewayProxyResponse
	albEvent  = events.ALBTargetGroupRequest
	albAnswer = events.ALBTargetGroupResponse
)

func buildV2(g *idempotent.Guard, h handler, optFns ...func(*lambdahttp.Options)) sender {
	return sendV2(lambdahttp.APIGatewayV2(g, handleV2(h), optFns...))
}

func handleV2(h handler) func(context.Context, v2Event) (v2Answer, error) {
	return func(ctx context.Context, ev v2Event) (v2Answer, error) {
		a, err := h(ctx, request{
			method: ev.RequestContext.HTTP.Method, path: ev.RawPath, query: ev.RawQueryString,
			header: ev.Headers, body: ev.Body, base64: ev.IsBase64Encoded,
		})
		return v2Answer{StatusCode: a.status, Headers: a.header, Body: a.body, IsBase64Encoded: a.base64, Cookies: a.cookies}, err
	}
}

func sendV2(guarded func(context.Context, v2Event) (v2Answer, error)) sender {
	return func(ctx context.Context, r request) (reply, error) {
		var ev v2Event
		ev.RequestContext.HTTP.Method, ev.RawPath, ev.RouteKey, ev.RawQueryString = r.method, r.mount+r.path, "$default", r.query
		if r.route != "" {
			ev.RouteKey, ev.PathParameters = r.apiRoute()
			ev.RouteKey = r.method + " " + ev.RouteKey
		}
		ev.RequestContext.Stage = cmp.Or(strings.TrimPrefix(r.mount, "/"), "$default")
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
	return sendURL(lambdahttp.FunctionURL(g, handleURL(h), optFns...))
}

func handleURL(h handler) func(context.Context, urlEvent) (urlAnswer, error) {
	return func(ctx context.Context, ev urlEvent) (urlAnswer, error) {
		a, err := h(ctx, request{
			method: ev.RequestContext.HTTP.Method, path: ev.RawPath, query: ev.RawQueryString,
			header: ev.Headers, body: ev.Body, base64: ev.IsBase64Encoded,
		})
		return urlAnswer{StatusCode: a.status, Headers: a.header, Body: a.body, IsBase64Encoded: a.base64, Cookies: a.cookies}, err
	}
}

func sendURL(guarded func(context.Context, urlEvent) (urlAnswer, error)) sender {
	return func(ctx context.Context, r request) (reply, error) {
		var ev urlEvent
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

func scopeOfURL(_ context.Context, r *lambdahttp.Request) (string, error) {
	a := r.Event.(*urlEvent).RequestContext.Authorizer
	if a == nil || a.IAM == nil {
		return "", nil
	}
	return a.IAM.UserID, nil
}

func buildV1(g *idempotent.Guard, h handler, optFns ...func(*lambdahttp.Options)) sender {
	return sendV1(lambdahttp.APIGatewayV1(g, handleV1(h), optFns...))
}

func handleV1(h handler) func(context.Context, v1Event) (v1Answer, error) {
	return func(ctx context.Context, ev v1Event) (v1Answer, error) {
		a, err := h(ctx, request{
			method: ev.HTTPMethod, path: ev.Path, query: url.Values(ev.MultiValueQueryStringParameters).Encode(),
			header: ev.Headers, body: ev.Body, base64: ev.IsBase64Encoded,
		})
		return v1Answer{
			StatusCode: a.status, Headers: a.header, MultiValueHeaders: cookies(nil, a), Body: a.body, IsBase64Encoded: a.base64,
		}, err
	}
}

func sendV1(guarded func(context.Context, v1Event) (v1Answer, error)) sender {
	return func(ctx context.Context, r request) (reply, error) {
		var ev v1Event
		ev.HTTPMethod, ev.Path = r.method, r.mount+r.path
		ev.Resource, ev.PathParameters = r.apiRoute()
		ev.RequestContext.Stage = "live"                                // not in the path of a REST API
		ev.MultiValueQueryStringParameters, _ = url.ParseQuery(r.query) // like the gateway, keep the valid parts of a malformed query
		ev.QueryStringParameters = last(ev.MultiValueQueryStringParameters)
		ev.RequestContext.RequestID = "req-1"
		ev.Headers, ev.MultiValueHeaders = maps.Clone(r.header), listed(r.header)
		ev.Body, ev.IsBase64Encoded = r.body, r.base64
		if r.caller != "" {
			ev.RequestContext.Authorizer = map[string]any{"claims": map[string]any{"sub": r.caller}}
		}
		a, err := guarded(ctx, ev)
		return reply{a.StatusCode, flattened(a.Headers, a.MultiValueHeaders), a.Body, a.IsBase64Encoded, a.MultiValueHeaders[cookieHeader]}, err
	}
}

// cookieHeader is the spelling of Set-Cookie in the tests' cookies, so that a
// header of the reply can have another.
const cookieHeader = "set-Cookie"

// cookies adds those of a to h.
func cookies(h map[string][]string, a reply) map[string][]string {
	if len(a.cookies) == 0 {
		return h
	}
	if h == nil {
		h = map[string][]string{}
	}
	h[cookieHeader] = a.cookies
	return h
}

// listed returns h with a list for each value, and last returns the last value
// of each list.
func listed(h map[string]string) map[string][]string {
	out := make(map[string][]string, len(h))
	for k, v := range h {
		out[k] = []string{v}
	}
	return out
}

func last(h map[string][]string) map[string]string {
	out := make(map[string]string, len(h))
	for k, v := range h {
		out[k] = v[len(v)-1]
	}
	return out
}

// flattened merges both maps like the gateway, without the cookies: it sends a header
// that is in both twice. It returns nil if both are empty.
func flattened(single map[string]string, multi map[string][]string) map[string]string {
	out := maps.Clone(single)
	for k, v := range multi {
		if k == cookieHeader {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		for name, one := range single {
			if strings.EqualFold(name, k) {
				v = append([]string{one}, v...)
			}
		}
		out[k] = strings.Join(v, ", ")
	}
	return out
}

// callerHeader is set by a load balancer that authenticates.
const callerHeader = "x-amzn-oidc-identity"

func scopeOfALB(_ context.Context, r *lambdahttp.Request) (string, error) {
	if v := r.Header(callerHeader); len(v) == 1 && v[0] != idempotent.Global {
		return v[0], nil
	}
	return "", nil
}

func buildALB(multi bool) func(*idempotent.Guard, handler, ...func(*lambdahttp.Options)) sender {
	return func(g *idempotent.Guard, h handler, optFns ...func(*lambdahttp.Options)) sender {
		return sendALB(multi, lambdahttp.ALB(g, handleALB(multi, h), optFns...))
	}
}

func handleALB(multi bool, h handler) func(context.Context, albEvent) (albAnswer, error) {
	return func(ctx context.Context, ev albEvent) (albAnswer, error) {
		header := ev.Headers
		if multi {
			header = last(ev.MultiValueHeaders)
		}
		a, err := h(ctx, request{method: ev.HTTPMethod, path: ev.Path, header: header, body: ev.Body, base64: ev.IsBase64Encoded})
		out := events.ALBTargetGroupResponse{StatusCode: a.status, StatusDescription: "as it likes", Body: a.body, IsBase64Encoded: a.base64}
		if multi {
			out.MultiValueHeaders = cookies(listed(a.header), a)
		} else {
			// Without lists a second cookie must use another spelling of the name.
			out.Headers = a.header
			if len(a.cookies) > 0 {
				out.Headers = maps.Clone(a.header)
				out.Headers[cookieHeader] = a.cookies[0]
			}
		}
		return out, err
	}
}

func sendALB(multi bool, guarded func(context.Context, albEvent) (albAnswer, error)) sender {
	return func(ctx context.Context, r request) (reply, error) {
		var ev albEvent
		ev.HTTPMethod, ev.Path, ev.Body, ev.IsBase64Encoded = r.method, r.path, r.body, r.base64
		header := map[string]string{"x-amzn-trace-id": "Self=1-67891234-12456789abcdef012345678;Root=req-1"}
		maps.Copy(header, r.header)
		if r.caller != "" {
			header[callerHeader] = r.caller
		}
		query := map[string][]string{}
		for pair := range strings.SplitSeq(r.query, "&") {
			if name, value, _ := strings.Cut(pair, "="); pair != "" {
				query[name] = append(query[name], value)
			}
		}
		if multi {
			ev.MultiValueHeaders, ev.MultiValueQueryStringParameters = listed(header), query
		} else {
			ev.Headers, ev.QueryStringParameters = header, last(query)
		}
		a, err := guarded(ctx, ev)
		if multi && a.Headers != nil || !multi && a.MultiValueHeaders != nil {
			panic("the load balancer drops headers of the other mode")
		}
		out := reply{status: a.StatusCode, header: flattened(a.Headers, a.MultiValueHeaders), body: a.Body, base64: a.IsBase64Encoded, cookies: a.MultiValueHeaders[cookieHeader]}
		if c, ok := out.header[cookieHeader]; ok {
			delete(out.header, cookieHeader)
			out.cookies = []string{c}
		}
		return out, err
	}
}

type callerKey struct{}

// scopeOfHTTP returns the caller that an authenticating handler has put into
// the context.
func scopeOfHTTP(_ context.Context, r *lambdahttp.Request) (string, error) {
	caller, _ := r.Event.(*http.Request).Context().Value(callerKey{}).(string)
	if caller == idempotent.Global {
		return "", nil
	}
	return caller, nil
}

type errorKey struct{}

// reportError makes sendHTTP return the errors that reach the error handler.
func reportError(o *lambdahttp.Options) {
	o.ErrorHandler = func(_ http.ResponseWriter, r *http.Request, err error) { *r.Context().Value(errorKey{}).(*error) = err }
}

func buildHTTP(g *idempotent.Guard, h handler, optFns ...func(*lambdahttp.Options)) sender {
	optFns = append([]func(*lambdahttp.Options){reportError}, optFns...)
	return sendHTTP(lambdahttp.Middleware(g, optFns...)(handleHTTP(h)))
}

func handleHTTP(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(err)
		}
		a, err := h(r.Context(), request{
			method: r.Method, path: r.URL.Path, query: r.URL.RawQuery, header: lower(last(r.Header)), body: string(body),
		})
		lambdahttp.SetError(r.Context(), err)
		if a.status != 0 {
			write(w, a)
		}
	}
}

func sendHTTP(guarded http.Handler) sender {
	return func(ctx context.Context, r request) (_ reply, err error) {
		req := &http.Request{
			Method: r.method, URL: &url.URL{Path: r.path, RawQuery: r.query}, Header: http.Header{"X-Request-Id": {"req-1"}},
			Body: io.NopCloser(strings.NewReader(r.body)), ContentLength: -1,
		}
		if decoded, err := url.PathUnescape(r.path); err == nil {
			req.URL.Path, req.URL.RawPath = decoded, r.path
		}
		switch r.route {
		case "":
		case catchAll:
			req.Pattern = "/"
		default:
			req.Pattern = r.method + " " + r.route
		}
		for k, v := range r.header {
			req.Header.Add(k, v)
		}
		if r.base64 {
			req.Body = io.NopCloser(base64.NewDecoder(base64.StdEncoding, strings.NewReader(r.body)))
		}
		if r.body == "" {
			req.Body, req.ContentLength = http.NoBody, 0
		}
		if r.caller != "" {
			ctx = context.WithValue(ctx, callerKey{}, r.caller)
		}
		w := plainWriter{header: http.Header{}}
		guarded.ServeHTTP(&w, req.WithContext(context.WithValue(ctx, errorKey{}, &err)))
		return w.reply(), err
	}
}

func write(w http.ResponseWriter, a reply) {
	for k, v := range a.header {
		w.Header().Set(k, v)
	}
	for _, c := range a.cookies {
		w.Header().Add("Set-Cookie", c)
	}
	body := []byte(a.body)
	if a.base64 {
		body, _ = base64.StdEncoding.DecodeString(a.body)
	}
	w.WriteHeader(a.status)
	if len(body) > 0 {
		_, _ = w.Write(body)
	}
}

// carriedHTTP: header names have one spelling, bodies are bytes, and an invalid
// status cannot be written.
func carriedHTTP(a reply) (reply, bool) {
	w := plainWriter{header: http.Header{}}
	if _, err := base64.StdEncoding.DecodeString(a.body); a.status == 0 || a.base64 && err != nil {
		return a, false
	}
	write(&w, a)
	return w.reply(), true
}

// plainWriter is an http.ResponseWriter without optional interfaces.
type plainWriter struct {
	header http.Header
	status int
	sent   http.Header
	body   []byte
}

func (w *plainWriter) Header() http.Header { return w.header }

func (w *plainWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status, w.sent = status, w.header.Clone()
	}
}

func (w *plainWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.body = append(w.body, p...)
	return len(p), nil
}

// reply returns what was written. The status defaults to 200 as in a server,
// and bytes that are not text are returned as base64.
func (w *plainWriter) reply() reply {
	w.WriteHeader(http.StatusOK)
	a := reply{status: w.status, body: string(w.body), cookies: w.sent["Set-Cookie"], base64: !utf8.Valid(w.body)}
	if a.base64 {
		a.body = base64.StdEncoding.EncodeToString(w.body)
	}
	for k, v := range w.sent {
		if k == "Set-Cookie" {
			continue
		}
		if a.header == nil {
			a.header = map[string]string{}
		}
		a.header[k] = strings.Join(v, ", ")
	}
	return a
}

func lower(h map[string]string) map[string]string {
	out := make(map[string]string, len(h))
	for k, v := range h {
		out[strings.ToLower(k)] = v
	}
	return out
}
