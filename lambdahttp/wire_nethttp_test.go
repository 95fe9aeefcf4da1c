package lambdahttp_test

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

type callerKey struct{}

// scopeOfHTTP returns the caller that an authenticating handler has put into
// the context.
func scopeOfHTTP(_ context.Context, r *lambdahttp.Request) (string, error) {
	caller, _ := r.Event.(*http.Request).Context().Value(callerKey{}).(string)
	if caller == idempotent.Global {
		return "", nil
	}
	return caller, nil
}

type errorKey struct{}

func buildHTTP(g *idempotent.Guard, h handler, optFns ...func(*lambdahttp.Options)) sender {
	optFns = append([]func(*lambdahttp.Options){func(o *lambdahttp.Options) {
		o.ErrorHandler = func(_ http.ResponseWriter, r *http.Request, err error) { *r.Context().Value(errorKey{}).(*error) = err }
	}}, optFns...)
	guarded := lambdahttp.Middleware(g, optFns...)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(err)
		}
		a, err := h(r.Context(), request{
			method: r.Method, path: r.URL.Path, query: r.URL.RawQuery, header: lower(last(r.Header)), body: string(body),
		})
		lambdahttp.SetError(r.Context(), err)
		if a.status != 0 {
			write(w, a)
		}
	}))
	return func(ctx context.Context, r request) (_ reply, err error) {
		req := &http.Request{
			Method: r.method, URL: &url.URL{Path: r.path, RawQuery: r.query}, Header: http.Header{"X-Request-Id": {"req-1"}},
			Body: io.NopCloser(strings.NewReader(r.body)), ContentLength: -1,
		}
		if decoded, err := url.PathUnescape(r.path); err == nil {
			req.URL.Path, req.URL.RawPath = decoded, r.path
		}
		if r.route != "" {
			req.Pattern = r.method + " " + r.route
		}
		for k, v := range r.header {
			req.Header.Add(k, v)
		}
		if r.base64 {
			req.Body = io.NopCloser(base64.NewDecoder(base64.StdEncoding, strings.NewReader(r.body)))
		}
		if r.caller != "" {
			ctx = context.WithValue(ctx, callerKey{}, r.caller)
		}
		w := plainWriter{header: http.Header{}}
		guarded.ServeHTTP(&w, req.WithContext(context.WithValue(ctx, errorKey{}, &err)))
		return w.reply(), err
	}
}

func write(w http.ResponseWriter, a reply) {
	for k, v := range a.header {
		w.Header().Set(k, v)
	}
	for _, c := range a.cookies {
		w.Header().Add("Set-Cookie", c)
	}
	body := []byte(a.body)
	if a.base64 {
		body, _ = base64.StdEncoding.DecodeString(a.body)
	}
	w.WriteHeader(a.status)
	if len(body) > 0 {
		_, _ = w.Write(body)
	}
}

// carriedHTTP: header names have one spelling, bodies are bytes, and an invalid
// status cannot be written.
func carriedHTTP(a reply) (reply, bool) {
	w := plainWriter{header: http.Header{}}
	if _, err := base64.StdEncoding.DecodeString(a.body); a.status == 0 || a.base64 && err != nil {
		return a, false
	}
	write(&w, a)
	return w.reply(), true
}

// plainWriter is an http.ResponseWriter without optional interfaces.
type plainWriter struct {
	header http.Header
	status int
	sent   http.Header
	body   []byte
}

func (w *plainWriter) Header() http.Header { return w.header }
func (w *plainWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status, w.sent = status, w.header.Clone()
	}
}
func (w *plainWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.body = append(w.body, p...)
	return len(p), nil
}

// reply returns what was written. The status defaults to 200 as in a server,
// and bytes that are not text are returned as base64.
func (w *plainWriter) reply() reply {
	w.WriteHeader(http.StatusOK)
	a := reply{status: w.status, body: string(w.body), cookies: w.sent["Set-Cookie"], base64: !utf8.Valid(w.body)}
	if a.base64 {
		a.body = base64.StdEncoding.EncodeToString(w.body)
	}
	for k, v := range w.sent {
		if k == "Set-Cookie" {
			continue
		}
		if a.header == nil {
			a.header = map[string]string{}
		}
		a.header[k] = strings.Join(v, ", ")
	}
	return a
}

func lower(h map[string]string) map[string]string {
	out := make(map[string]string, len(h))
	for k, v := range h {
		out[strings.ToLower(k)] = v
	}
	return out
}
