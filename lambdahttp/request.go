package lambdahttp

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Request is what the rules see of an event, the same for every event type. It
// is a view: nothing is copied or decoded before somebody asks, because most
// requests of an API pass through. It must not be changed, and is safe for
// concurrent use.
type Request struct {
	Method    string // "POST"
	Path      string // as in the event, with the stage where the URL has one
	Route     string // template of the matched route, "/charges/{id}"; empty where none is known
	RawQuery  string // without the '?'; from decoded parameters, see APIGatewayV1, in one spelling
	RequestID string // given by the gateway, for people
	// Event points to the event itself, for example to an
	// events.APIGatewayV2HTTPRequest, or to the http.Request: for what this view
	// leaves out.
	Event any

	wants       string                // what the handler was built for
	names       func(*Request)        // fills in path, route and request id, where that costs something
	query       func(*Request) string // fills in RawQuery, where that costs something
	header      map[string]string     // one value for each name
	headers     map[string][]string   // every value; before header where it has a name
	cookies     []string              // where the event keeps them apart from the headers
	claims      map[string]string
	claimValues map[string]any
	identity    identity
	body        string
	base64      bool
	stream      *requestBody // in place of body
}

// complete fills in what the event does not show as it stands: for a guarded
// method with a valid key or none, and the query only where it is asked for.
func (r *Request) complete(query bool) {
	if r.names != nil {
		r.names(r)
	}
	if query && r.query != nil {
		r.RawQuery = r.query(r)
	}
}

// Header returns the values of the header with that name in any spelling of
// case. An HTTP API and a function URL join several lines of one header with a
// comma, so there is rarely more than one value.
func (r *Request) Header(name string) (values []string) {
	first, more, ok := spellings(r.headers, name)
	if ok {
		values = slices.Clip(r.headers[first])
	}
	for _, k := range more {
		values = append(values, r.headers[k]...)
	}
	if len(values) > 0 {
		return values
	}
	if first, more, ok = spellings(r.header, name); ok {
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

// spellings returns the keys of m that are name in any spelling of case. They
// are sorted, because a map gives any first; most often there is none, or one.
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

// Claim returns a claim of the JWT that the gateway's authorizer has verified,
// or "" if there is none, or none that is a string.
func (r *Request) Claim(name string) string {
	if v, ok := r.claims[name]; ok {
		return v
	}
	v, _ := r.claimValues[name].(string)
	return v
}

// Body returns the body's bytes, decoded where the event carries them in
// base64. The error is a [*BodyError], or with [Middleware] an
// *http.MaxBytesError where the body is longer than [Options.MaxRequestBody].
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

// contentType returns the media type in lower case, without parameters.
func (r *Request) contentType() string {
	values := r.Header("Content-Type")
	if len(values) != 1 {
		return ""
	}
	return mediaType(values[0])
}

// mediaType returns the media type of a Content-Type in lower case, without
// parameters.
func mediaType(contentType string) string {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(media))
}

// maxOperation is how long package idempotent lets an operation be, in bytes.
const maxOperation = 256

// operationOf is the default of [Options.Operation]. Without a route the path
// is the client's choice: one that cannot stand in an operation's name is
// replaced by its hash. The fingerprint covers the path itself.
func operationOf(r *Request) string {
	if r.Route != "" {
		return r.Method + " " + r.Route
	}
	name := r.Method + " " + r.Path
	if len(name) > maxOperation || !utf8.ValidString(name) || strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) }) {
		sum := sha256.Sum256([]byte(r.Path))
		return r.Method + " ~" + base64.RawURLEncoding.EncodeToString(sum[:])
	}
	return name
}
