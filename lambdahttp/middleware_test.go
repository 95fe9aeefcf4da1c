package lambdahttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/lambdahttp"
)

// A panic is handled by the server, which closes the connection and sends
// nothing of the response.
func TestFM31PanicCutsTheConnection(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(201)
		_, _ = w.Write([]byte("half"))
		panic(http.ErrAbortHandler)
	}, nil)
	a, err := s.client.Do(s.request(t.Context(), http.NoBody))
	if err == nil {
		a.Body.Close()
		t.Fatalf("the client got %d", a.StatusCode)
	}
	if got := s.store.record(t).State; got != driver.StateUnknown {
		t.Errorf("the record is %s, want unknown", got)
	}
	w := newWorld(t, wires[0])
	h := lambdahttp.Middleware(w.guard, single)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("recovered %v, want http.ErrAbortHandler itself", p)
		}
	}()
	h.ServeHTTP(&plainWriter{header: http.Header{}}, keyed(t.Context()))
}

// Headers that a layer around the middleware sets for its own exchange are in
// every response, and are not stored.
func TestHeadersFromAround(t *testing.T) {
	t.Parallel()
	n := 0
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/charges/ch_1")
		w.Header().Del("X-Removed")
		w.Header().Set("Access-Control-Allow-Origin", "https://handler.example.com")
	}, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n++
			w.Header().Set("X-Request-Id", fmt.Sprint("exchange-", n))
			w.Header().Set("X-Removed", "here")
			w.Header().Set("Access-Control-Allow-Origin", "https://app.example.com")
			next.ServeHTTP(w, r)
		})
	})
	for i, want := range []struct{ removed, origin, replayed string }{
		{"", "https://handler.example.com", ""},
		{"here", "https://app.example.com", "true"},
	} {
		a, _ := s.do("{}")
		h := a.Header
		if a.StatusCode != 200 || h.Get("X-Request-Id") != fmt.Sprint("exchange-", i+1) || h.Get("X-Removed") != want.removed ||
			h.Get("Access-Control-Allow-Origin") != want.origin || h.Get("Idempotent-Replayed") != want.replayed || h.Get("Location") != "/charges/ch_1" {
			t.Errorf("exchange %d: %d %v", i+1, a.StatusCode, h)
		}
	}
	if stored := s.store.record(t).Result; bytes.Contains(stored, []byte("exchange")) {
		t.Errorf("a header set around the middleware was stored: %s", stored)
	}
}

func TestMiddlewareRoutes(t *testing.T) {
	t.Parallel()
	var view lambdahttp.Request
	look := func(o *lambdahttp.Options) {
		o.Operation = func(r *lambdahttp.Request) string { view = *r; return lambdahttp.OperationOf(r) }
	}
	h := lambdahttp.Middleware(newGuard(t), single, look)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, c := range []struct{ pattern, route string }{
		{"POST /charges/{id}", "/charges/{id}"},
		{"/charges/{id}", "/charges/{id}"},
		{"POST example.com/charges/{rest...}", "/charges/{rest...}"},
		{"/", "/"},
	} {
		mux := http.NewServeMux()
		mux.Handle(c.pattern, h)
		mux.ServeHTTP(&plainWriter{header: http.Header{}}, httptest.NewRequest("POST", "http://example.com/charges/a%2Fb?x=%20&y", nil))
		if view.Route != c.route || view.Path != "/charges/a%2Fb" || view.RawQuery != "x=%20&y" {
			t.Errorf("%s: the view is %+v", c.pattern, view)
		}
	}
	h.ServeHTTP(&plainWriter{header: http.Header{}}, httptest.NewRequest("POST", "http://example.com/charges/7", nil))
	if view.Route != "" || lambdahttp.OperationOf(&view) != "POST /charges/7" {
		t.Errorf("in front of the router the view is %+v", view)
	}
}

// SetError has the same meaning with and without a key, and the last call wins.
func TestSetError(t *testing.T) {
	t.Parallel()
	lambdahttp.SetError(t.Context(), errDown) // outside a request: no effect
	for _, key := range []bool{true, false} {
		for name, c := range map[string]struct {
			h      http.HandlerFunc
			status int
			record string
			err    error
		}{
			"Final over a buffered response": {func(w http.ResponseWriter, r *http.Request) {
				lambdahttp.SetError(r.Context(), idempotent.Final("declined", "Declined."))
				w.Header().Set("Content-Length", "1000")
			}, 422, "completed", nil},
			"NotExecuted, silent": {func(w http.ResponseWriter, r *http.Request) {
				lambdahttp.SetError(r.Context(), idempotent.NotExecuted(errDown))
			}, 0, "retryable", errDown},
			"NotExecuted with a response": {func(w http.ResponseWriter, r *http.Request) {
				lambdahttp.SetError(r.Context(), idempotent.NotExecuted(errDown))
				w.WriteHeader(429)
			}, 429, "retryable", nil},
			"an error with a response": {func(w http.ResponseWriter, r *http.Request) {
				lambdahttp.SetError(r.Context(), errDown)
				w.WriteHeader(502)
			}, 502, "unknown", nil},
			"canceled": {func(w http.ResponseWriter, r *http.Request) {
				lambdahttp.SetError(r.Context(), errDown)
				lambdahttp.SetError(r.Context(), nil)
			}, 200, "completed", nil},
		} {
			w := newWorld(t, wires[0])
			var told error
			h := lambdahttp.Middleware(w.guard, single, func(o *lambdahttp.Options) {
				o.ErrorHandler = func(_ http.ResponseWriter, _ *http.Request, err error) { told = err }
			})(c.h)
			r := keyed(t.Context())
			if !key {
				r.Header.Del("Idempotency-Key")
			}
			out := &plainWriter{header: http.Header{}}
			h.ServeHTTP(out, r)
			if !key && name == "canceled" {
				c.status = 0 // passed through: the server sets the default status
			}
			if out.status != c.status || !errors.Is(told, c.err) || out.sent.Get("Content-Length") != "" {
				t.Errorf("key %t, %s: status %d %v, ErrorHandler got %v", key, name, out.status, out.sent, told)
			}
			state := ""
			if rec := w.store.record(t); rec != nil {
				state = rec.State.String()
			}
			if key && state != c.record || !key && state != "" {
				t.Errorf("key %t, %s: the record is %q", key, name, state)
			}
		}
	}
}

// Without an ErrorHandler an internal error gets a plain 500.
func TestInternalError(t *testing.T) {
	t.Parallel()
	h := lambdahttp.Middleware(newGuard(t), func(o *lambdahttp.Options) {
		o.Scope.Of = func(context.Context, *lambdahttp.Request) (string, error) { return "", errors.New("secret") }
	})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	out := &plainWriter{header: http.Header{}}
	h.ServeHTTP(out, keyed(t.Context()))
	if out.status != 500 || string(out.body) != "Internal Server Error\n" {
		t.Errorf("got %d %q", out.status, out.body)
	}
}

func TestMiddlewareWantsAHandler(t *testing.T) {
	t.Parallel()
	if got := panics(func() { lambdahttp.Middleware(newGuard(t), single)(nil) }); !strings.Contains(got, "Middleware: the handler is nil") {
		t.Errorf("without a handler: panic %q", got)
	}
	for _, limit := range []func(*lambdahttp.Options){
		func(o *lambdahttp.Options) { o.MaxRequestBody = -1 },
		func(o *lambdahttp.Options) { o.MaxResponseBody = -1 },
	} {
		if got := panics(func() { lambdahttp.Middleware(newGuard(t), single, limit) }); !strings.Contains(got, "must not be negative") {
			t.Errorf("with a negative limit: panic %q", got)
		}
	}
}

// On Lambda the request id is Lambda's. Elsewhere the client's is used if it is
// a valid token.
func TestMiddlewareRequestIDs(t *testing.T) {
	t.Parallel()
	onLambda := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: "aws-1"})
	for _, c := range []struct {
		ctx          context.Context
		header, want string
	}{
		{t.Context(), "req-1", "req-1"},
		{t.Context(), "", ""},
		{t.Context(), "a b", ""},
		{t.Context(), strings.Repeat("x", 65), ""},
		{onLambda, "req-1", "aws-1"},
	} {
		w := newWorld(t, wires[0])
		r := keyed(c.ctx)
		r.Header.Set("X-Request-Id", c.header)
		r.Body = nil // like a request that was built by hand
		lambdahttp.Middleware(w.guard, single)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(&plainWriter{header: http.Header{}}, r)
		if got := w.store.record(t).RequestID; got != c.want {
			t.Errorf("%q: the record has the request id %q, want %q", c.header, got, c.want)
		}
	}
}
