// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/httpform"
	"github.com/once-lambda/once/lambdahttp"
)

var discard = log.New(io.Discard, "", 0)

// An unsupported control of the inner writer is reported, and nothing is lost. lambdaurl's
// writer cannot flush, but a Flush after NoStore still starts streaming.
func TestControlsOfAPlainWriter(t *testing.T) {
	t.Parallel()
	w := newFixture(t, wires[0])
	for _, replayed := range []string{"", "true"} {
		out, _ := w.through(func(rw http.ResponseWriter, _ *http.Request) {
			if _, _, err := rw.(http.Hijacker).Hijack(); !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("Hijack: %v", err)
			}
			if err := http.NewResponseController(rw).SetWriteDeadline(time.Time{}); !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("SetWriteDeadline: %v", err)
			}
			_, _ = rw.Write([]byte("kept"))
		}, keyed(t.Context()))
		if out.status != 200 || string(out.body) != "kept" || out.sent.Get("Idempotent-Replayed") != replayed {
			t.Errorf("got %d %q %v", out.status, out.body, out.sent)
		}
	}
	var out *plainWriter
	handler := func(rw http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(rw).Flush(); err != nil {
			t.Errorf("Flush of a response that is stored: %v", err)
		}
		lambdahttp.NoStore(r.Context(), "")
		if err := http.NewResponseController(rw).Flush(); !errors.Is(err, http.ErrNotSupported) || out.status != 200 {
			t.Errorf("Flush: %v, and the status %d was sent", err, out.status)
		}
	}
	out = &plainWriter{header: http.Header{}}
	lambdahttp.Middleware(newGuard(t), single)(http.HandlerFunc(handler)).ServeHTTP(out, keyed(t.Context()))
	if out.status != 200 || out.sent.Get("Idempotency-Status") != "not-stored" {
		t.Errorf("got %d %v", out.status, out.sent)
	}
}

// Informational responses reach the first client with their headers, and are
// not replayed.
func TestInformationalResponses(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		w.WriteHeader(201)
	}, func(next http.Handler) http.Handler {
		exchange := 0
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			exchange++
			w.Header().Set("X-Around", fmt.Sprint(exchange))
			next.ServeHTTP(w, r)
		})
	})
	for i, want := range []string{"103 </style.css>; rel=preload", ""} {
		got := ""
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			got += fmt.Sprint(code, " ", h.Get("Link"))
			return nil
		}})
		a, _ := s.send(s.request(ctx, http.NoBody))
		if got != want || a.StatusCode != 201 || a.Header.Get("Link") != "" || a.Header.Get("X-Around") != fmt.Sprint(i+1) {
			t.Errorf("informational %q, want %q; then %d %v", got, want, a.StatusCode, a.Header)
		}
	}
}

// Trailers of both kinds reach the first client, whether the response is buffered, flushed
// or streamed, and are not replayed. net/http sends those that were not announced if the
// handler flushes.
func TestTrailers(t *testing.T) {
	t.Parallel()
	flush := func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }
	for name, c := range map[string]struct {
		announced string
		flush     http.HandlerFunc
		stored    bool
	}{
		"buffered":               {"X-Never, x-checksum", func(http.ResponseWriter, *http.Request) {}, true},
		"flushed":                {"X-Never, x-checksum", flush, true},
		"flushed, not announced": {"", flush, true},
		"streamed": {"X-Never, x-checksum", func(w http.ResponseWriter, r *http.Request) {
			lambdahttp.NoStore(r.Context(), "")
			flush(w, r)
		}, false},
	} {
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			if c.announced != "" {
				h.Set("Trailer", c.announced)
			}
			_, _ = w.Write([]byte("body"))
			c.flush(w, r)
			h.Set("X-Checksum", "42")
			h.Set("X-Header", "too late")
			h.Set(http.TrailerPrefix+"X-More", "43")
		}, nil)
		a, got := s.do("")
		if got != "body" || (a.Trailer.Get("X-Checksum") == "42") != (c.announced != "") || a.Trailer.Get("X-More") != "43" || a.Header.Get("X-Header") != "" || a.Trailer.Get("X-Header") != "" {
			t.Errorf("%s: got %q, headers %v, trailers %v", name, got, a.Header, a.Trailer)
		}
		a, got = s.do("")
		if stored := a.StatusCode == 200 && got == "body" && len(a.Trailer) == 0 && a.Header.Get("Idempotent-Replayed") == "true"; stored != c.stored || s.runs != 1 {
			t.Errorf("%s: the retry got %d %q, headers %v, trailers %v, after %d runs", name, a.StatusCode, got, a.Header, a.Trailer, s.runs)
		}
	}
}

// A writer gets the trailers after the handler, and no other header.
func TestTrailersOfAPlainWriter(t *testing.T) {
	t.Parallel()
	out, _ := newFixture(t, wires[0]).through(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Trailer", "X-Checksum, X-Never")
		rw.WriteHeader(201)
		rw.Header().Set("X-Checksum", "42")
		rw.Header().Set("X-Late", "1")
	}, keyed(t.Context()))
	if len(out.header) != 2 || out.header.Get("X-Checksum") != "42" {
		t.Errorf("got the headers %v", out.header)
	}
}

// fromServer is what a client gets. The body of a problem contains body.
type fromServer struct {
	status int
	body   string
	header map[string]string
}

// FM55, HTTP-18, HTTP-24: a buffered response follows the rules of net/http, and is replayed.
// One that is streamed cannot change.
func TestServed(t *testing.T) {
	t.Parallel()
	stream := func(w http.ResponseWriter, r *http.Request) {
		lambdahttp.NoStore(r.Context(), "Roll the key.")
		w.(http.Flusher).Flush()
	}
	streamed5xx := func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500); stream(w, r) }
	bodiless := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrBodyNotAllowed) {
				t.Errorf("a body with %d: %v", status, err)
			}
		}
	}
	declined := idempotent.Final("declined", "Declined.")
	kept := func(value string) map[string]string { return map[string]string{"X-Kept": value} }
	for name, c := range map[string]struct {
		options func(*lambdahttp.Options)
		method  string // "": POST
		h       http.HandlerFunc
		first   fromServer
		again   *fromServer // what a retry gets; nil: the same, marked as a replay
		record  string
	}{
		"nothing": {h: func(http.ResponseWriter, *http.Request) {}, first: fromServer{200, "", nil}, record: "completed"},
		"headers after the status are too late": {h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Kept", "before")
			w.WriteHeader(201)
			w.Header().Set("X-Kept", "after")
			_, _ = w.Write([]byte("x"))
		}, first: fromServer{201, "x", kept("before")}, record: "completed"},
		"the first status wins": {h: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(202)
			w.WriteHeader(500)
		}, first: fromServer{202, "", nil}, record: "completed"},
		"the last status": {h: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(999) },
			first: fromServer{999, "", nil}, again: &fromServer{409, "outcome-unknown", nil}, record: "unknown"},
		"no body with 204": {h: bodiless(204), first: fromServer{204, "", nil}, record: "completed"},
		"no body with 304": {h: bodiless(304), first: fromServer{304, "", nil}, record: "completed"},
		"a name in another case": {h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["x-kept"] = []string{"one"}
			w.WriteHeader(201)
		}, first: fromServer{201, "", kept("one")}, record: "completed"},
		"no status": {h: func(w http.ResponseWriter, _ *http.Request) {
			if got := panics(func() { w.WriteHeader(99) }) + panics(func() { w.WriteHeader(1000) }); got != "invalid WriteHeader code 99invalid WriteHeader code 1000" {
				t.Errorf("impossible statuses: %q", got)
			}
			_, _ = w.Write([]byte("x"))
		}, first: fromServer{200, "x", nil}, record: "completed"},
		"the body of the request": {h: func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) },
			first: fromServer{200, "the body", nil}, record: "completed"},
		"deadlines of the server's connection": {h: func(w http.ResponseWriter, _ *http.Request) {
			c, soon := http.NewResponseController(w), time.Now().Add(time.Minute)
			if err := errors.Join(c.SetWriteDeadline(soon), c.SetReadDeadline(soon), c.EnableFullDuplex()); err != nil {
				t.Error(err)
			}
		}, first: fromServer{200, "", nil}, record: "completed"},
		"HEAD": {method: "HEAD", options: func(o *lambdahttp.Options) { o.Profile.Methods = []string{"HEAD"} }, h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Kept", "1")
			_, _ = w.Write([]byte("body"))
		}, first: fromServer{200, "", kept("1")}, record: "completed"},
		"headers of an informational response, then Final": {h: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			lambdahttp.SetError(r.Context(), declined)
		}, first: fromServer{422, `"code":"declined"`, map[string]string{"Link": ""}}, record: "completed"},
		"an error after a success": {h: func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(201)
			lambdahttp.SetError(r.Context(), errDown)
		}, first: fromServer{201, "", nil}, again: &fromServer{409, "outcome-unknown", nil}, record: "unknown"},
		"streamed, then Final": {h: func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte("streamed"))
			stream(w, r)
			lambdahttp.SetError(r.Context(), declined)
		}, first: fromServer{200, "streamed", nil}, again: &fromServer{422, `"code":"declined"`, nil}, record: "completed"},
		"a streamed 5xx, FollowRecovery": {h: streamed5xx, options: serverErrors(lambdahttp.FollowRecovery),
			first: fromServer{500, "", map[string]string{"Idempotency-Status": ""}}, again: &fromServer{409, "outcome-unknown", nil}, record: "unknown"},
		"a streamed 5xx, ReleaseServerErrors": {h: streamed5xx, options: serverErrors(lambdahttp.ReleaseServerErrors),
			first: fromServer{500, "", map[string]string{"Idempotency-Status": ""}}, again: &fromServer{500, "", nil}, record: "retryable"},
		"a streamed 5xx, StoreServerErrors": {h: streamed5xx, options: serverErrors(lambdahttp.StoreServerErrors),
			first: fromServer{500, "", notStored}, again: &fromServer{409, "Roll the key.", nil}, record: "completed"},
	} {
		s := newSite(t, c.h, nil, optionally(c.options))
		send := func(want fromServer, replayed string) {
			r := s.request(t.Context(), strings.NewReader("the body"))
			r.Method = cmp.Or(c.method, "POST")
			a, got := s.send(r)
			if a.StatusCode != want.status || got != want.body && (want.status < 400 || !strings.Contains(got, want.body)) {
				t.Errorf("%s: got %d %q, want %d %q", name, a.StatusCode, got, want.status, want.body)
			}
			if got := a.Header.Get("Idempotent-Replayed"); got != replayed && replayed != "any" {
				t.Errorf("%s: Idempotent-Replayed is %q", name, got)
			}
			for header, value := range want.header {
				if got := a.Header.Get(header); got != value {
					t.Errorf("%s: %s is %q, want %q", name, header, got, value)
				}
			}
		}
		send(c.first, "")
		s.wantRecord(1, c.record)
		if c.again != nil {
			send(*c.again, "any")
		} else {
			send(c.first, "true")
		}
	}
}

var notStored = map[string]string{"Idempotency-Status": "not-stored"}

// An informational response leaves the headers around the handler as they are, also for the
// response to an error.
func TestMiddleware_ErrorAfterInformational(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		lambdahttp.SetError(r.Context(), errDown)
	}, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Around", "1")
			next.ServeHTTP(w, r)
		})
	})
	if a, _ := s.do("{}"); a.StatusCode != http.StatusInternalServerError || a.Header.Get("X-Around") != "1" || a.Header.Get("Link") != "" {
		t.Errorf("got %d %v", a.StatusCode, a.Header)
	}
}

// optionally returns options that may be nil.
func optionally(f func(*lambdahttp.Options)) func(*lambdahttp.Options) {
	return func(o *lambdahttp.Options) {
		if f != nil {
			f(o)
		}
	}
}

// fast is a writer with optional interfaces.
type fast struct {
	plainWriter
	copied, flushed int
}

func (f *fast) ReadFrom(src io.Reader) (int64, error) {
	f.copied++
	return io.Copy(struct{ io.Writer }{&f.plainWriter}, src)
}

func (f *fast) Flush() { f.flushed++ }

// A request that passes through can use all optional interfaces of its writer,
// and its body is not read.
func TestPassingThroughIsTransparent(t *testing.T) {
	t.Parallel()
	body := io.NopCloser(strings.NewReader("body"))
	h := lambdahttp.Middleware(newGuard(t), single, optional)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != body {
			t.Error("the body was replaced")
		}
		if _, ok := idempotent.FromContext(r.Context()); ok {
			t.Error("a request without a key has an execution")
		}
		w.Header().Set("X-A", "1")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(202)
		w.(http.Flusher).Flush()
		_, _ = io.WriteString(w, "a")
		_, _ = io.Copy(w, io.LimitReader(strings.NewReader("bcd"), 3))
	}))
	r := keyed(t.Context())
	r.Header.Del("Idempotency-Key")
	r.Body = body
	out := &fast{plainWriter: plainWriter{header: http.Header{}}}
	h.ServeHTTP(out, r)
	if string(out.body) != "abcd" || out.copied != 1 || out.flushed != 1 || out.sent.Get("X-A") != "1" || out.sent.Get("Idempotency-Status") != "" {
		t.Errorf("got %q %v, %d copies, %d flushes", out.body, out.sent, out.copied, out.flushed)
	}
}

// tracked is a writer of a framework, which shows whether it was written to.
type tracked struct{ plainWriter }

func (w *tracked) Status() int   { return w.status }
func (w *tracked) Written() bool { return len(w.body) > 0 }

// A handler that writes to the writer around the middleware, as one of gin does with its
// own context, is a programming error: its client has its response, which is not known,
// and so not stored.
func TestBypassed(t *testing.T) {
	t.Parallel()
	type writer interface {
		http.ResponseWriter
		reply() reply
	}
	plain := func() writer { return &plainWriter{header: http.Header{"X-Outer": {"1"}}} }
	follows := func() writer { return &tracked{plainWriter{header: http.Header{"X-Outer": {"1"}}}} }
	begun := func() writer { w := follows(); w.WriteHeader(202); _, _ = w.Write([]byte("begun ")); return w }
	for name, c := range map[string]struct {
		around   func() writer
		h        func(around, own http.ResponseWriter, r *http.Request)
		body     string // that the client gets
		bypassed bool
	}{
		"headers": {plain, func(around, _ http.ResponseWriter, _ *http.Request) {
			around.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(around, "{}")
		}, "{}", true},
		"a header is gone": {plain, func(around, _ http.ResponseWriter, _ *http.Request) { around.Header().Del("X-Outer") }, "", true},
		"a status":         {follows, func(around, _ http.ResponseWriter, _ *http.Request) { around.WriteHeader(204) }, "", true},
		"a body": {func() writer { w := follows(); w.WriteHeader(202); return w },
			func(around, _ http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(around, "x") }, "x", true},
		"an error": {plain, func(around, _ http.ResponseWriter, r *http.Request) {
			around.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(around, "later")
			lambdahttp.SetError(r.Context(), idempotent.NotExecuted(errDown))
		}, "later", true},
		"both": {plain, func(around, own http.ResponseWriter, _ *http.Request) {
			around.Header().Set("X-Outer", "2")
			_, _ = io.WriteString(own, "own")
		}, "own", false},
		"neither":         {follows, func(_, _ http.ResponseWriter, _ *http.Request) {}, "", false},
		"begun around it": {begun, func(_, _ http.ResponseWriter, _ *http.Request) {}, "begun ", false},
	} {
		for _, key := range []bool{true, false} {
			var log bytes.Buffer
			w := newFixtureWith(t, wires[0], logsTo(&log))
			r, out := keyed(t.Context()), c.around()
			if !key {
				r.Header.Del("Idempotency-Key")
			}
			lambdahttp.Middleware(w.guard, single, optional, func(o *lambdahttp.Options) {
				o.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {
					if key || name != "an error" {
						t.Errorf("%s: the error handler was called", name)
					}
				}
			})(http.HandlerFunc(func(own http.ResponseWriter, r *http.Request) { w.runs++; c.h(out, own, r) })).ServeHTTP(out, r)
			if got := out.reply().body; got != c.body {
				t.Errorf("%s, key %t: the client got %q, want %q", name, key, got, c.body)
			}
			says := strings.Contains(log.String(), `level=ERROR msg="lambdahttp: a handler's response was not stored" operation="POST (no route)" error="lambdahttp: the handler did not write`)
			if says != (key && c.bypassed) {
				t.Errorf("%s, key %t: the log is %s", name, key, &log)
			}
			w.wantRecord(1, map[bool]string{true: map[bool]string{true: "unknown", false: "completed"}[c.bypassed]}[key])
		}
	}
}

// The execution of an outer guard does not make a request of the inner
// middleware a guarded one.
func TestMiddlewareInsideAnExecution(t *testing.T) {
	t.Parallel()
	inner := lambdahttp.Middleware(newGuard(t), single)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush() }))
	_, err := idempotent.Do(t.Context(), newGuard(t), operationKey("outer"), func(ctx context.Context) (int, error) {
		r := keyed(ctx)
		r.Method = "GET"
		out := &fast{plainWriter: plainWriter{header: http.Header{}}}
		inner.ServeHTTP(out, r)
		if out.flushed != 1 || out.sent.Get("Idempotency-Status") != "" {
			t.Errorf("the response was buffered: %v", out.sent)
		}
		return 0, nil
	})
	if err != nil {
		t.Error(err)
	}
}

// The server still detects the type of a body from its first part, if the
// handler wrote no status.
func TestContentTypeIsLeftToTheServer(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]http.HandlerFunc{
		"buffered": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>x") },
		"too long": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<html>"+strings.Repeat("x", 100))
		},
	} {
		w := newFixture(t, wires[0])
		guarded := lambdahttp.Middleware(w.guard, single, func(o *lambdahttp.Options) { o.MaxResponseBody = 50 })(h)
		for range 2 {
			out := &firstWrite{plainWriter: plainWriter{header: http.Header{}}}
			guarded.ServeHTTP(out, keyed(t.Context()))
			if out.explicit && out.status == 200 || out.empty {
				t.Errorf("%s: the status was written before the body, or a part of it is empty (%t), so the server cannot detect the type", name, out.empty)
			}
		}
	}
}

// firstWrite records whether the status was written before the body, and whether a part
// of the body was empty.
type firstWrite struct {
	plainWriter
	explicit, empty bool
}

func (f *firstWrite) Write(p []byte) (int, error) {
	f.empty = f.empty || len(p) == 0
	return f.plainWriter.Write(p)
}

func (f *firstWrite) WriteHeader(status int) {
	f.explicit = true
	f.plainWriter.WriteHeader(status)
}

// HTTP-18: the limit is in bytes of the body: a response with one byte more is not
// stored.
func TestHTTP18LongResponses(t *testing.T) {
	t.Parallel()
	limit := func(o *lambdahttp.Options) { o.MaxResponseBody = 10 }
	for name, put := range map[string]func(w io.Writer, s string) (int64, error){
		"Write":       func(w io.Writer, s string) (int64, error) { n, err := w.Write([]byte(s)); return int64(n), err },
		"WriteString": func(w io.Writer, s string) (int64, error) { n, err := io.WriteString(w, s); return int64(n), err },
		"ReadFrom":    func(w io.Writer, s string) (int64, error) { return w.(io.ReaderFrom).ReadFrom(strings.NewReader(s)) },
		"in pieces": func(w io.Writer, s string) (n int64, err error) {
			for _, c := range []byte(s) {
				m, err := w.Write([]byte{c})
				if n += int64(m); err != nil {
					return n, err
				}
			}
			return n, nil
		},
		"both": func(w io.Writer, s string) (int64, error) {
			n, err := io.WriteString(w, s[:5])
			if err != nil {
				return int64(n), err
			}
			m, err := w.(io.ReaderFrom).ReadFrom(io.MultiReader(strings.NewReader(s[5:8]), strings.NewReader(s[8:])))
			return int64(n) + m, err
		},
	} {
		for _, size := range []int{10, 11, 100_000} {
			body := strings.Repeat("x", size)
			s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(201)
				if n, err := put(w, body); n != int64(size) || err != nil {
					t.Errorf("%s: wrote %d of %d: %v", name, n, size, err)
				}
			}, nil, limit)
			a, got := s.do("")
			if a.StatusCode != 201 || got != body || (a.Header.Get("Idempotency-Status") == "not-stored") != (size > 10) {
				t.Errorf("%s: got %d with %d bytes %v", name, a.StatusCode, len(got), a.Header)
			}
			if size > 10 {
				s.wantUnavailable("")
				s.wantReason("longer than Options.MaxResponseBody")
				continue
			}
			if a, got := s.do(""); a.StatusCode != 201 || got != body || a.Header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("%s: the retry got %d %q", name, a.StatusCode, got)
			}
		}
	}
}

// HTTP-18: a handler that hijacks the connection writes its response itself. A response
// that has been started is sent before. Afterwards the connection is the handler's,
// whatever error it reports.
func TestHTTP18Hijacked(t *testing.T) {
	t.Parallel()
	hijacker := func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) { return w.(http.Hijacker).Hijack() }
	controller := func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
		return http.NewResponseController(w).Hijack()
	}
	const byHand = "HTTP/1.1 299 By Hand\r\nContent-Length: 4\r\nConnection: close\r\n\r\nhand"
	for name, c := range map[string]struct {
		code   int // 0: the handler writes no status
		before string
		flush  bool
		hijack func(http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error)
		writes string
		fails  error
		status int
		body   string
	}{
		"http.Hijacker":           {hijack: hijacker, writes: byHand, status: 299, body: "hand"},
		"http.ResponseController": {hijack: controller, writes: byHand, status: 299, body: "hand"},
		"after a write":           {before: "half", hijack: hijacker, writes: "half", status: 200, body: "halfhalf"},
		"after a flush":           {before: "half", flush: true, hijack: hijacker, writes: "half", status: 200, body: "halfhalf"},
		"after a 500":             {code: 500, before: "half", hijack: hijacker, writes: "half", status: 500, body: "halfhalf"},
		"with an error":           {hijack: hijacker, writes: byHand, fails: errDown, status: 299, body: "hand"},
	} {
		over := make(chan struct{}, 2) // the client cannot see that the exchange has ended
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			if c.before != "" {
				w.Header().Set("Content-Length", "8")
				if c.code != 0 {
					w.WriteHeader(c.code)
				}
				_, _ = io.WriteString(w, c.before)
			}
			if c.flush {
				w.(http.Flusher).Flush()
			}
			conn, rw, err := c.hijack(w)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			if c.fails == nil {
				if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrHijacked) {
					t.Errorf("%s: a write after the hijack: %v", name, err)
				}
				if _, err := w.(io.ReaderFrom).ReadFrom(strings.NewReader("x")); !errors.Is(err, http.ErrHijacked) {
					t.Errorf("%s: a copy after the hijack: %v", name, err)
				}
			}
			_, _ = rw.WriteString(c.writes)
			_ = rw.Flush()
			lambdahttp.SetError(r.Context(), c.fails)
		}, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(w, r)
				over <- struct{}{}
			})
		}, func(o *lambdahttp.Options) {
			o.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { t.Errorf("%s: the error handler was called", name) }
		})
		if a, got := s.do(""); a.StatusCode != c.status || got != c.body {
			t.Errorf("%s: got %d %q", name, a.StatusCode, got)
		}
		if <-over; c.fails == nil {
			s.wantUnavailable("")
			s.wantReason("took the connection over")
		}
	}
}

// HTTP-29: the headers of this package are set before a response is sent, and are
// appended to the exposed headers that were set around the handler.
func TestHTTP29MarksOfStreamsAndPassingRequests(t *testing.T) {
	t.Parallel()
	around := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Access-Control-Expose-Headers", "X-Outer")
			next.ServeHTTP(w, r)
		})
	}
	stream := func(w http.ResponseWriter, r *http.Request) {
		lambdahttp.NoStore(r.Context(), "")
		w.(http.Flusher).Flush()
	}
	for name, c := range map[string]struct {
		method         string
		key            bool
		h              http.HandlerFunc
		status, expose string
	}{
		"streamed": {"POST", true, stream,
			"not-stored", "X-Outer|Idempotency-Status"},
		"streamed 5xx": {"POST", true, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500); stream(w, r) },
			"not-stored", "X-Outer|Idempotency-Status"},
		"streamed, exposing": {"POST", true, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Access-Control-Expose-Headers", "X-Inner")
			stream(w, r)
		}, "not-stored", "X-Inner, Idempotency-Status"},
		"buffered":          {"POST", true, func(http.ResponseWriter, *http.Request) {}, "created", "X-Outer|Idempotency-Status"},
		"passing, a status": {"GET", true, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, "ignored", "X-Outer|Idempotency-Status"},
		"passing, hints": {"GET", true, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusEarlyHints); w.WriteHeader(204) },
			"ignored", "X-Outer|Idempotency-Status"},
		"passing, a body": {"GET", true, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("x")) }, "ignored", "X-Outer|Idempotency-Status"},
		"passing, a copy": {"GET", true, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader("x"))
		}, "ignored", "X-Outer|Idempotency-Status"},
		"passing, a flush":      {"GET", true, func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, "ignored", "X-Outer|Idempotency-Status"},
		"passing, nothing":      {"GET", true, func(http.ResponseWriter, *http.Request) {}, "ignored", "X-Outer|Idempotency-Status"},
		"passing without a key": {"POST", false, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) }, "", "X-Outer"},
	} {
		s := newSite(t, c.h, around, telling, exposing)
		r := s.request(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
			if got := h.Get("Idempotency-Status"); got != "" {
				t.Errorf("%s: the hints have Idempotency-Status %q", name, got)
			}
			return nil
		}}), http.NoBody)
		if r.Method = c.method; !c.key {
			r.Header.Del("Idempotency-Key")
		}
		a, _ := s.send(r)
		if got := a.Header.Values("Idempotency-Status"); strings.Join(got, "|") != c.status {
			t.Errorf("%s: Idempotency-Status %q, want %q", name, got, c.status)
		}
		if got := strings.Join(a.Header.Values("Access-Control-Expose-Headers"), "|"); got != c.expose {
			t.Errorf("%s: exposed %q, want %q", name, got, c.expose)
		}
	}
	// A header of this package that was set around the handler is replaced.
	s := newSite(t, func(http.ResponseWriter, *http.Request) {}, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Idempotency-Status", "outer")
			next.ServeHTTP(w, r)
		})
	}, telling)
	if a, _ := s.do(""); strings.Join(a.Header.Values("Idempotency-Status"), "|") != "created" {
		t.Errorf("Idempotency-Status is %q", a.Header.Values("Idempotency-Status"))
	}
	// A replay has its own list, and what the handler added to that around it.
	s = newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Access-Control-Expose-Headers", "X-Inner")
	}, around)
	for range 2 {
		a, _ := s.do("")
		if got := strings.Join(a.Header.Values("Access-Control-Expose-Headers"), "|"); got != "X-Outer|X-Inner" {
			t.Errorf("exposed %q, replayed %q", got, a.Header.Get("Idempotent-Replayed"))
		}
	}
	s = newSite(t, func(http.ResponseWriter, *http.Request) {}, around, exposing)
	s.do("")
	a, _ := s.do("")
	if got := strings.Join(a.Header.Values("Access-Control-Expose-Headers"), "|"); got != "X-Outer|Idempotent-Replayed" {
		t.Errorf("the replay exposes %q", got)
	}
}

// broken is a writer whose first write fails.
type broken struct {
	plainWriter
	failed bool
}

func (b *broken) Write(p []byte) (int, error) {
	if b.failed {
		return b.plainWriter.Write(p)
	}
	b.failed = true
	return 0, errDown
}

// The handler of a stream gets an error when its client is gone; the outcome is
// stored.
func TestWritesToAClientThatIsGone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		write    func(http.ResponseWriter, *http.Request) error
		encoding string
	}{
		"too long": {func(w http.ResponseWriter, _ *http.Request) error { _, err := w.Write(make([]byte, 20)); return err }, driver.EncodingOmitted},
		"hijack": {func(w http.ResponseWriter, _ *http.Request) error {
			_, _, err := http.NewResponseController(w).Hijack()
			return err
		}, driver.EncodingOmitted},
		"copy": {func(w http.ResponseWriter, _ *http.Request) error {
			_, err := io.Copy(w, strings.NewReader("01234567890123456789"))
			return err
		}, driver.EncodingOmitted},
		"stream": {func(w http.ResponseWriter, r *http.Request) error {
			lambdahttp.NoStore(r.Context(), "")
			return http.NewResponseController(w).Flush()
		}, httpform.Encoding},
		"buffered": {func(http.ResponseWriter, *http.Request) error { return errDown }, httpform.Encoding},
	} {
		w := newFixture(t, wires[0])
		h := lambdahttp.Middleware(w.guard, single, func(o *lambdahttp.Options) { o.MaxResponseBody = 10 })(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(rw, "first")
			if err := c.write(rw, r); !errors.Is(err, errDown) {
				t.Errorf("%s: the handler got the error %v", name, err)
			}
		}))
		h.ServeHTTP(&broken{plainWriter: plainWriter{header: http.Header{}}}, keyed(t.Context()))
		if rec := w.store.record(t); rec.State != driver.StateCompleted || rec.Encoding != c.encoding {
			t.Errorf("%s: the record is %s, %s", name, rec.State, rec.Encoding)
		}
	}
}
