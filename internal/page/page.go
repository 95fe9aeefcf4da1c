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
	"slices"
	"strings"
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

// Guard refuses the requests that a page of another site can make a browser send to
// this machine. It belongs around everything that listens. hosts are the addresses
// of the listener, as HOST:PORT; the messages have the first one.
//
//   - A request has to name one of hosts. A name of DNS that leads to this machine
//     does not, even though the browser sees one origin.
//   - A request that a page makes has to be of that page's own origin. Only "/" can
//     be opened by a link on another page: it has no data, and changes nothing.
//
// Programs that are not browsers send neither Origin nor Sec-Fetch-Site, and pass.
func Guard(next http.Handler, hosts ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		named := func(host string) bool { return written(host) == written(r.Host) }
		switch {
		case !slices.ContainsFunc(hosts, named):
			http.Error(w, "The request names another host, as a page of another site could. Use http://"+hosts[0]+".", http.StatusMisdirectedRequest)
		case !ofOwnPage(r):
			http.Error(w, "The request comes from a page of another origin. Open http://"+hosts[0]+"/ and use that page, or enter the address yourself.", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// written returns host as browsers write it: without the port of http.
func written(host string) string { return strings.TrimSuffix(host, ":80") }

// ofOwnPage reports whether a request comes from a page of the same origin, or from
// none. Not every browser sends Sec-Fetch-Site to http addresses. All of them send
// Origin with a request to another origin that can change something.
func ofOwnPage(r *http.Request) bool {
	switch origin := r.Header.Get("Origin"); r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return origin == "" || origin == "http://"+written(r.Host)
	default:
		link := r.URL.Path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead)
		return origin == "" && link
	}
}
