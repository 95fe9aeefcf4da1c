// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/lambdahttp"
)

// FM54, F61: all headers of the response are replayed, except those of one
// exchange and those whose value is to be used once.
func TestFM54ReplayedHeaders(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newFixture(t, on)
		first := map[string]string{
			"Set-Cookie": "session=1", "Date": "now", "Content-Length": "14", "Connection": "close, x-hop", "Transfer-Encoding": "chunked",
			"X-Hop": "session-hop", "WWW-Authenticate": `Digest realm="a", nonce="session-nonce"`, "X-RateLimit-Remaining": "1", "traceparent": "00-x",
			"x-csrf-TOKEN": "session-csrf", "Client-Secret": "session-secret", "Replay-Nonce": "session-nonce", "token": "session-token",
			"idempotency-key": "session-key", "X-Other": "x", "etag": `"1"`, "X-Request-ID": "r1", "X-Tokens": "7", "Secretary": "Ann", "Dated": "1", "X-Info": "nonce=1",
		}
		w.becomes(func(context.Context, request) (reply, error) {
			return reply{status: 200, header: first, cookies: []string{"a=1"}}, nil
		})
		a := w.post(charge())
		if own, _ := on.carries(reply{status: 200, header: first, cookies: []string{"a=1"}}); !reflect.DeepEqual(a, own) {
			t.Errorf("the first response is not the handler's: %v %v", a.header, a.cookies)
		}
		a = w.post(charge())
		want := map[string]string{
			"X-Other": "x", "Etag": `"1"`, "X-Request-Id": "r1", "X-Tokens": "7", "Secretary": "Ann", "Dated": "1", "X-Info": "nonce=1", "Idempotent-Replayed": "true",
		}
		if !maps.Equal(a.header, want) || a.cookies != nil {
			t.Errorf("replayed %v %v, want %v", a.header, a.cookies, want)
		}
		if stored := w.store.record(t).Result; bytes.Contains(stored, []byte("session")) {
			t.Errorf("a header that is not replayed was stored: %s", stored)
		}
	})
}

// FM54, F11: a key that the handler repeats is not stored, in whatever header
// the request has it.
func TestFM54RepeatedKey(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newFixture(t, on, func(o *lambdahttp.Options) { o.Profile.Header = "X-request-KEY" })
		w.becomes(func(_ context.Context, r request) (reply, error) {
			return reply{status: 200, header: map[string]string{"x-Request-Key": r.header["x-request-key"], "X-Other": "x"}}, nil
		})
		r := charge(without("idempotency-key"), withHeader("x-request-key", `"`+keyA+`"`))
		if first := w.post(r); !strings.Contains(fmt.Sprint(first.header), keyA) {
			t.Errorf("the first response is not the handler's: %v", first.header)
		}
		if a := w.post(r); !maps.Equal(a.header, map[string]string{"X-Other": "x", "Idempotent-Replayed": "true"}) {
			t.Errorf("replayed %v", a.header)
		}
		if stored := w.store.record(t).Result; bytes.Contains(stored, []byte(keyA)) {
			t.Errorf("the key was stored: %s", stored)
		}
	})
}

// FM54: a challenge is replayed unless the client can answer it only once.
func TestFM54Challenges(t *testing.T) {
	t.Parallel()
	for challenge, lasts := range map[string]bool{
		"Basic": true, `Basic realm="api"`: true, `Bearer realm="api", error="invalid_token"`: true, "Negotiate": true, "Negotiate, Basic": true,
		`DPoP error="use_dpop_nonce", error_description="Send a nonce"`: true,
		`Digest realm="api"`: false, `DIGEST qop="auth"`: false, `Basic realm="a", digest realm="b"`: false,
		`Custom nonce="1"`: false, `Custom a=1,NONCE = 1`: false, "Negotiate oYG1==": false, "NTLM TlRM=": false,
	} {
		w := newFixture(t, wires[0])
		w.becomes(func(context.Context, request) (reply, error) {
			return reply{status: 401, header: map[string]string{"WWW-Authenticate": challenge}}, nil
		})
		w.post(charge())
		if got := w.post(charge()).header["Www-Authenticate"]; (got == challenge) != lasts || got != challenge && got != "" {
			t.Errorf("%s: replayed %q, want it replayed: %t", challenge, got, lasts)
		}
	}
	// Of several lines only the one with a nonce is dropped.
	line, err := lambdahttp.Codec.Encode(lambdahttp.Response{Status: 401, Header: http.Header{"WWW-Authenticate": {`Digest nonce="1"`, "Basic"}}})
	if err != nil || string(line) != "{\"s\":401,\"h\":{\"Www-Authenticate\":[\"Basic\"]}}\n" {
		t.Errorf("stored as %s, %v", line, err)
	}
}

// FM54: an HTTP API ignores MultiValueHeaders, so a replay has the values in one
// line.
func TestFM54MultiValueHeaders(t *testing.T) {
	t.Parallel()
	w := newFixture(t, wires[0]) // only its guard is used
	h := lambdahttp.APIGatewayV2(w.guard, func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		return events.APIGatewayV2HTTPResponse{
			StatusCode:        201,
			Headers:           map[string]string{"link": "</a>", "Content-Type": "text/plain"},
			MultiValueHeaders: map[string][]string{"Link": {"</a>", "</b>"}, "Set-Cookie": {"a=1", "b=2"}},
		}, nil
	}, func(o *lambdahttp.Options) { o.Scope = lambdahttp.SingleTenant })
	ev := load[events.APIGatewayV2HTTPRequest](t, "apigatewayv2-post.json")
	first, err := h(t.Context(), ev)
	if err != nil || len(first.MultiValueHeaders["Link"]) != 2 {
		t.Errorf("the first response is not the handler's: %+v %v", first, err)
	}
	second, err := h(t.Context(), ev)
	want := map[string]string{"Link": "</a>, </b>", "Content-Type": "text/plain", "Idempotent-Replayed": "true"}
	if err != nil || !maps.Equal(second.Headers, want) || second.MultiValueHeaders != nil {
		t.Errorf("replayed %v %v %v, want %v", second.Headers, second.MultiValueHeaders, err, want)
	}
}

// FM54: the rules of today apply to a response that was stored under others.
func TestFM54RulesChange(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		replaying := func(names ...string) func(*lambdahttp.Options) {
			return func(o *lambdahttp.Options) { o.Scope, o.ReplayHeaders = on.scope, names }
		}
		w := newFixture(t, on, replaying("*", "x-next-token"))
		w.becomes(func(context.Context, request) (reply, error) {
			return reply{status: 206, body: "ab", header: map[string]string{
				"Content-Type": "text/plain", "Content-Encoding": "x", "Content-Range": "bytes 0-1/9", "Location": "/1", "X-Next-Token": "2", "X-Charge-Id": "ch_1",
			}}, nil
		})
		w.post(charge())
		for _, c := range []struct {
			names []string
			left  []string
		}{
			{[]string{"*", "X-NEXT-TOKEN"}, []string{"Location", "X-Charge-Id", "X-Next-Token"}},
			{nil, []string{"Location", "X-Charge-Id"}},
			{[]string{"location", "x-next-token"}, []string{"Location", "X-Next-Token"}},
			{[]string{"X-Else"}, nil},
		} {
			later := on.build(w.guard, func(context.Context, request) (reply, error) { return reply{}, nil }, replaying(c.names...))
			a, err := later(t.Context(), charge())
			got := slices.Sorted(maps.Keys(a.header))
			want := append([]string{"Content-Encoding", "Content-Range", "Content-Type", "Idempotent-Replayed"}, c.left...)
			if err != nil || a.status != 206 || !slices.Equal(got, want) {
				t.Errorf("ReplayHeaders %q: replayed %d %v %v, want the headers %v", c.names, a.status, got, err, want)
			}
		}
	})
}

// FM54: a response that was stored with a header that is not replayed any more
// is not damaged: the rest of it is replayed.
func TestFM54StoredByAnEarlierVersion(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newFixture(t, on)
		w.post(charge())
		r := w.store.record(t)
		was := r.Version
		r.Version[0]++
		r.Result = []byte("{\"s\":201,\"h\":{\"Location\":[\"/1\"],\"Set-Cookie\":[\"a=1\"]}}\nbody")
		if _, err := w.store.Replace(t.Context(), *r, was); err != nil {
			t.Fatal(err)
		}
		a := w.post(charge())
		if want := map[string]string{"Location": "/1", "Idempotent-Replayed": "true"}; a.status != 201 || a.body != "body" || !maps.Equal(a.header, want) || a.cookies != nil {
			t.Errorf("replayed %+v, want the headers %v", a, want)
		}
	})
}

// HTTP-32: headers of one exchange cannot be configured to be replayed, and are never
// stored.
func TestHTTP32NeverReplayed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Set-Cookie", "Date", "Connection", "Transfer-Encoding", "Content-Length", "Keep-Alive", "Upgrade", "Trailer", "TE", "Age", "Expires", "Retry-After",
		"Set-Cookie2", "Authorization", "Authentication-Info", "Via", "Alt-Svc", "X-Amzn-Remapped-Date", "Proxy-Authenticate", "Proxy-Authorization",
		"RateLimit", "RateLimit-Policy", "RateLimit-Remaining", "X-RateLimit-Limit", "X-Rate-Limit-Reset",
		"traceparent", "tracestate", "baggage", "b3", "X-B3-TraceId", "X-Amzn-Trace-Id", "X-Cloud-Trace-Context", "uber-trace-id", "Server-Timing",
		"Idempotent-Replayed", "Idempotency-Status", "Idempotency-Expires",
	} {
		if got := panics(func() {
			wires[0].build(newGuard(t), created, func(o *lambdahttp.Options) {
				o.Scope, o.ReplayHeaders = lambdahttp.SingleTenant, []string{name}
			})
		}); !strings.Contains(got, name+" belongs to one exchange") {
			t.Errorf("%s: panic %q", name, got)
		}
		line, err := lambdahttp.Codec.Encode(lambdahttp.Response{Status: 200, Header: http.Header{name: {"x"}}})
		if err != nil || string(line) != "{\"s\":200}\n" {
			t.Errorf("%s is stored as %s, %v", name, line, err)
		}
	}
}
