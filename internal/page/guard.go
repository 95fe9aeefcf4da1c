// SPDX-License-Identifier: Apache-2.0

package page

import (
	"net/http"
	"slices"
	"strings"
)

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
