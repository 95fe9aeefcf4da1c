// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// foreign are the headers Host, Origin and Sec-Fetch-Site of requests that no page of
// the listener makes, as browsers of
// any age send them. HOST is the address of the listener, and PORT its port.
var foreign = [][3]string{
	// A name of DNS that leads to this machine is one origin for the browser.
	{"rebound.example:PORT", "", "same-origin"},
	{"rebound.example:PORT", "http://rebound.example:PORT", "same-origin"},
	{"rebound.example:PORT", "http://rebound.example:PORT", ""},
	{"rebound.example:PORT", "", "none"},
	{"rebound.example:PORT", "", ""},
	{"rebound.example", "http://rebound.example", ""},
	{"localhost.rebound.example:PORT", "", ""},
	{"127.0.0.1.rebound.example:PORT", "", ""},
	// So is an address that leads to this machine, and is not the one of the listener.
	{"0.0.0.0:PORT", "http://0.0.0.0:PORT", "same-origin"},
	{"192.0.2.1:PORT", "", ""},
	{"127.0.0.1:1", "http://127.0.0.1:1", "same-origin"},
	{"127.0.0.1", "", ""},
	{"rebound.example:PORT", "http://HOST", "cross-site"},
	// Pages of other origins.
	{"HOST", "https://site.example", "cross-site"},
	{"HOST", "https://site.example", ""},
	{"HOST", "https://site.example", "same-origin"},
	{"HOST", "http://127.0.0.1:1", "same-site"},
	{"HOST", "http://127.0.0.1:1", ""},
	{"HOST", "http://127.0.0.1", ""},
	{"HOST", "https://HOST", ""},
	{"HOST", "http://HOST.site.example", ""},
	{"HOST", "null", "cross-site"},
	{"HOST", "null", ""},
	{"HOST", "", "cross-site"},
	{"HOST", "", "same-site"},
	{"HOST", "", "something-new"},
}

// Foreign sends the requests of pages of other origins to every route of a listener,
// and fails t if one is not refused with 421 or 403. host is the listener's address;
// patterns are those of [http.ServeMux]. own returns what the listener would do for its
// own page. A link to "/" is no foreign request.
func Foreign(t testing.TB, host string, patterns []string, own func(method, url string) *http.Request) {
	t.Helper()
	_, port, _ := strings.Cut(host, ":")
	fill := strings.NewReplacer("HOST", host, "PORT", port)
	for _, pattern := range patterns {
		for _, target := range targets(pattern) {
			method, path, _ := strings.Cut(target, " ")
			for _, headers := range foreign {
				if link := path == "/" && headers[1] == "" && headers[0] == "HOST"; link && (method == http.MethodGet || method == http.MethodHead) {
					continue
				}
				r := own(method, "http://"+host+path)
				r.Host = fill.Replace(headers[0])
				for i, name := range []string{"Origin", "Sec-Fetch-Site"} {
					r.Header.Del(name)
					if value := fill.Replace(headers[i+1]); value != "" {
						r.Header.Set(name, value)
					}
				}
				r.Close = true // so that an answer without an end ends
				answer, err := http.DefaultTransport.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				begin := make([]byte, 60)
				n, _ := answer.Body.Read(begin)
				answer.Body.Close()
				if status := answer.StatusCode; status != http.StatusMisdirectedRequest && status != http.StatusForbidden {
					t.Errorf("%s %s from Host, Origin and Sec-Fetch-Site %q: %d %q", method, path, headers, status, begin[:n])
					break // the other ones would say the same
				}
			}
		}
	}
}

// targets returns what a pattern matches, each as a method and a path.
func targets(pattern string) (list []string) {
	method, path, limited := strings.Cut(pattern, " ")
	methods := []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodOptions}
	if !limited {
		path = method
	} else if !slices.Contains(methods, method) {
		methods = append(methods, method)
	}
	path = wildcard.ReplaceAllString(strings.ReplaceAll(path, "{$}", ""), "1")
	for _, m := range methods {
		list = append(list, m+" "+path)
		if strings.HasSuffix(path, "/") {
			list = append(list, m+" "+path+"1")
		}
	}
	return list
}

var wildcard = regexp.MustCompile(`\{[^}]*\}`)
