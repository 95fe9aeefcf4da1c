// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"maps"
	"net/http"
	"reflect"
	"testing"

	"github.com/once-lambda/once/lambdahttp"
)

// zipped is a compressed body, and read is what a client reads from it.
func zipped(t *testing.T, read string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(read))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// full are responses whose headers a client needs, with canonical names.
func full(t *testing.T) map[string]reply {
	return map[string]reply{
		"compressed": {status: 201, base64: true, body: base64.StdEncoding.EncodeToString(zipped(t, `{"id":"ch_1"}`)), header: map[string]string{
			"Content-Type": "application/json", "Content-Encoding": "gzip", "Vary": "Accept-Encoding, Origin",
			"Content-Digest": "sha-256=:AA==:", "Repr-Digest": "sha-256=:AA==:", "Digest": "SHA-256=AA==",
		}},
		"a file": {status: 200, body: "a,b\n", header: map[string]string{
			"Content-Type": "text/csv", "Content-Disposition": `attachment; filename="a.csv"`, "Content-Language": "en",
			"Cache-Control": "no-store", "Etag": `"1"`, "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT", "Content-Location": "/a.csv",
		}},
		"a part": {status: 206, body: "a,b\n", header: map[string]string{
			"Content-Type": "text/csv", "Content-Range": "bytes 0-3/10", "Accept-Ranges": "bytes",
		}},
		"a page": {status: 200, body: "<p>done</p>", header: map[string]string{
			"Content-Type": "text/html", "Content-Security-Policy": "default-src 'self'", "X-Frame-Options": "DENY",
			"Strict-Transport-Security": "max-age=63072000", "Clear-Site-Data": `"cache"`,
		}},
		"from a provider": {status: 402, body: "{}", header: map[string]string{
			"Content-Type": "application/json", "Stripe-Request-Id": "req_1", "X-Request-Id": "r1", "Request-Id": "r2",
			"X-Charge-Id": "ch_1", "Location": "/charges/ch_1", "Link": `</charges/ch_1>; rel="self"`,
		}},
		"for a browser": {status: 201, body: "{}", header: map[string]string{
			"Access-Control-Allow-Origin": "https://app.example.com", "Access-Control-Expose-Headers": "Location", "Vary": "Origin",
		}},
		"no content":     {status: 204, header: map[string]string{"Location": "/charges/ch_1"}},
		"not modified":   {status: 304, header: map[string]string{"Etag": `"1"`, "Vary": "Accept"}},
		"not allowed":    {status: 405, header: map[string]string{"Allow": "GET, HEAD"}},
		"not authorized": {status: 401, body: "{}", header: map[string]string{"Www-Authenticate": `Bearer realm="api", error="invalid_token"`}},
	}
}

const noType = "no type"

// FM54, F60, F61: a replay is the first response, for each event type: status,
// headers and the bytes of the body.
func TestReplayIsTheFirstResponse(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		for name, r := range full(t) {
			w := newFixture(t, on)
			w.becomes(func(context.Context, request) (reply, error) { return r, nil })
			first, second := w.post(charge()), w.post(charge())
			if want, _ := on.carries(r); !reflect.DeepEqual(first, want) {
				t.Errorf("%s: the first response is %+v, want the handler's %+v", name, first, want)
			}
			want := first
			want.header = maps.Clone(first.header)
			want.header["Idempotent-Replayed"] = "true"
			if !reflect.DeepEqual(second, want) || w.runs != 1 {
				t.Errorf("%s: the replay is %+v after %d runs, want %+v", name, second, w.runs, want)
			}
		}
	})
}

// The same from a server: its own headers, such as Content-Length, are right
// for a replay, and so are headers that no event can carry.
func TestServedReplayIsTheFirstResponse(t *testing.T) {
	t.Parallel()
	served := full(t)
	served["bytes that are not UTF-8"] = reply{status: 200, body: "{}", header: map[string]string{"X-Name": "caf\xe9", "X-Other": "caf\uFFFD", "Content-Type": "text/plain"}}
	served[noType] = reply{status: 200, body: "<p>done</p>"}
	for name, r := range served {
		for _, method := range []string{"POST", "HEAD"} {
			s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
				if name == noType {
					w.Header()["Content-Type"] = nil // net/http then detects none
				}
				write(w, r)
			}, nil,
				func(o *lambdahttp.Options) { o.Profile.Methods = []string{"POST", "HEAD"} })
			send := func() (*http.Response, string) {
				q := s.request(t.Context(), http.NoBody)
				q.Method = method
				q.Header.Set("Accept-Encoding", "gzip") // the transport then decodes nothing
				return s.send(q)
			}
			first, body := send()
			second, again := send()
			if first.StatusCode != r.status || (body != "") != (method == "POST" && r.body != "") {
				t.Errorf("%s, %s: got %d %q", method, name, first.StatusCode, body)
			}
			if got := second.Header.Get("Idempotent-Replayed"); got != "true" {
				t.Errorf("%s, %s: Idempotent-Replayed %q", method, name, got)
			}
			if _, typed := first.Header["Content-Type"]; typed && name == noType || first.Header.Get("X-Name") != r.header["X-Name"] {
				t.Errorf("%s, %s: the first response has %v", method, name, first.Header)
			}
			for _, a := range []*http.Response{first, second} {
				a.Header.Del("Date")
				a.Header.Del("Idempotent-Replayed")
			}
			if second.StatusCode != first.StatusCode || again != body || !reflect.DeepEqual(second.Header, first.Header) || second.ContentLength != first.ContentLength {
				t.Errorf("%s, %s: the replay is %d %v %q, %d bytes; want %d %v %q, %d bytes", method, name,
					second.StatusCode, second.Header, again, second.ContentLength, first.StatusCode, first.Header, body, first.ContentLength)
			}
		}
	}
}
