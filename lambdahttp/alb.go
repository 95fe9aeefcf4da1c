package lambdahttp

import (
	"context"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/sfv"
)

// ALB is [APIGatewayV2] for the events of an Application Load Balancer whose
// target is the function. They have no routes, so the default operation is the
// method and the path. They have no claims; behind an authenticate action, a
// [ScopeRule] can read the header x-amzn-oidc-identity. Without such an action
// the client itself can send that header.
//
// Enable multi-value headers on the target group
// (lambda.multi_value_headers.enabled). Without them the load balancer passes
// only the last of several header lines, and of several query parameters of one
// name: two keys look like one, and the fingerprint covers only what is passed.
// Replays use the mode of the request, as the load balancer requires.
//
// The load balancer passes path and query unchanged. It refuses any JSON
// response of more than 1 MB.
func ALB(
	g *idempotent.Guard,
	h func(context.Context, events.ALBTargetGroupRequest) (events.ALBTargetGroupResponse, error),
	optFns ...func(*Options),
) func(context.Context, events.ALBTargetGroupRequest) (events.ALBTargetGroupResponse, error) {
	return adapt(translation[events.ALBTargetGroupRequest, events.ALBTargetGroupResponse]{
		name: "ALB",
		request: func(ev *events.ALBTargetGroupRequest) Request {
			return Request{
				Method:  ev.HTTPMethod,
				Path:    ev.Path,
				Event:   ev,
				names:   namesALB,
				query:   queryALB,
				wants:   "an event of an Application Load Balancer",
				header:  ev.Headers,
				headers: ev.MultiValueHeaders,
				body:    ev.Body,
				base64:  ev.IsBase64Encoded,
			}
		},
		status: func(a *events.ALBTargetGroupResponse) int { return a.StatusCode },
		response: func(a *events.ALBTargetGroupResponse) (Response, error) {
			body, err := bodyOf(a.Body, a.IsBase64Encoded)
			return Response{Status: a.StatusCode, Header: headersOf(a.Headers, a.MultiValueHeaders), Body: body, Base64: a.IsBase64Encoded}, err
		},
		answer: func(ev *events.ALBTargetGroupRequest, r Response) events.ALBTargetGroupResponse {
			a := events.ALBTargetGroupResponse{
				StatusCode: r.Status, StatusDescription: statusLine(r.Status), Body: r.eventBody(), IsBase64Encoded: r.Base64,
			}
			if multiValue(ev) {
				a.MultiValueHeaders = make(http.Header, len(r.Header)) // never nil: the load balancer requires it
				maps.Copy(a.MultiValueHeaders, r.Header)
			} else {
				a.Headers = joined(r.Header)
			}
			return a
		},
		set: func(ev *events.ALBTargetGroupRequest, a *events.ALBTargetGroupResponse, name, value string) {
			if multiValue(ev) {
				a.MultiValueHeaders = setHeader(a.MultiValueHeaders, name, []string{value})
			} else {
				a.Headers = setHeader(a.Headers, name, value)
			}
		},
	}, g, h, optFns)
}

func queryALB(r *Request) string {
	ev := r.Event.(*events.ALBTargetGroupRequest)
	return rawQuery(ev.MultiValueQueryStringParameters, ev.QueryStringParameters)
}

func namesALB(r *Request) {
	ev := r.Event.(*events.ALBTargetGroupRequest)
	const name = "x-amzn-trace-id" // the load balancer writes names in lower case
	if multiValue(ev) {
		for _, v := range ev.MultiValueHeaders[name] {
			r.RequestID = traceID(v)
		}
	} else {
		r.RequestID = traceID(ev.Headers[name])
	}
}

// multiValue reports whether the target group has multi-value headers enabled.
// Every request has at least one header.
func multiValue(ev *events.ALBTargetGroupRequest) bool { return ev.MultiValueHeaders != nil }

// statusLine returns a status with its text, "201 Created", which is the format
// of the load balancer's statusDescription.
func statusLine(status int) string {
	return strings.TrimRight(strconv.Itoa(status)+" "+http.StatusText(status), " ")
}

// maxTraceID limits a trace id, in bytes: it is stored in the record, and the
// client can choose it. The load balancer's own ids have 35.
const maxTraceID = 64

// traceID returns the root of a trace header, which identifies the request in
// the load balancer's access log, or "" if there is no valid one.
func traceID(header string) string {
	for field := range strings.SplitSeq(header, ";") {
		if root, ok := strings.CutPrefix(strings.TrimSpace(field), "Root="); ok && len(root) <= maxTraceID && sfv.IsHTTPToken(root) {
			return root
		}
	}
	return ""
}
