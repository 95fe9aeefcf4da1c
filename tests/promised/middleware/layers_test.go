// SPDX-License-Identifier: Apache-2.0

package middleware

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-contrib/cors"
	"github.com/gin-contrib/gzip"
	"github.com/gin-contrib/requestid"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	chicors "github.com/go-chi/cors"
	"github.com/klauspost/compress/gzhttp"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

var update = flag.Bool("update", false, "write the table of layers in docs/http-events.md instead of comparing it")

// layers are common layers, each as a handler around another one.
var layers = []struct {
	name  string
	layer func(http.Handler) http.Handler
}{
	{"`http.TimeoutHandler`", func(h http.Handler) http.Handler { return http.TimeoutHandler(h, 20*time.Second, "") }},
	{"`gzhttp`", func(h http.Handler) http.Handler { return gzhttp.GzipHandler(h) }},
	{"chi `Compress`", newCompressor().Handler},
	{"chi `Recoverer`", middleware.Recoverer},
	{"chi `Timeout`", middleware.Timeout(20 * time.Second)},
	{"chi `RequestID`", middleware.RequestID},
	{"chi `NoCache`", middleware.NoCache},
	{"chi `SetHeader`", middleware.SetHeader("Content-Language", "en")},
	{"chi `cors`", chicors.Handler(origins)},
	{"gin `gzip`", inGin(gzip.Gzip(gzip.DefaultCompression))},
	{"gin `Recovery`", inGin(gin.Recovery())},
	{"gin `requestid`", inGin(requestid.New())},
	{"gin `cors`", inGin(cors.New(cors.Config{AllowOrigins: origins.AllowedOrigins, AllowMethods: origins.AllowedMethods}))},
	{"echo `Gzip`", inEcho(echomiddleware.Gzip())},
	{"echo `Recover`", inEcho(echomiddleware.Recover())},
	{"echo `ContextTimeout`", inEcho(echomiddleware.ContextTimeout(20 * time.Second))},
	{"echo `RequestID`", inEcho(echomiddleware.RequestID())},
	{"echo `CORS`", inEcho(echomiddleware.CORS())},
	{"echo `Secure`", inEcho(echomiddleware.Secure())},
	{"`ETag` of the body", tagged},
	{"`ETag` and `Last-Modified` of the resource", versioned},
	{"a trailer with a checksum", summed},
}

func inGin(layer gin.HandlerFunc) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		engine := gin.New()
		engine.Use(layer)
		engine.POST("/customers/:id/charges", gin.WrapH(h))
		return engine
	}
}

func inEcho(layer echo.MiddlewareFunc) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		e := echo.New()
		e.Use(layer)
		e.POST("/customers/:id/charges", echo.WrapHandler(h))
		return e
	}
}

// tagged sets the ETag of the body, which it holds until the handler has returned.
func tagged(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		held := httptest.NewRecorder()
		maps.Copy(held.Header(), w.Header())
		h.ServeHTTP(held, r)
		maps.Copy(w.Header(), held.Header())
		w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256(held.Body.Bytes())))
		w.WriteHeader(held.Code)
		_, _ = w.Write(held.Body.Bytes())
	})
}

// versioned sets what it knows of the resource before the handler is called.
func versioned(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"7"`)
		w.Header().Set("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
		h.ServeHTTP(w, r)
	})
}

// summed sends a checksum behind the body.
func summed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Checksum")
		h.ServeHTTP(w, r)
		w.Header().Set("X-Checksum", "42")
	})
}

// A replay is the first response, as a client decodes both, for each layer around the
// guard and inside it. The table of docs/http-events.md says what differs.
func TestLayers(t *testing.T) {
	t.Parallel()
	var results []string
	named := map[string][]string{} // layers by their results
	for _, l := range layers {
		quiet := func(o *idempotent.Options) { o.Logger = slog.New(slog.DiscardHandler) }
		around, inside := newFixture(t, quiet), newFixture(t, quiet)
		guardedBy := func(w *fixture) func(http.Handler) http.Handler { return lambdahttp.Middleware(w.guard, caller) }
		result := around.replay(l.name+" around", l.layer(guardedBy(around)(around.charge()))) + " | " +
			inside.replay(l.name+" inside", guardedBy(inside)(l.layer(inside.charge())))
		if named[result] == nil {
			results = append(results, result)
		}
		named[result] = append(named[result], l.name)
	}
	table := "| layer | around the guard | inside |\n|---|---|---|\n"
	for _, result := range results {
		table += fmt.Sprintf("| %s | %s |\n", strings.Join(named[result], ", "), result)
	}
	const page, begin, end = "../../../docs/http-events.md", "<!-- layers -->\n", "<!-- /layers -->"
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(data), begin)
	old, after, found := strings.Cut(rest, end)
	switch {
	case *update && found:
		err = os.WriteFile(page, []byte(before+begin+table+end+after), 0o600)
	case old != table:
		t.Errorf("the table of %s is not up to date; run this test with -update:\n%s", page, table)
	}
	if err != nil {
		t.Error(err)
	}
}

// replay sends a request to a handler, twice again with the same headers, and once without a
// coding that it accepts. It returns how the replays differ from the first response. A
// client can also read that its key was used.
func (w *fixture) replay(name string, h http.Handler) string {
	w.t.Helper()
	send, _ := reach(w.t, authenticated(h))
	all := []func(*http.Request){with("Accept-Encoding", "gzip"), with("Origin", origins.AllowedOrigins[0])}
	first := w.decoded(send(all...))
	var differs []string
	for range 2 {
		again := w.decoded(send(all...))
		if again["Idempotent-Replayed"] != "true" {
			w.t.Errorf("%s: not replayed: %.300v", name, again)
		}
		delete(again, "Idempotent-Replayed")
		for _, part := range slices.Sorted(maps.Keys(union(first, again))) {
			if first[part] != again[part] && !slices.Contains(differs, "`"+part+"`") {
				differs = append(differs, "`"+part+"`")
			}
		}
	}
	for _, part := range []string{"status", "body"} {
		if slices.Contains(differs, "`"+part+"`") {
			w.t.Errorf("%s: another %s than of %.300v", name, part, first)
		}
	}
	other := append(all, func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("{}")), 2 })
	if refused := w.decoded(send(other...)); refused["status"] != "422" || !strings.Contains(refused["body"], `"key-reused"`) {
		w.t.Errorf("%s: another request got %.300v", name, refused)
	}
	plain := send(with("Accept-Encoding", "identity"))
	if w.decoded(plain)["body"] != charged || first["body"] != charged || first["status"] != "201" || w.runs.Load() != 1 {
		w.t.Errorf("%s: got %.300v after %d runs", name, first, w.runs.Load())
	}
	if coding := plain.Header.Get("Content-Encoding"); coding != "" {
		return "the same, in " + coding + " for every client"
	}
	if len(differs) == 0 {
		return "the same"
	}
	return "the same but for " + strings.Join(differs, ", ")
}

// decoded returns the parts of a response as a client has them: the status, the body
// without its coding, headers and trailers, except those of one message.
func (w *fixture) decoded(a *http.Response) map[string]string {
	w.t.Helper()
	parts := map[string]string{"status": fmt.Sprint(a.StatusCode), "body": read(w.t, a)}
	_, _ = io.Copy(io.Discard, a.Body) // the trailers come behind it
	for name, values := range a.Header {
		parts[name] = strings.Join(values, ", ")
	}
	for name, values := range a.Trailer {
		parts["trailer "+name] = strings.Join(values, ", ")
	}
	for _, name := range []string{"Content-Length", "Date"} {
		delete(parts, name)
	}
	return parts
}

func union(a, b map[string]string) map[string]string {
	a = maps.Clone(a)
	maps.Copy(a, b)
	return a
}

// Two mounts of one guarded handler, whose own path is the same.

func chiByPrefix(h http.Handler) http.Handler {
	r := chi.NewRouter()
	r.Mount("/test", http.StripPrefix("/test", h))
	r.Mount("/live", http.StripPrefix("/live", h))
	return r
}

func ginByPrefix(h http.Handler) http.Handler {
	r := gin.New()
	for _, mount := range []string{"/test", "/live"} {
		r.Any(mount+"/*rest", gin.WrapH(http.StripPrefix(mount, h)))
	}
	return r
}

func echoRewritten(h http.Handler) http.Handler {
	e := echo.New()
	e.Pre(echomiddleware.Rewrite(map[string]string{"/test/*": "/$1", "/live/*": "/$1"}))
	e.Any("/*", echo.WrapHandler(h))
	return e
}

// HTTP-09: two mounts of one guarded handler never answer for each other, whatever a
// router makes of the path, and a form that a layer has read is not compared.
func TestMounts(t *testing.T) {
	t.Parallel()
	read := func(w http.ResponseWriter, r *http.Request) { _ = r.FormValue("amount") }
	for name, c := range map[string]struct {
		build func(guarded http.Handler) http.Handler
		other int // the status of the other mount
	}{
		"chi, routes": {func(h http.Handler) http.Handler {
			charges := chi.NewRouter()
			charges.Method("POST", "/charges", h)
			r := chi.NewRouter()
			r.Mount("/test", charges)
			r.Mount("/live", charges)
			return r
		}, 201},
		"chi, a prefix":   {chiByPrefix, 201},
		"gin, a prefix":   {ginByPrefix, 201},
		"echo, rewritten": {echoRewritten, 201},
		"gin, groups": {func(h http.Handler) http.Handler {
			r := gin.New()
			for _, mount := range []string{"/test", "/live"} {
				r.Group(mount).POST("/charges", gin.WrapH(h))
			}
			return r
		}, 201},
		"echo, groups": {func(h http.Handler) http.Handler {
			e := echo.New()
			for _, mount := range []string{"/test", "/live"} {
				e.Group(mount).POST("/charges", echo.WrapHandler(h))
			}
			return e
		}, 201},
		"chi, a form": {func(h http.Handler) http.Handler {
			r := chi.NewRouter()
			r.Use(func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { read(w, r); next.ServeHTTP(w, r) })
			})
			r.Method("POST", "/*", h)
			return r
		}, 411},
		"gin, a form": {func(h http.Handler) http.Handler {
			r := gin.New()
			r.Use(func(c *gin.Context) { _ = c.PostForm("amount") })
			r.POST("/*path", gin.WrapH(h))
			return r
		}, 411},
		"echo, a form": {func(h http.Handler) http.Handler {
			e := echo.New()
			e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error { _ = c.FormValue("amount"); return next(c) }
			})
			e.POST("/*", echo.WrapHandler(h))
			return e
		}, 411},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			guarded := lambdahttp.Middleware(w.guard, func(o *lambdahttp.Options) { o.Scope = lambdahttp.SingleTenant })(w.charge())
			server := httptest.NewServer(c.build(guarded))
			t.Cleanup(server.Close)
			first, runs := 201, int32(2)
			if c.other != 201 {
				first, runs = c.other, 0
			}
			for _, q := range []struct {
				path     string
				status   int
				replayed string
			}{{"/test/charges", first, ""}, {"/test/charges", first, map[bool]string{true: "true"}[first == 201]}, {"/live/charges", c.other, ""}} {
				r, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+q.path, struct{ *strings.Reader }{strings.NewReader("amount=1250")})
				if err != nil {
					t.Fatal(err)
				}
				r.Header = http.Header{"Idempotency-Key": {key}, "Content-Type": {"application/x-www-form-urlencoded"}}
				a, err := server.Client().Do(r)
				if err != nil {
					t.Fatal(err)
				}
				_ = a.Body.Close()
				if a.StatusCode != q.status || a.Header.Get("Idempotent-Replayed") != q.replayed {
					t.Errorf("%s: got %d %v, want %d, replayed %q", q.path, a.StatusCode, a.Header, q.status, q.replayed)
				}
			}
			if n := w.runs.Load(); n != runs {
				t.Errorf("%d runs, want %d", n, runs)
			}
		})
	}
}
