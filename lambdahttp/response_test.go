// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bytes"
	"context"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/lambdahttp"
)

// FM54, F61: headers that describe the result are replayed, and headers of one
// exchange are not.
func TestFM54ReplayedHeaders(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newWorld(t, on)
		first := map[string]string{
			"Set-Cookie": "session=1", "Date": "now", "Content-Length": "14", "Connection": "close", "Transfer-Encoding": "chunked",
			"WWW-Authenticate": "Basic", "X-RateLimit-Remaining": "1", "traceparent": "00-x", "X-Other": "x",
			"etag": `"1"`, "Link": `</charges/ch_1>; rel="self"`, "cache-control": "no-store", "X-Request-ID": "r1",
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
			"Etag": `"1"`, "Link": `</charges/ch_1>; rel="self"`, "Cache-Control": "no-store", "X-Request-Id": "r1", "Idempotent-Replayed": "true",
		}
		if !maps.Equal(a.header, want) || a.cookies != nil {
			t.Errorf("replayed %v %v, want %v", a.header, a.cookies, want)
		}
		if stored := w.store.record(t).Result; bytes.Contains(stored, []byte("session")) || bytes.Contains(stored, []byte("X-Other")) {
			t.Errorf("a header that is not replayed was stored: %s", stored)
		}
	})
}

// FM54: an HTTP API ignores MultiValueHeaders, so a replay has the values in one
// line.
func TestFM54MultiValueHeaders(t *testing.T) {
	t.Parallel()
	w := newWorld(t, wires[0]) // only its guard is used
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

// FM54: a stored header that was removed from the list is no longer replayed.
func TestFM54ListShrinks(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newWorld(t, on, func(o *lambdahttp.Options) { o.ReplayHeaders = []string{"x-charge-id"} })
		w.post(charge())
		if a := w.post(charge()); a.header["X-Charge-Id"] != "ch_1" {
			t.Errorf("a listed header is not replayed: %v", a.header)
		}
		later := on.build(w.guard, func(context.Context, request) (reply, error) { return reply{}, nil },
			func(o *lambdahttp.Options) { o.Scope = on.scope })
		if a, err := later(t.Context(), charge()); err != nil || a.status != 201 || a.header["X-Charge-Id"] != "" {
			t.Errorf("replayed %d %v %v, want no X-Charge-Id", a.status, a.header, err)
		}
	})
}

// HTTP-32: headers of one exchange cannot be configured to be replayed, and are never
// stored.
func TestHTTP32NeverReplayed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Set-Cookie", "Date", "Connection", "Transfer-Encoding", "Content-Length", "Keep-Alive", "Upgrade", "Trailer", "TE", "Age", "Expires", "Retry-After",
		"Authorization", "WWW-Authenticate", "Authentication-Info", "Proxy-Authenticate", "Proxy-Authorization",
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
