// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/playground/provider"
	"github.com/once-lambda/once/playground/web"
)

// No request of a page of another origin reaches a route of the example: it books
// nothing, settles nothing, and is not remembered.
func TestForeign(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, env("DATA", dir))
	host := strings.TrimPrefix(s.url, "http://")
	own := func(method, url string) *http.Request { return withKey(t, key, method, url) }
	kit.Foreign(t, host, routesOf(t, s.url), own)

	watching, err := http.Get(s.url + "/playground/watch?idempotency_key=" + key)
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Body.Close()
	shown, err := bufio.NewReader(watching.Body).ReadString('\n')
	if err != nil || !strings.Contains(shown, `"record":null,"history":null,"exchanges":null,"with":{"ledger":[],"booked":0,"of_key":0,"amounts":{},"workers":null},"without":{"ledger":[],"booked":0,"of_key":0,"amounts":{},"workers":null}`) {
		t.Errorf("after foreign requests the page shows %s, %v", shown, err)
	}

	// The page itself can do all this, by each name of the address.
	for _, name := range []string{host, strings.Replace(host, "127.0.0.1", "localhost", 1), strings.Replace(host, "127.0.0.1", "[::1]", 1)} {
		r := own("POST", s.url+"/charges")
		r.Host = name
		r.Header.Set("Origin", "http://"+name)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		if resp, body := do(t, r); resp.StatusCode != http.StatusCreated {
			t.Errorf("at %s: %d %s", name, resp.StatusCode, body)
		}
	}
	r := own("GET", s.url+"/")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if resp, body := do(t, r); resp.StatusCode != http.StatusOK || !strings.Contains(body, "<!doctype html>") {
		t.Errorf("a link to the page: %d %s", resp.StatusCode, body)
	}
}

// withKey returns a request that has an effect if it is not refused.
func withKey(t *testing.T, key, method, url string) *http.Request {
	t.Helper()
	body := aCharge
	if !strings.Contains(url, "/charges") {
		body = `{"idempotency_key":"` + key + `"}`
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", `"`+key+`"`)
	return r
}

// What the example remembers of requests has a limit. Not parallel: it measures the
// memory of the process.
func TestFlood(t *testing.T) {
	s := start(t, env("DATA", t.TempDir()))
	n := 0
	kit.Flood(t, strings.TrimPrefix(s.url, "http://"), routesOf(t, s.url), func(method, url string) *http.Request {
		n++
		return withKey(t, fmt.Sprintf("%0253d", n/kit.Repeated), method, url)
	})
}

// routesOf returns the patterns of all that the example serves.
func routesOf(t *testing.T, url string) []string {
	t.Helper()
	c, err := readConfig(env())
	if err != nil {
		t.Fatal(err)
	}
	standIn, err := provider.New(filepath.Join(t.TempDir(), "ledger.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { standIn.Close() })
	routes := standIn.Routes("/provider")
	if _, err := mount(routes, &c, &web.Playground{History: web.NewHistory(memstore.New()), Exchanges: &web.Exchanges{}}, url, newLogger(io.Discard)); err != nil {
		t.Fatal(err)
	}
	return append(slices.Collect(maps.Keys(routes)), "POST /charges", "GET /charges/{id}")
}
