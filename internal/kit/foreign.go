// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// foreign are the headers Host, Origin and Sec-Fetch-Site of requests that no page of
// the listener makes, as browsers of any age send them. HOST is the address of the
// listener, and PORT its port.
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
	for _, pattern := range patterns {
		for _, target := range targets(pattern) {
			method, path, _ := strings.Cut(target, " ")
			for _, headers := range foreign {
				if link := path == "/" && headers[1] == "" && headers[0] == "HOST"; link && (method == http.MethodGet || method == http.MethodHead) {
					continue
				}
				r := own(method, "http://"+host+path)
				from(r, headers)
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

// from makes r a request with the headers Host, Origin and Sec-Fetch-Site.
func from(r *http.Request, headers [3]string) {
	fill := strings.NewReplacer("HOST", r.URL.Host, "PORT", r.URL.Port())
	r.Host = fill.Replace(headers[0])
	for i, name := range []string{"Origin", "Sec-Fetch-Site"} {
		r.Header.Del(name)
		if value := fill.Replace(headers[i+1]); value != "" {
			r.Header.Set(name, value)
		}
	}
	r.Close = true // so that an answer without an end ends
}

// Repeated is how often [Flood] asks for a request before it asks for another one.
const Repeated = 30

// Flood sends 10,000 requests to every route of a listener of this process: those of
// [Foreign], those of the listener's own page, and those of programs, which have no
// Origin. Their paths, headers and bodies have up to 100,000 bytes each. It fails t if
// the heap is then larger by 20 MB. No other test may run meanwhile.
func Flood(t testing.TB, host string, patterns []string, own func(method, url string) *http.Request) {
	t.Helper()
	var all []string
	for _, pattern := range patterns {
		all = append(all, targets(pattern)...)
	}
	slices.Sort(all)
	long, answered, before := strings.Repeat("x", 100_000), 0, heap()
	for i := range 10_000 {
		method, path, _ := strings.Cut(all[i/Repeated%len(all)], " ")
		part := long[:1_000+i*i/1_011]    // the last ones have the most
		if strings.HasSuffix(path, "1") { // the place of any text
			path += part
		}
		r := own(method, "http://"+host+path)
		from(r, [][3]string{foreign[i/3%len(foreign)], {"HOST", "http://HOST", "same-origin"}, {"HOST", "", ""}}[i%3])
		for n := range 20 {
			r.Header.Set(fmt.Sprint("X-", n), part[:len(part)/20])
		}
		r.Body, r.ContentLength = io.NopCloser(io.MultiReader(r.Body, strings.NewReader(strings.Repeat(" ", len(part))))), -1
		// Some answers come late or have no end. A busy machine is not late by this.
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		if answer, err := http.DefaultTransport.RoundTrip(r.WithContext(ctx)); err == nil {
			answered++
			answer.Body.Read(make([]byte, 1))
			answer.Body.Close()
		}
		cancel()
	}
	grown := heap() - before
	t.Logf("%d requests were answered, and the heap has grown by %d bytes", answered, grown)
	if grown > 20_000_000 || answered < 9_000 {
		t.Errorf("%d of 10,000 requests were answered, and have grown the heap by %d bytes; want 9,000, and at most 20 MB", answered, grown)
	}
}

// heap returns the size of the live heap, in bytes.
func heap() int64 {
	runtime.GC()
	runtime.GC() // clears the pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
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
