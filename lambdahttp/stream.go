package lambdahttp

import (
	"bufio"
	"net"
	"net/http"
	"strings"
)

// Flush is FlushError without the error.
func (r *recorder) Flush() { _ = r.FlushError() }

// FlushError sends what was written so far to the client.
func (r *recorder) FlushError() error {
	r.begin()
	if err := r.letThrough(errStreamed, 0); err != nil {
		return err
	}
	return http.NewResponseController(r.w).Flush()
}

// Hijack hands the connection over to the handler.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if !r.direct && r.status != 0 {
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

// letThrough sends the buffered response to the client and stops buffering. The
// caller is about to write more bytes.
func (r *recorder) letThrough(why error, more int) error {
	if r.direct {
		return nil
	}
	r.direct, r.unstored = true, why
	r.setMarks(r.sent)
	return r.send(more)
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
