// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/sfv"
)

// APIGatewayV2 guards h, a handler for an API Gateway HTTP API with payload
// format 2.0. Start the result with lambda.StartHandlerFunc. It is safe for
// concurrent use if h is.
//
// It panics if an argument is nil or an option is invalid: that is a
// programming error, which should surface at start-up and not after a payment.
//
// An HTTP API passes the path decoded, so "/a%2Fb" and "/a/b" are one path
// here, as they are for h, and cuts it off at a decoded "?". It joins several
// lines of one header with commas, and separates cookies from the headers. It
// ignores MultiValueHeaders in a response; a replay has those values joined
// with commas (RFC 9110, section 5.3).
func APIGatewayV2(
	g *idempotent.Guard,
	h func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error),
	optFns ...func(*Options),
) func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	return adapt(&eventV2, g, h, optFns)
}

// APIGatewayV1 is [APIGatewayV2] for the events of an API Gateway REST API, and
// of an HTTP API with payload format 1.0.
//
// Claims are those of a Cognito user pool authorizer, or of the JWT authorizer
// of an HTTP API. [Authorizer] reads the values of a Lambda authorizer. A header that was sent on several lines has several values.
//
// A REST API passes the path unchanged, without the stage and with the base path
// of a custom domain, and the query decoded: [Request.RawQuery] is encoded again,
// in one spelling and sorted by name. Replays set MultiValueHeaders.
func APIGatewayV1(
	g *idempotent.Guard,
	h func(context.Context, events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error),
	optFns ...func(*Options),
) func(context.Context, events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
	return adapt(&eventV1, g, h, optFns)
}

// ALB is [APIGatewayV2] for the events of an Application Load Balancer whose
// target is the function. They have no routes, see [Options.Operation]. They have
// no claims; behind an authenticate action, a [ScopeRule] can read the header
// x-amzn-oidc-identity. Without such an action the client itself can send that
// header.
//
// Enable multi-value headers on the target group
// (lambda.multi_value_headers.enabled). Without them the load balancer passes
// only the last of several header lines, and of several query parameters of one
// name: two keys look like one, and the fingerprint covers only what is passed.
// Replays use the mode of the request, as the load balancer requires.
//
// The load balancer passes path and query unchanged. It accepts JSON of at most 1 MB
// as the response.
func ALB(
	g *idempotent.Guard,
	h func(context.Context, events.ALBTargetGroupRequest) (events.ALBTargetGroupResponse, error),
	optFns ...func(*Options),
) func(context.Context, events.ALBTargetGroupRequest) (events.ALBTargetGroupResponse, error) {
	return adapt(&eventALB, g, h, optFns)
}

// FunctionURL is [APIGatewayV2] for the events of a Lambda function URL. They
// have no routes, see [Options.Operation]. They have no claims; with AWS_IAM
// authorization use [IAMRole] for the caller, or [IAMPrincipal] if callers are
// people.
//
// A function URL passes path and query unchanged. Its InvokeMode must be
// BUFFERED, which is the default; for RESPONSE_STREAM use [Middleware] under
// lambdaurl.
func FunctionURL(
	g *idempotent.Guard,
	h func(context.Context, events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error),
	optFns ...func(*Options),
) func(context.Context, events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
	return adapt(&eventURL, g, h, optFns)
}

// The event types.
var (
	eventV2 = eventType[events.APIGatewayV2HTTPRequest, events.APIGatewayV2HTTPResponse]{
		name:    "APIGatewayV2",
		limit:   maxResponse,
		request: requestV2,
		fields: func(a *events.APIGatewayV2HTTPResponse) fields {
			return fields{status: &a.StatusCode, header: &a.Headers, headers: &a.MultiValueHeaders, body: &a.Body, base64: &a.IsBase64Encoded}
		},
	}
	eventV1 = eventType[events.APIGatewayProxyRequest, events.APIGatewayProxyResponse]{
		name:    "APIGatewayV1",
		limit:   maxResponse,
		request: requestV1,
		fields: func(a *events.APIGatewayProxyResponse) fields {
			return fields{status: &a.StatusCode, header: &a.Headers, headers: &a.MultiValueHeaders, body: &a.Body, base64: &a.IsBase64Encoded}
		},
		lists:  func(*events.APIGatewayProxyRequest) bool { return true },
		merges: true,
	}
	eventALB = eventType[events.ALBTargetGroupRequest, events.ALBTargetGroupResponse]{
		name:    "ALB",
		limit:   maxResponseALB,
		request: requestALB,
		fields: func(a *events.ALBTargetGroupResponse) fields {
			return fields{
				status: &a.StatusCode, description: &a.StatusDescription,
				header: &a.Headers, headers: &a.MultiValueHeaders, body: &a.Body, base64: &a.IsBase64Encoded,
			}
		},
		lists: multiValue,
	}
	eventURL = eventType[events.LambdaFunctionURLRequest, events.LambdaFunctionURLResponse]{
		name:    "FunctionURL",
		limit:   maxResponse,
		request: requestURL,
		fields: func(a *events.LambdaFunctionURLResponse) fields {
			return fields{status: &a.StatusCode, header: &a.Headers, body: &a.Body, base64: &a.IsBase64Encoded}
		},
	}
)

// How long the JSON of a response can be, in bytes. Lambda returns at most 6 MB ("Lambda
// quotas"), of which API Gateway accepts 10 MB, and a load balancer 1 MB ("Lambda
// functions as targets").
const (
	maxResponse    = 6 << 20
	maxResponseALB = 1 << 20
)

// marksLength is how much of that is for the headers of this package.
const marksLength = 1 << 10

// eventType describes one event type: its events Ev and its responses Ans.
type eventType[Ev, Ans any] struct {
	name    string // of the constructor
	limit   int    // of the JSON of a response, in bytes
	request func(*Ev) Request
	fields  func(*Ans) fields
	// lists reports whether the response to an event has lists of values for its
	// headers; nil: it never has.
	lists  func(*Ev) bool
	merges bool // the gateway merges both, so a header can be set outside the lists
}

// fields are the fields of a response.
type fields struct {
	status      *int
	description *string              // the status with its text, "201 Created"; nil: not in this type
	header      *map[string]string   // one value for each name
	headers     *map[string][]string // lists of values; nil: not in this type
	body        *string
	base64      *bool
}

// adapt returns h guarded by an engine.
func adapt[Ev, Ans any](
	t *eventType[Ev, Ans], g *idempotent.Guard, h func(context.Context, Ev) (Ans, error), optFns []func(*Options),
) func(context.Context, Ev) (Ans, error) {
	if g == nil || h == nil {
		panic("lambdahttp: " + t.name + ": the guard or the handler is nil")
	}
	return serveEvents(t, newEngine(g, translates[Ans](t.read), optFns), h)
}

func serveEvents[Ev, Ans any](t *eventType[Ev, Ans], e *engine, h func(context.Context, Ev) (Ans, error)) func(context.Context, Ev) (Ans, error) {
	return func(ctx context.Context, event Ev) (Ans, error) {
		x := &exchange[Ev, Ans]{t: t, handler: h, event: event}
		r := t.request(&x.event)
		a, err := e.serve(ctx, &r, x)
		if a.response != nil {
			x.replace(a.response)
		}
		for _, m := range a.marks {
			x.set(m.name, m.value)
		}
		return x.ans, err
	}
}

// read returns the response that v is or points to, if that is of type Ans.
func (t *eventType[Ev, Ans]) read(v any) (r Response, ok bool, err error) {
	a, ok := in[Ans](v)
	if !ok {
		return r, false, nil
	}
	r, err = t.fields(&a).response()
	return r, true, err
}

// exchange is one event and the response to it.
type exchange[Ev, Ans any] struct {
	t       *eventType[Ev, Ans]
	handler func(context.Context, Ev) (Ans, error)
	event   Ev
	ans     Ans
}

func (x *exchange[Ev, Ans]) enter(ctx context.Context) (err error) {
	x.ans, err = x.handler(ctx, x.event)
	return err
}

func (x *exchange[Ev, Ans]) status() int                 { return *x.t.fields(&x.ans).status }
func (x *exchange[Ev, Ans]) response() (Response, error) { return x.t.fields(&x.ans).response() }

// tooLarge reports r if its JSON is longer than the service in front of the function
// accepts. A byte of a body takes at most six bytes there.
func (x *exchange[Ev, Ans]) tooLarge(r *Response) error {
	if len(r.Body) < x.t.limit/8 {
		return nil
	}
	as := *x
	as.replace(r)
	var size length
	encoder := json.NewEncoder(&size)
	encoder.SetEscapeHTML(false) // as aws-lambda-go
	_ = encoder.Encode(as.ans)   // strings and numbers always encode
	if most := x.t.limit - marksLength; int(size) > most {
		return fmt.Errorf("lambdahttp: %s: the response has %d bytes as JSON; at most %d can be sent", x.t.name, size, most)
	}
	return nil
}

// length counts what is written to it.
type length int

func (l *length) Write(p []byte) (int, error) {
	*l += length(len(p))
	return len(p), nil
}

func (x *exchange[Ev, Ans]) lists() bool { return x.t.lists != nil && x.t.lists(&x.event) }

// replace sends r instead of the handler's response.
func (x *exchange[Ev, Ans]) replace(r *Response) {
	x.ans = *new(Ans)
	f := x.t.fields(&x.ans)
	*f.status, *f.body, *f.base64 = r.Status, string(r.Body), r.Base64
	if r.Base64 {
		*f.body = base64.StdEncoding.EncodeToString(r.Body)
	}
	if f.description != nil {
		*f.description = strings.TrimRight(strconv.Itoa(r.Status)+" "+http.StatusText(r.Status), " ")
	}
	switch {
	case !x.lists():
		*f.header = joined(r.Header)
	case r.Header == nil:
		*f.headers = map[string][]string{} // the load balancer requires it
	default:
		*f.headers = r.Header
	}
}

// set sets a header of the handler's own response. It copies the map, because
// the handler may use one map for every response.
func (x *exchange[Ev, Ans]) set(name, value string) {
	f := x.t.fields(&x.ans)
	if x.lists() && !x.t.merges {
		*f.headers = setHeader(*f.headers, name, []string{value})
	} else {
		*f.header = setHeader(*f.header, name, value)
	}
}

// response returns the response that has these fields.
func (f fields) response() (r Response, err error) {
	var lists map[string][]string
	if f.headers != nil {
		lists = *f.headers
	}
	r = Response{Status: *f.status, Header: headersOf(*f.header, lists), Base64: *f.base64}
	if r.Base64 {
		r.Body, err = base64.StdEncoding.DecodeString(*f.body)
	} else {
		r.Body = []byte(*f.body)
	}
	return r, err
}

func requestV2(ev *events.APIGatewayV2HTTPRequest) Request {
	_, route, _ := strings.Cut(ev.RouteKey, " ") // "POST /charges/{id}"; "$default" has none
	r := Request{
		Method:    ev.RequestContext.HTTP.Method,
		Path:      ev.RawPath,
		Route:     endpoint(route),
		mount:     mount{route, ev.PathParameters, ev.RequestContext.Stage},
		RawQuery:  ev.RawQueryString,
		RequestID: ev.RequestContext.RequestID,
		Event:     ev,
		wants:     "an event of an HTTP API in payload format 2.0, with requestContext.http.method",
		header:    ev.Headers,
		cookies:   ev.Cookies,
		body:      ev.Body,
		base64:    ev.IsBase64Encoded,
	}
	a := ev.RequestContext.Authorizer
	if a == nil {
		return r
	}
	r.authorizer = a.Lambda
	if a.JWT != nil {
		r.claims = a.JWT.Claims
	}
	if a.IAM != nil {
		r.identity = identity{principal: a.IAM.UserARN, cognitoIdentity: a.IAM.CognitoIdentity.IdentityID}
	}
	return r
}

// endpoint returns the template of a route, or "" if it ends with a greedy
// parameter such as "{proxy+}" and so matches many endpoints.
func endpoint(route string) string {
	if strings.HasSuffix(route, "+}") {
		return ""
	}
	return route
}

func requestURL(ev *events.LambdaFunctionURLRequest) Request {
	r := Request{
		Method:    ev.RequestContext.HTTP.Method,
		Path:      ev.RawPath,
		RawQuery:  ev.RawQueryString,
		RequestID: ev.RequestContext.RequestID,
		Event:     ev,
		wants:     "an event of a function URL in payload format 2.0, with requestContext.http.method",
		header:    ev.Headers,
		cookies:   ev.Cookies,
		body:      ev.Body,
		base64:    ev.IsBase64Encoded,
	}
	if a := ev.RequestContext.Authorizer; a != nil && a.IAM != nil {
		r.identity.principal = a.IAM.UserARN
	}
	return r
}

func requestV1(ev *events.APIGatewayProxyRequest) Request {
	route := ev.Resource
	if strings.TrimPrefix(route, "/") == "$default" { // of an HTTP API
		route = ""
	}
	r := Request{
		Method:    ev.HTTPMethod,
		Path:      ev.Path,
		Route:     endpoint(route),
		mount:     mount{route, ev.PathParameters, ev.RequestContext.Stage},
		RequestID: ev.RequestContext.RequestID,
		Event:     ev,
		query:     queryV1,
		wants:     "an event of API Gateway in payload format 1.0, with httpMethod",
		header:    ev.Headers,
		headers:   ev.MultiValueHeaders,
		body:      ev.Body,
		base64:    ev.IsBase64Encoded,
	}
	caller := &ev.RequestContext.Identity
	r.identity = identity{principal: caller.UserArn, apiKeyID: caller.APIKeyID, cognitoIdentity: caller.CognitoIdentityID}
	r.authorizer = ev.RequestContext.Authorizer
	r.claimValues, _ = r.authorizer["claims"].(map[string]any)
	return r
}

func queryV1(r *Request) string {
	ev := r.Event.(*events.APIGatewayProxyRequest)
	return encodedQuery(ev.MultiValueQueryStringParameters, ev.QueryStringParameters)
}

func requestALB(ev *events.ALBTargetGroupRequest) Request {
	return Request{
		Method:  ev.HTTPMethod,
		Path:    ev.Path,
		Event:   ev,
		names:   namesALB,
		query:   queryALB,
		wants:   "an event of an Application Load Balancer, with httpMethod",
		header:  ev.Headers,
		headers: ev.MultiValueHeaders,
		body:    ev.Body,
		base64:  ev.IsBase64Encoded,
	}
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

// traceID returns the root of a trace header, which identifies the request in
// the load balancer's access log, or "" if there is no valid one.
func traceID(header string) string {
	for field := range strings.SplitSeq(header, ";") {
		if root, ok := strings.CutPrefix(strings.TrimSpace(field), "Root="); ok && len(root) <= maxRequestID && sfv.IsHTTPToken(root) {
			return root
		}
	}
	return ""
}

// encodedQuery builds a query from the decoded parameters of an event, sorted
// by name, in the spelling of [url.Values.Encode]. Two queries have the same
// result if and only if the gateway decodes them to the same parameters.
func encodedQuery(multi map[string][]string, single map[string]string) string {
	return parameters(multi, single).Encode()
}

// rawQuery builds a query from parameters that the event contains undecoded,
// sorted by name. A parameter without a value gets an empty one: the event does
// not distinguish the two.
func rawQuery(multi map[string][]string, single map[string]string) string {
	all := parameters(multi, single)
	var query strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, v := range all[name] {
			if query.Len() > 0 {
				query.WriteByte('&')
			}
			query.WriteString(name)
			query.WriteByte('=')
			query.WriteString(v)
		}
	}
	return query.String()
}

// parameters returns the query's parameters: all values of each name if the
// event contains them in multi, else the one in single.
func parameters(multi map[string][]string, single map[string]string) url.Values {
	all := url.Values{}
	maps.Copy(all, multi)
	for name, v := range single {
		if _, ok := all[name]; !ok {
			all[name] = []string{v}
		}
	}
	return all
}

// headersOf merges the headers of an event's two maps, one with a single value
// for each name and one with several, under canonical names. A value that is in
// both is sent once (API Gateway: "Output format of a Lambda function for proxy
// integration").
func headersOf(single map[string]string, multi map[string][]string) http.Header {
	h := make(http.Header, len(single)+len(multi))
	for k, values := range multi {
		k = http.CanonicalHeaderKey(k)
		h[k] = append(h[k], values...)
	}
	for k, v := range single {
		k = http.CanonicalHeaderKey(k)
		if !slices.Contains(h[k], v) {
			h[k] = append(h[k], v)
		}
	}
	return h
}

// joined returns headers with one value for each name: several values become a
// list (RFC 9110, section 5.3). Set-Cookie, which cannot be joined, is never in
// h.
func joined(h http.Header) map[string]string {
	out := make(map[string]string, len(h))
	for name, values := range h {
		if len(values) > 0 {
			out[name] = strings.Join(values, ", ")
		}
	}
	return out
}

// setHeader returns a copy of h with the header set, and without other
// spellings of its name.
func setHeader[V any](h map[string]V, name string, value V) map[string]V {
	h = maps.Clone(h)
	if h == nil {
		h = map[string]V{}
	}
	for k := range h {
		if http.CanonicalHeaderKey(k) == name {
			delete(h, k)
		}
	}
	h[name] = value
	return h
}
