package lambdahttp_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/lambdahttp"
)

// A response that the handler flushes is sent at once, and its record has no
// result to replay.
func TestHTTP18Flushed(t *testing.T) {
	t.Parallel()
	for name, flush := range map[string]func(http.ResponseWriter) error{
		"http.Flusher":            func(w http.ResponseWriter) error { w.(http.Flusher).Flush(); return nil },
		"http.ResponseController": func(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() },
	} {
		read := make(chan struct{})
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("first"))
			if err := flush(w); err != nil {
				t.Error(err)
			}
			w.Header().Set("X-Late", "too late")
			<-read // the client has the first part while the handler runs
			_, _ = io.WriteString(w, " second")
			e, _ := idempotent.FromContext(r.Context())
			_ = e.SetRef("/charges/ch_1")
		}, nil)
		a, err := s.client.Do(s.request(t.Context(), http.NoBody))
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		first := make([]byte, 5)
		if _, err := io.ReadFull(a.Body, first); err != nil || string(first) != "first" {
			t.Errorf("%s: read %q %v before the end", name, first, err)
		}
		close(read)
		rest, err := io.ReadAll(a.Body)
		if a.StatusCode != 200 || string(rest) != " second" || err != nil || a.Header.Get("Idempotency-Status") != "not-stored" ||
			a.Header.Get("Content-Type") != "text/event-stream" || a.Header.Get("X-Late") != "" {
			t.Errorf("%s: got %d %q %v %v", name, a.StatusCode, rest, err, a.Header)
		}
		s.wantUnavailable("")
		if got := s.store.record(t).Ref; got != "/charges/ch_1" {
			t.Errorf("%s: the record has the reference %q", name, got)
		}
		told := false
		for _, e := range s.seen.Events() {
			told = told || e.Kind == event.CompletionFailed && e.Err != nil && strings.Contains(e.Err.Error(), "streamed")
		}
		if !told {
			t.Errorf("%s: no event has the reason why the result was not stored: %v", name, s.seen.Events())
		}
	}
}

// The limit is in bytes of the body: a response with one byte more is not
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
				continue
			}
			if a, got := s.do(""); a.StatusCode != 201 || got != body || a.Header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("%s: the retry got %d %q", name, a.StatusCode, got)
			}
		}
	}
}

// A streamed response of 5xx follows the rules for 5xx. It is marked as not
// stored only if it would have been stored otherwise.
func TestHTTP24StreamedServerErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy lambdahttp.ServerErrors
		state  driver.State
		mark   string
	}{
		{lambdahttp.FollowRecovery, driver.StateUnknown, ""},
		{lambdahttp.ReleaseServerErrors, driver.StateRetryable, ""},
		{lambdahttp.StoreServerErrors, driver.StateCompleted, "not-stored"},
	} {
		s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(502)
			w.(http.Flusher).Flush()
		}, nil, serverErrors(c.policy))
		a, _ := s.do("")
		if rec := s.store.record(t); a.StatusCode != 502 || rec.State != c.state || a.Header.Get("Idempotency-Status") != c.mark {
			t.Errorf("policy %d: got %d %v, the record is %s", c.policy, a.StatusCode, a.Header, rec.State)
		}
	}
}

// A handler that hijacks the connection writes its response itself.
func TestHTTP18Hijacked(t *testing.T) {
	t.Parallel()
	for name, hijack := range map[string]func(http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error){
		"http.Hijacker": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) { return w.(http.Hijacker).Hijack() },
		"http.ResponseController": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
			return http.NewResponseController(w).Hijack()
		},
	} {
		ended, over := untilOver()
		s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
			c, rw, err := hijack(w)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrHijacked) {
				t.Errorf("%s: a write after the hijack: %v", name, err)
			}
			if _, err := w.(io.ReaderFrom).ReadFrom(strings.NewReader("x")); !errors.Is(err, http.ErrHijacked) {
				t.Errorf("%s: a copy after the hijack: %v", name, err)
			}
			fmt.Fprint(rw, "HTTP/1.1 299 By Hand\r\nContent-Length: 4\r\nConnection: close\r\n\r\nhand")
			_ = rw.Flush()
		}, ended)
		a, got := s.do("")
		if a.StatusCode != 299 || got != "hand" {
			t.Errorf("%s: got %d %q", name, a.StatusCode, got)
		}
		<-over
		s.wantUnavailable("")
	}
}

// untilOver returns a wrapper for the middleware, and a channel that receives
// when an exchange has ended there. The client of a hijacked connection cannot
// see that.
func untilOver() (func(http.Handler) http.Handler, <-chan struct{}) {
	over := make(chan struct{}, 2)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r)
			over <- struct{}{}
		})
	}, over
}

// A response that has been started is sent before the connection is hijacked.
func TestHijackAfterWrite(t *testing.T) {
	t.Parallel()
	ended, over := untilOver()
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "8")
		_, _ = w.Write([]byte("half"))
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = rw.WriteString("half")
		_ = rw.Flush()
	}, ended)
	if a, got := s.do(""); a.StatusCode != 200 || got != "halfhalf" {
		t.Errorf("got %d %q", a.StatusCode, got)
	}
	<-over
	s.wantUnavailable("")
}

// A response that is being sent cannot change; retries get the outcome that was
// stored instead.
func TestStreamedAndFinal(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("streamed"))
		w.(http.Flusher).Flush()
		lambdahttp.SetError(r.Context(), idempotent.Final("declined", "Declined."))
	}, nil)
	if a, got := s.do(""); a.StatusCode != 200 || got != "streamed" {
		t.Errorf("got %d %q", a.StatusCode, got)
	}
	if a, got := s.do(""); a.StatusCode != 422 || !strings.Contains(got, `"code":"declined"`) {
		t.Errorf("the retry got %d %q", a.StatusCode, got)
	}
}

// The headers of this package are set before a response is sent, and are
// appended to the exposed headers that were set around the handler.
func TestHTTP29MarksOfStreamsAndPassingRequests(t *testing.T) {
	t.Parallel()
	around := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Access-Control-Expose-Headers", "X-Outer")
			next.ServeHTTP(w, r)
		})
	}
	for name, c := range map[string]struct {
		method         string
		key            bool
		h              http.HandlerFunc
		status, expose string
	}{
		"streamed": {"POST", true, func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() },
			"not-stored", "X-Outer|Idempotency-Status"},
		"streamed 5xx": {"POST", true, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500); w.(http.Flusher).Flush() },
			"not-stored", "X-Outer|Idempotency-Status"},
		"streamed, exposing": {"POST", true, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Access-Control-Expose-Headers", "X-Inner")
			w.(http.Flusher).Flush()
		}, "not-stored", "X-Inner, Idempotency-Status"},
		"buffered":              {"POST", true, func(http.ResponseWriter, *http.Request) {}, "created", "X-Outer|Idempotency-Status"},
		"passing, a status":     {"GET", true, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, "ignored", "X-Outer|Idempotency-Status"},
		"passing, a body":       {"GET", true, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("x")) }, "ignored", "X-Outer|Idempotency-Status"},
		"passing, a copy":       {"GET", true, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, strings.NewReader("x")) }, "ignored", "X-Outer|Idempotency-Status"},
		"passing, a flush":      {"GET", true, func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, "ignored", "X-Outer|Idempotency-Status"},
		"passing, nothing":      {"GET", true, func(http.ResponseWriter, *http.Request) {}, "ignored", "X-Outer|Idempotency-Status"},
		"passing without a key": {"POST", false, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) }, "", "X-Outer"},
	} {
		s := newSite(t, c.h, around, func(o *lambdahttp.Options) { o.Profile.StatusHeader, o.ExposeHeaders = true, true })
		r := s.request(t.Context(), http.NoBody)
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
	// A replay has its own list.
	s := newSite(t, func(http.ResponseWriter, *http.Request) {}, around, func(o *lambdahttp.Options) { o.ExposeHeaders = true })
	s.do("")
	a, _ := s.do("")
	if got := strings.Join(a.Header.Values("Access-Control-Expose-Headers"), "|"); got != "X-Outer|Idempotent-Replayed" {
		t.Errorf("the replay exposes %q", got)
	}
}

// A secret that is streamed is not stored either, but the hint is.
func TestFM55StreamedSecret(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		lambdahttp.NoStore(r.Context(), "Roll the key.")
		_, _ = io.WriteString(w, "sk_live_1")
		w.(http.Flusher).Flush()
	}, nil)
	if a, got := s.do(""); a.StatusCode != 200 || got != "sk_live_1" || a.Header.Get("Idempotency-Status") != "not-stored" {
		t.Errorf("got %d %q %v", a.StatusCode, got, a.Header)
	}
	if a, got := s.do(""); a.StatusCode != 409 || !strings.Contains(got, "Roll the key.") || s.runs != 1 {
		t.Errorf("the retry got %d %q after %d runs", a.StatusCode, got, s.runs)
	}
}

// broken is the writer of a closed connection.
type broken struct{ plainWriter }

func (*broken) Write([]byte) (int, error) { return 0, errDown }

// The handler of a stream gets an error when its client is gone; the outcome is
// stored.
func TestWritesToAClientThatIsGone(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(http.ResponseWriter) error{
		"too long": func(w http.ResponseWriter) error { _, err := w.Write(make([]byte, 20)); return err },
		"flush":    func(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() },
		"hijack":   func(w http.ResponseWriter) error { _, _, err := http.NewResponseController(w).Hijack(); return err },
		"copy": func(w http.ResponseWriter) error {
			_, err := io.Copy(w, strings.NewReader("01234567890123456789"))
			return err
		},
		"buffered": func(http.ResponseWriter) error { return errDown },
	} {
		w := newWorld(t, wires[0])
		h := lambdahttp.Middleware(w.guard, single, func(o *lambdahttp.Options) { o.MaxResponseBody = 10 })(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(rw, "first")
			if err := write(rw); !errors.Is(err, errDown) {
				t.Errorf("%s: the handler got the error %v", name, err)
			}
		}))
		h.ServeHTTP(&broken{plainWriter{header: http.Header{}}}, keyed(t.Context()))
		if rec := w.store.record(t); rec.State != driver.StateCompleted || (rec.Encoding == driver.EncodingOmitted) != (name != "buffered") {
			t.Errorf("%s: the record is %s, %s", name, rec.State, rec.Encoding)
		}
	}
}
