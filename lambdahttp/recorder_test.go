package lambdahttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/lambdahttp"
)

var discard = log.New(io.Discard, "", 0)

// An unsupported control of the inner writer is reported, and nothing is lost.
func TestControlsOfAPlainWriter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, wires[0])
	h := lambdahttp.Middleware(w.guard, single)(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		if _, _, err := rw.(http.Hijacker).Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Hijack: %v", err)
		}
		if err := http.NewResponseController(rw).SetWriteDeadline(time.Time{}); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("SetWriteDeadline: %v", err)
		}
		_, _ = rw.Write([]byte("kept"))
	}))
	for _, replayed := range []string{"", "true"} {
		out := &plainWriter{header: http.Header{}}
		h.ServeHTTP(out, keyed(t.Context()))
		if out.status != 200 || string(out.body) != "kept" || out.sent.Get("Idempotent-Replayed") != replayed {
			t.Errorf("got %d %q %v", out.status, out.body, out.sent)
		}
	}
	// lambdaurl's writer cannot flush, but a Flush still starts streaming.
	w = newWorld(t, wires[0])
	h = lambdahttp.Middleware(w.guard, single)(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		if err := http.NewResponseController(rw).Flush(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Flush: %v", err)
		}
	}))
	out := &plainWriter{header: http.Header{}}
	h.ServeHTTP(out, keyed(t.Context()))
	if out.status != 200 || w.store.record(t).Encoding != driver.EncodingOmitted {
		t.Errorf("got %d, the record is %+v", out.status, w.store.record(t))
	}
}

// Connection deadlines are set on the server's own writer.
func TestConnectionDeadlines(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		c := http.NewResponseController(w)
		if err := errors.Join(c.SetWriteDeadline(time.Now().Add(time.Minute)), c.SetReadDeadline(time.Now().Add(time.Minute)), c.EnableFullDuplex()); err != nil {
			t.Error(err)
		}
	}, nil)
	if a, _ := s.do(""); a.StatusCode != 200 {
		t.Errorf("status %d", a.StatusCode)
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
	}, nil)
	for _, want := range []string{"103 </style.css>; rel=preload", ""} {
		got := ""
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			got += fmt.Sprint(code, " ", h.Get("Link"))
			return nil
		}})
		a, _ := s.send(s.request(ctx, http.NoBody))
		if got != want || a.StatusCode != 201 || a.Header.Get("Link") != "" {
			t.Errorf("informational %q, want %q; then %d %v", got, want, a.StatusCode, a.Header)
		}
	}
}

// Headers of an informational response are not in a response that replaces the
// handler's.
func TestInformationalThenFinal(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		lambdahttp.SetError(r.Context(), idempotent.Final("declined", "Declined."))
	}, nil)
	if a, _ := s.do(""); a.StatusCode != 422 || a.Header.Get("Link") != "" {
		t.Errorf("got %d %v", a.StatusCode, a.Header)
	}
}

// Trailers of both kinds reach the first client, buffered or streamed, and are
// not replayed.
func TestTrailers(t *testing.T) {
	t.Parallel()
	for _, streamed := range []bool{false, true} {
		s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h.Set("Trailer", "X-Checksum, X-Never")
			_, _ = w.Write([]byte("body"))
			if streamed {
				w.(http.Flusher).Flush()
			}
			h.Set("X-Checksum", "42")
			h.Set("X-Header", "too late")
			h.Set(http.TrailerPrefix+"X-More", "43")
		}, nil)
		a, got := s.do("")
		if got != "body" || a.Trailer.Get("X-Checksum") != "42" || a.Trailer.Get("X-More") != "43" || a.Header.Get("X-Header") != "" || a.Trailer.Get("X-Header") != "" {
			t.Errorf("streamed %t: got %q, headers %v, trailers %v", streamed, got, a.Header, a.Trailer)
		}
		if streamed {
			s.wantUnavailable("")
			continue
		}
		if a, got := s.do(""); got != "body" || len(a.Trailer) != 0 || a.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("the replay: %q, headers %v, trailers %v", got, a.Header, a.Trailer)
		}
	}
}

// A buffered response follows the rules of net/http.
func TestKeptResponsesFollowNetHTTP(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		h      http.HandlerFunc
		status int
		body   string
		header string // of X-Kept
	}{
		"nothing": {func(http.ResponseWriter, *http.Request) {}, 200, "", ""},
		"headers after the status are too late": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Kept", "before")
			w.WriteHeader(201)
			w.Header().Set("X-Kept", "after")
			_, _ = w.Write([]byte("x"))
		}, 201, "x", "before"},
		"the first status wins": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(202)
			w.WriteHeader(500)
		}, 202, "", ""},
		"no body with 204": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(204)
			if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrBodyNotAllowed) {
				t.Errorf("a body with 204: %v", err)
			}
		}, 204, "", ""},
		"no status": {func(w http.ResponseWriter, _ *http.Request) {
			if got := panics(func() { w.WriteHeader(99) }) + panics(func() { w.WriteHeader(1000) }); got != "invalid WriteHeader code 99invalid WriteHeader code 1000" {
				t.Errorf("impossible statuses: %q", got)
			}
			_, _ = w.Write([]byte("x"))
		}, 200, "x", ""},
	} {
		s := newSite(t, c.h, nil, func(o *lambdahttp.Options) { o.ReplayHeaders = []string{"X-Kept"} })
		for _, replayed := range []string{"", "true"} {
			a, got := s.do("")
			if a.StatusCode != c.status || got != c.body || a.Header.Get("X-Kept") != c.header || a.Header.Get("Idempotent-Replayed") != replayed {
				t.Errorf("%s: got %d %q %v, replayed %q", name, a.StatusCode, got, a.Header, replayed)
			}
		}
	}
}

// A guarded HEAD request gets headers and no body, first and replayed.
func TestGuardedHEAD(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Etag", `"1"`)
		_, _ = w.Write([]byte("body"))
	}, nil, func(o *lambdahttp.Options) { o.Profile.Methods = []string{"HEAD"} })
	for _, replayed := range []string{"", "true"} {
		r := s.request(t.Context(), http.NoBody)
		r.Method = "HEAD"
		if a, got := s.send(r); a.StatusCode != 200 || got != "" || a.Header.Get("Etag") != `"1"` || a.Header.Get("Idempotent-Replayed") != replayed {
			t.Errorf("got %d %q %v", a.StatusCode, got, a.Header)
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
	h := lambdahttp.Middleware(newGuard(t), single)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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

// The execution of an outer guard does not make a request of the inner
// middleware a guarded one.
func TestMiddlewareInsideAnExecution(t *testing.T) {
	t.Parallel()
	inner := lambdahttp.Middleware(newGuard(t), single)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush() }))
	key := idempotent.Key{Operation: "outer", Scope: idempotent.Global, ID: "x", Fingerprint: idempotent.FingerprintBytes(nil)}
	_, err := idempotent.Do(t.Context(), newGuard(t), key, func(ctx context.Context) (int, error) {
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
		w := newWorld(t, wires[0])
		guarded := lambdahttp.Middleware(w.guard, single, func(o *lambdahttp.Options) { o.MaxResponseBody = 50 })(h)
		for range 2 {
			out := &firstWrite{plainWriter: plainWriter{header: http.Header{}}}
			guarded.ServeHTTP(out, keyed(t.Context()))
			if out.explicit && out.status == 200 {
				t.Errorf("%s: the status was written before the body, so the server cannot detect the type", name)
			}
		}
	}
}

// firstWrite records whether the status was written before the body.
type firstWrite struct {
	plainWriter
	explicit bool
}

func (f *firstWrite) WriteHeader(status int) {
	f.explicit = true
	f.plainWriter.WriteHeader(status)
}
