package lambdahttp_test

import (
	"context"
	"maps"
	"net/url"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

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

func scopeOfURL(_ context.Context, r *lambdahttp.Request) (string, error) {
	a := r.Event.(*events.LambdaFunctionURLRequest).RequestContext.Authorizer
	if a == nil || a.IAM == nil {
		return "", nil
	}
	return a.IAM.UserID, nil
}

func buildV1(g *idempotent.Guard, h handler, optFns ...func(*lambdahttp.Options)) sender {
	guarded := lambdahttp.APIGatewayV1(g, func(ctx context.Context, ev events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
		a, err := h(ctx, request{
			method: ev.HTTPMethod, path: ev.Path, query: url.Values(ev.MultiValueQueryStringParameters).Encode(),
			header: ev.Headers, body: ev.Body, base64: ev.IsBase64Encoded,
		})
		return events.APIGatewayProxyResponse{
			StatusCode: a.status, Headers: a.header, MultiValueHeaders: cookies(nil, a), Body: a.body, IsBase64Encoded: a.base64,
		}, err
	}, optFns...)
	return func(ctx context.Context, r request) (reply, error) {
		var ev events.APIGatewayProxyRequest
		ev.HTTPMethod, ev.Path, ev.Resource = r.method, r.path, r.route
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

// flattened merges both maps, without the cookies. It returns nil if both are
// empty.
func flattened(single map[string]string, multi map[string][]string) map[string]string {
	out := maps.Clone(single)
	for k, v := range multi {
		if k == cookieHeader {
			continue
		}
		if out == nil {
			out = map[string]string{}
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
		guarded := lambdahttp.ALB(g, func(ctx context.Context, ev events.ALBTargetGroupRequest) (events.ALBTargetGroupResponse, error) {
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
		}, optFns...)
		return func(ctx context.Context, r request) (reply, error) {
			var ev events.ALBTargetGroupRequest
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
}
