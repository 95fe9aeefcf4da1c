package lambdahttp

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
)

// recorder is the http.ResponseWriter of a handler behind [Middleware]. It
// either writes through at once (direct), or buffers the response until its
// outcome is stored. Buffering ends early if the handler flushes, hijacks the
// connection, or writes more than the limit.
type recorder struct {
	w      http.ResponseWriter
	direct bool

	header   http.Header // the handler's: a copy of w's while the response is buffered
	status   int         // 0: the handler has written nothing
	implicit bool        // the status is 200 because the handler wrote a body first
	sent     http.Header // header as it was when the status was written
	body     []byte
	limit    int

	// marks returns headers to be set at the start of a response that is written
	// through; nil: no headers.
	marks    func(status int) []mark
	unstored error // why the response is not stored
	hijacked bool
}

// The reasons why a response is not stored, for observers.
var (
	errStreamed = errors.New("lambdahttp: the handler streamed its response")
	errTooLong  = errors.New("lambdahttp: the response is longer than Options.MaxResponseBody")
	errHijacked = errors.New("lambdahttp: the handler took the connection over")
)

// keep starts to buffer the response, up to limit bytes.
func (r *recorder) keep(limit int, marks func(int) []mark) {
	r.direct, r.limit, r.marks = false, limit, marks
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
	case r.direct:
		if r.status == 0 && !informational {
			r.status = status
			r.setMarks(r.w.Header())
		}
		r.w.WriteHeader(status)
	case r.status != 0: // superfluous, as for net/http
	case informational:
		before := r.w.Header().Clone()
		replaceHeaders(r.w.Header(), r.header)
		r.w.WriteHeader(status)
		replaceHeaders(r.w.Header(), before)
	case status < 100 || status > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %v", status)) // the text of net/http
	default:
		r.status, r.sent = status, r.header.Clone()
	}
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
	} else {
		r.sent = r.header.Clone()
	}
}

// setMarks sets the headers that marks returns on h.
func (r *recorder) setMarks(h http.Header) {
	if r.marks != nil && !r.hijacked {
		r.mark(h, r.marks(r.status))
	}
}

// mark sets headers of this package. It appends to a list of exposed headers
// that was set around the handler.
func (r *recorder) mark(h http.Header, marks []mark) {
	for _, m := range marks {
		if m.name == headerExpose && slices.Equal(h[m.name], r.w.Header()[m.name]) {
			h[m.name] = append(slices.Clone(h[m.name]), m.value)
			continue
		}
		h[m.name] = []string{m.value}
	}
}

// Write writes a part of the body.
func (r *recorder) Write(p []byte) (int, error) {
	r.begin()
	switch {
	case r.hijacked:
		return 0, http.ErrHijacked
	case r.direct:
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

// WriteString is Write for a string.
func (r *recorder) WriteString(s string) (int, error) {
	if r.direct && !r.hijacked && r.status != 0 {
		return io.WriteString(r.w, s)
	}
	return r.Write([]byte(s))
}

// ReadFrom copies src to the response. Once nothing is buffered, it lets w
// copy.
func (r *recorder) ReadFrom(src io.Reader) (n int64, err error) {
	if !r.direct {
		kept := &io.LimitedReader{R: src, N: int64(r.limit-len(r.body)) + 1}
		n, err = io.Copy(struct{ io.Writer }{r}, kept)
		if err != nil || kept.N > 0 {
			return n, err
		}
	}
	if r.hijacked {
		return n, http.ErrHijacked
	}
	r.begin()
	rest, err := io.Copy(r.w, src)
	return n + rest, err
}

// send sends the buffered response. If the status is implicit, the body's first
// write sends it.
func (r *recorder) send(more int) error {
	replaceHeaders(r.w.Header(), r.sent)
	body := r.body
	r.body = nil
	if !r.implicit || len(body)+more == 0 {
		r.w.WriteHeader(r.status)
	}
	if len(body) == 0 {
		return nil
	}
	_, err := r.w.Write(body)
	return err
}

// finish ends the exchange after the handler: it sends what is still buffered.
func (r *recorder) finish(marks []mark) {
	if r.hijacked {
		return
	}
	r.begin()
	if !r.direct {
		r.mark(r.sent, marks)
		_ = r.send(0) // an error: the client is gone, and the outcome is stored
	}
	if r.header != nil {
		r.handTrailersOn()
	}
}
