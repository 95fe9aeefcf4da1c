// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent"
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
	wantAnswers(t, lambdahttp.APIGatewayV2, load[v2Event](t, "apigatewayv2/post"),
		v2Answer{StatusCode: 201, Headers: map[string]string{"link": "</a>", "Content-Type": "text/plain"},
			MultiValueHeaders: map[string][]string{"Link": {"</a>", "</b>"}, "Set-Cookie": {"a=1", "b=2"}}},
		v2Answer{StatusCode: 201, Headers: map[string]string{"Link": "</a>, </b>", "Content-Type": "text/plain", "Idempotent-Replayed": "true"}})
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

// full are responses whose headers a client needs, with canonical names.
func full() map[string]reply {
	return map[string]reply{
		"compressed": {status: 201, base64: true, body: base64.StdEncoding.EncodeToString([]byte(gzipped(1, `{"id":"ch_1"}`))), header: map[string]string{
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
		"text":           {status: 200, body: "a\r\n\x00é<&>\u2028", header: map[string]string{"Content-Type": "text/plain"}},
		"large":          {status: 200, body: strings.Repeat("0123456789", 10_000), header: map[string]string{"Content-Type": "text/plain"}},
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
		for name, r := range full() {
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
	served := full()
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

const lambda, loadBalancer = 6 << 20, 1 << 20 // bytes of a response as JSON

// A response is stored up to what the service in front of the function accepts, as the
// event that it becomes: with what base64 and JSON add, and 1 KiB for the headers of a
// replay. Beyond that the first caller and a retry get replay-unavailable.
func TestLargestResponse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"APIGatewayV2":  largest(lambdahttp.APIGatewayV2, "apigatewayv2/post", lambda),
		"FunctionURL":   largest(lambdahttp.FunctionURL, "functionurl/post", lambda),
		"APIGatewayV1":  largest(lambdahttp.APIGatewayV1, "apigatewayv1/post", lambda),
		"ALB":           largest(lambdahttp.ALB, "alb/post", loadBalancer),
		"ALBMultiValue": largest(lambdahttp.ALB, "alb/multivalue", loadBalancer),
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t) })
	}
}

func largest[Ev, Ans any](build builder[Ev, Ans], event string, limit int) func(*testing.T) {
	return func(t *testing.T) {
		// again returns the log of a request whose response has the body, and the JSON of
		// its replay, as the runtime of Lambda encodes it.
		again := func(body string, base64 bool) (log string, replay []byte) {
			var lines, out bytes.Buffer
			own := transcoded[Ans](t, map[string]any{"statusCode": 201, "body": body, "isBase64Encoded": base64})
			h := build(newGuard(t, logsTo(&lines)), func(context.Context, Ev) (Ans, error) { return own, nil }, single)
			_, err := h(t.Context(), load[Ev](t, event))
			a, again := h(t.Context(), load[Ev](t, event))
			e := json.NewEncoder(&out)
			e.SetEscapeHTML(false)
			if err := errors.Join(err, again, e.Encode(a)); err != nil {
				t.Fatal(err)
			}
			return lines.String(), out.Bytes()
		}
		for name, c := range map[string]struct {
			body   func(size int) string // that takes so much of the JSON
			base64 bool
		}{
			"text":    {func(n int) string { return strings.Repeat("<", n) }, false},
			"escapes": {func(n int) string { return strings.Repeat("x", n%6) + strings.Repeat("\x01", n/6) }, false},
			"base64": {func(n int) string {
				return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xff}, n/4*3))
			}, true},
		} {
			if name != "text" && limit == lambda {
				continue // only takes longer
			}
			_, small := again(c.body(8), c.base64)
			marked := len(`"Idempotent-Replayed":"true"`)
			if bytes.Contains(small, []byte(`["true"]`)) {
				marked += len("[]")
			}
			size, more := limit-1024-(len(small)-marked-8), 1
			if c.base64 { // in groups of four
				size, more = size/4*4, 4
			}
			if log, replay := again(c.body(size), c.base64); !bytes.Contains(replay, []byte("Idempotent-Replayed")) || len(replay) > limit || strings.Contains(log, "ERROR") {
				t.Errorf("%s of %d: not replayed: %.200s\n%s", name, size, replay, log)
			}
			if log, replay := again(c.body(size+more), c.base64); !bytes.Contains(replay, []byte("replay-unavailable")) ||
				!strings.Contains(log, "level=ERROR") || !strings.Contains(log, "bytes as JSON; at most "+map[int]string{lambda: "6290432", loadBalancer: "1047552"}[limit]+" can be sent") {
				t.Errorf("%s of %d: replayed: %.200s\n%s", name, size+more, replay, log)
			}
		}
	}
}

// The outcome of a response that is too large is stored without it, and the key does not run
// again. Its first caller and each retry get the answer for that, with the resource.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 1<<20)
	big := func(status int, err error) handler {
		return func(ctx context.Context, r request) (reply, error) {
			a, _ := created(ctx, r)
			a.status, a.body = status, large
			return a, err
		}
	}
	commits := func(response lambdahttp.Response, h handler) handler {
		return func(ctx context.Context, r request) (reply, error) {
			e, _ := idempotent.FromContext(ctx)
			_ = e.SetRef("/charges/ch_1")
			if err := e.Commit(ctx, response, e.Store().Replace); err != nil {
				t.Error(err)
			}
			return h(ctx, r)
		}
	}
	stored := lambdahttp.Response{Status: 201, Body: []byte(large)}
	for name, c := range map[string]struct {
		options      func(*lambdahttp.Options)
		h            handler
		first, again int    // 409: replay-unavailable
		detail       string // of the problem; "": the standard one
		record       string
		runs         int
	}{
		"returned":             {nil, big(201, nil), 409, 409, "", "completed", 1},
		"a 5xx that is stored": {serverErrors(lambdahttp.StoreServerErrors), big(500, nil), 409, 409, "", "completed", 1},
		"a 5xx that is not":    {nil, big(500, nil), 500, 0, "", "unknown", 1},
		"not executed":         {nil, big(429, idempotent.NotExecuted(nil)), 429, 429, "", "retryable", 2},
		"NoStore": {nil, func(ctx context.Context, r request) (reply, error) {
			lambdahttp.NoStore(ctx, "Roll the key.")
			return big(201, nil)(ctx, r)
		}, 409, 409, "Roll the key.", "completed", 1},
		"committed":                   {nil, commits(stored, big(201, nil)), 409, 409, "", "completed", 1},
		"another committed":           {nil, commits(committed, big(201, nil)), 201, 201, "", "completed", 1},
		"committed, another returned": {nil, commits(stored, created), 409, 409, "", "completed", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, on := range wires {
				if on.constructor != "ALB" { // the limit of the others is in TestLargestResponse
					continue
				}
				w := newFixture(t, on, optionally(c.options))
				w.becomes(c.h)
				check := func(which string, status int) {
					a := w.post(charge())
					unavailable := strings.Contains(a.body, "replay-unavailable")
					if status != 0 && a.status != status || status == 409 && (!unavailable || a.cookies != nil || len(a.body) > 1000 ||
						!strings.Contains(a.body, c.detail) || !strings.Contains(a.body, `"resource":"/charges/ch_1"`)) || status != 409 && unavailable {
						t.Errorf("%s, %s: got %d %v %.300s, want %d", on.name, which, a.status, a.header, a.body, status)
					}
					if says := a.header["Idempotency-Status"]; status == 409 && (says == "not-stored") != (which == "first") {
						t.Errorf("%s, %s: Idempotency-Status is %q", on.name, which, says)
					}
				}
				check("first", c.first)
				w.wantRecord(1, c.record)
				check("a retry", c.again)
				w.wantRecord(c.runs, c.record)
			}
		})
	}
}

// A stored response that another service accepts, or evidence, is not sent to one that does
// not. Behind the middleware its own limit applies.
func TestTooLargeForThisService(t *testing.T) {
	t.Parallel()
	same := func(o *lambdahttp.Options) {
		o.Scope, o.Operation, o.MaxResponseBody = lambdahttp.SingleTenant, func(*lambdahttp.Request) string { return "charge" }, 8<<20
	}
	var log bytes.Buffer
	w := newFixtureWith(t, wires[0], logsTo(&log), same)
	large := func(ctx context.Context, r request) (reply, error) {
		a, _ := created(ctx, r)
		a.body = strings.Repeat("x", 2<<20)
		return a, nil
	}
	for i, send := range []struct {
		build  func(*idempotent.Guard, handler, ...func(*lambdahttp.Options)) sender
		status int
	}{{buildV2, 201}, {buildHTTP, 201}, {buildALB(true), 409}, {buildALB(false), 409}, {buildURL, 201}} {
		a, err := send.build(w.guard, large, same)(t.Context(), charge())
		if err != nil || a.status != send.status || (a.header["Idempotent-Replayed"] == "true") != (i > 0 && send.status == 201) || strings.Contains(log.String(), "ALB: the response has") != (i > 1) {
			t.Errorf("%d: got %d %v %.300s, error %v; the log:\n%s", i, a.status, a.header, a.body, err, &log)
		}
	}
	w.becomes(answers(504, nil))
	other := charge(withKey(`"` + keyB + `"`))
	w.post(other)
	if err := w.guard.Resolve(t.Context(), w.store.record(t).ID, lambdahttp.Resolved(lambdahttp.Response{Status: http.StatusCreated, Body: make([]byte, 5<<20)})); err != nil {
		t.Fatal(err)
	}
	if a := w.post(other); a.status != 409 || !strings.Contains(a.body, "replay-unavailable") || !strings.Contains(log.String(), "APIGatewayV2: the response has") {
		t.Errorf("evidence: got %d %.300s", a.status, a.body)
	}
}
