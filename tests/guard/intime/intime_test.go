// SPDX-License-Identifier: Apache-2.0

// Package intime shows for every time-out of a function, every place where a store or a
// function of the user stops, and every front, that the answer is there in time.
package intime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdabatch"
	"github.com/once-lambda/once/lambdahttp"
)

const ms = time.Millisecond

// limits are the time-outs of the function, 0 for none, and when it has to have answered:
// before the time-out by a fifth of the reserve, 50 to 100 ms, and at most half of it.
var limits = map[time.Duration]time.Duration{
	400 * ms: 360 * ms, time.Second: 950 * ms, 3 * time.Second: 2900 * ms, 10 * time.Second: 9900 * ms,
	20 * time.Second: 19900 * ms, 29 * time.Second: 28900 * ms, 40 * time.Second: 39900 * ms,
	0: 15 * time.Minute, // the end of the lease, DefaultLease
}

// place is where a store, a sealer, a predecessor or a function of the user stops.
type place struct {
	name    string
	op      driver.Op // that stops, with all calls after it; empty: the function of that name
	wrap    string    // answers: of Wrap
	http    string    // of an HTTP front
	batch   string    // of a batch of ten
	event   string    // that is written
	endless bool      // without a deadline nothing ends it
}

// stuck are the answers of a request that was not begun.
const (
	unavailable = "503 store-unavailable"
	noTime      = "503 no-time-left"
	impossible  = "" // the reason is in the table of impossible cells
)

var places = []place{
	{"claim", driver.OpInsert, "StoreError", unavailable, "10 failed", "store_error", true},
	{"takeover", driver.OpReplace, "StoreError", unavailable, "10 failed", "store_error", true},
	{"mark", driver.OpReplace, "StoreError", unavailable, "10 failed", "store_error", true},
	{"second read", driver.OpGet, "StoreError", unavailable, "10 failed", "store_error", true},
	{"chunks of a replay", driver.OpGetChunks, "StoreError", unavailable, impossible, "replay_failed", true},
	{"Open of a replay", driver.OpOpen, "StoreError", unavailable, "10 failed", "replay_failed", true},
	{"predecessor", driver.OpPredecessor, "StoreError", unavailable, "10 failed", "store_error", false},
	{"step", driver.OpReplace, "ok", "201", "10 failed", "store_error", false},
	{"Commit", driver.OpReplace, "StoreError", "StoreError", "10 failed", "store_error", false},
	{"announcement", driver.OpReplace, "ok", "201", "10 failed", "completion_failed", false},
	{"outcome", driver.OpReplace, "ok", "201", "10 failed", "completion_failed", false},
	{"chunk", driver.OpPutChunks, "ok", "201", impossible, "completion_failed", false},
	{"seal", driver.OpSeal, "ok", "201", "10 failed", "completion_failed", false},
	{"ID", "", impossible, impossible, "1 failed", "", true},
	{"Scope", "", impossible, noTime, "1 failed", "", true},
	{"Fingerprint", "", impossible, noTime, "1 failed", "", true},
	{"Unwrap", "", impossible, impossible, "1 failed", "", true},
	{"Decode", "", impossible, impossible, "1 failed", "", true},
	{"HandOver", "", impossible, impossible, "1 failed", "mismatch", true},
	{"Visibility.Change", "", impossible, impossible, "1 failed", "in_progress", false},
	{"BeforeReplay", "", impossible, noTime, impossible, "replayed", true},
	{"Accepted", "", impossible, noTime, impossible, "in_progress", true},
}

// reasons are why a cell is impossible.
var reasons = map[string]string{
	"chunks of a replay": "the result of a message is empty, and so never in chunks",
	"chunk":              "the result of a message is empty, and so never in chunks",
	"ID":                 "only a batch has this function",
	"Unwrap":             "only a batch has this function",
	"Decode":             "only a batch has this function",
	"HandOver":           "only a batch has this function",
	"Visibility.Change":  "only a queue has this function",
	"Scope":              "Wrap has no such function: its KeyFunc is the caller's",
	"Fingerprint":        "Wrap has no such function: its KeyFunc is the caller's",
	"BeforeReplay":       "only an HTTP front has this function",
	"Accepted":           "only an HTTP front has this function",
}

// endless is why a cell without a deadline is impossible.
const endless = "without a deadline nothing ends the call: docs/concepts.md says to set one"

// scene is one cell.
type scene struct {
	t     *testing.T
	place place
	guard *idempotent.Guard
	stops atomic.Bool   // the next call at the place stops
	came  atomic.Bool   // the function of the user was called
	gone  atomic.Bool   // a call has stopped, and so does every one after it
	hung  chan struct{} // closed when the first call has stopped
	large bool
}

// meets stops if it is the place, and at each call after one that has stopped.
func (s *scene) meets(ctx context.Context, op driver.Op) error {
	if s.gone.Load() || s.stops.Load() && op == s.place.op {
		if s.gone.CompareAndSwap(false, true) {
			close(s.hung)
		}
		<-ctx.Done()
	}
	return ctx.Err()
}

// called is called by the function of the user with that name.
func (s *scene) called(ctx context.Context, name string) error {
	if s.stops.Load() && s.place.op == "" && name == s.place.name && s.came.CompareAndSwap(false, true) {
		<-ctx.Done()
	}
	return ctx.Err()
}

// work is what every handler does; result is what it commits.
func (s *scene) work(ctx context.Context, result any) error {
	if !s.stops.Load() {
		return nil
	}
	e, _ := idempotent.FromContext(ctx)
	switch s.place.name {
	case "step":
		_, err := idempotent.Step(ctx, "pay", func(context.Context) (string, error) { return "ok", nil })
		return err
	case "Commit":
		return e.Commit(ctx, result, e.Store().Replace)
	case "announcement": // the handler does not look at its context, and then returns
		<-s.hung
	}
	return nil
}

// front is a handler behind an event source. Its function sends the same request each time
// and returns what came back.
type front struct {
	name string
	kind string // wrap, http or batch
	make func(*scene) func(ctx context.Context) string
}

var fronts = []front{
	{"Wrap", "wrap", wrapped},
	{"APIGatewayV2", "http", eventFront(lambdahttp.APIGatewayV2, v2, func(r events.APIGatewayV2HTTPResponse) (int, string) { return r.StatusCode, r.Body })},
	{"APIGatewayV1", "http", eventFront(lambdahttp.APIGatewayV1, v1, func(r events.APIGatewayProxyResponse) (int, string) { return r.StatusCode, r.Body })},
	{"ALB", "http", eventFront(lambdahttp.ALB, alb, func(r events.ALBTargetGroupResponse) (int, string) { return r.StatusCode, r.Body })},
	{"FunctionURL", "http", eventFront(lambdahttp.FunctionURL, functionURL, func(r events.LambdaFunctionURLResponse) (int, string) { return r.StatusCode, r.Body })},
	{"Middleware", "http", middleware},
	{"SQS", "batch", queue},
	{"Kinesis", "batch", stream},
}

func (s *scene) body() string {
	if s.large {
		return large
	}
	return "ok"
}

// large is stored in chunks: it hardly compresses.
var large = func() string {
	var b strings.Builder
	for x := uint32(1); b.Len() < 20<<10; x = x*1664525 + 1013904223 {
		fmt.Fprintf(&b, "%x", x>>8)
	}
	return b.String()
}()

func wrapped(s *scene) func(context.Context) string {
	h := idempotent.Wrap(s.guard, idempotent.KeyFrom("charge", func(string) (string, string) { return "acme", "order-1" }),
		func(ctx context.Context, _ string) (string, error) { return s.body(), s.work(ctx, s.body()) })
	return func(ctx context.Context) string {
		_, err := h(ctx, "request")
		return described(err, "ok")
	}
}

func described(err error, otherwise string) string {
	switch {
	case err == nil:
		return otherwise
	case errors.As(err, new(*idempotent.StoreError)):
		return "StoreError"
	}
	return err.Error()
}

func (s *scene) httpOptions(o *lambdahttp.Options) {
	o.Scope.Of = func(ctx context.Context, _ *lambdahttp.Request) (string, error) {
		return "acme", s.called(ctx, "Scope")
	}
	o.Fingerprint.Of = func(ctx context.Context, _ *lambdahttp.Request) ([][]byte, error) {
		return nil, s.called(ctx, "Fingerprint")
	}
	o.BeforeReplay = func(ctx context.Context, _ *lambdahttp.Request, _ lambdahttp.Response) error {
		return s.called(ctx, "BeforeReplay")
	}
	o.Operation = func(*lambdahttp.Request) string { return "charge" }
	if s.place.name == "Accepted" {
		o.Accepted = func(ctx context.Context, _ *lambdahttp.Request, _ idempotent.RecordID) string {
			_ = s.called(ctx, "Accepted")
			return "/charges/1"
		}
	}
}

// answered returns the status of a response, and its code if it is a problem.
func answered(status int, body string) string {
	var problem struct{ Code string }
	_ = json.Unmarshal([]byte(body), &problem)
	return strings.TrimSpace(fmt.Sprint(status, " ", problem.Code))
}

const key = `"8e03978e-40d5-43e8-bc93-6894a57f9324"`

func headers() map[string]string {
	return map[string]string{"idempotency-key": key, "content-type": "application/json"}
}

func eventFront[Req, Resp any](
	build func(*idempotent.Guard, func(context.Context, Req) (Resp, error), ...func(*lambdahttp.Options)) func(context.Context, Req) (Resp, error),
	request func() Req, read func(Resp) (int, string),
) func(*scene) func(context.Context) string {
	return func(s *scene) func(context.Context) string {
		h := build(s.guard, func(ctx context.Context, _ Req) (r Resp, err error) {
			answer, _ := json.Marshal(map[string]any{"statusCode": 201, "body": s.body(), "headers": map[string]string{}})
			_ = json.Unmarshal(answer, &r)
			return r, s.work(ctx, r)
		}, s.httpOptions)
		return func(ctx context.Context) string {
			r, err := h(ctx, request())
			return described(err, answered(read(r)))
		}
	}
}

func v2() (e events.APIGatewayV2HTTPRequest) {
	e.RawPath, e.Headers, e.RouteKey, e.Body = "/charges", headers(), "POST /charges", "{}"
	e.RequestContext.HTTP.Method = "POST"
	return e
}

func v1() (e events.APIGatewayProxyRequest) {
	e.Path, e.Resource, e.HTTPMethod, e.Headers, e.Body = "/charges", "/charges", "POST", headers(), "{}"
	return e
}

func alb() (e events.ALBTargetGroupRequest) {
	e.Path, e.HTTPMethod, e.Headers, e.Body = "/charges", "POST", headers(), "{}"
	return e
}

func functionURL() (e events.LambdaFunctionURLRequest) {
	e.RawPath, e.Headers, e.Body = "/charges", headers(), "{}"
	e.RequestContext.HTTP.Method = "POST"
	return e
}

func middleware(s *scene) func(context.Context) string {
	h := lambdahttp.Middleware(s.guard, s.httpOptions, func(o *lambdahttp.Options) {
		o.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
			w.WriteHeader(599)
			fmt.Fprintf(w, `{"code":%q}`, described(err, ""))
		}
	})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.work(r.Context(), lambdahttp.Response{Status: 201, Body: []byte(s.body())}); err != nil {
			lambdahttp.SetError(r.Context(), err)
			return
		}
		w.WriteHeader(201)
		fmt.Fprint(w, s.body())
	}))
	return func(ctx context.Context) string {
		r := httptest.NewRequestWithContext(ctx, "POST", "/charges", strings.NewReader("{}"))
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return strings.TrimPrefix(answered(w.Code, w.Body.String()), "599 ")
	}
}

func (s *scene) batchOptions(o *lambdabatch.Options) {
	o.Operation, o.NoRedrive = "charge", false
	first := func(m *lambdabatch.Message) bool { return strings.HasSuffix(m.ItemID, "00") }
	o.ID = func(ctx context.Context, m *lambdabatch.Message) (string, error) {
		if first(m) {
			return "work-" + m.ItemID, s.called(ctx, "ID")
		}
		return "work-" + m.ItemID, nil
	}
	o.Scope = func(ctx context.Context, m *lambdabatch.Message) (string, error) {
		if first(m) {
			return "acme", s.called(ctx, "Scope")
		}
		return "acme", nil
	}
	o.Fingerprint = func(ctx context.Context, m *lambdabatch.Message) (f idempotent.Fingerprint, err error) {
		if first(m) {
			err = s.called(ctx, "Fingerprint")
		}
		text := "request"
		if s.place.name == "HandOver" && s.stops.Load() && first(m) { // another content: it is refused
			text = "another"
		}
		return idempotent.FingerprintBytes([]byte(text)), err
	}
	o.Unwrap = func(ctx context.Context, m *lambdabatch.Message) error {
		if first(m) {
			return s.called(ctx, "Unwrap")
		}
		return nil
	}
	o.Decode = func(ctx context.Context, body []byte, v any) error {
		if strings.Contains(string(body), "first") {
			return s.called(ctx, "Decode")
		}
		return nil
	}
	if s.place.name == "HandOver" {
		o.HandOver = func(ctx context.Context, _ *lambdabatch.Message, _ error) error { return s.called(ctx, "HandOver") }
	}
}

type order struct{ Text string }

func (s *scene) handle(ctx context.Context, _ order) error { return s.work(ctx, struct{}{}) }

func body(i int) string {
	if i == 0 {
		return `{"Text":"first"}`
	}
	return `{"Text":"other"}`
}

func queue(s *scene) func(context.Context) string {
	h := lambdabatch.SQS(s.guard, s.handle, s.batchOptions, func(o *lambdabatch.Options) {
		if s.place.name == "Visibility.Change" {
			o.Visibility.Change = func(ctx context.Context, _, _ string, _ int32) error { return s.called(ctx, "Visibility.Change") }
		}
	})
	var e events.SQSEvent
	for i := range 10 {
		e.Records = append(e.Records, events.SQSMessage{MessageId: fmt.Sprintf("m-%02d", i), Body: body(i), EventSource: "aws:sqs", EventSourceARN: "arn:aws:sqs:eu-west-1:123456789012:orders"})
	}
	return func(ctx context.Context) string {
		r, err := h(ctx, e)
		return described(err, fmt.Sprint(len(r.BatchItemFailures), " failed"))
	}
}

func stream(s *scene) func(context.Context) string {
	h := lambdabatch.Kinesis(s.guard, s.handle, s.batchOptions)
	var e events.KinesisEvent
	for i := range 10 {
		n := fmt.Sprintf("49590338271490256608559692538361571095921575989136588%02d", i)
		e.Records = append(e.Records, events.KinesisEventRecord{EventID: "shardId-000000000000:" + n, EventSource: "aws:kinesis", EventSourceArn: "arn:aws:kinesis:eu-west-1:123456789012:stream/orders",
			Kinesis: events.KinesisRecord{SequenceNumber: n, PartitionKey: n, Data: []byte(body(i))}})
	}
	return func(ctx context.Context) string {
		r, err := h(ctx, e)
		return described(err, fmt.Sprint(len(r.BatchItemFailures), " failed"))
	}
}

// Every answer is there in time, and says what happened.
func TestEveryAnswerInTime(t *testing.T) {
	var mu sync.Mutex
	skipped := map[string]int{}
	skip := func(reason string) {
		mu.Lock()
		defer mu.Unlock()
		skipped[reason]++
	}
	cells := 0
	for _, f := range fronts {
		for _, p := range places {
			want := map[string]string{"wrap": p.wrap, "http": p.http, "batch": p.batch}[f.kind]
			if want == impossible || p.name == "Visibility.Change" && f.name != "SQS" {
				if reasons[p.name] == "" {
					t.Errorf("%s at %s has no reason", f.name, p.name)
				}
				skip(p.name + ": " + reasons[p.name])
				continue
			}
			if f.name == "Kinesis" { // it names the first one
				want = "1 failed"
			}
			for limit, by := range limits {
				if limit == 0 && (p.endless || f.kind == "batch") { // of a batch: the claim of the next message
					skip(endless)
					continue
				}
				cells++
				t.Run(fmt.Sprintf("%s/%s/%s", f.name, p.name, limit), func(t *testing.T) { cell(t, f, p, limit, by, want) })
			}
		}
	}
	for _, reason := range slices.Sorted(func(yield func(string) bool) {
		for reason, n := range skipped {
			if !yield(fmt.Sprintf("%4d impossible: %s", n, reason)) {
				return
			}
		}
	}) {
		t.Log(reason)
	}
	t.Logf("%4d cells", cells)
	for name := range reasons {
		if !slices.ContainsFunc(places, func(p place) bool { return p.name == name }) {
			t.Errorf("there is no place %s", name)
		}
	}
}

func cell(t *testing.T, f front, p place, limit, by time.Duration, want string) {
	synctest.Test(t, func(t *testing.T) {
		s := &scene{t: t, place: p, hung: make(chan struct{}), large: p.op == driver.OpGetChunks || p.op == driver.OpPutChunks}
		shelf := newChunked()
		var seen idempotenttest.Recorder
		var err error
		s.guard, err = idempotent.New(idempotenttest.Intercept(shelf, func(ctx context.Context, c *idempotenttest.StoreCall) {
			if c.Err = s.meets(ctx, c.Op); c.Err == nil {
				c.Do(ctx)
			}
		}), func(o *idempotent.Options) {
			o.Observer, o.Logger = &seen, slog.New(slog.DiscardHandler)
			switch p.op {
			case driver.OpSeal, driver.OpOpen:
				sealer := kit.NewSealer()
				sealer.BeforeSeal = func(ctx context.Context, _, _ []byte) error { return s.meets(ctx, driver.OpSeal) }
				sealer.BeforeOpen = func(ctx context.Context, _, _ []byte) error { return s.meets(ctx, driver.OpOpen) }
				o.Seal = sealer
			case driver.OpPredecessor:
				o.Predecessor = func(ctx context.Context, _ idempotent.Key) (any, bool, error) {
					return nil, false, s.meets(ctx, driver.OpPredecessor)
				}
			case driver.OpGet:
				o.WaitFor = time.Hour
			default: // a call of the store
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		send := f.make(s)
		s.before(f, shelf, send)
		s.stops.Store(true)
		began := len(seen.Events())
		ctx, cancel := t.Context(), context.CancelFunc(func() {})
		if limit > 0 {
			ctx, cancel = context.WithTimeout(ctx, limit)
		}
		defer cancel()
		start := time.Now()
		got := send(ctx)
		took := time.Since(start)
		var kinds []string
		for _, e := range seen.Events()[began:] {
			if e.Time.Sub(start) <= took {
				kinds = append(kinds, string(e.Kind))
			}
		}
		if got != want || took > by || p.event != "" && !slices.Contains(kinds, p.event) {
			t.Errorf("got %q, want %q, after %s, want %s at the latest, with the events %v, want %q", got, want, took, by, kinds, p.event)
		}
		if took == 0 {
			t.Error("nothing has stopped")
		}
		time.Sleep(time.Hour) // what continues beside the answer
	})
}

// before leaves the records that the place needs.
func (s *scene) before(f front, shelf *chunked, send func(context.Context) string) {
	leave := func(change func(*driver.Record)) {
		send(s.t.Context())
		for _, r := range shelf.inserted() {
			was := r.Version
			r.Version[0]++
			r.Result, r.Encoding, r.Chunks = nil, "", driver.Chunks{}
			change(r)
			if met, err := shelf.Replace(s.t.Context(), *r, was); met != nil || err != nil {
				s.t.Fatal(met, err)
			}
		}
	}
	running := func(r *driver.Record) {
		r.State, r.LeaseEnd, r.Expires = driver.StateInProgress, time.Now().Add(2*time.Hour), time.Time{}
	}
	switch s.place.name {
	case "takeover":
		leave(func(r *driver.Record) { r.State = driver.StateRetryable })
	case "mark":
		leave(func(r *driver.Record) {
			r.State, r.LeaseEnd, r.Expires = driver.StateInProgress, time.Now().Add(-time.Hour), time.Time{}
		})
	case "second read", "Accepted":
		leave(running)
	case "Visibility.Change":
		leave(func(r *driver.Record) {
			if r.ID == shelf.inserted()[0].ID {
				running(r)
			}
		})
	case "chunks of a replay", "Open of a replay", "BeforeReplay", "HandOver":
		send(s.t.Context())
	}
}

// chunked is a memory store that stores large results beside their records, and knows which
// records were inserted.
type chunked struct {
	*memstore.Store
	mu     sync.Mutex
	ids    []driver.RecordID
	chunks map[string][]byte
}

func newChunked() *chunked { return &chunked{Store: memstore.New(), chunks: map[string][]byte{}} }

func (c *chunked) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.ids, r.ID) {
		c.ids = append(c.ids, r.ID)
	}
	return c.Store.Insert(ctx, r, now)
}

// inserted returns the records, the first one first.
func (c *chunked) inserted() (all []*driver.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range c.ids {
		if r, err := c.Get(context.Background(), id); err == nil {
			all = append(all, r)
		}
	}
	return all
}

func (c *chunked) PutChunks(_ context.Context, id driver.RecordID, v driver.Version, data []byte, _ time.Time) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.chunks[fmt.Sprint(id, v)] = slices.Clone(data)
	return 1, nil
}

func (c *chunked) GetChunks(_ context.Context, id driver.RecordID, v driver.Version, _ int) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.chunks[fmt.Sprint(id, v)]), nil
}
