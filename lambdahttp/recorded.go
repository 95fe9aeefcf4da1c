package lambdahttp

import (
	"maps"
	"net/http"
	"slices"
	"unicode/utf8"
)

// replace sends a instead of the handler's response, unless that has already
// been started.
func (r *recorder) replace(a *Response) {
	if r.hijacked || r.direct && r.status != 0 {
		return
	}
	h := r.w.Header()
	if r.direct { // h then has the handler's headers too: remove those that describe its body
		for _, name := range []string{"Content-Encoding", "Content-Length", "Etag", "Last-Modified", "Trailer"} {
			h.Del(name)
		}
	}
	for name, values := range a.Header {
		name = http.CanonicalHeaderKey(name)
		if name == headerExpose {
			values = append(slices.Clone(h[name]), values...) // keep those set around this handler
		}
		h[name] = slices.Clone(values)
	}
	if a.Status != http.StatusOK || len(a.Body) == 0 { // as for a first response, see begin
		r.w.WriteHeader(a.Status)
	}
	if len(a.Body) > 0 {
		_, _ = r.w.Write(a.Body) // an error: the client is gone, and the outcome does not change
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
	a := Response{Status: r.status, Header: http.Header{}, Body: r.body, Base64: !utf8.Valid(r.body), unstored: r.unstored}
	if a.Status == 0 {
		a.Status = http.StatusOK // the default of net/http
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

// allowsBody reports whether a response of that status can have a body (RFC
// 9110, section 6.4.1).
func allowsBody(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

func replaceHeaders(to, from http.Header) {
	clear(to)
	maps.Copy(to, from)
}
