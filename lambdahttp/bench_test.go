// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// bench is one event type with the events of testdata.
type bench[Ev, Ans any] struct {
	build     func(*idempotent.Guard, func(context.Context, Ev) (Ans, error), ...func(*lambdahttp.Options)) func(context.Context, Ev) (Ans, error)
	get, post Ev
	withKey   func(ev Ev, key string) Ev // without a key if key is ""
	answer    Ans
	status    func(Ans) int
	runtime   call // runtime of post and answer, unless set
}

// call is one request that is sent repeatedly.
type call struct {
	name  string
	limit float64 // maximum cost as a fraction of the runtime's; 0: no limit
	send  func(i int) error
}

// The limits of a request that does not call the store: TestLimits.
const (
	passLimit   = 0.15
	refuseLimit = 0.33
)

// runtime does what the Lambda runtime does for each request: it decodes the
// event and encodes the response.
func runtime[Ev, Ans any](tb testing.TB, ev Ev, answer Ans) call {
	data, err := json.Marshal(ev)
	if err != nil {
		tb.Fatal(err)
	}
	return call{name: "runtime", send: func(int) error {
		var decoded Ev
		if err := json.Unmarshal(data, &decoded); err != nil {
			return err
		}
		_, err := json.Marshal(answer)
		return err
	}}
}

func (c bench[Ev, Ans]) calls(tb testing.TB) (calls []call) {
	handler := func(context.Context, Ev) (Ans, error) { return c.answer, nil }
	standard := c.build(newGuard(tb), handler, single)
	keyless := c.build(newGuard(tb), handler, single, optional)
	uuid := c.build(newGuard(tb), handler, single, func(o *lambdahttp.Options) { o.Profile = lambdahttp.UUID })
	add := func(name string, limit float64, h func(context.Context, Ev) (Ans, error), event func(i int) Ev, status int) {
		ctx := tb.Context()
		calls = append(calls, call{name, limit, func(i int) error {
			if a, err := h(ctx, event(i)); err != nil || c.status(a) != status {
				return fmt.Errorf("%s: got %v, %v", name, a, err)
			}
			return nil
		}})
	}
	same := func(ev Ev) func(int) Ev { return func(int) Ev { return ev } }
	if c.runtime.send == nil {
		c.runtime = runtime(tb, c.post, c.answer)
	}
	calls = append(calls, c.runtime)
	add("pass/GET", passLimit, standard, same(c.get), 201)
	add("pass/GET/UUID", passLimit, uuid, same(c.withKey(c.get, "")), 201)
	add("pass/no-key", passLimit, keyless, same(c.withKey(c.post, "")), 201)
	add("refuse/no-key", refuseLimit, standard, same(c.withKey(c.post, "")), 400)
	add("refuse/invalid-key", refuseLimit, standard, same(c.withKey(c.post, keyA)), 400)
	add("refuse/invalid-key/UUID", refuseLimit, uuid, same(c.withKey(c.post, "order-7")), 400)
	add("replay", 0, standard, same(c.post), 201)
	add("first", 0, standard, func(i int) Ev { return c.withKey(c.post, fmt.Sprintf(`"%020d"`, i)) }, 201)
	return calls
}

// benched are the benchmarked calls of each event type.
var benched = map[string]func(testing.TB) []call{
	"APIGatewayV2": callsV2, "FunctionURL": callsURL, "APIGatewayV1": callsV1,
	"ALB": callsALB, "ALBMultiValue": callsALBMultiValue, "Middleware": callsHTTP,
}

func BenchmarkAPIGatewayV2(b *testing.B)  { run(b, callsV2) }
func BenchmarkFunctionURL(b *testing.B)   { run(b, callsURL) }
func BenchmarkAPIGatewayV1(b *testing.B)  { run(b, callsV1) }
func BenchmarkALB(b *testing.B)           { run(b, callsALB) }
func BenchmarkALBMultiValue(b *testing.B) { run(b, callsALBMultiValue) }
func BenchmarkMiddleware(b *testing.B)    { run(b, callsHTTP) }

func run(b *testing.B, of func(testing.TB) []call) {
	for _, c := range of(b) {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := c.send(i); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// keyedMap returns h with the key, whatever the spelling of the header name.
func keyedMap[V any](h map[string]V, key string, value func(string) V) map[string]V {
	h = maps.Clone(h)
	for k := range h {
		if strings.EqualFold(k, "Idempotency-Key") {
			delete(h, k)
			if key != "" {
				h[k] = value(key)
			}
		}
	}
	return h
}

func one(key string) string    { return key }
func list(key string) []string { return []string{key} }

func callsV2(tb testing.TB) []call {
	return bench[events.APIGatewayV2HTTPRequest, events.APIGatewayV2HTTPResponse]{
		build: lambdahttp.APIGatewayV2,
		get:   load[events.APIGatewayV2HTTPRequest](tb, "apigatewayv2-get.json"),
		post:  load[events.APIGatewayV2HTTPRequest](tb, "apigatewayv2-post.json"),
		withKey: func(ev events.APIGatewayV2HTTPRequest, key string) events.APIGatewayV2HTTPRequest {
			ev.Headers = keyedMap(ev.Headers, key, one)
			return ev
		},
		answer: events.APIGatewayV2HTTPResponse{StatusCode: 201, Headers: map[string]string{"Content-Type": "application/json"}, Body: `{"id":"ch_1"}`},
		status: func(a events.APIGatewayV2HTTPResponse) int { return a.StatusCode },
	}.calls(tb)
}

func callsURL(tb testing.TB) []call {
	get := load[events.LambdaFunctionURLRequest](tb, "functionurl-post.json")
	get.RequestContext.HTTP.Method = "GET"
	return bench[events.LambdaFunctionURLRequest, events.LambdaFunctionURLResponse]{
		build: lambdahttp.FunctionURL,
		get:   get,
		post:  load[events.LambdaFunctionURLRequest](tb, "functionurl-post.json"),
		withKey: func(ev events.LambdaFunctionURLRequest, key string) events.LambdaFunctionURLRequest {
			ev.Headers = keyedMap(ev.Headers, key, one)
			return ev
		},
		answer: events.LambdaFunctionURLResponse{StatusCode: 201, Headers: map[string]string{"Content-Type": "application/json"}, Body: `{"id":"ch_1"}`},
		status: func(a events.LambdaFunctionURLResponse) int { return a.StatusCode },
	}.calls(tb)
}

func callsV1(tb testing.TB) []call {
	return bench[v1Event, v1Answer]{
		build: lambdahttp.APIGatewayV1,
		get:   load[v1Event](tb, "apigatewayv1-get.json"),
		post:  load[v1Event](tb, "apigatewayv1-post.json"),
		withKey: func(ev v1Event, key string) v1Event {
			ev.Headers, ev.MultiValueHeaders = keyedMap(ev.Headers, key, one), keyedMap(ev.MultiValueHeaders, key, list)
			return ev
		},
		answer: v1Answer{StatusCode: 201, Headers: map[string]string{"Content-Type": "application/json"}, Body: `{"id":"ch_1"}`},
		status: func(a v1Answer) int { return a.StatusCode },
	}.calls(tb)
}

func callsALB(tb testing.TB) []call {
	return bench[albEvent, albAnswer]{
		build: lambdahttp.ALB,
		get:   load[albEvent](tb, "alb-get.json"),
		post:  load[albEvent](tb, "alb-post.json"),
		withKey: func(ev albEvent, key string) albEvent {
			ev.Headers = keyedMap(ev.Headers, key, one)
			return ev
		},
		answer: albAnswer{StatusCode: 201, Headers: map[string]string{"Content-Type": "application/json"}, Body: `{"id":"ch_1"}`},
		status: func(a albAnswer) int { return a.StatusCode },
	}.calls(tb)
}

func callsALBMultiValue(tb testing.TB) []call {
	get := load[albEvent](tb, "alb-multivalue.json")
	get.HTTPMethod = "GET"
	return bench[albEvent, albAnswer]{
		build: lambdahttp.ALB,
		get:   get,
		post:  load[albEvent](tb, "alb-multivalue.json"),
		withKey: func(ev albEvent, key string) albEvent {
			ev.MultiValueHeaders = keyedMap(ev.MultiValueHeaders, key, list)
			return ev
		},
		answer: albAnswer{StatusCode: 201, MultiValueHeaders: map[string][]string{"Content-Type": {"application/json"}}, Body: `{"id":"ch_1"}`},
		status: func(a albAnswer) int { return a.StatusCode },
	}.calls(tb)
}

// callsHTTP begins with bare, the exchange itself: a writer, and a handler that
// writes to it. Its cost is part of all other calls.
func callsHTTP(tb testing.TB) []call {
	read := func(file string) *http.Request {
		data, err := os.ReadFile("testdata/" + file)
		if err != nil {
			tb.Fatal(err)
		}
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(data)))
		if err != nil {
			tb.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			tb.Fatal(err)
		}
		r.Body = &again{data: body}
		return r
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(201)
		_, _ = io.WriteString(w, `{"id":"ch_1"}`)
	})
	get := read("nethttp-get.http")
	bare := call{name: "bare", send: func(int) error {
		w := plainWriter{header: http.Header{}}
		handler.ServeHTTP(&w, get)
		return nil
	}}
	return append([]call{bare}, bench[*http.Request, int]{
		build: func(g *idempotent.Guard, _ func(context.Context, *http.Request) (int, error), optFns ...func(*lambdahttp.Options)) func(context.Context, *http.Request) (int, error) {
			h := lambdahttp.Middleware(g, optFns...)(handler)
			return func(_ context.Context, r *http.Request) (int, error) {
				if body, ok := r.Body.(*again); ok {
					body.read = 0
				}
				w := plainWriter{header: http.Header{}}
				h.ServeHTTP(&w, r)
				return w.status, nil
			}
		},
		get:  get,
		post: read("nethttp-post.http"),
		withKey: func(r *http.Request, key string) *http.Request {
			r = r.WithContext(tb.Context())
			r.Header = keyedMap(r.Header, key, list)
			return r
		},
		status:  func(status int) int { return status },
		runtime: callsV2(tb)[0], // the event behind the request
	}.calls(tb)...)
}

// again is a body that can be read repeatedly.
type again struct {
	data []byte
	read int
}

func (a *again) Read(p []byte) (int, error) {
	if a.read == len(a.data) {
		return 0, io.EOF
	}
	n := copy(p, a.data[a.read:])
	a.read += n
	return n, nil
}
func (a *again) Close() error { return nil }
