// SPDX-License-Identifier: Apache-2.0

//go:build !race

// The race detector would distort the measurement, so these limits are checked
// without it (make test-cost).

package lambdahttp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdahttp"
)

// A request that does not call the store costs a fraction of the time that the
// Lambda runtime needs to decode the event and to encode the response: at most
// 0.15 to pass it through, and a third to refuse it. The cost of the exchange
// itself (bare) is not counted. The tests for each event type run one after the
// other, alone.
func TestLimits(t *testing.T) {
	for name, calls := range benched {
		t.Run(name, func(t *testing.T) {
			var runtime, bare call
			for _, c := range calls(t) {
				switch {
				case c.name == "runtime":
					runtime = c
				case c.name == "bare":
					bare = c
				case c.limit > 0:
					ops := []func(){sends(t, runtime), sends(t, c)}
					if bare.send != nil {
						ops = append(ops, sends(t, bare))
					}
					kit.Within(t, func() (string, bool) {
						took := append(kit.Quickest(t, 100, 50, ops...), 0)
						part := float64(took[1]-took[2]) / float64(took[0])
						return fmt.Sprintf("%-24s %.2f of %s, want more than 0 and at most %.2f", c.name, part, took[0], c.limit), part > 0 && part <= c.limit
					})
				}
			}
		})
	}
	t.Run("bodies", limitsOfBodies)
}

// A request whose body has 6 MB, or whose headers are long, costs at most three
// times what encoding/json needs to decode 6 MB of records, whether it is refused
// by its key, by its body, or by its fingerprint.
func limitsOfBodies(t *testing.T) {
	const size = 6 << 20
	records := "[" + strings.Repeat(`{"id":1234567,"name":"item","price":10.50,"tags":["a","b"],"active":true},`, size/75) + "{}]"
	withKey := func(key string) string {
		return `{"idempotency_key":"` + key + `","b":` + records + `,"a":1}`
	}
	// Four deflate blocks that contain nothing except their own Huffman codes.
	blocks, err := hex.DecodeString("04c081000000000090ff6b100007020000000040feaf41001c080000000000f9bf060170200000000000e4ff1a")
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256Of(records)
	digests := strings.Repeat(digest+",", 1000) + digest
	header := func(name, value string) map[string]string { return map[string]string{name: value} }
	type options = func(*lambdahttp.Options)
	rule := func(r lambdahttp.FingerprintRule) options {
		return func(o *lambdahttp.Options) { o.Fingerprint = r }
	}
	fields := rule(lambdahttp.Fields("/0/id", "/1/id", "/2/id", "/3/id", "/80000/id"))
	const text, multi = "text/plain", "multipart/form-data; boundary="
	for name, c := range map[string]struct {
		body, media string
		header      map[string]string
		options     options
		status      int
	}{
		"JSON":             {records, "application/json", nil, nil, 422},
		"broken JSON":      {records[:len(records)-1], "application/json", nil, nil, 422},
		"fields":           {records, "application/json", nil, fields, 422},
		"key in the body":  {withKey(keyA), "application/json", nil, bodyKey, 422},
		"long key in it":   {withKey(strings.Repeat("k", 1<<20)), "application/json", nil, bodyKey, 400},
		"broken, with key": {withKey(keyA) + "}", "application/json", nil, bodyKey, 400},
		"long key":         {records, "application/json", header("idempotency-key", `"`+strings.Repeat("k", 1<<20)+`"`), nil, 400},
		"two keys":         {records, "application/json", header("idempotency-key", `"`+keyA+`","`+keyA+`"`), nil, 400},
		"text":             {records, text, nil, nil, 422},
		"digests":          {records, text, header("content-digest", digests), rule(lambdahttp.VerifiedDigest), 422},
		"wrong digest":     {records, text, header("content-digest", digests+","+sha512Of("")), rule(lambdahttp.VerifiedDigest), 400},
		"parts":            {strings.Repeat("--a\r\n\r\n", size/7) + "--a--", multi + "a", nil, nil, 422},
		"near boundaries":  {strings.Repeat("-", size), multi + strings.Repeat("-", 69) + "a", nil, nil, 422},
		"bomb":             {strings.Repeat(gzipped(9, strings.Repeat("x", 16<<20)), 60), text, header("content-encoding", "gzip"), nil, 422},
		"empty members":    {strings.Repeat(gzipped(1, ""), 1<<20/30), text, header("content-encoding", "gzip"), nil, 422},
		"empty blocks":     {"\x78\x9c" + strings.Repeat(string(blocks), 1<<20/45-1), text, header("content-encoding", "deflate"), nil, 422},
		"long query":       {"", text, nil, nil, 422},
		"zipped JSON":      {gzipped(1, records[:size/2]), "application/json", header("content-encoding", "gzip"), nil, 422},
	} {
		t.Run(name, func(t *testing.T) {
			h := lambdahttp.APIGatewayV2(newGuard(t), func(context.Context, v2Event) (v2Answer, error) {
				return v2Answer{StatusCode: 201}, nil
			}, single, func(o *lambdahttp.Options) {
				if c.options != nil {
					c.options(o)
				}
			})
			send := func(ev v2Event, status int) {
				if a, err := h(t.Context(), ev); err != nil || a.StatusCode != status {
					t.Fatalf("got %d %.200s %v, want %d", a.StatusCode, a.Body, err, status)
				}
			}
			ev := load[v2Event](t, "apigatewayv2/post")
			ev.Headers = map[string]string{"idempotency-key": `"` + keyA + `"`, "content-type": c.media, "content-digest": sha256Of(`{"idempotency_key":"` + keyA + `"}`)}
			ev.Body, ev.IsBase64Encoded = `{"idempotency_key":"`+keyA+`"}`, false
			send(ev, 201)
			maps.Copy(ev.Headers, c.header)
			ev.Body, ev.IsBase64Encoded = base64.StdEncoding.EncodeToString([]byte(c.body)), true
			if c.body == "" {
				ev.RawQueryString = strings.Repeat("b=1&a=2&", 1<<17)
			}
			kit.Within(t, func() (string, bool) {
				took := kit.Quickest(t, 3, 1, func() { send(ev, c.status) }, func() {
					var v any
					if err := json.Unmarshal([]byte(records), &v); err != nil {
						t.Fatal(err)
					}
				})
				return fmt.Sprintf("%s, decoded in %s", took[0], took[1]), took[0] <= 3*took[1]
			})
		})
	}
}

// sends returns a function that sends the request of c once.
func sends(t *testing.T, c call) func() {
	i := 0
	return func() {
		i++
		if err := c.send(i); err != nil {
			t.Fatal(err)
		}
	}
}

// bench is one event type with the events of testdata.
type bench[Ev, Ans any] struct {
	build     builder[Ev, Ans]
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
	"APIGatewayV2":  callsV2,
	"FunctionURL":   eventCalls(lambdahttp.FunctionURL, "functionurl/post", "headers", func(a urlAnswer) int { return a.StatusCode }),
	"APIGatewayV1":  eventCalls(lambdahttp.APIGatewayV1, "apigatewayv1/post", "headers", func(a v1Answer) int { return a.StatusCode }),
	"ALB":           eventCalls(lambdahttp.ALB, "alb/post", "headers", func(a albAnswer) int { return a.StatusCode }),
	"ALBMultiValue": eventCalls(lambdahttp.ALB, "alb/multivalue", "multiValueHeaders", func(a albAnswer) int { return a.StatusCode }),
	"Middleware":    callsHTTP,
}

var callsV2 = eventCalls(lambdahttp.APIGatewayV2, "apigatewayv2/post", "headers", func(a v2Answer) int { return a.StatusCode })

func BenchmarkHandlers(b *testing.B) {
	for name, of := range benched {
		for _, c := range of(b) {
			b.Run(name+"/"+c.name, func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if err := c.send(i); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
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

// eventCalls returns the calls of an event type with an event of testdata. headers is the
// member of its responses that has their headers.
func eventCalls[Ev, Ans any](build builder[Ev, Ans], event, headers string, status func(Ans) int) func(testing.TB) []call {
	return func(tb testing.TB) []call {
		post := load[Ev](tb, event)
		contentType := any("application/json")
		if headers == "multiValueHeaders" {
			contentType = []string{"application/json"}
		}
		answer := transcoded[Ans](tb, map[string]any{"statusCode": 201, headers: map[string]any{"Content-Type": contentType}, "body": `{"id":"ch_1"}`})
		return bench[Ev, Ans]{build: build, get: asGET(post), post: post, withKey: withEventKey[Ev], answer: answer, status: status}.calls(tb)
	}
}

func asGET[Ev any](ev Ev) Ev {
	switch e := any(&ev).(type) {
	case *v2Event:
		e.RequestContext.HTTP.Method = "GET"
	case *urlEvent:
		e.RequestContext.HTTP.Method = "GET"
	case *v1Event:
		e.HTTPMethod = "GET"
	case *albEvent:
		e.HTTPMethod = "GET"
	}
	return ev
}

func withEventKey[Ev any](ev Ev, key string) Ev {
	switch e := any(&ev).(type) {
	case *v2Event:
		e.Headers = keyedMap(e.Headers, key, one)
	case *urlEvent:
		e.Headers = keyedMap(e.Headers, key, one)
	case *v1Event:
		e.Headers, e.MultiValueHeaders = keyedMap(e.Headers, key, one), keyedMap(e.MultiValueHeaders, key, list)
	case *albEvent:
		e.Headers, e.MultiValueHeaders = keyedMap(e.Headers, key, one), keyedMap(e.MultiValueHeaders, key, list)
	}
	return ev
}

func one(key string) string { return key }

func list(key string) []string { return []string{key} }

// callsHTTP begins with bare, the exchange itself: a writer, and a handler that
// writes to it. Its cost is part of all other calls.
func callsHTTP(tb testing.TB) []call {
	read := func(name string) *http.Request {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(recordings(tb, "nethttp")[name].bytes())))
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
	get := read("get")
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
		post: read("post"),
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
