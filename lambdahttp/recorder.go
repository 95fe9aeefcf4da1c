// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// recorder is the http.ResponseWriter of a handler behind [Middleware]. It
// either writes through at once (direct), in shadow mode with a copy, or buffers
// the response until its outcome is stored. Buffering ends early if the handler
// flushes a response that is not stored (see [NoStore]), hijacks the connection, or
// writes more than the limit.
type recorder struct {
	w      http.ResponseWriter
	direct bool
	copied *copied // in shadow mode: a copy of what is written through
	before shown   // what w showed when the handler was called

	header   http.Header // the handler's: a copy of w's while the response is buffered
	status   int         // 0: the handler has written nothing
	implicit bool        // the status is 200 because the handler wrote a body first
	sent     http.Header // header as it was when the status was written
	body     []byte
	limit    int
	flushed  bool // while the response was buffered

	// mayFlush reports whether a flush sends the buffered response.
	mayFlush func() bool
	// marks returns headers to be set at the start of a response that is written
	// through.
	marks    func(status int) []mark
	unstored error // why the response is not stored
	hijacked bool
}

// The reasons why a response is not stored, for observers.
var (
	errTooLong  = errors.New("lambdahttp: the response is longer than Options.MaxResponseBody")
	errHijacked = errors.New("lambdahttp: the handler took the connection over")
)

// errBypassed reports a programming error: the response is not known.
var errBypassed = errors.New("lambdahttp: the handler did not write to the ResponseWriter of Middleware, but to one around it; give it the writer that it is called with")

// shown is what can be seen of a response by its writer. Frameworks and layers that
// wrap the writer show more than its headers.
type shown struct {
	header  http.Header
	status  int
	written bool
}

func show(w http.ResponseWriter) shown {
	s := shown{header: w.Header().Clone()}
	if x, ok := w.(interface{ Status() int }); ok {
		s.status = x.Status()
	}
	if x, ok := w.(interface{ Written() bool }); ok {
		s.written = x.Written()
	}
	return s
}

// bypassed reports whether the handler wrote to w instead of the recorder.
func (r *recorder) bypassed() bool { return r.silent() && !reflect.DeepEqual(show(r.w), r.before) }

// keep starts to buffer the response, up to limit bytes.
func (r *recorder) keep(limit int, mayFlush func() bool, marks func(int) []mark) {
	r.direct, r.limit, r.mayFlush, r.marks = false, limit, mayFlush, marks
	r.header = r.w.Header().Clone()
}

// Header returns the headers that will be sent.
func (r *recorder) Header() http.Header {
	if r.header == nil {
		return r.w.Header()
	}
	return r.header
}

// WriteHeader writes the status. An informational one (RFC 9110, section 15.2)
// belongs to this exchange only: it is sent to the client at once, and is not
// stored.
func (r *recorder) WriteHeader(status int) {
	informational := 100 <= status && status <= 199 && status != http.StatusSwitchingProtocols
	switch {
	case r.status != 0: // superfluous, as for net/http
	case informational && r.direct:
		r.w.WriteHeader(status)
	case informational:
		before := r.w.Header().Clone()
		replaceHeaders(r.w.Header(), r.header)
		r.w.WriteHeader(status)
		replaceHeaders(r.w.Header(), before)
	case status < 100 || status > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %v", status)) // the text of net/http
	case r.direct:
		r.status = status
		r.setMarks(r.w.Header())
		r.copied.begin(r.w.Header())
		r.w.WriteHeader(status)
	default:
		r.status, r.sent = status, r.header.Clone()
	}
}

// Write writes a part of the body.
func (r *recorder) Write(p []byte) (int, error) {
	r.begin()
	switch {
	case r.direct:
		add(r.copied, p)
		return r.w.Write(p)
	case !allowsBody(r.status):
		return 0, http.ErrBodyNotAllowed
	case len(p) > r.limit-len(r.body):
		if err := r.letThrough(errTooLong, len(p)); err != nil {
			return 0, err
		}
		return r.w.Write(p)
	}
	r.body = append(r.body, p...)
	return len(p), nil
}

// WriteString writes a part of the body. What is written through reaches w as a string,
// because a server divides a long string in another way into chunks than bytes.
func (r *recorder) WriteString(part string) (int, error) {
	if !r.direct {
		return r.Write([]byte(part))
	}
	r.begin()
	add(r.copied, part)
	return io.WriteString(r.w, part)
}

// ReadFrom copies src to the response. If nothing is buffered, it lets w copy.
func (r *recorder) ReadFrom(src io.Reader) (int64, error) {
	if !r.direct {
		return io.Copy(struct{ io.Writer }{r}, src)
	}
	r.begin()
	if r.copied != nil {
		src = io.TeeReader(src, r.copied)
	}
	return io.Copy(r.w, src)
}

// Flush is FlushError without the error.
func (r *recorder) Flush() { _ = r.FlushError() }

// FlushError sends what was written so far to the client. A response that is to be
// stored is sent, and flushed, when its outcome is stored.
func (r *recorder) FlushError() error {
	r.begin()
	if !r.direct && !r.mayFlush() {
		r.flushed = true
		return nil
	}
	if err := r.letThrough(nil, 0); err != nil {
		return err
	}
	return http.NewResponseController(r.w).Flush()
}

// Hijack hands the connection over to the handler.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if r.status != 0 && !r.direct {
		if err := r.letThrough(errHijacked, 0); err != nil {
			return nil, nil, err
		}
		_ = http.NewResponseController(r.w).Flush() // the server would lose what it has buffered
	}
	conn, rw, err := http.NewResponseController(r.w).Hijack()
	if err == nil {
		r.direct, r.hijacked, r.unstored = true, true, errHijacked
	}
	return conn, rw, err
}

// Unwrap supports http.ResponseController. What is written to the inner writer
// is neither buffered nor stored.
func (r *recorder) Unwrap() http.ResponseWriter { return r.w }

// replace sends a instead of the handler's response, unless that has already
// been started.
func (r *recorder) replace(a *Response) {
	if r.direct && !r.silent() {
		return
	}
	h := r.w.Header()
	if r.before.header != nil {
		replaceHeaders(h, r.before.header) // without the handler's
	}
	for name, values := range a.Header {
		name = http.CanonicalHeaderKey(name)
		if name == nameExposed {
			// Keep those set around this handler, once.
			values = append(slices.DeleteFunc(slices.Clone(h[name]), func(v string) bool { return slices.Contains(values, v) }), values...)
		}
		h[name] = slices.Clone(values) // those of a Render can be shared
	}
	if a.Status != http.StatusOK { // as for a first response, see begin
		r.w.WriteHeader(a.Status)
	}
	_, _ = r.w.Write(a.Body) // an error: the client is gone, and the outcome does not change
}

// finish ends the exchange after the handler: it sends what is still buffered.
func (r *recorder) finish(marks []mark) {
	r.begin()
	if !r.direct {
		r.mark(r.sent, marks)
		_ = r.send(0) // an error: the client is gone, and the outcome is stored
		if r.flushed {
			// Trailers that were not announced need it: the server then declares no length.
			_ = http.NewResponseController(r.w).Flush()
		}
	}
	r.handTrailersOn()
}

// handTrailersOn copies the trailers to w, where the server reads them after
// the handler has returned. It copies nothing else, because w may have passed
// its headers to another goroutine, as lambdaurl does.
func (r *recorder) handTrailersOn() {
	to := r.w.Header()
	for name, values := range r.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			to[name] = values
		}
	}
	for _, list := range r.sent["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if values, ok := r.header[name]; ok {
				to[name] = values
			}
		}
	}
}

// letThrough sends the buffered response to the client and stops buffering. The
// response is not stored because of why; nil: the handler has declared that. The
// caller is about to write more bytes.
func (r *recorder) letThrough(why error, more int) error {
	if r.direct {
		return nil
	}
	r.direct, r.unstored = true, why
	r.setMarks(r.sent)
	return r.send(more)
}

// send sends the buffered response. If the status is implicit, the body's first
// write sends it.
func (r *recorder) send(more int) error {
	replaceHeaders(r.w.Header(), r.sent)
	if !r.implicit || len(r.body)+more == 0 {
		r.w.WriteHeader(r.status)
	}
	if len(r.body) == 0 {
		return nil
	}
	_, err := r.w.Write(r.body)
	return err
}

// begin makes the status 200 if the handler has not set one. It does not write
// the status to w: some writers inspect the first part of a body to detect its
// type.
func (r *recorder) begin() {
	if r.status != 0 {
		return
	}
	r.status, r.implicit = http.StatusOK, true
	if r.direct {
		r.setMarks(r.w.Header())
		r.copied.begin(r.w.Header())
	} else {
		r.sent = r.header.Clone()
	}
}

// setMarks sets the headers that marks returns on h.
func (r *recorder) setMarks(h http.Header) {
	r.mark(h, r.marks(r.status))
}

// mark sets headers of this package. It appends to a list of exposed headers
// that was set around the handler.
func (r *recorder) mark(h http.Header, marks []mark) {
	for _, m := range marks {
		if m.name == nameExposed && slices.Equal(h[m.name], r.w.Header()[m.name]) {
			h[m.name] = slices.Concat(h[m.name], []string{m.value})
			continue
		}
		h[m.name] = []string{m.value}
	}
}

// silent reports whether the handler has written nothing.
func (r *recorder) silent() bool { return r.status == 0 && !r.hijacked }

// response returns the response to store: the status, the body, and the headers
// that the handler itself set. Other headers were set around it, for this
// exchange.
func (r *recorder) response() Response {
	if r.hijacked {
		return Response{Status: http.StatusOK, unstored: r.unstored} // the status on the connection is not known
	}
	body, header, unstored := r.body, r.sent, r.unstored
	if r.copied != nil {
		body, header = r.copied.body, r.copied.header
		if r.copied.tooLong {
			unstored = errTooLong
		}
	}
	a := Response{Status: r.status, Header: http.Header{}, Body: body, Base64: !utf8.Valid(body), unstored: unstored}
	if a.Status == 0 {
		a.Status = http.StatusOK // the default of net/http
	}
	if header == nil {
		header = r.Header()
	}
	around := r.before.header
	for name, values := range header {
		if _, set := around[name]; !set || !slices.Equal(values, around[name]) {
			a.Header[name] = values
		}
	}
	return a
}

// copied is what a handler has written through. It is used in shadow mode only, and nil
// otherwise.
type copied struct {
	header  http.Header
	body    []byte
	limit   int  // of the body, in bytes
	tooLong bool // the body is longer
}

// begin sets the headers of the response. c can be nil.
func (c *copied) begin(header http.Header) {
	if c != nil {
		c.header = header.Clone()
	}
}

// add adds a part of the body to c, which can be nil.
func add[P string | []byte](c *copied, part P) {
	switch {
	case c == nil:
	case len(part) > c.limit-len(c.body):
		c.tooLong = true
	default:
		c.body = append(c.body, part...)
	}
}

// Write adds a part.
func (c *copied) Write(part []byte) (int, error) {
	add(c, part)
	return len(part), nil
}

// allowsBody reports whether a response of that status can have a body (RFC
// 9110, section 6.4.1).
func allowsBody(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

func replaceHeaders(to, from http.Header) {
	clear(to)
	maps.Copy(to, from)
}
