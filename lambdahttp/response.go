package lambdahttp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/once-lambda/once/idempotent"
)

// Response is an HTTP response, the same for every event type: what is stored,
// and what a problem is rendered as.
type Response struct {
	Status int
	Header http.Header
	Body   []byte // as it is on the wire, never base64
	// Base64 lets the event carry the body in base64, which what is not UTF-8
	// text needs.
	Base64 bool

	// unstored is why there is nothing here to store: the client got it while it
	// was being made.
	unstored error
}

// Resolved is the evidence that a request had its effect and what its response
// is, for [idempotent.Guard.Resolve] on a record of this package. Retries get
// the response as if the handler had returned it; headers that are not
// replayed are left out. The status has to be 200 to 599.
func Resolved(r Response) idempotent.Resolution {
	return idempotent.ResolvedWith(codec{}, r)
}

// deliverable reports whether a gateway can answer with that status.
func deliverable(status int) bool { return 200 <= status && status <= 599 }

// bodyOf returns the bytes of a handler's body.
func bodyOf(body string, isBase64 bool) ([]byte, error) {
	if isBase64 {
		return base64.StdEncoding.DecodeString(body)
	}
	return []byte(body), nil
}

// eventBody is the inverse of bodyOf.
func (r *Response) eventBody() string {
	if r.Base64 {
		return base64.StdEncoding.EncodeToString(r.Body)
	}
	return string(r.Body)
}

// stored is what a record keeps of a response.
type stored struct {
	Response
	withheld bool   // NoStore: only the status is kept
	hint     string // what the client is told in its place
}

// codec stores a response as one line of JSON and the body's bytes behind it.
// There is one encoding for each response, and no other bytes decode.
type codec struct {
	handler *declaration // of the handler whose response this is; nil: Resolved's
}

func (codec) Name() string { return Encoding }

// head is the first line.
type head struct {
	Status int         `json:"s"`
	Base64 bool        `json:"b,omitempty"`
	Header http.Header `json:"h,omitempty"`
	// Withheld is the hint in place of a response that is not stored.
	Withheld *string `json:"w,omitempty"`
}

func (c codec) Encode(v any) ([]byte, error) {
	r, err := c.stored(v)
	if err != nil {
		return nil, err
	}
	if r.unstored != nil {
		return nil, r.unstored // the guard completes the record without a result
	}
	line, err := r.headLine()
	return append(line, r.Body...), err
}

// stored returns what is kept of v. A handler that hands its response to a
// transaction does so before it returns it, so the rules for what it returns
// hold here too.
func (c codec) stored(v any) (stored, error) {
	if s, ok := v.(stored); ok {
		return s, nil // they did
	}
	if r, ok := responseIn(v); ok {
		if c.handler == nil {
			return stored{Response: r}, nil
		}
		r.Header = canonicalHeaders(r.Header)
		return c.handler.engine.storable(r, nil, c.handler)
	}
	if c.handler != nil && c.handler.engine.translate != nil {
		if r, ok, err := c.handler.engine.translate(v); ok {
			return c.handler.engine.storable(r, err, c.handler)
		}
	}
	return stored{}, fmt.Errorf("lambdahttp: only a Response, or what the handler returns, can be stored here, not a %T", v)
}

// responseIn returns the Response that v is, or points to.
func responseIn(v any) (Response, bool) {
	if p, ok := v.(*Response); ok && p != nil {
		v = *p
	}
	r, ok := v.(Response)
	r.Base64 = r.Base64 || !utf8.Valid(r.Body)
	return r, ok
}

// headLine returns the encoding up to the body. It is the last gate before the
// store: what must never be stored does not pass, whoever built the response.
func (r *stored) headLine() ([]byte, error) {
	if !deliverable(r.Status) {
		return nil, fmt.Errorf("lambdahttp: a response of status %d cannot be stored", r.Status)
	}
	h := head{Status: r.Status, Base64: r.Base64, Header: http.Header{}}
	if r.withheld {
		hint := strings.ToValidUTF8(r.hint, "\uFFFD")
		h.Withheld = &hint
	}
	for name, values := range canonicalHeaders(r.Header) {
		if !isToken(name) || neverReplayed(name) {
			continue
		}
		for _, v := range values {
			// JSON would replace what is not UTF-8, in a way that does not round-trip.
			h.Header[name] = append(h.Header[name], strings.ToValidUTF8(v, "\uFFFD"))
		}
	}
	var line bytes.Buffer
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false)
	err := e.Encode(h) // sorts the names and ends the line
	return line.Bytes(), err
}

var errDamaged = errors.New("lambdahttp: the stored response is damaged")

func (codec) Decode(data []byte, v any) error {
	out, ok := v.(*stored)
	if !ok {
		return fmt.Errorf("lambdahttp: a stored response decodes into a *stored, not a %T", v)
	}
	end := bytes.IndexByte(data, '\n') + 1
	var h head
	if err := json.Unmarshal(data[:end], &h); err != nil {
		return errDamaged
	}
	r := stored{Response: Response{Status: h.Status, Base64: h.Base64, Header: h.Header, Body: slices.Clip(data[end:])}}
	if h.Withheld != nil {
		r.withheld, r.hint = true, *h.Withheld
	}
	// encoding/json forgives much; writing the line again forgives nothing.
	if line, err := r.headLine(); err != nil || !bytes.Equal(line, data[:end]) {
		return errDamaged
	}
	*out = r
	return nil
}
