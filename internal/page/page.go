// SPDX-License-Identifier: Apache-2.0

// Package page serves the web pages of the repository: the playground and the
// console of the command line. It has what they share: the look,
// the drawing of a record, the check of each request, and the headers that each
// response needs.
//
// A page is an index.html with files beside it, which the browser loads from the
// same server. It has no inline script and no inline style, because the browser
// refuses them.
package page

import (
	"embed"
	"encoding/json"
	"io/fs"
	"net/http"
	"path"
)

// shared are style.css, which styles every page, and record.js, which draws a
// record from the JSON of package view.
//
//go:embed style.css record.js
var shared embed.FS

// Handler serves the files of a page, and style.css and record.js for all pages,
// at the root of its path. "/" is index.html. It answers GET and HEAD only.
func Handler(own fs.FS) http.Handler {
	return Secure(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "This path serves only GET.", http.StatusMethodNotAllowed)
			return
		}
		name := path.Clean("/" + r.URL.Path)[1:]
		if name == "" {
			name = "index.html"
		}
		data, err := fs.ReadFile(shared, name)
		if err != nil {
			data, err = fs.ReadFile(own, name)
		}
		kind, known := types[path.Ext(name)]
		if err != nil || !known {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", kind)
		w.Write(data)
	}))
}

// types are the media types of the files that a page can have.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// Reply answers a request of a page with JSON.
func Reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) // an error means that the browser is gone
}

// Secure sets the headers that keep a page and its data away from other pages and
// from caches: the browser loads nothing from elsewhere, runs no inline script,
// shows the page in no frame, and stores nothing.
func Secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		next.ServeHTTP(w, r)
	})
}

var headers = map[string]string{
	"Content-Security-Policy":      "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
	"Cache-Control":                "no-store",
	"X-Content-Type-Options":       "nosniff",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
}
