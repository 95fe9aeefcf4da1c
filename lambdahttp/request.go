// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-lambda-go/lambdaurl"

	"github.com/once-lambda/once/internal/pathkey"
)

// Request is the view of an event that the rules get, the same for every event
// type. It copies and decodes nothing until a method is called, because most
// requests of an API pass through unguarded. It must not be changed, and is
// safe for concurrent use.
type Request struct {
	Method string // "POST"
	// Path is the path as the event has it, with the stage if the URL has one. With
	// [Middleware] it is the path that the client sent.
	Path string
	// Route is the template of the matched route: "/charges/{id}". It is empty if
	// no route is known, or if the route matches many endpoints: "/{proxy+}",
	// "$default", or the patterns "/api/" and "/static/{rest...}" of a ServeMux.
	Route     string
	RawQuery  string // without the '?'; normalized if the event has decoded parameters, see APIGatewayV1
	RequestID string // assigned by the gateway, for logs
	// Event points to the event itself, for example to an
	// events.APIGatewayV2HTTPRequest, or to the http.Request. It has the fields
	// that this view leaves out.
	Event any

	resource    string                // host and path in the form in which they are compared
	host        string                // of the matched route, if that is for one host
	mount       mount                 // what API Gateway matched
	wants       string                // the event that the handler expects, for EventError
	names       func(*Request)        // sets path, route and request id, if that is not free
	query       func(*Request) string // returns RawQuery, if that is not free
	header      map[string]string     // one value for each name
	headers     map[string][]string   // every value; takes precedence over header
	cookies     []string              // if the event separates them from the headers
	claims      map[string]string
	claimValues map[string]any
	authorizer  map[string]any // what a Lambda authorizer returned
	identity    identity
	body        string
	base64      bool
	stream      *requestBody // instead of body
	document    []byte       // canonical form of the body, if it was read as JSON
}

// mount locates the path of a resource in an event of API Gateway.
type mount struct {
	route  string            // template of the matched route, greedy or not; empty: unknown
	params map[string]string // the route's path parameters
	stage  string
}

// identity identifies the caller as far as the event does; a field is empty if
// the event does not contain it. The gateway has verified all fields, so the
// caller cannot choose them.
type identity struct {
	principal       string // ARN of the IAM principal that signed the request
	apiKeyID        string // id, never the value, of the API key
	cognitoIdentity string // id of the Amazon Cognito identity
}

// Header returns the values of the header with that name, in any letter case.
// An HTTP API and a function URL join several lines of one header with a comma,
// so there is rarely more than one value.
func (r *Request) Header(name string) (values []string) {
	first, more, _ := spellings(r.headers, name)
	values = slices.Clip(r.headers[first])
	for _, k := range more {
		values = append(values, r.headers[k]...)
	}
	if len(values) > 0 {
		return values
	}
	if first, more, ok := spellings(r.header, name); ok {
		values = []string{r.header[first]}
		for _, k := range more {
			values = append(values, r.header[k])
		}
		return values
	}
	if len(r.cookies) > 0 && strings.EqualFold(name, "Cookie") {
		return []string{strings.Join(r.cookies, "; ")} // RFC 6265, section 4.2.1
	}
	return nil
}

// Claim returns a claim of the JWT that the gateway's authorizer has verified.
// It returns "" if the claim is missing or not a string.
func (r *Request) Claim(name string) string {
	if v, ok := r.claims[name]; ok {
		return v
	}
	v, _ := r.claimValues[name].(string)
	return v
}

// Body returns the body's bytes, decoded if the event has them in base64. The
// error is a [*BodyError] or, with [Middleware], an *http.MaxBytesError if the
// body is longer than [Options.MaxRequestBody].
func (r *Request) Body() ([]byte, error) {
	if r.stream != nil {
		return r.stream.bytes()
	}
	if !r.base64 {
		return []byte(r.body), nil
	}
	body, err := base64.StdEncoding.DecodeString(r.body)
	if err != nil {
		return nil, errBase64
	}
	return body, nil
}

// BodyError is a client error that [Request.Body] or a [FingerprintRule] found
// in the body: the request is refused with 400, or with 411 if its length is not
// known. Detail is shown to the client.
type BodyError struct {
	Detail string

	situation Situation // whose answer the client gets; zero: InvalidBody
}

func (e *BodyError) Error() string { return "lambdahttp: " + e.Detail }

// complete sets the fields that take work to compute. It is called for a
// guarded method with a valid key or without a key, and sets resource and query
// only if asked.
func (r *Request) complete(all bool) {
	if r.names != nil {
		r.names(r)
	}
	if !all {
		return
	}
	r.resource = r.host + r.mount.strip(pathkey.Canonical(r.Path))
	if r.query != nil {
		r.RawQuery = r.query(r)
	}
}

// strip returns a canonical path without the stage of an HTTP API and without the
// base path of a custom domain. The route with its parameters filled in is the
// end of the path; what precedes it is not part of the resource. Behind
// "$default" and without API Gateway the route is unknown, so only the stage is
// removed.
func (m *mount) strip(path string) string {
	if m.route == "" {
		path = m.stripStage(path)
	} else if matched := m.matched(); strings.HasSuffix(strings.TrimSuffix(path, "/"), matched) {
		path = path[strings.LastIndex(path, matched):]
	}
	return cmp.Or(path, "/")
}

// matched returns the canonical path that the route matched, without a '/' at its
// end.
func (m *mount) matched() string {
	var fill []string
	for name, value := range m.params {
		fill = append(fill, "{"+name+"}", value, "{"+name+"+}", value)
	}
	path := strings.NewReplacer(fill...).Replace(m.route)
	return strings.TrimSuffix(pathkey.Canonical(path), "/")
}

func (m *mount) stripStage(path string) string {
	rest, ok := strings.CutPrefix(path, "/"+m.stage)
	if ok && m.stage != "" && m.stage != "$default" && (rest == "" || rest[0] == '/') {
		return rest
	}
	return path
}

// spellings returns the keys of m that equal name in any letter case. They are
// sorted, because the order of a map is random. Usually there is at most one.
func spellings[V any](m map[string]V, name string) (first string, more []string, ok bool) {
	for k := range m {
		switch {
		case len(k) != len(name) || !strings.EqualFold(k, name):
		case !ok:
			first, ok = k, true
		default:
			more = append(more, k)
		}
	}
	if more != nil {
		more = append(more, first)
		slices.Sort(more)
		first, more = more[0], more[1:]
	}
	return first, more, ok
}

// operationOf is the default of [Options.Operation]. It does not contain the path,
// which the client chooses: operations are in logs and metrics.
func operationOf(r *Request) string { return r.Method + " " + cmp.Or(r.Route, noRoute) }

// noRoute stands for the route if it is unknown.
const noRoute = "(no route)"

// maxRequestID limits a request id that the client can choose, in bytes: it is
// stored in the record. The load balancer's own trace ids have 35.
const maxRequestID = 64

// requestBody is the body of an http.Request, which can be read only once. It
// is read on demand, which most requests do not need, and restored for the
// handler.
type requestBody struct {
	r     *http.Request
	limit int64

	once sync.Once
	data []byte
	err  error
}

var (
	errBase64   = &BodyError{Detail: "it is marked as base64 but is not valid base64"}
	errShort    = &BodyError{Detail: "it ended early"}
	errNoLength = &BodyError{situation: LengthRequired}
)

// errNotWhole is a programming error.
var errNotWhole = errors.New("lambdahttp: the request body is not as long as http.Request.ContentLength: a handler around Middleware has read or replaced it. " +
	"Put Middleware around that handler, or let it set ContentLength to the length of the new body")

// isUnread reports whether the content of the body is unknown.
func isUnread(err error) bool {
	var tooLarge *http.MaxBytesError
	return errors.As(err, &tooLarge) || errors.Is(err, errNotWhole) || errors.Is(err, errShort) || errors.Is(err, errNoLength)
}

// bytes returns the whole body.
func (b *requestBody) bytes() ([]byte, error) {
	b.once.Do(b.read)
	if b.err != nil {
		return nil, b.err
	}
	return b.data, nil
}

func (b *requestBody) read() {
	switch {
	case b.r.ContentLength > b.limit:
		b.err = &http.MaxBytesError{Limit: b.limit}
		return
	case b.r.Body == nil:
		return
	}
	b.data, b.err = io.ReadAll(io.LimitReader(b.r.Body, b.limit+1))
	switch {
	case errors.As(b.err, new(*http.MaxBytesError)): // a handler around Middleware has a lower limit
	case b.err != nil:
		b.err = errShort // or another failure of the transfer
	case int64(len(b.data)) > b.limit:
		b.err = &http.MaxBytesError{Limit: b.limit}
	default:
		b.err = b.whole()
	}
}

// whole returns an error if the data is not known to be the whole body. The server
// would have reported a body that ended early, so a handler around Middleware has read
// some of it. Without the error, requests with different bodies could be equal.
func (b *requestBody) whole() error {
	switch length := declaredLength(b.r); {
	case length < 0 && len(b.data) == 0:
		return errNoLength // a body of no bytes, or one that was read
	case length >= 0 && length != int64(len(b.data)):
		return errNotWhole
	}
	return nil
}

// declaredLength returns the length of the body in bytes, or -1 if it is not known.
func declaredLength(r *http.Request) int64 {
	if r.ContentLength != 0 || r.Body == http.NoBody || r.RequestURI != "" {
		return r.ContentLength
	}
	// No server made the request, so 0 means unknown. lambdaurl does not set the length
	// of a body in base64.
	event, ok := lambdaurl.RequestFromContext(r.Context())
	if !ok {
		return -1
	}
	data := strings.TrimRight(event.Body, "=")
	return int64(base64.RawStdEncoding.DecodedLen(len(data)))
}

// restore gives r, a copy of the request, the body.
func (b *requestBody) restore(r *http.Request) {
	if b.data == nil {
		return // nothing was read
	}
	r.Body = body{io.MultiReader(bytes.NewReader(b.data), b.r.Body), b.r.Body}
}

// body reads from one and closes the other.
type body struct {
	io.Reader
	io.Closer
}
