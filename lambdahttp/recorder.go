package lambdahttp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// recorder is the http.ResponseWriter of a handler behind [Middleware]. It lets
// everything through at once (direct), or keeps the response until its outcome
// is stored. The handler ends the keeping by what it does: it flushes, it
// hijacks the connection, it writes more than the limit.
type recorder struct {
	w      http.ResponseWriter
	direct bool

	header http.Header // the handler's: a copy of w's while the response is kept
	status int         // 0: the handler has written nothing
	sent   http.Header // header as it was when the status was written
	body   []byte
	limit  int

	// beforeDirect is called when the keeping ends; it may still set headers.
	beforeDirect func(status int, h http.Header)
	unstored     error // why there is nothing to store
	hijacked     bool
}

// Why a response is not stored, for observers.
var (
	errStreamed = errors.New("lambdahttp: the handler streamed its response")
	errTooLong  = errors.New("lambdahttp: the response is longer than Options.MaxResponseBody")
	errHijacked = errors.New("lambdahttp: the handler took the connection over")
)

// keep begins the keeping of a response, at most limit bytes of it.
func (r *recorder) keep(limit int, beforeDirect func(int, http.Header)) {
	r.direct, r.limit, r.beforeDirect = false, limit, beforeDirect
	if r.header = r.w.Header().Clone(); r.header == nil {
		r.header = http.Header{}
	}
}

// Header returns the headers that will be sent.
func (r *recorder) Header() http.Header {
	if r.header == nil {
		return r.w.Header()
	}
	return r.header
}

// WriteHeader writes the status. An informational one (RFC 9110, section 15.2)
// belongs to this exchange only: it goes to the client at once, and is not kept.
func (r *recorder) WriteHeader(status int) {
	informational := 100 <= status && status <= 199 && status != http.StatusSwitchingProtocols
	switch {
	case r.direct:
		if r.status == 0 && !informational {
			r.status = status
		}
		r.w.WriteHeader(status)
	case r.status != 0: // superfluous, as for net/http
	case informational:
		before := r.w.Header().Clone()
		replaceHeaders(r.w.Header(), r.header)
		r.w.WriteHeader(status)
		replaceHeaders(r.w.Header(), before)
	case status < 100 || status > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %v", status)) // net/http's words
	default:
		r.status, r.sent = status, r.header.Clone()
	}
}

// Write writes a part of the body.
func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	switch {
	case r.hijacked:
		return 0, http.ErrHijacked
	case r.direct:
		return r.w.Write(p)
	case !allowsBody(r.status):
		return 0, http.ErrBodyNotAllowed
	case len(p) > r.limit-len(r.body):
		if err := r.letThrough(errTooLong); err != nil {
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

// ReadFrom writes what src has. Once nothing is kept, w may do it by itself.
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
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	rest, err := io.Copy(r.w, src)
	return n + rest, err
}

// Flush is FlushError without the error.
func (r *recorder) Flush() { _ = r.FlushError() }

// FlushError sends what was written to the client.
func (r *recorder) FlushError() error {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	if err := r.letThrough(errStreamed); err != nil {
		return err
	}
	return http.NewResponseController(r.w).Flush()
}

// Hijack hands the connection over to the handler.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if !r.direct && r.status != 0 {
		if err := r.letThrough(errHijacked); err != nil {
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

// Unwrap is for http.ResponseController. What is written to the inner writer is
// neither kept nor stored.
func (r *recorder) Unwrap() http.ResponseWriter { return r.w }

// letThrough sends what was kept, and everything that follows, to the client.
func (r *recorder) letThrough(why error) error {
	if r.direct {
		return nil
	}
	r.direct, r.unstored = true, why
	r.beforeDirect(r.status, r.sent)
	return r.send()
}

// send sends what was kept.
func (r *recorder) send() error {
	if r.status == 0 {
		r.status, r.sent = http.StatusOK, r.header
	}
	replaceHeaders(r.w.Header(), r.sent)
	r.w.WriteHeader(r.status)
	body := r.body
	r.body = nil
	if len(body) == 0 {
		return nil
	}
	_, err := r.w.Write(body)
	return err
}

// finish ends the exchange after the handler: it sends what is still kept.
func (r *recorder) finish(mark func(http.Header)) {
	if !r.direct {
		if r.status == 0 {
			r.WriteHeader(http.StatusOK)
		}
		mark(r.sent)
		_ = r.send() // an error: the client is gone, and the outcome is stored
	}
	if r.header != nil && !r.hijacked {
		r.handTrailersOn()
	}
}

// handTrailersOn sets the trailers on w, from where the server takes them when
// the handler has returned. Only they are set: w may have given its headers to
// another goroutine, as lambdaurl does.
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

// replace answers in place of the handler, unless its answer is on its way.
func (r *recorder) replace(a *Response) {
	if r.hijacked || r.direct && r.status != 0 {
		return
	}
	h := r.w.Header()
	if r.direct { // then h is the handler's too: what describes its body does not describe this one
		for _, name := range []string{"Content-Encoding", "Content-Length", "Etag", "Last-Modified", "Trailer"} {
			h.Del(name)
		}
	}
	for name, values := range a.Header {
		h[http.CanonicalHeaderKey(name)] = slices.Clone(values)
	}
	r.w.WriteHeader(a.Status)
	if len(a.Body) > 0 {
		_, _ = r.w.Write(a.Body) // the client is gone, and nothing changes by that
	}
}

// silent reports whether the handler has written nothing.
func (r *recorder) silent() bool { return r.status == 0 && !r.hijacked }

// response returns what there is to store: the status, the body, and those
// headers that are the handler's own. Others were set around it, for this
// exchange.
func (r *recorder) response() Response {
	if r.hijacked {
		return Response{Status: http.StatusOK, unstored: r.unstored} // whatever was spoken, it was the handler's answer
	}
	a := Response{Status: r.status, Header: http.Header{}, Body: r.body, Base64: !utf8.Valid(r.body), unstored: r.unstored}
	if a.Status == 0 {
		a.Status = http.StatusOK
	}
	header := r.sent
	if header == nil {
		header = r.header
	}
	around := r.w.Header()
	for name, values := range header {
		if !slices.Equal(values, around[name]) {
			name = http.CanonicalHeaderKey(name)
			a.Header[name] = append(a.Header[name], values...)
		}
	}
	return a
}

// allowsBody reports whether a response of that status has a body (RFC 9110,
// section 6.4.1).
func allowsBody(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

func replaceHeaders(to, from http.Header) {
	clear(to)
	maps.Copy(to, from)
}
