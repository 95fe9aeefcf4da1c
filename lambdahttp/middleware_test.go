// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
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
	"github.com/aws/aws-lambda-go/lambdaurl"

	"github.com/once-lambda/once/idempotent"
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
	if a, err := s.client.Do(s.request(t.Context(), http.NoBody)); err == nil {
		a.Body.Close()
		t.Fatalf("the client got %d", a.StatusCode)
	}
	s.wantRecord(1, "unknown")
}

// What several requests share, of a layer around the middleware or of Profile.Render, stays
// as it is. A name in another spelling is the same header.
func TestSharedHeaders(t *testing.T) {
	t.Parallel()
	exposed, rendered := []string{"Idempotent-Replayed", "X-Outer"}, []string{"rendered"}
	s := newSite(t, func(http.ResponseWriter, *http.Request) {}, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Access-Control-Expose-Headers"] = exposed
			w.Header().Set("X-Shared", "around")
			next.ServeHTTP(w, r)
			w.Header()["X-Shared"][0] = "changed"
		})
	}, exposing, func(o *lambdahttp.Options) {
		o.Profile.Render = func(p lambdahttp.Problem) lambdahttp.Response {
			return lambdahttp.Response{Status: p.Status, Header: http.Header{"x-shared": rendered}}
		}
	})
	s.do("{}")
	for range 2 {
		if a, _ := s.do("{}"); strings.Join(a.Header.Values("Access-Control-Expose-Headers"), "|") != "X-Outer|Idempotent-Replayed" {
			t.Errorf("a replay has %v", a.Header)
		}
		if a, _ := s.do("another request"); strings.Join(a.Header.Values("X-Shared"), "|") != "rendered" {
			t.Errorf("a problem has %v", a.Header)
		}
	}
	if strings.Join(exposed, "|") != "Idempotent-Replayed|X-Outer" || rendered[0] != "rendered" {
		t.Errorf("shared headers became %q and %v", exposed, rendered)
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

// SetError has the same meaning with and without a key, and the last call wins. An inner
// operation that calls it fails the handler, and declares nothing else.
func TestSetError(t *testing.T) {
	t.Parallel()
	lambdahttp.SetError(t.Context(), errDown) // outside a request: no effect
	notExecuted := idempotent.NotExecuted(errDown)
	for name, c := range map[string]struct {
		status int // that the handler writes
		set    []error
		inner  bool
		got    int
		record string
		failed error
	}{
		"Final":                       {0, []error{idempotent.Final("declined", "Declined.")}, false, 422, "completed", nil},
		"NotExecuted, silent":         {0, []error{notExecuted}, false, 0, "retryable", errDown},
		"NotExecuted with a response": {429, []error{notExecuted}, false, 429, "retryable", nil},
		"an error with a response":    {502, []error{errDown}, false, 502, "unknown", nil},
		"canceled":                    {0, []error{errDown, nil}, false, 200, "completed", nil},
		"an inner NotExecuted":        {0, []error{notExecuted}, true, 0, "unknown", errDown},
		"an inner Final":              {0, []error{idempotent.Final("declined", "Declined.")}, true, 0, "unknown", idempotent.Final("declined", "Declined.")},
		"nothing inside":              {0, []error{nil}, true, 200, "completed", nil},
	} {
		for _, key := range []bool{true, false} {
			if c.inner && !key {
				continue
			}
			w := newFixture(t, wires[0])
			r := keyed(t.Context())
			if !key {
				r.Header.Del("Idempotency-Key")
			}
			out, failed := w.through(func(rw http.ResponseWriter, r *http.Request) {
				set := func(ctx context.Context) {
					for _, err := range c.set {
						lambdahttp.SetError(ctx, err)
					}
				}
				if rw.Header().Set("Content-Length", "1000"); c.status != 0 {
					rw.WriteHeader(c.status)
				}
				if c.inner {
					_ = w.inside(r.Context(), nil, set)
				} else {
					set(r.Context())
				}
			}, r, optional)
			want, record := c.got, c.record
			if !key {
				if record = ""; name == "canceled" {
					want = 0 // passed through: the server sets the default status
				}
			}
			replaced := c.got == 422
			if out.status != want || (failed == nil) != (c.failed == nil) || c.failed == errDown && !errors.Is(failed, errDown) || replaced && out.sent.Get("Content-Length") != "" {
				t.Errorf("key %t, %s: status %d %v, ErrorHandler got %v", key, name, out.status, out.sent, failed)
			}
			if c.inner {
				w.through(func(http.ResponseWriter, *http.Request) {}, r)
				if w.runs != 1 {
					t.Errorf("%s: the handler ran %d times, want once", name, w.runs)
				}
			} else {
				w.wantRecord(1, record)
			}
		}
	}
}

// Without an ErrorHandler an internal error gets a plain 500, and the guard's logger has
// the error.
func TestInternalError(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := lambdahttp.Middleware(newGuard(t, logsTo(&log)), func(o *lambdahttp.Options) {
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
		w.through(func(http.ResponseWriter, *http.Request) {}, r)
		if got := w.store.record(t).RequestID; got != c.want {
			t.Errorf("%q: the record has the request id %q, want %q", c.header, got, c.want)
		}
	}
}

// HTTP-21: a body that is too long is refused before any call of the store or the
// handler. Without a key it is not read, so it has no limit.
func TestHTTP21BodyTooLarge(t *testing.T) {
	t.Parallel()
	atMost := func(n int) func(*lambdahttp.Options) {
		return func(o *lambdahttp.Options) { optional(o); o.MaxRequestBody = n }
	}
	// A scope may read a body that is too long and ignore the error; the fingerprint then
	// refuses it.
	read := func(o *lambdahttp.Options) {
		o.Operation = func(r *lambdahttp.Request) string {
			_, first := r.Body()
			if _, second := r.Body(); (first == nil) != (second == nil) {
				t.Error("the second read differs from the first")
			}
			return "charge"
		}
	}
	inBody := func(o *lambdahttp.Options) { o.KeyFrom = lambdahttp.BodyField("/key") }
	for name, c := range map[string]struct {
		options []func(*lambdahttp.Options)
		around  int64 // the limit of a handler around the middleware
		keyless bool
		body    string
		status  int
	}{
		"long":                 {options: []func(*lambdahttp.Options){atMost(10)}, body: "01234567890", status: 413},
		"longest":              {options: []func(*lambdahttp.Options){atMost(10)}, body: "0123456789", status: 200},
		"without a key":        {options: []func(*lambdahttp.Options){atMost(10)}, keyless: true, body: "01234567890", status: 200},
		"limited around":       {around: 9, body: "0123456789", status: 413},
		"read before":          {options: []func(*lambdahttp.Options){atMost(4), read}, body: "0123456789", status: 413},
		"read, without a key":  {options: []func(*lambdahttp.Options){atMost(4), read}, keyless: true, body: "0123456789", status: 200},
		"a key in it":          {options: []func(*lambdahttp.Options){atMost(60), inBody}, keyless: true, body: `{"key":"` + keyA + `"}`, status: 200},
		"a key in a long body": {options: []func(*lambdahttp.Options){atMost(60), inBody}, keyless: true, body: `{"key":"` + keyA + `","more":"01234567890"}`, status: 413},
	} {
		for _, body := range []io.Reader{strings.NewReader(c.body), io.MultiReader(strings.NewReader(c.body))} { // announced, and chunked
			s := newSite(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }, func(next http.Handler) http.Handler {
				if c.around != 0 {
					return http.MaxBytesHandler(next, c.around)
				}
				return next
			}, c.options...)
			r := s.request(t.Context(), body)
			if c.keyless {
				r.Header.Del("Idempotency-Key")
			}
			a, got := s.send(r)
			if c.status == 200 && (a.StatusCode != 200 || got != c.body) {
				t.Errorf("%s: got %d %s", name, a.StatusCode, got)
			}
			if c.status == 413 && (a.StatusCode != 413 || a.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(got, `"code":"body-too-large"`) || s.runs+s.store.calls != 0) {
				t.Errorf("%s: got %d %s after %d runs and %d calls of the store, want 413", name, a.StatusCode, got, s.runs, s.store.calls)
			}
		}
	}
	// A body is not read if its Content-Length is too large.
	r, unread := keyed(t.Context()), strings.NewReader("01234567890")
	r.Body, r.ContentLength = io.NopCloser(unread), 11
	newFixture(t, wires[0]).through(func(http.ResponseWriter, *http.Request) {}, r, atMost(10))
	if unread.Len() != 11 {
		t.Errorf("%d bytes were read, want 0", 11-unread.Len())
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
func TestKeyInABrokenBody(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]io.Reader{"ends early": iotest.ErrReader(io.ErrUnexpectedEOF), "was read before": http.NoBody} {
		r := keyed(t.Context())
		r.Body, r.ContentLength = io.NopCloser(body), 5
		out := &plainWriter{header: http.Header{}}
		lambdahttp.Middleware(newGuard(t), single, bodyKey)(http.NotFoundHandler()).ServeHTTP(out, r)
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
		w.(http.Flusher).Flush()
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
		lambdahttp.NoStore(r.Context(), "")
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
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if out, _ := w.through(func(http.ResponseWriter, *http.Request) {}, keyed(ctx)); out.status != 503 || w.runs != 0 || w.store.calls != 0 {
		t.Errorf("status %d after %d runs and %d calls of the store", out.status, w.runs, w.store.calls)
	}
}

// A handler that returns after its deadline without writing anything has
// failed; it did not respond with an empty 200.
func TestSilenceAfterTheDeadline(t *testing.T) {
	t.Parallel()
	for text, c := range map[string]struct {
		record string
		status int
	}{"": {"unknown", 0}, "late": {"completed", 200}} {
		synctest.Test(t, func(t *testing.T) {
			w := newFixture(t, wires[0])
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			out, failed := w.through(func(rw http.ResponseWriter, r *http.Request) {
				if <-r.Context().Done(); text != "" {
					_, _ = io.WriteString(rw, text)
				}
			}, keyed(ctx))
			if w.wantRecord(1, c.record); out.status != c.status || errors.Is(failed, context.DeadlineExceeded) != (text == "") {
				t.Errorf("%q: the status %d, the error %v", text, out.status, failed)
			}
		})
	}
}

// A layer around Middleware can change a request, and two different requests must not
// become equal by that.

// front brings a client's request to a handler, and its response back.
type front struct {
	name string
	// lengths reports whether the handler is given the length of a body that the
	// client sends in parts.
	lengths bool
	serve   func(*testing.T, http.Handler) func(*http.Request) *http.Response
}

var fronts = []front{
	{"HTTP/1.1", false, func(t *testing.T, h http.Handler) func(*http.Request) *http.Response {
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		return toServer(t, server)
	}},
	{"HTTP/2", false, func(t *testing.T, h http.Handler) func(*http.Request) *http.Response {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor != 2 {
				t.Error("the request has not come by HTTP/2")
			}
			h.ServeHTTP(w, r)
		}))
		server.EnableHTTP2 = true
		server.StartTLS()
		t.Cleanup(server.Close)
		return toServer(t, server)
	}},
	{"function URL", true, func(t *testing.T, h http.Handler) func(*http.Request) *http.Response {
		invoke := lambdaurl.Wrap(h)
		return func(r *http.Request) *http.Response {
			event := &urlEvent{RawPath: r.URL.EscapedPath(), RawQueryString: r.URL.RawQuery, Headers: map[string]string{}}
			event.RequestContext.DomainName, event.RequestContext.HTTP.Method = r.Host, r.Method
			for name := range r.Header {
				event.Headers[name] = r.Header.Get(name)
			}
			if r.Body != nil {
				body, _ := io.ReadAll(r.Body)
				if event.Body = string(body); r.ContentLength <= 0 {
					event.Body, event.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
				}
			}
			a, err := invoke(t.Context(), event)
			if err != nil {
				t.Fatal(err)
			}
			header := http.Header{}
			for name, value := range a.Headers {
				header.Set(name, value)
			}
			return &http.Response{StatusCode: a.StatusCode, Header: header, Body: io.NopCloser(a.Body)}
		}
	}},
}

func toServer(t *testing.T, server *httptest.Server) func(*http.Request) *http.Response {
	return func(r *http.Request) *http.Response {
		at := strings.TrimPrefix(strings.TrimPrefix(server.URL, "http://"), "https://")
		r.URL.Scheme, _, _ = strings.Cut(server.URL, ":")
		r.URL.Host = at // r.Host names the host that the client asks
		a, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
}

// quiet leaves out the log line of an error, and lets all callers share their keys.
func quiet(o *lambdahttp.Options) {
	single(o)
	o.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) { http.Error(w, err.Error(), 500) }
}

// HTTP-21: requests are compared only if the whole body is known.
func TestBodyIsWhole(t *testing.T) {
	t.Parallel()
	const form, part = "application/x-www-form-urlencoded", "multipart/form-data; boundary=b"
	read := func(read func(*http.Request)) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { read(r); next.ServeHTTP(w, r) })
		}
	}
	inflate := func(length func(r *http.Request, n int64)) func(http.Handler) http.Handler {
		return read(func(r *http.Request) {
			z, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			body, _ := io.ReadAll(z)
			r.Body = io.NopCloser(bytes.NewReader(body))
			length(r, int64(len(body)))
		})
	}
	for _, row := range []struct {
		layer      string
		media      string
		around     func(http.Handler) http.Handler
		first      int // the status of the first request, if the length is known
		undeclared int // and if it is not
	}{
		{"none", form, read(func(*http.Request) {}), 200, 200},
		{"a limit", form, func(next http.Handler) http.Handler { return http.MaxBytesHandler(next, 1<<20) }, 200, 200},
		{"FormValue", form, read(func(r *http.Request) { _ = r.FormValue("amount") }), 500, 411},
		{"ParseMultipartForm", part, read(func(r *http.Request) { _ = r.ParseMultipartForm(1 << 20) }), 500, 411},
		{"it reads a byte", form, read(func(r *http.Request) { _, _ = r.Body.Read(make([]byte, 1)) }), 500, 0}, // 0: that cannot be seen
		{"it adds a byte", form, read(func(r *http.Request) {
			r.Body = io.NopCloser(io.MultiReader(r.Body, strings.NewReader("x")))
		}), 500, 200},
		{"it inflates and sets the length", "gzip", inflate(func(r *http.Request, n int64) { r.ContentLength = n }), 200, 200},
		{"it inflates and declares no length", "gzip", inflate(func(r *http.Request, _ int64) { r.ContentLength = -1 }), 200, 200},
		{"it inflates and leaves the length", "gzip", inflate(func(*http.Request, int64) {}), 500, 200},
	} {
		body := func(amount string) string {
			switch row.media {
			case part:
				return "--b\r\nContent-Disposition: form-data; name=\"amount\"\r\n\r\n" + amount + "\r\n--b--\r\n"
			case "gzip":
				return gzipped(gzip.BestSpeed, "amount="+amount)
			}
			return "amount=" + amount
		}
		for _, front := range fronts {
			for _, declared := range []bool{true, false} {
				want := row.first
				if !declared && !front.lengths {
					want = row.undeclared
				}
				if want == 0 {
					continue
				}
				w := newFixture(t, wires[0])
				send := front.serve(t, row.around(w.behind(quiet)))
				got := [3]int{}
				for i, amount := range []string{"1250", "1250", "9999"} {
					var reader io.Reader = strings.NewReader(body(amount))
					if !declared {
						reader = io.MultiReader(reader)
					}
					a := send(keyedPost(t, "http://api.example/charges", row.media, reader))
					got[i] = a.StatusCode
					if says, _ := io.ReadAll(a.Body); a.StatusCode == 500 && !strings.Contains(string(says), "let it set ContentLength") {
						t.Errorf("%s, layer %s: the error is %s", front.name, row.layer, says)
					}
				}
				wanted, runs := [3]int{want, want, want}, 0
				if want == 200 {
					wanted[2], runs = 422, 1
				}
				if got != wanted || w.runs != runs {
					t.Errorf("%s, declared %t, layer %s: got %v after %d runs, want %v after %d", front.name, declared, row.layer, got, w.runs, wanted, runs)
				}
			}
		}
	}
}

// behind returns a handler behind Middleware that counts its runs.
func (w *fixture) behind(optFns ...func(*lambdahttp.Options)) http.Handler {
	return lambdahttp.Middleware(w.guard, optFns...)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { w.runs++ }))
}

// keyedPost returns a client's request with keyA.
func keyedPost(t *testing.T, url, media string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", media)
	r.Header.Set("Idempotency-Key", `"`+keyA+`"`)
	return r
}

// An empty body is compared if its length is known to be zero.
func TestEmptyBody(t *testing.T) {
	t.Parallel()
	for _, front := range fronts {
		for name, body := range map[string]io.Reader{"none": nil, "declared": http.NoBody, "undeclared": io.MultiReader()} {
			want := 200
			if name == "undeclared" && !front.lengths {
				want = 411
			}
			guarded := lambdahttp.Middleware(newGuard(t), quiet)
			h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
			a := front.serve(t, guarded(h))(keyedPost(t, "http://api.example/charges", "text/plain", body))
			if problem, _ := io.ReadAll(a.Body); a.StatusCode != want || want == 411 && !strings.Contains(string(problem), `"code":"length-required"`) {
				t.Errorf("%s, body %s: got %d %s, want %d", front.name, name, a.StatusCode, problem, want)
			}
			if name != "none" {
				continue
			}
			a = front.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Body = io.NopCloser(strings.NewReader("x"))
				guarded(h).ServeHTTP(w, r)
			}))(keyedPost(t, "http://api.example/charges", "text/plain", nil))
			if a.StatusCode != 500 {
				t.Errorf("%s, a layer adds a body: got %d, want 500", front.name, a.StatusCode)
			}
		}
	}
	// A request that no server has made has no declared length, unless its reader has one.
	// The key can be in its body.
	for body, want := range map[string]int{`{"key":"` + keyA + `"}`: 200, "": 411} {
		out := httptest.NewRecorder()
		h := lambdahttp.Middleware(newGuard(t), quiet, func(o *lambdahttp.Options) { o.KeyFrom = lambdahttp.BodyField("/key") })
		h(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(out, keyedPost(t, "http://api.example/charges", "application/json", io.MultiReader(strings.NewReader(body))))
		if out.Code != want {
			t.Errorf("made by a client, %q: got %d %s, want %d", body, out.Code, out.Body, want)
		}
	}
}

// HTTP-09: the path of a request is the one that its client sent, and the host is that
// of the pattern, so that an endpoint never gets the answer of another one.
func TestEndpointIsWhatTheClientNamed(t *testing.T) {
	t.Parallel()
	mount := func(mux *http.ServeMux, prefix string, h http.Handler) {
		mux.Handle(prefix+"/", http.StripPrefix(prefix, h))
	}
	for _, row := range []struct {
		name  string
		mux   func(mux *http.ServeMux, guarded http.Handler)
		other string // an endpoint that is not http://test.example/test/charges/7
		want  int    // its status: 422, or 200 if the path belongs to the key
	}{
		{"the same", func(mux *http.ServeMux, h http.Handler) { mux.Handle("POST /test/charges/{id}", h) }, "http://live.example:81/test/charges/%37?", 200},
		{"a trailing slash, the route unknown", func(mux *http.ServeMux, h http.Handler) { mux.Handle("POST /test/charges/{rest...}", h) }, "http://test.example/test/charges/7/", 200},
		{"a trailing slash, the route known", func(mux *http.ServeMux, h http.Handler) { // as another router names it
			mux.Handle("POST /test/charges/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Pattern = "POST /test/charges/{id}"
				h.ServeHTTP(w, r)
			}))
		}, "http://test.example/test/charges/7/", 422},
		{"prefixes", func(mux *http.ServeMux, h http.Handler) { mount(mux, "/test", h); mount(mux, "/live", h) }, "http://test.example/live/charges/7", 200},
		{"prefixes around a route", func(mux *http.ServeMux, h http.Handler) {
			inner := http.NewServeMux()
			inner.Handle("POST /charges/{id}", h)
			mount(mux, "/test", inner)
			mount(mux, "/live", inner)
		}, "http://test.example/live/charges/7", 422},
		{"hosts", func(mux *http.ServeMux, h http.Handler) {
			mux.Handle("POST test.example/test/charges/{id}", h)
			mux.Handle("POST live.example/test/charges/{id}", h)
		}, "http://live.example/test/charges/7", 422},
		{"hosts of prefixes", func(mux *http.ServeMux, h http.Handler) {
			mux.Handle("test.example/test/", h)
			mux.Handle("live.example/test/", h)
		}, "http://live.example/test/charges/7", 200},
	} {
		for _, front := range fronts {
			w := newFixture(t, wires[0])
			mux := http.NewServeMux()
			row.mux(mux, w.behind(quiet))
			send := front.serve(t, mux)
			const first = "http://test.example/test/charges/7"
			for i, c := range []struct {
				url      string
				status   int
				replayed bool
			}{{first, 200, false}, {first, 200, true}, {row.other, row.want, row.name == "the same"}} {
				a := send(keyedPost(t, c.url, "text/plain", strings.NewReader("x")))
				if _ = a.Body.Close(); a.StatusCode != c.status || (a.Header.Get("Idempotent-Replayed") != "") != c.replayed {
					t.Errorf("%s, %s: request %d got %d %v, want %d, replayed %t", front.name, row.name, i, a.StatusCode, a.Header, c.status, c.replayed)
				}
			}
		}
	}
}

// A proxy sends the whole URL. It is the same path.
func TestAbsoluteForm(t *testing.T) {
	t.Parallel()
	w := newFixture(t, wires[0])
	mux := http.NewServeMux()
	mux.Handle("/test/", http.StripPrefix("/test", w.behind(quiet)))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	for i, target := range []string{"/test/charges", "http://api.example/test/charges", "/test/charges?", "http://api.example/test/refunds"} {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: api.example\r\nIdempotency-Key: \"%s\"\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx", target, keyA)
		a, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if replayed := a.Header.Get("Idempotent-Replayed") != ""; a.StatusCode != 200 || replayed != (i == 1 || i == 2) {
			t.Errorf("%s: got %d, replayed %t", target, a.StatusCode, replayed)
		}
		_ = c.Close()
	}
}
