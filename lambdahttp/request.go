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
	RawQuery  string // without the '?'
	RequestID string // given by the gateway, for people
	// Event points to the event itself, for example to an
	// events.APIGatewayV2HTTPRequest: for what this view leaves out.
	Event any

	header   map[string]string
	claims   map[string]string
	identity identity
	body     string
	base64   bool
}

// Header returns the values of the header with that name in any spelling of
// case. API Gateway and function URLs join several lines of one header with a
// comma, so there is rarely more than one value.
func (r *Request) Header(name string) []string {
	var values []string
	for k, v := range r.header {
		if len(k) == len(name) && strings.EqualFold(k, name) {
			values = append(values, v)
		}
	}
	slices.Sort(values) // of two spellings, a map gives either first
	return values
}

// Claim returns a claim of the JWT that the gateway's authorizer has verified,
// or "" if there is none.
func (r *Request) Claim(name string) string { return r.claims[name] }

// Body returns the body's bytes, decoded where the event carries them in
// base64. The error says that it is broken.
func (r *Request) Body() ([]byte, error) {
	if !r.base64 {
		return []byte(r.body), nil
	}
	return base64.StdEncoding.DecodeString(r.body)
}

// contentType returns the media type in lower case, without parameters.
func (r *Request) contentType() string {
	values := r.Header("Content-Type")
	if len(values) != 1 {
		return ""
	}
	media, _, _ := strings.Cut(values[0], ";")
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
