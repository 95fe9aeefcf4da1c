// SPDX-License-Identifier: Apache-2.0

package page_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/once-lambda/once/internal/page"
)

var own = fstest.MapFS{
	"index.html": {Data: []byte("<!doctype html>the page")},
	"page.js":    {Data: []byte("the script")},
	"style.css":  {Data: []byte("not the shared style")},
	"secret.txt": {Data: []byte("not part of the page")},
}

// A page has its own files and the shared ones. Each response, also one that
// refuses, has all headers.
func TestHandler(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method, path string
		status       int
		kind, says   string
	}{
		{"GET", "/", 200, "text/html; charset=utf-8", "the page"},
		{"GET", "/page.js", 200, "text/javascript; charset=utf-8", "the script"},
		{"GET", "/style.css", 200, "text/css; charset=utf-8", "prefers-color-scheme"},
		{"GET", "/record.js", 200, "text/javascript; charset=utf-8", "export class RecordView"},
		{"GET", "/secret.txt", 404, "", ""},
		{"GET", "/../page.go", 404, "", ""},
		{"GET", "/none.js", 404, "", ""},
		{"POST", "/", 405, "", ""},
	} {
		w := httptest.NewRecorder()
		page.Handler(own).ServeHTTP(w, httptest.NewRequest(c.method, "http://127.0.0.1"+c.path, nil))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) || c.kind != "" && w.Header().Get("Content-Type") != c.kind {
			t.Errorf("%s %s: got %d %s %.60s", c.method, c.path, w.Code, w.Header().Get("Content-Type"), w.Body)
		}
		wantHeaders(t, w.Header())
	}
}

func TestSecure(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	page.Secure(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", "http://127.0.0.1/", nil))
	wantHeaders(t, w.Header())
}

// What a page of another origin sends is in package kit, and goes to every route of
// the listeners. These requests pass, or differ by one thing from one that does.
func TestGuard(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method, path, host, origin, site string
		status                           int
	}{
		{"POST", "/api", "127.0.0.1:8080", "", "", 200}, // curl
		{"POST", "/api", "127.0.0.1:8080", "http://127.0.0.1:8080", "same-origin", 200},
		{"POST", "/api", "localhost:8080", "http://localhost:8080", "", 200},
		{"POST", "/api", "localhost:8080", "http://127.0.0.1:8080", "", 403},
		{"GET", "/api", "127.0.0.1:8080", "", "none", 200}, // the address was entered
		{"GET", "/api", "127.0.0.1", "", "none", 421},
		{"GET", "/", "127.0.0.1:8080", "", "cross-site", 200}, // a link
		{"HEAD", "/", "127.0.0.1:8080", "", "cross-site", 200},
		{"POST", "/", "127.0.0.1:8080", "", "cross-site", 403},
		{"GET", "/", "127.0.0.1:8080", "https://site.example", "cross-site", 403},
		{"GET", "/api", "127.0.0.1:8080", "", "cross-site", 403},
		{"POST", "/api", "port-80", "http://port-80", "same-origin", 200}, // browsers leave the port out
		{"POST", "/api", "port-80:80", "http://port-80", "", 200},
	} {
		r := httptest.NewRequest(c.method, c.path, nil)
		r.Host = c.host
		r.Header.Set("Origin", c.origin)
		r.Header.Set("Sec-Fetch-Site", c.site)
		w := httptest.NewRecorder()
		page.Guard(page.Secure(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), "127.0.0.1:8080", "localhost:8080", "port-80:80").ServeHTTP(w, r)
		passed := w.Header().Get("Content-Security-Policy") != ""
		if w.Code != c.status || passed != (c.status == 200) || !passed && !strings.Contains(w.Body.String(), "http://127.0.0.1:8080") {
			t.Errorf("%+v: got %d %s", c, w.Code, w.Body)
		}
	}
}

func wantHeaders(t *testing.T, got http.Header) {
	t.Helper()
	for name, want := range map[string]string{
		"Content-Security-Policy":      "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
		"Cache-Control":                "no-store",
		"X-Content-Type-Options":       "nosniff",
		"Referrer-Policy":              "no-referrer",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
	} {
		if got.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, got.Get(name), want)
		}
	}
}

// The page explains each reason of a record.
func TestReasons(t *testing.T) {
	t.Parallel()
	states, err := os.ReadFile("../../idempotent/driver/state.go")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("record.js")
	if err != nil {
		t.Fatal(err)
	}
	codes := regexp.MustCompile(`(?m)^\tReason\w+ +Reason = "(\w+)"`).FindAllSubmatch(states, -1)
	if len(codes) < 19 {
		t.Errorf("only %d reasons were found", len(codes))
	}
	for _, c := range codes {
		if !regexp.MustCompile(`\b` + string(c[1]) + `: "[A-Z]`).Match(script) {
			t.Errorf("record.js does not explain the reason %s", c[1])
		}
	}
}
