// SPDX-License-Identifier: Apache-2.0

package middleware

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	"github.com/once-lambda/once/lambdahttp"
)

// chains are the layers around the guard, and those between it and the handler.
var chains = map[string]struct {
	build   func(guarded func(http.Handler) http.Handler, h http.Handler) http.Handler
	coding  string // of a response to a client that accepts gzip
	streams bool   // a flush reaches the client; http.TimeoutHandler sends all at the end
}{
	"net/http": {netHTTPChain, "gzip", false},
	"chi": {func(guarded func(http.Handler) http.Handler, h http.Handler) http.Handler {
		return chiChain(guarded, h, 100, discard)
	}, "gzip", true},
	"gin": {func(guarded func(http.Handler) http.Handler, h http.Handler) http.Handler {
		inner, outer := gin.New(), gin.New()
		inner.POST("/customers/:id/charges", gin.WrapH(h))
		outer.POST("/customers/:id/charges", gin.WrapH(guarded(inner)))
		return authenticated(outer)
	}, "", true},
	"echo": {func(guarded func(http.Handler) http.Handler, h http.Handler) http.Handler {
		inner, outer := echo.New(), echo.New()
		inner.POST("/customers/:id/charges", echo.WrapHandler(h))
		outer.POST("/customers/:id/charges", echo.WrapHandler(guarded(inner)))
		return authenticated(outer)
	}, "", true},
}

// reach serves h, and returns a function that sends a request to it.
func reach(t *testing.T, h http.Handler) (send func(...func(*http.Request)) *http.Response, address string) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = discard
	server.Start()
	t.Cleanup(server.Close)
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	t.Cleanup(client.CloseIdleConnections)
	return func(mods ...func(*http.Request)) *http.Response {
		r := post(mods...).WithContext(t.Context())
		r.RequestURI = ""
		r.URL.Scheme, r.URL.Host = "http", server.Listener.Addr().String()
		a, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { a.Body.Close() })
		return a
	}, server.URL
}

// inParts is fixture.charge, which flushes and so declares no length.
func (w *fixture) inParts() http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		whole := httptest.NewRecorder()
		w.charge().ServeHTTP(whole, r)
		for name, values := range whole.Header() {
			rw.Header()[name] = values
		}
		rw.WriteHeader(whole.Code)
		for _, part := range bytes.SplitAfter(whole.Body.Bytes(), []byte(", ")) {
			_, _ = rw.Write(part)
			rw.(http.Flusher).Flush()
		}
	})
}

// A response that its handler flushes is stored, and replayed to each client in a coding
// that it accepts. So is that of a reverse proxy to an upstream that declares no length.
func TestFlushed(t *testing.T) {
	t.Parallel()
	for name, chain := range chains {
		for kind, handler := range map[string]func(*fixture) http.Handler{
			"a handler": (*fixture).inParts,
			"a proxy": func(w *fixture) http.Handler {
				_, address := reach(t, w.inParts())
				upstream, err := url.Parse(address)
				if err != nil {
					t.Fatal(err)
				}
				return httputil.NewSingleHostReverseProxy(upstream)
			},
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				w := newFixture(t)
				send, _ := reach(t, chain.build(lambdahttp.Middleware(w.guard, caller), handler(w)))
				w.want(send(with("Accept-Encoding", "gzip")), chain.coding, "")
				w.want(send(with("Accept-Encoding", "gzip")), chain.coding, "true")
				w.want(send(), "", "true")
			})
		}
	}
}

// After NoStore the client has each part before the handler writes the next one, if each
// layer passes a flush on.
func TestStreamed(t *testing.T) {
	t.Parallel()
	const hint = "Read the events at /charges/ch_1/events."
	for name, chain := range chains {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, read := newFixture(t), make(chan struct{})
			stream := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				w.runs.Add(1)
				lambdahttp.NoStore(r.Context(), hint)
				rw.Header().Set("Content-Type", "text/event-stream")
				for _, part := range []string{"data: 1\n\n", "data: 2\n\n"} {
					_, _ = io.WriteString(rw, part)
					rw.(http.Flusher).Flush()
					if chain.streams {
						<-read
					}
				}
			})
			send, _ := reach(t, chain.build(lambdahttp.Middleware(w.guard, caller), stream))
			a := send()
			for _, want := range []string{"data: 1\n\n", "data: 2\n\n"} {
				part := make([]byte, len(want))
				if _, err := io.ReadFull(a.Body, part); err != nil || string(part) != want {
					t.Fatalf("read %q %v, want %q", part, err, want)
				}
				if chain.streams {
					read <- struct{}{}
				}
			}
			if rest := text(t, a); rest != "" || a.StatusCode != 200 || a.Header.Get("Idempotency-Status") != "not-stored" {
				t.Errorf("got %d %v, and %q at the end", a.StatusCode, a.Header, rest)
			}
			if a := send(); a.StatusCode != 409 || !strings.Contains(text(t, a), hint) || w.runs.Load() != 1 {
				t.Errorf("the retry got %d after %d runs", a.StatusCode, w.runs.Load())
			}
		})
	}
}
