// SPDX-License-Identifier: Apache-2.0

package middleware

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdaurl"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdahttp"
)

// pairs is how many pairs of requests TestCrossTalk sends.
const pairs = 100_000

// wanted is what a client wants. Two requests that want different things are different,
// however similar they look on the wire.
type wanted struct {
	caller, method, mount, id, query, media, body string
}

// sent is a request in one of the forms in which a client can send what it wants.
type sent struct {
	wanted
	key        string
	path       string // with the mount
	data       string
	coding     string
	undeclared bool // the length of the body
	consumed   bool // a layer around the guard reads the body, if it is a form
}

// facts identify what a request wants. The handler answers with them.
func (s *sent) facts() string { return fmt.Sprintf("%+v", s.wanted) }

func pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// aPair returns two requests. The second wants the same as the first, or something else
// in one or two respects, often with the same key.
func aPair(r *rand.Rand, n int) (pair [2]sent) {
	change := func(w *wanted) {
		switch r.IntN(7) {
		case 0:
			w.caller = pick(r, "merchant-1", "merchant-2")
		case 1:
			w.mount = pick(r, "/test", "/live")
		case 2:
			w.id = pick(r, "7", "8", "a/b", "a b", "%", "é", ".", "7.")
		case 3:
			w.body = pick(r, `{"amount":1}`, `{"amount":10}`, `{"amount":1,"note":"a"}`, `{"amount":"1"}`, `{"amount":1,"AMOUNT":2}`, "")
			w.media = "application/json"
		case 4:
			w.body, w.media = pick(r, "amount=1", "amount=2", "amount=1&amount=2"), "application/x-www-form-urlencoded"
		case 5:
			w.query = pick(r, "", "a=1", "a=2", "a=1&a=2", "b=1")
		case 6:
			w.method = pick(r, "POST", "PATCH")
		}
	}
	w := wanted{"merchant-1", "POST", "/test", "7", "", "application/json", `{"amount":1}`}
	for i := range pair {
		for range r.IntN(3) {
			change(&w)
		}
		key := n
		if r.IntN(8) == 0 {
			key = n + i*pairs
		}
		pair[i] = inSomeForm(r, w, fmt.Sprintf(`"key-of-a-pair-%08d"`, key))
	}
	return pair
}

// inSomeForm returns a request that wants w.
func inSomeForm(r *rand.Rand, w wanted, key string) sent {
	s := sent{wanted: w, key: key, data: w.body, undeclared: r.IntN(3) == 0, consumed: r.IntN(4) == 0}
	var id strings.Builder
	for _, c := range []byte(w.id) {
		if plain := 'a' <= c && c <= 'z' || '0' <= c && c <= '9'; plain && r.IntN(6) > 0 {
			id.WriteByte(c)
		} else {
			fmt.Fprintf(&id, pick(r, "%%%02x", "%%%02X"), c)
		}
	}
	s.path = w.mount + "/charges/" + id.String()
	if w.media == "application/json" && w.body != "" && r.IntN(2) == 0 {
		s.data = strings.NewReplacer(":", " : ", "amount", `\u0061mount`, ",", "\n,").Replace(w.body)
	}
	if w.body != "" && r.IntN(6) == 0 {
		var b bytes.Buffer
		z, _ := gzip.NewWriterLevel(&b, r.IntN(10))
		_, _ = io.WriteString(z, s.data)
		_ = z.Close()
		s.data, s.coding = b.String(), "gzip"
	}
	return s
}

func (s *sent) headers() map[string]string {
	h := map[string]string{
		"Idempotency-Key": s.key, "Content-Type": s.media, "Authorization": "Bearer " + s.caller, "X-Wants": base64.StdEncoding.EncodeToString([]byte(s.facts())),
	}
	if s.coding != "" {
		h["Content-Encoding"] = s.coding
	}
	return h
}

// request returns s as a server gets it.
func (s *sent) request() *http.Request {
	target := s.path
	if s.query != "" {
		target += "?" + s.query
	}
	var body io.Reader = strings.NewReader(s.data)
	if len(s.data) == 0 {
		body = http.NoBody
	}
	r := httptest.NewRequest(s.method, target, body)
	if s.undeclared && len(s.data) > 0 {
		r.ContentLength = -1
	}
	for name, value := range s.headers() {
		r.Header.Set(name, value)
	}
	if s.consumed {
		r = r.WithContext(context.WithValue(r.Context(), consumedKey{}, true))
	}
	return r
}

type consumedKey struct{}

// consuming is a layer that reads a form.
func consuming(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Value(consumedKey{}) != nil {
			_ = r.FormValue("amount")
		}
		next.ServeHTTP(w, r)
	})
}

// answered is the answer to a request.
type answered struct {
	status   int
	replayed bool
	body     string
}

// stage is a guarded handler, and how often it ran for what a client wanted.
type stage struct {
	guard *idempotent.Guard
	mu    sync.Mutex
	runs  map[string]int
}

// run is the handler: it answers with what the request wants.
func (g *stage) run(key, wants string) string {
	facts, _ := base64.StdEncoding.DecodeString(wants)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.runs[key+string(facts)]++
	return string(facts)
}

func (g *stage) handler(optFns ...func(*lambdahttp.Options)) http.Handler {
	guarded := lambdahttp.Middleware(g.guard, append(optFns, caller, func(o *lambdahttp.Options) {
		o.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusInternalServerError) }
	})...)
	return guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, g.run(r.Header.Get("Idempotency-Key"), r.Header.Get("X-Wants")))
	}))
}

// overHTTP sends requests to what build makes of the guarded handler.
func overHTTP(build func(http.Handler) http.Handler, optFns ...func(*lambdahttp.Options)) func(*stage) func(*sent) answered {
	return func(g *stage) func(*sent) answered {
		h := consuming(authenticated(build(g.handler(optFns...))))
		return func(s *sent) answered {
			a := serve(h, s.request())
			body, _ := io.ReadAll(a.Body)
			return answered{a.StatusCode, a.Header.Get("Idempotent-Replayed") != "", string(body)}
		}
	}
}

func scopeOfHeader(o *lambdahttp.Options) { o.Scope = lambdahttp.TrustedHeader("Authorization") }

func (s *sent) text() (body string, base64Encoded bool) {
	if s.undeclared || s.coding != "" {
		return base64.StdEncoding.EncodeToString([]byte(s.data)), true
	}
	return s.data, false
}

// byHost moves the mount of a request into its host.
func byHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Host = r.URL.Path[1:5] + ".example"
		r.RequestURI = r.RequestURI[len("/test"):]
		http.StripPrefix(r.URL.Path[:5], next).ServeHTTP(w, r)
	})
}

var stages = map[string]func(*stage) func(*sent) answered{
	"net/http by hosts": overHTTP(func(h http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("test.example/charges/{id}", h)
		mux.Handle("live.example/charges/{id}", h)
		return byHost(mux)
	}),
	"net/http with Fields": overHTTP(func(h http.Handler) http.Handler { return h }, func(o *lambdahttp.Options) { o.Fingerprint = lambdahttp.Fields("/amount", "/note") }),
	"net/http": overHTTP(func(h http.Handler) http.Handler {
		mux, inner := http.NewServeMux(), http.NewServeMux()
		inner.Handle("/charges/{id}", h)
		mux.Handle("/test/", http.StripPrefix("/test", inner))
		mux.Handle("/live/", http.StripPrefix("/live", inner))
		return mux
	}),
	"net/http without routes": overHTTP(func(h http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/test/", http.StripPrefix("/test", h))
		mux.Handle("/live/", http.StripPrefix("/live", h))
		return mux
	}),
	"chi":  overHTTP(chiByPrefix),
	"gin":  overHTTP(ginByPrefix),
	"echo": overHTTP(echoRewritten),
	"lambdaurl": func(g *stage) func(*sent) answered {
		mux := http.NewServeMux()
		mux.Handle("/test/", http.StripPrefix("/test", g.handler()))
		mux.Handle("/live/", http.StripPrefix("/live", g.handler()))
		invoke := lambdaurl.Wrap(consuming(authenticated(mux)))
		return func(s *sent) answered {
			event := &events.LambdaFunctionURLRequest{RawPath: s.path, RawQueryString: s.query, Headers: s.headers()}
			event.RequestContext.DomainName, event.RequestContext.HTTP.Method = "api.example", s.method
			event.Body, event.IsBase64Encoded = s.text()
			ctx := context.Background()
			if s.consumed {
				ctx = context.WithValue(ctx, consumedKey{}, true)
			}
			a, err := invoke(ctx, event)
			if err != nil {
				return answered{status: 500}
			}
			body, _ := io.ReadAll(a.Body)
			return answered{a.StatusCode, a.Headers["Idempotent-Replayed"] != "", string(body)}
		}
	},
	"function URL": func(g *stage) func(*sent) answered {
		h := lambdahttp.FunctionURL(g.guard, func(_ context.Context, ev events.LambdaFunctionURLRequest) (a events.LambdaFunctionURLResponse, _ error) {
			a.StatusCode, a.Body = 200, g.run(ev.Headers["Idempotency-Key"], ev.Headers["X-Wants"])
			return a, nil
		}, scopeOfHeader)
		return func(s *sent) answered {
			event := events.LambdaFunctionURLRequest{RawPath: s.path, RawQueryString: s.query, Headers: s.headers()}
			event.RequestContext.HTTP.Method = s.method
			event.Body, event.IsBase64Encoded = s.text()
			a, err := h(context.Background(), event)
			return answeredBy(a.StatusCode, a.Headers, a.Body, err)
		}
	},
	"HTTP API": func(g *stage) func(*sent) answered {
		h := lambdahttp.APIGatewayV2(g.guard, func(_ context.Context, ev events.APIGatewayV2HTTPRequest) (a events.APIGatewayV2HTTPResponse, _ error) {
			a.StatusCode, a.Body = 200, g.run(ev.Headers["Idempotency-Key"], ev.Headers["X-Wants"])
			return a, nil
		}, scopeOfHeader)
		return func(s *sent) answered {
			event := events.APIGatewayV2HTTPRequest{RouteKey: "$default", RawPath: s.mount + "/charges/" + s.id, RawQueryString: s.query, Headers: s.headers()} // the path is decoded
			event.RequestContext.HTTP.Method, event.RequestContext.Stage = s.method, "$default"
			event.Body, event.IsBase64Encoded = s.text()
			a, err := h(context.Background(), event)
			return answeredBy(a.StatusCode, a.Headers, a.Body, err)
		}
	},
	"REST API": func(g *stage) func(*sent) answered {
		h := lambdahttp.APIGatewayV1(g.guard, func(_ context.Context, ev events.APIGatewayProxyRequest) (a events.APIGatewayProxyResponse, _ error) {
			a.StatusCode, a.Body = 200, g.run(ev.Headers["Idempotency-Key"], ev.Headers["X-Wants"])
			return a, nil
		}, scopeOfHeader)
		return func(s *sent) answered {
			event := events.APIGatewayProxyRequest{Resource: "/{proxy+}", HTTPMethod: s.method, Path: s.path, Headers: s.headers(), MultiValueQueryStringParameters: s.parameters()}
			event.PathParameters = map[string]string{"proxy": strings.TrimPrefix(s.path, "/")}
			event.Body, event.IsBase64Encoded = s.text()
			a, err := h(context.Background(), event)
			replayed := map[string]string{}
			for name := range a.MultiValueHeaders {
				replayed[name] = a.MultiValueHeaders[name][0]
			}
			return answeredBy(a.StatusCode, replayed, a.Body, err)
		}
	},
	"load balancer": func(g *stage) func(*sent) answered {
		h := lambdahttp.ALB(g.guard, func(_ context.Context, ev events.ALBTargetGroupRequest) (a events.ALBTargetGroupResponse, _ error) {
			a.StatusCode, a.Body = 200, g.run(ev.Headers["Idempotency-Key"], ev.Headers["X-Wants"])
			return a, nil
		}, scopeOfHeader)
		return func(s *sent) answered {
			event := events.ALBTargetGroupRequest{HTTPMethod: s.method, Path: s.path, Headers: s.headers(), MultiValueQueryStringParameters: s.parameters()}
			event.Body, event.IsBase64Encoded = s.text()
			a, err := h(context.Background(), event)
			return answeredBy(a.StatusCode, a.Headers, a.Body, err)
		}
	},
}

func (s *sent) parameters() map[string][]string {
	all := map[string][]string{}
	for _, p := range strings.Split(s.query, "&") {
		if name, value, ok := strings.Cut(p, "="); ok {
			all[name] = append(all[name], value)
		}
	}
	return all
}

func answeredBy(status int, header map[string]string, body string, err error) answered {
	if err != nil {
		return answered{status: 500}
	}
	return answered{status, header["Idempotent-Replayed"] != "", body}
}

// No request gets the answer to a request that wanted something else, and nothing that a
// client wants under one key runs twice, whatever the forms of two requests are.
func TestCrossTalk(t *testing.T) {
	t.Parallel()
	for name, build := range stages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Logger = slog.New(slog.DiscardHandler) })
			if err != nil {
				t.Fatal(err)
			}
			g := &stage{guard: guard, runs: map[string]int{}}
			send := build(g)
			r := rand.New(rand.NewPCG(1, uint64(crc32.ChecksumIEEE([]byte(name)))))
			replays, refusals, fresh := 0, 0, 0
			for n := range pairs / len(stages) {
				pair := aPair(r, n)
				for i := range pair {
					s := &pair[i]
					a := send(s)
					switch {
					case a.status == 200 && a.body != s.facts():
						t.Fatalf("pair %d, request %d of %+v: the answer is for %s", n, i, pair, a.body)
					case a.status == 200 && a.replayed:
						replays++
					case a.status == 200:
						fresh++
					default:
						refusals++
					}
					if ran := g.runs[s.key+s.facts()]; ran > 1 {
						t.Fatalf("pair %d, request %d of %+v: it ran %d times", n, i, pair, ran)
					}
				}
			}
			if min(replays, refusals, fresh) < pairs/len(stages)/20 {
				t.Errorf("%d replays, %d refusals and %d runs are too few of one kind", replays, refusals, fresh)
			}
			t.Logf("%d runs, %d replays, %d refusals", fresh, replays, refusals)
		})
	}
}
