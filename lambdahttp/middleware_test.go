// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/lambdahttp"
)

// FM31: a panic is handled by the server, which closes the connection and sends
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
	w := newFixture(t, wires[0])
	h := lambdahttp.Middleware(w.guard, single)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("recovered %v, want http.ErrAbortHandler itself", p)
		}
	}()
	h.ServeHTTP(&plainWriter{header: http.Header{}}, keyed(t.Context()))
}

// Headers that a layer around the middleware sets for its own exchange are in
// every response, and are not stored. If the handler sets one of them, its value
// is replayed.
func TestHeadersFromAround(t *testing.T) {
	t.Parallel()
	n := 0
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/charges/ch_1")
		w.Header().Del("X-Removed")
		w.Header().Set("Cache-Control", "no-store")
	}, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n++
			w.Header().Set("X-Request-Id", fmt.Sprint("exchange-", n))
			w.Header().Set("X-Removed", "here")
			w.Header().Set("Cache-Control", "private")
			w.Header().Set("Access-Control-Allow-Origin", fmt.Sprint("https://app.example.com:", n))
			next.ServeHTTP(w, r)
		})
	})
	for i, want := range []struct{ removed, replayed string }{{"", ""}, {"here", "true"}} {
		a, _ := s.do("{}")
		h := a.Header
		if a.StatusCode != 200 || h.Get("X-Request-Id") != fmt.Sprint("exchange-", i+1) || h.Get("X-Removed") != want.removed ||
			h.Get("Access-Control-Allow-Origin") != fmt.Sprint("https://app.example.com:", i+1) || h.Get("Cache-Control") != "no-store" || h.Get("Idempotent-Replayed") != want.replayed || h.Get("Location") != "/charges/ch_1" {
			t.Errorf("exchange %d: %d %v", i+1, a.StatusCode, h)
		}
	}
	if stored := s.store.record(t).Result; bytes.Contains(stored, []byte("exchange")) || bytes.Contains(stored, []byte("example.com")) {
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
		{"example.com/charges/{id}", "/charges/{id}"},
		{"POST example.com/charges/{rest...}", ""},
		{"POST /charges/", ""},
		{"/{first}/{rest...}", ""},
		{"/", ""},
	} {
		mux := http.NewServeMux()
		mux.Handle(c.pattern, h)
		mux.ServeHTTP(&plainWriter{header: http.Header{}}, httptest.NewRequest("POST", "http://example.com/charges/a%2Fb?x=%20&y", nil))
		if view.Route != c.route || view.Path != "/charges/a%2Fb" || view.RawQuery != "x=%20&y" {
			t.Errorf("%s: the view is %+v", c.pattern, view)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/charges/{$}", h)
	mux.ServeHTTP(&plainWriter{header: http.Header{}}, httptest.NewRequest("POST", "http://example.com/charges/", nil))
	if view.Route != "/charges/{$}" {
		t.Errorf("a pattern for one path: the view is %+v", view)
	}
	for _, pattern := range []string{"", "POST", "/api/*"} { // the last one of another router
		r := httptest.NewRequest("POST", "http://example.com/charges/7", nil)
		r.Pattern = pattern
		h.ServeHTTP(&plainWriter{header: http.Header{}}, r)
		if view.Route != "" {
			t.Errorf("pattern %q: the view is %+v", pattern, view)
		}
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
			w := newFixture(t, wires[0])
			var told error
			h := lambdahttp.Middleware(w.guard, single, optional, func(o *lambdahttp.Options) {
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

// Without an ErrorHandler an internal error gets a plain 500, and the guard's logger has
// the error.
func TestInternalError(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := lambdahttp.Middleware(newGuard(t), func(o *lambdahttp.Options) {
		o.Guard = func(o *idempotent.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) }
		o.Scope.Of = func(context.Context, *lambdahttp.Request) (string, error) { return "", errors.New("secret") }
	})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	out := &plainWriter{header: http.Header{}}
	h.ServeHTTP(out, keyed(t.Context()))
	if out.status != 500 || string(out.body) != "Internal Server Error\n" || !strings.Contains(log.String(), "method=POST error=secret") {
		t.Errorf("got %d %q and the log %q", out.status, out.body, &log)
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
		{t.Context(), strings.Repeat("x", 64), strings.Repeat("x", 64)},
		{t.Context(), strings.Repeat("x", 65), ""},
		{onLambda, "req-1", "aws-1"},
	} {
		w := newFixture(t, wires[0])
		r := keyed(c.ctx)
		r.Header.Set("X-Request-Id", c.header)
		r.Body = nil // like a request that was built by hand
		lambdahttp.Middleware(w.guard, single)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(&plainWriter{header: http.Header{}}, r)
		if got := w.store.record(t).RequestID; got != c.want {
			t.Errorf("%q: the record has the request id %q, want %q", c.header, got, c.want)
		}
	}
}

func TestMiddlewareGivesTheBodyBack(t *testing.T) {
	t.Parallel()
	const long = 100_000
	for name, body := range map[string]io.Reader{
		"with a length": strings.NewReader(strings.Repeat("x", long)),
		"chunked":       io.MultiReader(strings.NewReader(strings.Repeat("x", long))),
		"empty":         http.NoBody,
	} {
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			got, err := io.ReadAll(r.Body)
			if err != nil || r.Body.Close() != nil {
				t.Error(err)
			}
			if e, ok := idempotent.FromContext(r.Context()); !ok || e.RecordID().Operation() != "POST (no route)" {
				t.Error("the handler has no execution of its operation")
			}
			fmt.Fprint(w, len(got), strings.Count(string(got), "x"))
		}, nil)
		a, got := s.send(s.request(t.Context(), body))
		want := fmt.Sprint(long, long)
		if name == "empty" {
			want = "0 0"
		}
		if a.StatusCode != 200 || got != want {
			t.Errorf("%s: got %d %s, want %s", name, a.StatusCode, got, want)
		}
	}
}

// HTTP-21: a body that is too long is refused before any call of the store or the
// handler.
func TestHTTP21BodyTooLarge(t *testing.T) {
	t.Parallel()
	limit := func(o *lambdahttp.Options) { o.MaxRequestBody = 10 }
	for name, body := range map[string]io.Reader{
		"announced": strings.NewReader("01234567890"),
		"chunked":   io.MultiReader(strings.NewReader("01234567890")),
	} {
		s := newSite(t, func(http.ResponseWriter, *http.Request) {}, nil, limit)
		a, problem := s.send(s.request(t.Context(), body))
		if a.StatusCode != 413 || a.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(problem, `"code":"body-too-large"`) || s.runs != 0 || s.store.calls != 0 {
			t.Errorf("%s: got %d %s after %d runs and %d calls of the store, want 413", name, a.StatusCode, problem, s.runs, s.store.calls)
		}
	}
	// A handler around the middleware has a lower limit.
	s := newSite(t, func(http.ResponseWriter, *http.Request) {}, func(next http.Handler) http.Handler { return http.MaxBytesHandler(next, 9) })
	for name, body := range map[string]io.Reader{"announced": strings.NewReader("0123456789"), "chunked": io.MultiReader(strings.NewReader("0123456789"))} {
		if a, problem := s.send(s.request(t.Context(), body)); a.StatusCode != 413 || !strings.Contains(problem, `"code":"body-too-large"`) || s.runs != 0 {
			t.Errorf("%s, limited around: got %d %s after %d runs", name, a.StatusCode, problem, s.runs)
		}
	}
	// A body is not read if its Content-Length is too large.
	r := keyed(t.Context())
	unread := strings.NewReader("01234567890")
	r.Body, r.ContentLength = io.NopCloser(unread), 11
	lambdahttp.Middleware(newGuard(t), single, limit)(http.NotFoundHandler()).ServeHTTP(&plainWriter{header: http.Header{}}, r)
	if unread.Len() != 11 {
		t.Errorf("%d bytes were read, want 0", 11-unread.Len())
	}
	s = newSite(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }, nil, limit, optional)
	if a, got := s.do("0123456789"); a.StatusCode != 200 || got != "0123456789" {
		t.Errorf("ten bytes: got %d %s", a.StatusCode, got)
	}
	// Without a key the body is not read, so it has no limit.
	r = s.request(t.Context(), strings.NewReader("01234567890"))
	r.Header.Del("Idempotency-Key")
	if a, got := s.send(r); a.StatusCode != 200 || got != "01234567890" {
		t.Errorf("without a key: got %d %s", a.StatusCode, got)
	}
}

// A scope may read a body that is too long and ignore the error; the
// fingerprint then refuses it. Without a key, the handler gets the whole body.
func TestBodyThatAScopeRead(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }, nil, optional, func(o *lambdahttp.Options) {
		o.MaxRequestBody = 4
		o.Operation = func(r *lambdahttp.Request) string {
			_, first := r.Body()
			_, second := r.Body()
			if (first == nil) != (second == nil) {
				t.Error("the second read differs from the first")
			}
			return "charge"
		}
	})
	r := s.request(t.Context(), io.MultiReader(strings.NewReader("0123456789")))
	r.Header.Del("Idempotency-Key")
	if a, got := s.send(r); a.StatusCode != 200 || got != "0123456789" {
		t.Errorf("without a key: got %d %q", a.StatusCode, got)
	}
	if a, _ := s.send(s.request(t.Context(), io.MultiReader(strings.NewReader("0123456789")))); a.StatusCode != 413 {
		t.Errorf("with a key: got %d, want 413", a.StatusCode)
	}
}

// HTTP-21: a body that ends early is refused, because its rest is unknown.
func TestHTTP21BodyEndsEarly(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(http.ResponseWriter, *http.Request) {}, nil)
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: \"%s\"\r\nContent-Length: 10\r\n\r\n01234", keyA)
	_ = c.(*net.TCPConn).CloseWrite()
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	problem, _ := io.ReadAll(a.Body)
	if a.StatusCode != 400 || !strings.Contains(string(problem), `"code":"invalid-body"`) || s.runs != 0 || s.store.calls != 0 {
		t.Errorf("got %d %s after %d runs", a.StatusCode, problem, s.runs)
	}
}

// The server removes the files of a form, although it has only its own request.
func TestFormFilesAreRemoved(t *testing.T) {
	t.Parallel()
	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	part, _ := m.CreateFormFile("receipt", "receipt.txt")
	_, _ = part.Write(bytes.Repeat([]byte("x"), 1<<20))
	_ = m.Close()
	file := ""
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
			return
		}
		f, err := r.MultipartForm.File["receipt"][0].Open()
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		file = f.(*os.File).Name()
	}, nil)
	r := s.request(t.Context(), &form)
	r.Header.Set("Content-Type", m.FormDataContentType())
	a, _ := s.send(r)
	s.close()
	if a.StatusCode != 200 || file == "" {
		t.Fatalf("status %d, file %q", a.StatusCode, file)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of the form is still there: %v", err)
	}
}

// A key in the body is read after the same checks of the body.
func TestKeyInALongBody(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(http.ResponseWriter, *http.Request) {}, nil, func(o *lambdahttp.Options) {
		o.KeyFrom, o.MaxRequestBody = lambdahttp.BodyField("key"), 60
	})
	for body, status := range map[string]int{
		`{"key":"` + keyA + `"}`:                      200,
		`{"key":"` + keyA + `","more":"01234567890"}`: 413,
	} {
		if a, got := s.do(body); a.StatusCode != status {
			t.Errorf("%s: got %d %s, want %d", body, a.StatusCode, got, status)
		}
	}
	if s.runs != 1 {
		t.Errorf("the handler ran %d times", s.runs)
	}
	for name, body := range map[string]io.Reader{"ends early": iotest.ErrReader(io.ErrUnexpectedEOF), "was read before": http.NoBody} {
		r, out := keyed(t.Context()), &plainWriter{header: http.Header{}}
		r.Body, r.ContentLength = io.NopCloser(body), 5
		lambdahttp.Middleware(s.guard, single, bodyKey)(http.NotFoundHandler()).ServeHTTP(out, r)
		if strings.Contains(string(out.body), "invalid-key") || out.status < 400 {
			t.Errorf("a body that %s: got %d %s", name, out.status, out.body)
		}
	}
}

// A handler continues after its client has disconnected: a finished effect is
// not unknown, and the retry gets its response.
func TestClientGoesAway(t *testing.T) {
	t.Parallel()
	gone, done := make(chan struct{}), make(chan struct{})
	var client context.CancelFunc
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := w.Write([]byte("charged")); err != nil {
			t.Error(err)
		}
		client()
		<-gone // the server has noticed
		if err := r.Context().Err(); err != nil {
			t.Errorf("the handler's context ended with the connection: %v", err)
		}
	}, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Goes") == "" {
				next.ServeHTTP(w, r)
				return
			}
			context.AfterFunc(r.Context(), func() { close(gone) })
			next.ServeHTTP(w, r)
			close(done)
		})
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client = cancel
	r := s.request(ctx, strings.NewReader("{}"))
	r.Header.Set("X-Goes", "away")
	if a, err := s.client.Do(r); err == nil {
		a.Body.Close()
		t.Fatal("the client got a response")
	}
	<-done
	a, got := s.do("{}")
	if a.StatusCode != 200 || got != "charged" || a.Header.Get("Idempotent-Replayed") != "true" || s.runs != 1 {
		t.Errorf("the retry got %d %q %v after %d runs", a.StatusCode, got, a.Header, s.runs)
	}
}

// The context of a handler that streams ends when its client disconnects.
func TestClientGoesAwayFromAStream(t *testing.T) {
	t.Parallel()
	done := make(chan error, 1)
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		done <- r.Context().Err()
	}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a, err := s.client.Do(s.request(ctx, http.NoBody))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the stream's context ended with %v", err)
	}
}

// A request whose client disconnected before the claim does not run.
func TestClientIsGoneBeforeTheClaim(t *testing.T) {
	t.Parallel()
	w := newFixture(t, wires[0])
	h := lambdahttp.Middleware(w.guard, single)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { w.runs++ }))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	out := &plainWriter{header: http.Header{}}
	h.ServeHTTP(out, keyed(ctx))
	if out.status != 503 || w.runs != 0 || w.store.calls != 0 {
		t.Errorf("status %d after %d runs and %d calls of the store", out.status, w.runs, w.store.calls)
	}
}

// Without a deadline DefaultLease applies. A deadline of the request, for
// example under lambdaurl, is also that of the lease.
func TestMiddlewareDeadlines(t *testing.T) {
	t.Parallel()
	w := newFixture(t, wires[0])
	var left time.Duration
	h := lambdahttp.Middleware(w.guard, single)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		deadline, ok := r.Context().Deadline()
		if !ok {
			t.Error("the handler's context has no deadline")
		}
		left = deadline.Sub(w.clock.Now())
	}))
	h.ServeHTTP(&plainWriter{header: http.Header{}}, keyed(t.Context()))
	if lease := w.store.record(t).LeaseEnd.Sub(w.clock.Now()); left.Round(10*time.Millisecond) != 15*time.Minute-3500*time.Millisecond || lease.Round(10*time.Millisecond) != 15*time.Minute {
		t.Errorf("the handler has %s and the lease %s", left, lease)
	}

	w = newFixture(t, wires[0])
	h = lambdahttp.Middleware(w.guard, single)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		deadline, _ := r.Context().Deadline()
		left = deadline.Sub(w.clock.Now())
	}))
	h.ServeHTTP(&plainWriter{header: http.Header{}}, keyed(w.clock.Invocation(t.Context(), 30*time.Second)))
	if lease := w.store.record(t).LeaseEnd.Sub(w.clock.Now()); left.Round(10*time.Millisecond) != 29500*time.Millisecond || lease.Round(10*time.Millisecond) != 33*time.Second {
		t.Errorf("with a deadline in 30 s the handler has %s and the lease %s", left, lease)
	}
}

// A handler that returns after its deadline without writing anything has
// failed; it did not respond with an empty 200.
func TestSilenceAfterTheDeadline(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		write  bool
		state  driver.State
		status int
	}{
		"silent":   {false, driver.StateUnknown, 0},
		"answered": {true, driver.StateCompleted, 200},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newFixture(t, wires[0])
			var told error
			h := lambdahttp.Middleware(w.guard, single, func(o *lambdahttp.Options) {
				o.ErrorHandler = func(_ http.ResponseWriter, _ *http.Request, err error) { told = err }
			})(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				if c.write {
					_, _ = rw.Write([]byte("late"))
				}
			}))
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			out := &plainWriter{header: http.Header{}}
			h.ServeHTTP(out, keyed(ctx))
			if got := w.store.record(t).State; got != c.state || out.status != c.status || errors.Is(told, context.DeadlineExceeded) == c.write {
				t.Errorf("%s: the record is %s, the status %d, the error %v", name, got, out.status, told)
			}
		})
	}
}
