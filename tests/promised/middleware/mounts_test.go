// SPDX-License-Identifier: Apache-2.0

package middleware

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"

	"github.com/once-lambda/once/lambdahttp"
)

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
