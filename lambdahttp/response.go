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
	"github.com/once-lambda/once/internal/sfv"
)

// Response is an HTTP response, the same for every event type. It is the form
// in which responses are stored and problems are rendered.
type Response struct {
	Status int
	Header http.Header
	Body   []byte // as it is on the wire, never base64
	// Base64 makes the event carry the body in base64, which is required for a
	// body that is not UTF-8 text.
	Base64 bool

	// unstored is why the response cannot be stored: it was sent to the client
	// while the handler wrote it.
	unstored error
}

// Resolved returns the evidence that a request had its effect, with its
// response, for [idempotent.Guard.Resolve] on a record of this package. Retries
// get the response as if the handler had returned it; headers that are not
// replayed are removed. The status must be 200 to 599.
func Resolved(r Response) idempotent.Resolution {
	return idempotent.ResolvedWith(codec{}, r)
}

// deliverable reports whether a gateway accepts that status.
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

// stored is what a record contains of a response.
type stored struct {
	Response
	withheld bool   // NoStore: only the status is stored
	hint     string // the detail that the client gets instead
}

// codec stores a response as one line of JSON followed by the body's bytes.
// Each response has exactly one encoding, and no other bytes decode.
type codec struct {
	handler *declaration // of the handler whose response this is; nil: Resolved's
}

func (codec) Name() string { return Encoding }

// head is the first line.
type head struct {
	Status int         `json:"s"`
	Base64 bool        `json:"b,omitempty"`
	Header http.Header `json:"h,omitempty"`
	// Withheld is the hint that replaces a response that is not stored.
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

// stored returns what is stored of v. A handler passes its response to a
// transaction before it returns it, so the rules for returned responses apply
// here too.
func (c codec) stored(v any) (stored, error) {
	if s, ok := v.(stored); ok {
		return s, nil // the rules were applied
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
	return stored{}, fmt.Errorf("lambdahttp: cannot store a %T as a response; use Response or the type that the handler returns", v)
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

// headLine returns the encoding up to the body. It is the last check before the
// store: it removes headers that must never be stored from every response.
func (r *stored) headLine() ([]byte, error) {
	if !deliverable(r.Status) {
		return nil, fmt.Errorf("lambdahttp: cannot store a response of status %d: want 200 to 599", r.Status)
	}
	h := head{Status: r.Status, Base64: r.Base64, Header: http.Header{}}
	if r.withheld {
		hint := strings.ToValidUTF8(r.hint, "\uFFFD")
		h.Withheld = &hint
	}
	for name, values := range canonicalHeaders(r.Header) {
		if !sfv.IsHTTPToken(name) || neverReplayed(name) {
			continue
		}
		for _, v := range values {
			// JSON would replace invalid UTF-8 in a way that does not round-trip.
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
		return fmt.Errorf("lambdahttp: cannot decode a stored response into a %T; use *stored", v)
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
	// encoding/json accepts many spellings; only the canonical one is valid here.
	if line, err := r.headLine(); err != nil || !bytes.Equal(line, data[:end]) {
		return errDamaged
	}
	*out = r
	return nil
}
