// SPDX-License-Identifier: Apache-2.0

// Package httpform is the form in which records contain HTTP responses.
package httpform

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/once-lambda/once/internal/sfv"
)

// Encoding is the encoding name in records that contain a response.
const Encoding = "http1"

// Response is what a record contains of a response: one line of JSON followed by the
// body's bytes. Each response has exactly one encoding, and no other bytes decode.
type Response struct {
	Status int
	Base64 bool // an event carries the body in base64
	Header http.Header
	Body   []byte // as it is on the wire

	Withheld bool   // only the status is stored
	Hint     string // of a withheld response: the detail that clients get instead
}

// Encode returns the stored form of r. It leaves out the headers that do not last.
func (r *Response) Encode() ([]byte, error) {
	kept := *r
	kept.Header = Lasting(CanonicalHeaders(r.Header))
	line, err := kept.headLine()
	return append(line, r.Body...), err
}

// Decode returns the response that is stored as data.
func Decode(data []byte) (Response, error) {
	end := bytes.IndexByte(data, '\n') + 1
	var h head
	_ = json.Unmarshal(data[:end], &h) // the canonical line differs from one that does not decode
	r := Response{Status: h.Status, Base64: h.Base64, Header: h.headers(), Body: slices.Clip(data[end:])}
	if h.Withheld != nil {
		r.Withheld, r.Hint = true, *h.Withheld
	}
	// encoding/json accepts many spellings; only the canonical one is valid here.
	if line, err := r.headLine(); err != nil || !bytes.Equal(line, data[:end]) {
		return Response{}, errDamaged
	}
	return r, nil
}

var errDamaged = errors.New("lambdahttp: the stored response is damaged")

// head is the first line.
type head struct {
	Status int         `json:"s"`
	Base64 bool        `json:"b,omitempty"`
	Header http.Header `json:"h,omitempty"`
	// Bytes are the headers of which a value is not UTF-8. JSON has them in base64.
	Bytes map[string][][]byte `json:"hb,omitempty"`
	// Withheld is the hint that replaces a response that is not stored.
	Withheld *string `json:"w,omitempty"`
}

// set sets a header. Without values only Content-Type means something: the handler
// has suppressed it, and net/http does not detect the type of the body.
func (h *head) set(name string, values []string) {
	switch {
	case len(values) == 0 && name != "Content-Type":
	case utf8.ValidString(strings.Join(values, " ")):
		h.Header[name] = append([]string{}, values...)
	default:
		if h.Bytes == nil {
			h.Bytes = map[string][][]byte{}
		}
		for _, v := range values {
			h.Bytes[name] = append(h.Bytes[name], []byte(v))
		}
	}
}

// headers returns all headers.
func (h *head) headers() http.Header {
	if h.Header == nil {
		h.Header = http.Header{}
	}
	for name, values := range h.Bytes {
		for _, v := range values {
			h.Header[name] = append(h.Header[name], string(v))
		}
	}
	return h.Header
}

// headLine returns the encoding up to the body.
func (r *Response) headLine() ([]byte, error) {
	if !Deliverable(r.Status) {
		return nil, fmt.Errorf("lambdahttp: cannot store a response of status %d: want 200 to 599", r.Status)
	}
	h := head{Status: r.Status, Base64: r.Base64, Header: http.Header{}}
	if r.Withheld {
		hint := strings.ToValidUTF8(r.Hint, "\uFFFD")
		h.Withheld = &hint
	}
	for name, values := range CanonicalHeaders(r.Header) {
		if !sfv.IsHTTPToken(name) {
			continue
		}
		h.set(name, values)
	}
	var line bytes.Buffer
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false)
	err := e.Encode(h) // sorts the names and ends the line
	return line.Bytes(), err
}

// Deliverable reports whether a gateway accepts that status.
func Deliverable(status int) bool { return 200 <= status && status <= 599 }

// ExchangeHeaders are headers that are wrong or harmful in another exchange than
// the one for which they were made. They are never stored. A pattern "X-*"
// stands for every name with that prefix.
var ExchangeHeaders = []struct {
	Why   string // for docs/reports/limits.md
	Names []string
}{
	{"cookies and credentials", []string{"Authentication-Info", "Authorization", "Set-Cookie", "Set-Cookie2"}},
	{"times of one exchange", []string{"Age", "Date", "Expires", "Retry-After"}},
	{"the framing and the path of one message, and the headers that `Connection` names", []string{
		"Connection", "Content-Length", "Keep-Alive", "Proxy-*", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Via",
	}},
	{"the address at which the server is reached now", []string{"Alt-Svc"}},
	{"rate limits, which change with every request", []string{"Ratelimit*", "X-Rate-Limit*", "X-Ratelimit*"}},
	{"traces and measurements of one request", []string{
		"B3", "Baggage", "Server-Timing", "Traceparent", "Tracestate", "Uber-Trace-Id", "X-Amzn-Trace-Id", "X-B3-*", "X-Cloud-Trace-Context",
	}},
	{"API Gateway's copies of such headers", []string{"X-Amzn-Remapped-*"}},
}

// ownHeaders are set by package lambdahttp on each response, and never stored either.
var ownHeaders = []string{"Idempotency-Expires", "Idempotency-Status", "Idempotent-Replayed"}

// Lasting returns the headers of h, whose names are canonical, that do not
// belong to one exchange.
func Lasting(h http.Header) http.Header {
	out := make(http.Header, len(h))
	for name, values := range h {
		if name == "Www-Authenticate" {
			values = slices.DeleteFunc(slices.Clone(values), oneTimeChallenge.MatchString)
		}
		if !OfExchange(name) {
			out[name] = values
		}
	}
	for _, list := range h["Connection"] { // RFC 9110, section 7.6.1
		for name := range strings.SplitSeq(list, ",") {
			delete(out, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	return out
}

// oneTimeChallenge matches a value of WWW-Authenticate with a challenge that the
// client can answer once: one with a nonce (RFC 7616), or with the data of a
// handshake (RFC 4559).
var oneTimeChallenge = regexp.MustCompile(`(?i)\bnonce\s*=|\b(?:digest|negotiate|ntlm)\s+[^\s,]`)

// OfExchange reports whether the header is never stored, whatever the options
// are.
func OfExchange(name string) bool {
	name = http.CanonicalHeaderKey(name)
	for _, group := range ExchangeHeaders {
		for _, pattern := range group.Names {
			if prefix, ok := strings.CutSuffix(pattern, "*"); name == pattern || ok && strings.HasPrefix(name, prefix) {
				return true
			}
		}
	}
	return slices.Contains(ownHeaders, name)
}

// CanonicalHeaders returns h with canonical names. The values of several
// spellings of one name are joined in the order of the spellings.
func CanonicalHeaders(h http.Header) http.Header {
	out := make(http.Header, len(h))
	for _, key := range slices.Sorted(maps.Keys(h)) {
		name := http.CanonicalHeaderKey(key)
		out[name] = append(out[name], h[key]...)
	}
	return out
}
