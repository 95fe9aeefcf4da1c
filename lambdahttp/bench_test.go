package lambdahttp_test

import (
	"bufio"
	"bytes"
	"context"
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
//
// Bounds: passing through costs at most 2 µs, a refusal at most 5 µs.
type bench[Ev, Ans any] struct {
	build     func(*idempotent.Guard, func(context.Context, Ev) (Ans, error), ...func(*lambdahttp.Options)) func(context.Context, Ev) (Ans, error)
	get, post Ev
	withKey   func(ev Ev, key string) Ev // without one if key is ""
	answer    Ans
	status    func(Ans) int
}

func (c bench[Ev, Ans]) run(b *testing.B) {
	handler := func(context.Context, Ev) (Ans, error) { return c.answer, nil }
	optional := c.build(newGuard(b), handler, single)
	required := c.build(newGuard(b), handler, single, required)
	uuid := c.build(newGuard(b), handler, single, func(o *lambdahttp.Options) { o.Profile = lambdahttp.UUID })
	for _, m := range []struct {
		name   string
		h      func(context.Context, Ev) (Ans, error)
		event  Ev
		status int
	}{
		{"pass/GET", optional, c.get, 201},
		{"pass/GET/UUID", uuid, c.withKey(c.get, ""), 201},
		{"pass/no-key", optional, c.withKey(c.post, ""), 201},
		{"refuse/no-key", required, c.withKey(c.post, ""), 400},
		{"refuse/invalid-key", optional, c.withKey(c.post, keyA), 400},
		{"refuse/invalid-key/UUID", uuid, c.withKey(c.post, "order-7"), 400},
		{"replay", optional, c.post, 201},
	} {
		b.Run(m.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if a, err := m.h(b.Context(), m.event); err != nil || c.status(a) != m.status {
					b.Fatal(a, err)
				}
			}
		})
	}
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if a, err := optional(b.Context(), c.withKey(c.post, fmt.Sprintf(`"%020d"`, i))); err != nil || c.status(a) != 201 {
				b.Fatal(a, err)
			}
		}
	})
}

// keyedMap returns h with the key, of whatever spelling its name is.
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

func BenchmarkAPIGatewayV2(b *testing.B) {
	bench[events.APIGatewayV2HTTPRequest, events.APIGatewayV2HTTPResponse]{
		build: lambdahttp.APIGatewayV2,
		get:   load[events.APIGatewayV2HTTPRequest](b, "apigatewayv2-get.json"),
		post:  load[events.APIGatewayV2HTTPRequest](b, "apigatewayv2-post.json"),
		withKey: func(ev events.APIGatewayV2HTTPRequest, key string) events.APIGatewayV2HTTPRequest {
			ev.Headers = keyedMap(ev.Headers, key, one)
			return ev
		},
		answer: events.APIGatewayV2HTTPResponse{StatusCode: 201, Headers: map[string]string{"Content-Type": "application/json"}, Body: `{"id":"ch_1"}`},
		status: func(a events.APIGatewayV2HTTPResponse) int { return a.StatusCode },
	}.run(b)
}

func BenchmarkFunctionURL(b *testing.B) {
	get := load[events.LambdaFunctionURLRequest](b, "functionurl-post.json")
	get.RequestContext.HTTP.Method = "GET"
	bench[events.LambdaFunctionURLRequest, events.LambdaFunctionURLResponse]{
		build: lambdahttp.FunctionURL,
		get:   get,
		post:  load[events.LambdaFunctionURLRequest](b, "functionurl-post.json"),
		withKey: func(ev events.LambdaFunctionURLRequest, key string) events.LambdaFunctionURLRequest {
			ev.Headers = keyedMap(ev.Headers, key, one)
			return ev
		},
		answer: events.LambdaFunctionURLResponse{StatusCode: 201, Headers: map[string]string{"Content-Type": "application/json"}, Body: `{"id":"ch_1"}`},
		status: func(a events.LambdaFunctionURLResponse) int { return a.StatusCode },
	}.run(b)
}

func BenchmarkAPIGatewayV1(b *testing.B) {
	bench[v1Event, v1Answer]{
		build: lambdahttp.APIGatewayV1,
		get:   load[v1Event](b, "apigatewayv1-get.json"),
		post:  load[v1Event](b, "apigatewayv1-post.json"),
		withKey: func(ev v1Event, key string) v1Event {
			ev.Headers, ev.MultiValueHeaders = keyedMap(ev.Headers, key, one), keyedMap(ev.MultiValueHeaders, key, list)
			return ev
		},
		answer: v1Answer{StatusCode: 201, Headers: map[string]string{"Content-Type": "application/json"}, Body: `{"id":"ch_1"}`},
		status: func(a v1Answer) int { return a.StatusCode },
	}.run(b)
}

func BenchmarkALB(b *testing.B) {
	bench[albEvent, albAnswer]{
		build: lambdahttp.ALB,
		get:   load[albEvent](b, "alb-get.json"),
		post:  load[albEvent](b, "alb-post.json"),
		withKey: func(ev albEvent, key string) albEvent {
			ev.Headers = keyedMap(ev.Headers, key, one)
			return ev
		},
		answer: albAnswer{StatusCode: 201, Headers: map[string]string{"Content-Type": "application/json"}, Body: `{"id":"ch_1"}`},
		status: func(a albAnswer) int { return a.StatusCode },
	}.run(b)
}

func BenchmarkALBMultiValue(b *testing.B) {
	get := load[albEvent](b, "alb-multivalue.json")
	get.HTTPMethod = "GET"
	bench[albEvent, albAnswer]{
		build: lambdahttp.ALB,
		get:   get,
		post:  load[albEvent](b, "alb-multivalue.json"),
		withKey: func(ev albEvent, key string) albEvent {
			ev.MultiValueHeaders = keyedMap(ev.MultiValueHeaders, key, list)
			return ev
		},
		answer: albAnswer{StatusCode: 201, MultiValueHeaders: map[string][]string{"Content-Type": {"application/json"}}, Body: `{"id":"ch_1"}`},
		status: func(a albAnswer) int { return a.StatusCode },
	}.run(b)
}

// BenchmarkMiddleware has the cost of the exchange itself in all its figures,
// which bare tells: a writer, and a handler that writes to it.
func BenchmarkMiddleware(b *testing.B) {
	read := func(file string) *http.Request {
		data, err := os.ReadFile("testdata/" + file)
		if err != nil {
			b.Fatal(err)
		}
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(data)))
		if err != nil {
			b.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			b.Fatal(err)
		}
		r.Body = &again{data: body}
		return r
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(201)
		_, _ = io.WriteString(w, `{"id":"ch_1"}`)
	})
	b.Run("bare", func(b *testing.B) {
		b.ReportAllocs()
		r := read("nethttp-get.http")
		for b.Loop() {
			w := plainWriter{header: http.Header{}}
			handler.ServeHTTP(&w, r)
		}
	})
	bench[*http.Request, int]{
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
		get:  read("nethttp-get.http"),
		post: read("nethttp-post.http"),
		withKey: func(r *http.Request, key string) *http.Request {
			r = r.WithContext(b.Context())
			r.Header = keyedMap(r.Header, key, list)
			return r
		},
		status: func(status int) int { return status },
	}.run(b)
}

// again is a body that can be read again.
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
