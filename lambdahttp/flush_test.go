// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// stream is a handler's side of an exchange whose client takes part.
type stream struct {
	http.ResponseWriter
	t      *testing.T
	r      *http.Request
	client *client
}

// client is a client that reads each part of a response as it comes.
type client struct {
	read chan string

	mu     sync.Mutex
	passed string // what the guard has let through
}

// passing is the writer around the guard.
type passing struct {
	http.ResponseWriter
	client *client
}

func (p *passing) Write(b []byte) (int, error) {
	p.client.mu.Lock()
	p.client.passed += string(b)
	p.client.mu.Unlock()
	return p.ResponseWriter.Write(b)
}

func (p *passing) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (x *stream) put(part string) {
	if _, err := io.WriteString(x, part); err != nil {
		x.t.Error(err)
	}
}

func (x *stream) noStore() { lambdahttp.NoStore(x.r.Context(), "Roll the key.") }

// nothing checks that nothing has passed the guard.
func (x *stream) nothing() {
	x.client.mu.Lock()
	defer x.client.mu.Unlock()
	if x.client.passed != "" {
		x.t.Errorf("%q has passed the guard", x.client.passed)
	}
}

// held flushes a response that is stored.
func (x *stream) held() {
	if err := http.NewResponseController(x.ResponseWriter).Flush(); err != nil {
		x.t.Errorf("Flush: %v", err)
	}
	x.nothing()
}

// sent flushes, and returns when the client has read all that was written.
func (x *stream) sent(all string) {
	_ = http.NewResponseController(x.ResponseWriter).Flush() // lambdaurl's writer cannot, and needs no flush
	for got := ""; got != all; {
		if got += <-x.client.read; !strings.HasPrefix(all, got) {
			x.t.Errorf("the client has read %q, want %q", got, all)
			return
		}
	}
}

// HTTP-18: a response is stored although its handler flushes, and reaches the client with
// its outcome. After NoStore the client gets each part before the next one is written.
func TestHTTP18Flushed(t *testing.T) {
	t.Parallel()
	hint := &fromServer{409, "Roll the key.", nil}
	for name, c := range map[string]struct {
		h     func(*stream)
		first fromServer
		again *fromServer // nil: the same, marked as a replay
	}{
		"a flush": {func(x *stream) {
			x.put("one ")
			x.held()
			x.put("two")
			x.held()
		}, fromServer{200, "one two", map[string]string{"Idempotency-Status": ""}}, nil},
		"http.Flusher": {func(x *stream) {
			x.put("one")
			x.ResponseWriter.(http.Flusher).Flush()
			x.nothing()
		}, fromServer{200, "one", nil}, nil},
		"a flush before the first byte": {func(x *stream) {
			x.Header().Set("X-Kept", "1")
			x.held()
			x.Header().Set("X-Kept", "too late")
			x.WriteHeader(500) // superfluous
			x.put("one")
		}, fromServer{200, "one", map[string]string{"X-Kept": "1"}}, nil},
		"a flush, then Final": {func(x *stream) {
			x.put("one")
			x.held()
			lambdahttp.SetError(x.r.Context(), idempotent.Final("declined", "Declined."))
		}, fromServer{422, `"code":"declined"`, nil}, nil},
		"NoStore": {func(x *stream) {
			x.Header().Set("Content-Type", "text/event-stream")
			x.noStore()
			x.put("one ")
			x.sent("one ")
			x.Header().Set("X-Kept", "too late")
			x.put("two ")
			x.sent("two ")
			x.put("three")
		}, fromServer{200, "one two three", map[string]string{"Idempotency-Status": "not-stored", "Content-Type": "text/event-stream", "X-Kept": ""}}, hint},
		"NoStore, copies": {func(x *stream) {
			x.noStore()
			for _, part := range []string{"one ", "two "} {
				if _, err := x.ResponseWriter.(io.ReaderFrom).ReadFrom(strings.NewReader(part)); err != nil {
					t.Error(err)
				}
				x.sent(part)
			}
		}, fromServer{200, "one two ", notStored}, hint},
		"NoStore after a flush": {func(x *stream) {
			x.put("one ")
			x.held()
			x.noStore()
			x.put("two ")
			x.nothing()
			x.sent("one two ")
			x.put("three")
		}, fromServer{200, "one two three", notStored}, hint},
		"NoStore after the last flush": {func(x *stream) {
			x.put("one")
			x.held()
			x.noStore()
		}, fromServer{200, "one", notStored}, hint},
		"NoStore without a flush": {func(x *stream) {
			x.noStore()
			x.put("one")
			x.nothing()
		}, fromServer{200, "one", notStored}, hint},
	} {
		for _, f := range fronts {
			t.Run(name+"/"+f.name, func(t *testing.T) {
				t.Parallel()
				played{front: f, h: c.h, first: c.first, again: c.again}.test(t)
			})
		}
	}
}

// HTTP-18: the response of a reverse proxy is stored, whether or not its upstream declares a
// length, and is streamed after NoStore. The proxy flushes after each part if there is no
// length.
func TestHTTP18ReverseProxy(t *testing.T) {
	t.Parallel()
	parts := func(media string) func(*stream) {
		return func(x *stream) {
			x.Header().Set("Content-Type", media)
			x.put("one ")
			x.held()
			x.put("two")
		}
	}
	unknown := &fromServer{409, "outcome-unknown", nil}
	for name, c := range map[string]struct {
		upstream func(*stream)
		noStore  bool
		first    fromServer
		again    *fromServer
	}{
		"a length": {func(x *stream) { x.put("one") }, false, fromServer{200, "one", nil}, nil},
		"no length": {parts("application/json"), false,
			fromServer{200, "one two", map[string]string{"Content-Type": "application/json", "Idempotency-Status": ""}}, nil},
		"events": {parts("text/event-stream"), false, fromServer{200, "one two", map[string]string{"Content-Type": "text/event-stream"}}, nil},
		"it breaks off": {func(x *stream) {
			parts("application/json")(x)
			panic(http.ErrAbortHandler)
		}, false, fromServer{502, "", nil}, unknown},
		"it breaks off before the declared length": {func(x *stream) {
			x.Header().Set("Content-Length", "8")
			parts("application/json")(x)
		}, false, fromServer{502, "", nil}, unknown},
		"NoStore": {func(x *stream) {
			x.Header().Set("Content-Type", "text/event-stream")
			x.put("one ")
			x.sent("one ")
			x.put("two ")
			x.sent("two ")
		}, true, fromServer{200, "one two ", notStored}, &fromServer{409, "Roll the key.", nil}},
	} {
		for _, f := range fronts {
			t.Run(name+"/"+f.name, func(t *testing.T) {
				t.Parallel()
				behind := func(h http.Handler) http.Handler {
					server := httptest.NewUnstartedServer(h)
					server.Config.ErrorLog = discard
					server.Start()
					t.Cleanup(server.Close)
					upstream, _ := url.Parse(server.URL)
					proxy := proxyTo(upstream)
					proxy.ErrorLog = discard
					if !c.noStore {
						return proxy
					}
					proxy.ModifyResponse = nil // it would wait for the whole answer
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						lambdahttp.NoStore(r.Context(), "Roll the key.")
						proxy.ServeHTTP(w, r)
					})
				}
				played{front: f, behind: behind, h: c.upstream, first: c.first, again: c.again}.test(t)
			})
		}
	}
}

// Events that a handler flushes without NoStore reach the client at the end. That is logged
// once for each handler. Other flushes are not, because a reverse proxy always flushes.
func TestHeldEventsAreLogged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		media   string
		noStore bool
		lines   int
	}{
		{"text/event-stream", false, 1}, {"Text/Event-Stream; charset=utf-8", false, 1}, {"text/event-stream", true, 0},
		{"application/json", false, 0}, {"", false, 0},
	} {
		var log bytes.Buffer
		h := lambdahttp.Middleware(newGuard(t, logsTo(&log)), single)(
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", c.media)
				if c.noStore {
					lambdahttp.NoStore(r.Context(), "")
				}
				w.(http.Flusher).Flush()
				w.(http.Flusher).Flush()
			}))
		for _, key := range []string{keyA, keyB} {
			r := keyed(t.Context())
			r.Pattern = "POST /charges"
			r.Header.Set("Idempotency-Key", `"`+key+`"`)
			h.ServeHTTP(&plainWriter{header: http.Header{}}, r)
		}
		if got := strings.Count(log.String(), "NoStore"); got != c.lines || got > 0 && !strings.Contains(log.String(), `level=WARN`) ||
			got > 0 && !strings.Contains(log.String(), `operation="POST /charges"`) {
			t.Errorf("%q, NoStore %t: logged %d lines, want %d:\n%s", c.media, c.noStore, got, c.lines, &log)
		}
	}
}

// played is a request and its retry.
type played struct {
	front  front
	h      func(*stream)
	behind func(http.Handler) http.Handler // what is guarded instead; nil: h itself
	first  fromServer
	again  *fromServer // nil: first, marked as a replay
}

func (p played) test(t *testing.T) {
	t.Helper()
	w := newFixture(t, wires[0])
	var now *client
	h := http.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.runs++
		p.h(&stream{rw, t, r, now})
	}))
	if p.behind != nil {
		h = p.behind(h)
	}
	guarded := lambdahttp.Middleware(w.guard, single)(h)
	send := p.front.serve(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		guarded.ServeHTTP(&passing{rw, now}, r)
	}))
	request := func(want fromServer, replayed string) {
		now = &client{read: make(chan string, 100)}
		a := send(keyedPost(t, "http://api.example/charges", "text/plain", strings.NewReader("the body")))
		body := now.reads(t, a.Body)
		if a.StatusCode != want.status || body != want.body && (want.status < 400 || !strings.Contains(body, want.body)) {
			t.Errorf("got %d %q, want %d %q", a.StatusCode, body, want.status, want.body)
		}
		for name, value := range want.header {
			if got := a.Header.Get(name); got != value {
				t.Errorf("%s is %q, want %q", name, got, value)
			}
		}
		if got := a.Header.Get("Idempotent-Replayed"); got != replayed {
			t.Errorf("Idempotent-Replayed is %q, want %q", got, replayed)
		}
	}
	request(p.first, "")
	if p.again == nil {
		request(p.first, "true")
	} else {
		request(*p.again, "")
	}
	if w.runs != 1 {
		t.Errorf("%d runs", w.runs)
	}
}

// reads returns a response when it has ended.
func (c *client) reads(t *testing.T, body io.ReadCloser) (all string) {
	defer body.Close()
	for part := make([]byte, 100); ; {
		n, err := body.Read(part)
		if n > 0 {
			all += string(part[:n])
			c.read <- string(part[:n])
		}
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Error(err)
			return all
		}
	}
}
