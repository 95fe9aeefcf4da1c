// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// front is what is between a client and a handler. It translates requests into
// events, and responses back.
type front struct {
	name  string
	scope lambdahttp.ScopeRule
	serve func(*life, handlers, func(*lambdahttp.Options)) http.Handler
}

// handlers are the methods of a lambdahttp.JSON of any type.
type handlers interface {
	APIGatewayV2(*idempotent.Guard, ...func(*lambdahttp.Options)) func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error)
	APIGatewayV1(*idempotent.Guard, ...func(*lambdahttp.Options)) func(context.Context, events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error)
	ALB(*idempotent.Guard, ...func(*lambdahttp.Options)) func(context.Context, events.ALBTargetGroupRequest) (events.ALBTargetGroupResponse, error)
	FunctionURL(*idempotent.Guard, ...func(*lambdahttp.Options)) func(context.Context, events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error)
	Handler(*idempotent.Guard, ...func(*lambdahttp.Options)) http.Handler
}

// plain has the methods of a lambdahttp.JSON for handlers that get any body: pay
// charges the customer whom the path names.
type plain struct {
	pay func(context.Context) (receipt, error)
}

func (p plain) APIGatewayV2(g *idempotent.Guard, o ...func(*lambdahttp.Options)) func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	return lambdahttp.APIGatewayV2(g, func(ctx context.Context, _ events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		status, headers, body, err := p.serve(ctx)
		return events.APIGatewayV2HTTPResponse{StatusCode: status, Headers: headers, Body: body}, err
	}, o...)
}

func (p plain) APIGatewayV1(g *idempotent.Guard, o ...func(*lambdahttp.Options)) func(context.Context, events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
	return lambdahttp.APIGatewayV1(g, func(ctx context.Context, _ events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
		status, headers, body, err := p.serve(ctx)
		return events.APIGatewayProxyResponse{StatusCode: status, Headers: headers, Body: body}, err
	}, o...)
}

func (p plain) ALB(g *idempotent.Guard, o ...func(*lambdahttp.Options)) func(context.Context, events.ALBTargetGroupRequest) (events.ALBTargetGroupResponse, error) {
	return lambdahttp.ALB(g, func(ctx context.Context, _ events.ALBTargetGroupRequest) (events.ALBTargetGroupResponse, error) {
		status, headers, body, err := p.serve(ctx)
		multi := map[string][]string{}
		for name, value := range headers {
			multi[name] = []string{value}
		}
		return events.ALBTargetGroupResponse{StatusCode: status, MultiValueHeaders: multi, Body: body}, err
	}, o...)
}

func (p plain) FunctionURL(g *idempotent.Guard, o ...func(*lambdahttp.Options)) func(context.Context, events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
	return lambdahttp.FunctionURL(g, func(ctx context.Context, _ events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
		status, headers, body, err := p.serve(ctx)
		return events.LambdaFunctionURLResponse{StatusCode: status, Headers: headers, Body: body}, err
	}, o...)
}

func (p plain) Handler(g *idempotent.Guard, o ...func(*lambdahttp.Options)) http.Handler {
	return lambdahttp.Middleware(g, o...)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, headers, body, err := p.serve(r.Context())
		lambdahttp.SetError(r.Context(), err)
		sent{status: status, headers: headers, body: body}.write(w)
	}))
}

func (p plain) serve(ctx context.Context) (status int, headers map[string]string, body string, err error) {
	out, err := p.pay(ctx)
	if err != nil {
		return http.StatusBadGateway, nil, "", idempotent.Unknown(err)
	}
	data, err := json.Marshal(out)
	return http.StatusCreated, map[string]string{"Location": "/charges/" + out.ID, "Content-Type": "application/json"}, string(data), err
}

// albCaller is the header in which a load balancer names the caller that it has
// authenticated.
const albCaller = "x-amzn-oidc-identity"

var fronts = []front{
	{"net/http", lambdahttp.ScopeRule{Of: func(_ context.Context, r *lambdahttp.Request) (string, error) {
		return callerOf(r.Event.(*http.Request)), nil
	}}, serveHTTP},
	{"HTTP API", lambdahttp.Claim("sub"), serveHTTPAPI},
	{"REST API", lambdahttp.Claim("sub"), serveRESTAPI},
	{"load balancer", lambdahttp.TrustedHeader(albCaller), serveALB},
	{"function URL", lambdahttp.IAMRole, serveURL},
}

// callerOf authenticates a request: the token of these tests is the caller.
func callerOf(r *http.Request) string {
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

func serveHTTP(l *life, h handlers, options func(*lambdahttp.Options)) http.Handler {
	return h.Handler(l.guard, options)
}

// serveEvents returns an http.Handler that translates a request with event, calls
// the function, and translates its response with send. A function continues when
// the client disconnects.
func serveEvents[Ev, Ans any](
	l *life, function func(context.Context, Ev) (Ans, error), event func(r *http.Request, body string, base64 bool) Ev, send func(Ans) sent,
) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		body, encoded := string(data), false
		if !utf8.Valid(data) {
			body, encoded = base64.StdEncoding.EncodeToString(data), true
		}
		answer, err := function(l.clock.invocation(context.WithoutCancel(r.Context())), event(r, body, encoded))
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		send(answer).write(w)
	})
}

// sent is a function's response.
type sent struct {
	status  int
	headers map[string]string
	multi   map[string][]string
	cookies []string
	body    string
	base64  bool
}

func (s sent) write(w http.ResponseWriter) {
	body := []byte(s.body)
	if s.base64 {
		var err error
		if body, err = base64.StdEncoding.DecodeString(s.body); err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
	}
	h := w.Header()
	for name, value := range s.headers {
		h.Set(name, value)
	}
	for name, values := range s.multi {
		h[http.CanonicalHeaderKey(name)] = values
	}
	for _, cookie := range s.cookies {
		h.Add("Set-Cookie", cookie)
	}
	w.WriteHeader(s.status)
	_, _ = w.Write(body) // an error: the client has disconnected
}

// serveHTTPAPI is API Gateway with payload format 2.0: it decodes the path, joins
// header lines, and verifies a JWT.
func serveHTTPAPI(l *life, h handlers, options func(*lambdahttp.Options)) http.Handler {
	return serveEvents(l, h.APIGatewayV2(l.guard, options), func(r *http.Request, body string, base64 bool) events.APIGatewayV2HTTPRequest {
		route, parameters := routeOf(r)
		ev := events.APIGatewayV2HTTPRequest{
			Version: "2.0", RouteKey: r.Method + " " + route, RawPath: r.URL.Path, RawQueryString: r.URL.RawQuery,
			Headers: joined(r), Cookies: cookies(r), PathParameters: parameters, Body: body, IsBase64Encoded: base64,
		}
		ev.RequestContext.RouteKey, ev.RequestContext.Stage, ev.RequestContext.RequestID = ev.RouteKey, "$default", "req-1"
		ev.RequestContext.HTTP.Method, ev.RequestContext.HTTP.Path = r.Method, r.URL.Path
		if caller := callerOf(r); caller != "" {
			ev.RequestContext.Authorizer = &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{
				JWT: &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: map[string]string{"sub": caller}},
			}
		}
		return ev
	}, func(a events.APIGatewayV2HTTPResponse) sent {
		return sent{status: a.StatusCode, headers: a.Headers, cookies: a.Cookies, body: a.Body, base64: a.IsBase64Encoded}
	})
}

// serveRESTAPI is API Gateway with payload format 1.0: the path is as it was sent,
// and a Cognito authorizer has verified the caller.
func serveRESTAPI(l *life, h handlers, options func(*lambdahttp.Options)) http.Handler {
	return serveEvents(l, h.APIGatewayV1(l.guard, options), func(r *http.Request, body string, base64 bool) events.APIGatewayProxyRequest {
		route, parameters := routeOf(r)
		ev := events.APIGatewayProxyRequest{
			Resource: route, Path: r.URL.EscapedPath(), HTTPMethod: r.Method, PathParameters: parameters,
			Headers: last(r.Header), MultiValueHeaders: maps.Clone(r.Header),
			QueryStringParameters: last(r.URL.Query()), MultiValueQueryStringParameters: r.URL.Query(),
			Body: body, IsBase64Encoded: base64,
		}
		ev.RequestContext.ResourcePath, ev.RequestContext.Stage, ev.RequestContext.RequestID = route, "live", "req-1"
		if caller := callerOf(r); caller != "" {
			ev.RequestContext.Authorizer = map[string]any{"claims": map[string]any{"sub": caller}}
		}
		return ev
	}, func(a events.APIGatewayProxyResponse) sent {
		return sent{status: a.StatusCode, headers: a.Headers, multi: a.MultiValueHeaders, body: a.Body, base64: a.IsBase64Encoded}
	})
}

// serveALB is a load balancer with multi-value headers. It sets the header that
// names the caller, and removes the client's.
func serveALB(l *life, h handlers, options func(*lambdahttp.Options)) http.Handler {
	return serveEvents(l, h.ALB(l.guard, options), func(r *http.Request, body string, base64 bool) events.ALBTargetGroupRequest {
		ev := events.ALBTargetGroupRequest{
			HTTPMethod: r.Method, Path: r.URL.EscapedPath(), MultiValueQueryStringParameters: r.URL.Query(),
			MultiValueHeaders: map[string][]string{}, Body: body, IsBase64Encoded: base64,
		}
		for name, values := range r.Header {
			ev.MultiValueHeaders[strings.ToLower(name)] = values
		}
		delete(ev.MultiValueHeaders, albCaller)
		if caller := callerOf(r); caller != "" {
			ev.MultiValueHeaders[albCaller] = []string{caller}
		}
		return ev
	}, func(a events.ALBTargetGroupResponse) sent {
		return sent{status: a.StatusCode, multi: a.MultiValueHeaders, body: a.Body, base64: a.IsBase64Encoded}
	})
}

// serveURL is a function URL with IAM authorization: it has no routes. Each request
// is signed in another session of the caller's role.
func serveURL(l *life, h handlers, options func(*lambdahttp.Options)) http.Handler {
	return serveEvents(l, h.FunctionURL(l.guard, options), func(r *http.Request, body string, base64 bool) events.LambdaFunctionURLRequest {
		ev := events.LambdaFunctionURLRequest{
			Version: "2.0", RawPath: r.URL.EscapedPath(), RawQueryString: r.URL.RawQuery,
			Headers: joined(r), Cookies: cookies(r), Body: body, IsBase64Encoded: base64,
		}
		ev.RequestContext.RequestID = "req-1"
		ev.RequestContext.HTTP.Method, ev.RequestContext.HTTP.Path = r.Method, ev.RawPath
		if caller := callerOf(r); caller != "" {
			ev.RequestContext.Authorizer = &events.LambdaFunctionURLRequestContextAuthorizerDescription{
				IAM: &events.LambdaFunctionURLRequestContextAuthorizerIAMDescription{UserARN: "arn:aws:sts::123456789012:assumed-role/" + caller + "/" + unique()},
			}
		}
		return ev
	}, func(a events.LambdaFunctionURLResponse) sent {
		return sent{status: a.StatusCode, headers: a.Headers, cookies: a.Cookies, body: a.Body, base64: a.IsBase64Encoded}
	})
}

var wildcard = regexp.MustCompile(`\{(\w+)(\.\.\.)?\}`)

// routeOf returns the template of the route that matched, as API Gateway writes
// it, and its parameters.
func routeOf(r *http.Request) (route string, parameters map[string]string) {
	_, pattern, _ := strings.Cut(r.Pattern, " ")
	for _, m := range wildcard.FindAllStringSubmatch(pattern, -1) {
		if parameters == nil {
			parameters = map[string]string{}
		}
		parameters[m[1]] = r.PathValue(m[1])
	}
	return strings.ReplaceAll(pattern, "...}", "+}"), parameters
}

// joined returns the headers as payload format 2.0 has them.
func joined(r *http.Request) map[string]string {
	out := map[string]string{"host": r.Host}
	for name, values := range r.Header {
		if name != "Cookie" {
			out[strings.ToLower(name)] = strings.Join(values, ",")
		}
	}
	return out
}

func cookies(r *http.Request) (out []string) {
	for _, c := range r.Cookies() {
		out = append(out, c.String())
	}
	return out
}

// last returns the last value of each name.
func last(multi map[string][]string) map[string]string {
	out := make(map[string]string, len(multi))
	for name, values := range multi {
		out[name] = values[len(values)-1]
	}
	return out
}
