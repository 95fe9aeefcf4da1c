// SPDX-License-Identifier: Apache-2.0

package page_test

import (
	"net/http"
	"net/http/httptest"
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
