// SPDX-License-Identifier: Apache-2.0

package lambdabatch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdabatch"
)

// A constructor panics if an option is invalid, and names the option.
func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	type option = func(*lambdabatch.Options)
	w := newFixture(t)
	sqs := func(optFns ...option) { lambdabatch.SQS(w.guard, w.handle, w.options(optFns...)) }
	fifo := func(optFns ...option) { lambdabatch.SQSFIFO(w.guard, w.handle, w.options(optFns...)) }
	kinesis := func(optFns ...option) { lambdabatch.Kinesis(w.guard, w.handle, w.options(optFns...)) }
	dynamodb := func(optFns ...option) { lambdabatch.DynamoDB(w.guard, w.handle, w.options(optFns...)) }
	kafka := func(optFns ...option) { lambdabatch.Kafka(w.guard, w.handle, w.options(optFns...)) }
	noID := func(o *lambdabatch.Options) { o.ID = nil }
	backoff := func(d time.Duration) option { return func(o *lambdabatch.Options) { o.Visibility.Backoff = d } }
	hides := new(changes).option
	for _, row := range []struct {
		want   string // empty: the options are valid
		build  func(...option)
		optFns []option
	}{
		{"", sqs, nil},
		{"SQS: the guard is nil", func(...option) { lambdabatch.SQS(nil, w.handle, w.options()) }, nil},
		{"SQS: the handler is nil", func(...option) { lambdabatch.SQS[order](w.guard, nil, w.options()) }, nil},
		{"Options.Operation", sqs, []option{func(o *lambdabatch.Options) { o.Operation = "" }}},
		{"Options.ID is not set", sqs, []option{noID}},
		{"Options.ID is not set", fifo, []option{noID}},
		{"Options.ID returns the message id", sqs, []option{itemID}},
		{"Options.ID returns the message id", fifo, []option{itemID}},
		{"", sqs, []option{itemID, noRedrive}},
		{"", kinesis, []option{itemID}},
		{"", kinesis, []option{noID}},
		{"Options.NoRedrive", dynamodb, []option{noRedrive}},
		{"Kafka are not redriven", kafka, []option{noRedrive}},
		{"Operation.Recovery", sqs, []option{recovery(idempotent.Rerun + 1)}},
		{"", sqs, []option{recovery(idempotent.Reconcile)}},
		{"Operation.Steps", sqs, []option{recovery(idempotent.Resume)}},
		{"Concurrency", sqs, []option{concurrency(-1)}},
		{"Reserve", sqs, []option{func(o *lambdabatch.Options) { o.Reserve = -1 }}},
		{"Redelivery", sqs, []option{func(o *lambdabatch.Options) { o.Redelivery = -1 }}},
		{"Operation.Retention", sqs, []option{guarded(func(o *idempotent.Operation) { o.Retention = -1 })}},
		{"Operation.UnresolvedRetention", sqs, []option{guarded(func(o *idempotent.Operation) { o.UnresolvedRetention = -1 })}},
		{"Options.Visibility", kinesis, []option{hides}},
		{"Kafka have no visibility timeout", kafka, []option{hides}},
		{"Backoff", sqs, []option{backoff(-1)}},
		{"needs Visibility.Change", sqs, []option{backoff(1)}},
		{"", sqs, []option{hides, backoff(1)}},
		{"Options.Fail 3", sqs, []option{func(o *lambdabatch.Options) { o.Fail = lambdabatch.FailIfAny + 1 }}},
		{"DefaultLease", sqs, []option{guarded(func(o *idempotent.Operation) { o.DefaultLease = time.Second })}},
		{"JSON Pointer", func(...option) { lambdabatch.Field("order_id") }, nil},
		{"message attribute", func(...option) { lambdabatch.Attribute("") }, nil},
	} {
		got := panicOf(func() { row.build(row.optFns...) })
		if (got == "") != (row.want == "") || !strings.Contains(got, row.want) {
			t.Errorf("got the panic %q, want %q in it", got, row.want)
		}
	}
}

func itemID(o *lambdabatch.Options) { o.ID = lambdabatch.ItemID }

func noRedrive(o *lambdabatch.Options) { o.NoRedrive = true }

func panicOf(f func()) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint(p)
		}
	}()
	f()
	return ""
}

// Outcomes are stored for as long as the source redelivers, or for the guard's
// retention if that is longer. A record without an outcome is stored as long, so that
// its message does not run again.
func TestRetentionFollowsTheSource(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, row := range map[string]struct {
		retention, redelivery time.Duration
		noRedrive             bool
		want                  time.Duration
		unresolved            bool
	}{
		"defaults":           {want: 23 * day},
		"shorter retention":  {retention: time.Hour, want: 23 * day},
		"longer retention":   {retention: 30 * day, want: 30 * day},
		"longer redelivery":  {retention: time.Hour, redelivery: 42 * day, want: 42 * day},
		"shorter than a day": {retention: time.Hour, redelivery: 2 * time.Hour, want: 2 * time.Hour},
		"equal":              {retention: 2 * time.Hour, redelivery: 2 * time.Hour, want: 2 * time.Hour},
		"no redrive":         {noRedrive: true, want: 4*day + 12*time.Hour},
		"both declared":      {noRedrive: true, redelivery: 15 * day, want: 15 * day},
		"no outcome":         {want: 365 * day, unresolved: true}, // it has no limit
		"no outcome shorter": {retention: 2 * day, want: 23 * day, unresolved: true},
		"no outcome longer":  {retention: 30 * day, want: 30 * day, unresolved: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			h := lambdabatch.SQS(w.guard, w.handle, w.options(recovery(idempotent.Reconcile),
				func(o *lambdabatch.Options) { o.Redelivery, o.NoRedrive = row.redelivery, row.noRedrive },
				guarded(func(o *idempotent.Operation) {
					if row.unresolved {
						o.UnresolvedRetention = row.retention
					} else {
						o.Retention = row.retention
					}
				})))
			var again []string
			if row.unresolved {
				w.on("o-1", returns(errBroken))
				again = []string{"m1"}
			}
			wantIDs(t, w.send(h, messages("o-1")), again...)
			w.clock.Advance(row.want - time.Minute)
			wantIDs(t, w.send(h, messages("o-1")), again...)
			w.wantRuns("o-1")
			if row.unresolved {
				return
			}
			w.clock.Advance(2 * time.Minute)
			wantIDs(t, w.send(h, messages("o-1")))
			w.wantRuns("o-1", "o-1")
		})
	}
}

// A message whose key is its own id does not run if it can return with another id,
// also if a function of the program chose that id. The log names the reason.
func TestAMessageIDIsNoKey(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	fallback := func(o *lambdabatch.Options) {
		o.ID = func(ctx context.Context, m *lambdabatch.Message) (string, error) {
			if id, err := lambdabatch.Field("/order_id")(ctx, m); err == nil {
				return id, nil
			}
			return lambdabatch.ItemID(ctx, m)
		}
	}
	batch := messages("o-1", "o-2")
	batch.Records[1].Body = `{"amount":1}`
	wantIDs(t, w.send(lambdabatch.SQS(w.guard, w.handle, w.options(fallback)), batch), "m2")
	w.wantRuns("o-1")
	if !strings.Contains(w.log(), "item=m2 error_type=logs.Error error=\"lambdabatch: Options.ID returns the message id, and") {
		t.Errorf("the log:\n%s", w.log())
	}
	wantIDs(t, w.send(lambdabatch.SQS(w.guard, w.handle, w.options(fallback, noRedrive)), batch))
	w.wantRuns("o-1", "")
}

// A panic or runtime.Goexit in any function fails only its own message, which is not handed
// over: the next version may not panic. A message whose key could not be computed is not
// treated as one without a key.
func TestPanicsAreOneMessages(t *testing.T) {
	t.Parallel()
	onTwo := func(body []byte) {
		if strings.Contains(string(body), "o-2") {
			panic("no")
		}
	}
	for name, option := range map[string]func(*lambdabatch.Options){
		"Unwrap": func(o *lambdabatch.Options) {
			o.Unwrap = func(_ context.Context, m *lambdabatch.Message) error { onTwo(m.Body); return nil }
		},
		"ID": func(o *lambdabatch.Options) {
			o.ID = func(ctx context.Context, m *lambdabatch.Message) (string, error) {
				onTwo(m.Body)
				return lambdabatch.Field("/order_id")(ctx, m)
			}
		},
		"Scope": func(o *lambdabatch.Options) {
			o.Scope = func(_ context.Context, m *lambdabatch.Message) (string, error) { onTwo(m.Body); return "all", nil }
		},
		"Fingerprint": func(o *lambdabatch.Options) {
			o.Fingerprint = func(_ context.Context, m *lambdabatch.Message) (idempotent.Fingerprint, error) {
				onTwo(m.Body)
				return idempotent.FingerprintBytes(m.Body), nil
			}
		},
		"Decode": func(o *lambdabatch.Options) {
			o.Decode = func(_ context.Context, body []byte, v any) error { onTwo(body); return json.Unmarshal(body, v) }
		},
		"handler": nil,
		"Goexit":  nil,
	} {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s %d", name, n), func(t *testing.T) {
				t.Parallel()
				w := newFixture(t)
				w.on("o-2", func(context.Context) error {
					if name == "Goexit" {
						runtime.Goexit()
					}
					panic("handler")
				})
				h := lambdabatch.SQS(w.guard, w.handle, w.options(option, concurrency(n), guarded(func(g *idempotent.Operation) { g.AllowMissingKey = true }), func(o *lambdabatch.Options) {
					o.HandOver = func(_ context.Context, m *lambdabatch.Message, reason error) error {
						t.Errorf("%s is handed over: %v", m.ItemID, reason)
						return nil
					}
				}))
				wantIDs(t, w.send(h, messages("o-1", "o-2", "o-3")), "m2")
				if told := strings.Contains(w.log(), "panic_type=string stack="); told != (name != "Goexit") || strings.Contains(w.log(), "panic_type=<nil>") {
					t.Errorf("the log reports a panic: %t\n%s", told, w.log())
				}
				if strings.Contains(w.log(), "error_type=*idempotent.") { // the key may be valid; it was not read
					t.Errorf("the guard was called:\n%s", w.log())
				}
			})
		}
	}
}

// An empty list of records is done. An event without one comes from another source: it
// is refused, because an answer without failures would acknowledge it.
func TestEventsWithoutRecords(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	for source, handler := range map[string]any{
		"events.SQSMessage": lambdabatch.SQS(w.guard, w.handle, w.options()), "SQSFIFO": lambdabatch.SQSFIFO(w.guard, w.handle, w.options()),
		"Kinesis": lambdabatch.Kinesis(w.guard, w.handle, w.options()), "DynamoDB": lambdabatch.DynamoDB(w.guard, w.handle, w.options()),
		"Kafka": lambdabatch.Kafka(w.guard, w.handle, w.options()),
	} {
		invoke := lambda.NewHandler(handler).Invoke
		list := "[]"
		if source == "Kafka" {
			list = "{}"
		}
		if response, err := invoke(w.invocation(), []byte(`{"Records":`+list+`}`)); err != nil || string(response) != `{"batchItemFailures":[]}` {
			t.Errorf("%s: an empty list: %s, %v", source, response, err)
		}
		for _, event := range []string{`null`, `{}`, `{"Records":null}`, `{"id":"e-1","detail-type":"order paid","detail":{"order_id":"o-1"}}`} {
			if response, err := invoke(w.invocation(), []byte(event)); err == nil || !strings.Contains(err.Error(), source) || !strings.Contains(err.Error(), "check what invokes the function") {
				t.Errorf("%s: %s: %s, %v", source, event, response, err)
			}
		}
	}
	w.wantRuns()
}

// At most Concurrency messages run at the same time; by default one. Messages without a
// key that may run at all are not copies of each other.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	keyless := func(o *lambdabatch.Options) {
		o.ID = lambdabatch.Attribute("order")
		o.Guard = func(g *idempotent.Operation) { g.AllowMissingKey = true }
	}
	for _, row := range []struct {
		n, limit int
		option   func(*lambdabatch.Options)
	}{{0, 1, nil}, {1, 1, nil}, {4, 4, nil}, {3, 3, keyless}} {
		synctest.Test(t, func(t *testing.T) {
			w := newFixture(t)
			var mu sync.Mutex
			running, top := 0, 0
			h := lambdabatch.SQS(w.guard, func(context.Context, string) error {
				mu.Lock()
				running++
				top = max(top, running)
				mu.Unlock()
				time.Sleep(time.Second) // those that may run beside it begin
				mu.Lock()
				defer mu.Unlock()
				running--
				return nil
			}, w.options(concurrency(row.n), row.option))
			var ids []string
			for i := range 20 {
				ids = append(ids, fmt.Sprintf("o-%d", i))
			}
			wantIDs(t, w.send(h, messages(ids...)))
			if top != row.limit {
				t.Errorf("%d messages ran at the same time, want %d", top, row.limit)
			}
		})
	}
}

// A log line has the id of the message and, if it is known, the hash of the
// key. Success is not logged.
func TestLog(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	h := lambdabatch.SQS(w.guard, w.handle, w.options())
	wantIDs(t, w.send(h, messages("o-1")))
	if w.log() != "" {
		t.Errorf("a success was logged:\n%s", w.log())
	}
	w.on("o-2", returns(errBroken))
	hash := idempotent.Key{Operation: "fulfil", Scope: queue, ID: "o-2"}.RecordID().KeyHash()
	noScope := w.options(func(o *lambdabatch.Options) {
		o.Scope = func(context.Context, *lambdabatch.Message) (string, error) { return "", errBroken }
	})
	for _, c := range []struct {
		option func(*lambdabatch.Options)
		body   string
		want   string
	}{
		{w.options(), `{"order_id":"o-2"}`, "operation=fulfil item=m1 key_hash=" + hash + " error_type=*errors.errorString\n"},
		{w.options(), `{}`, "operation=fulfil item=m1 error_type=*lambdabatch.DecodeError error=\"lambdabatch: the body has no string or number at \\\"/order_id\\\", which Field names\"\n"},
		{noScope, `{"order_id":"o-2"}`, "operation=fulfil item=m1 error_type=*errors.errorString\n"},
		{w.options(func(o *lambdabatch.Options) { o.ID = lambdabatch.Attribute("order") }), `{}`, "operation=fulfil item=m1 error_type=*idempotent.InvalidKeyError error=\"idempotent: invalid ID: the request has no idempotency key; send one, or set Operation.AllowMissingKey to run such requests unguarded\"\n"},
	} {
		w.lines.Reset()
		batch := messages("")
		batch.Records[0].Body = c.body
		wantIDs(t, w.send(lambdabatch.SQS(w.guard, w.handle, c.option), batch), "m1")
		if !strings.HasSuffix(w.log(), c.want) {
			t.Errorf("got the log\n%swant this at its end:\n%s", w.log(), c.want)
		}
	}
}

// A guard without a logger uses slog's default, and a guard without a clock
// uses the system time.
func TestGuardsDefaults(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	g, err := idempotent.New(w.store)
	if err != nil {
		t.Fatal(err)
	}
	h := lambdabatch.SQS(g, w.handle, w.options())
	w.on("o-1", returns(errBroken))
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	response, err := h(ctx, messages("o-1", "o-2"))
	wantIDs(t, failed(t, response, err), "m1")
}

// INV-1 with one guard for 64 invocations in one process, as on managed
// instances (AWS_LAMBDA_MAX_CONCURRENCY): every order runs once.
func TestManyInvocationsOneGuard(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	h := lambdabatch.SQS(w.guard, w.handle, w.options(concurrency(4)))
	const invocations, orders = 64, 40
	var done sync.WaitGroup
	for i := range invocations {
		done.Go(func() {
			var ids []string
			for n := range 10 {
				ids = append(ids, fmt.Sprintf("o-%d", (i*7+n)%orders))
			}
			event := messages(ids...)
			for range 1000 { // failed messages are redelivered
				again := w.send(h, event)
				event.Records = slices.DeleteFunc(event.Records, func(m events.SQSMessage) bool { return !slices.Contains(again, m.MessageId) })
				if len(event.Records) == 0 {
					return
				}
				runtime.Gosched() // let the other invocations run
			}
			t.Error("messages are redelivered without end")
		})
	}
	done.Wait()
	slices.Sort(w.runs)
	if got := slices.Compact(slices.Clone(w.runs)); len(w.runs) != orders || len(got) != orders {
		t.Errorf("%d runs of %d orders, want %d of each", len(w.runs), len(got), orders)
	}
}

// F02: a field of the body is the key.
func TestFields(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ pointer, body, want string }{
		{"/order_id", `{"order_id":"o-1"}`, "o-1"},
		{"/orders/1/id", `{"orders":[{"id":"a"},{"id":"b"}]}`, "b"},
		{"/n", `{"n":1e2}`, "100"},
		{"/n", `{"n":""}`, ""},
		{"/n", `{"n":null}`, ""},
		{"/n", `{"m":1}`, ""},
		{"/n", `{"n":"x"`, ""},
		{"/n", `{"n":"x","N":"y"}`, ""}, // for encoding/json it is y
		{"/n/m", `{"N":{"m":1}}`, ""},
		{"/n", `{"n":"x","m":{"N":"y"}}`, "x"},
		{"/n", ``, ""},
	} {
		got, err := lambdabatch.Field(row.pointer)(t.Context(), &lambdabatch.Message{Body: []byte(row.body)})
		if got != row.want || (err == nil) != (row.want != "") {
			t.Errorf("%s of %s is %q, %v; want %q", row.pointer, row.body, got, err, row.want)
		}
	}
	r := &lambdabatch.Message{EventID: "m1", Attributes: map[string]string{"order": "o-1"}}
	if id, err := lambdabatch.ItemID(t.Context(), r); id != "m1" || err != nil {
		t.Errorf("the item's id is %q, %v", id, err)
	}
	if id, err := lambdabatch.Attribute("order")(t.Context(), r); id != "o-1" || err != nil {
		t.Errorf("the attribute is %q, %v", id, err)
	}
}

// The context of a handler has the message that it works on, also for a handler
// that gets only the body.
func TestFromContext(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	seen := 0
	h := lambdabatch.SQS(w.guard, func(ctx context.Context, body string) error {
		m, ok := lambdabatch.FromContext(ctx)
		if !ok || m.ItemID != "m1" || string(m.Body) != body || m.Attributes["traceparent"] != "t" || m.Event.(*events.SQSMessage).MessageId != "m1" {
			t.Errorf("the message is %+v, %v", m, ok)
		}
		seen++
		return nil
	}, w.options())
	batch := messages("o-1")
	batch.Records[0].MessageAttributes = map[string]events.SQSMessageAttribute{"traceparent": {StringValue: new("t")}}
	wantIDs(t, w.send(h, batch))
	if m, ok := lambdabatch.FromContext(t.Context()); ok || m != nil || seen != 1 {
		t.Errorf("outside a handler: %+v; %d runs", m, seen)
	}
}

// A handler returns an error if anything failed, or only if nothing succeeded, or never.
func TestFail(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		fail     lambdabatch.Fail
		all, any bool
	}{"default": {}, "FailIfAll": {fail: lambdabatch.FailIfAll, all: true}, "FailIfAny": {fail: lambdabatch.FailIfAny, any: true}} {
		w := newFixture(t)
		h := lambdabatch.SQS(w.guard, w.handle, w.options(func(o *lambdabatch.Options) { o.Fail = row.fail }))
		w.on("o-1", returns(idempotent.NotExecuted(errBroken)))
		for says, c := range map[string]struct {
			event events.SQSEvent
			fails bool
		}{
			"1 of 2 messages": {messages("o-1", "o-2"), row.any},
			"2 of 2 messages": {messages("o-1", "o-1"), row.any || row.all},
			"0 of 1 messages": {messages("o-2"), false},
			"0 of 0 messages": {events.SQSEvent{Records: []events.SQSMessage{}}, false},
		} {
			response, err := h(w.invocation(), c.event)
			if c.fails != (err != nil) || c.fails && !strings.Contains(err.Error(), says) || !c.fails && fmt.Sprint(len(response.BatchItemFailures)) != says[:1] {
				t.Errorf("%s: %s: %+v, %v", name, says, response, err)
			}
		}
		onEachStream(t, func(t *testing.T, s stream) {
			w := newFixture(t)
			w.on("o-1", returns(errBroken))
			if _, err := s.send(w, []int{0, 1}, func(o *lambdabatch.Options) { o.Fail = row.fail }); (err != nil) != row.any {
				t.Errorf("%s: 1 of 2 records: %v", name, err)
			}
		})
	}
}

// A batch is answered in time, however many of its messages find a store that does not
// answer: the time of each is that of the batch.
func TestBatchIsAnsweredInTime(t *testing.T) {
	t.Parallel()
	for _, reserve := range []time.Duration{0, time.Millisecond} { // to begin another message
		for limit, by := range map[time.Duration]time.Duration{400 * time.Millisecond: 360 * time.Millisecond, 3 * time.Second: 2900 * time.Millisecond, time.Minute: time.Minute - 100*time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				g, err := idempotent.New(idempotenttest.Intercept(memstore.New(), func(ctx context.Context, c *idempotenttest.StoreCall) {
					<-ctx.Done()
					c.Err = ctx.Err()
				}), func(o *idempotent.Options) { o.Logger = slog.New(slog.DiscardHandler) })
				if err != nil {
					t.Fatal(err)
				}
				h := lambdabatch.SQS(g, func(context.Context, order) error { t.Error("ran"); return nil }, func(o *lambdabatch.Options) {
					o.Operation, o.ID, o.Reserve = "fulfil", lambdabatch.Field("/order_id"), reserve
				})
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				start := time.Now()
				response, err := h(ctx, messages("o-1", "o-2", "o-3", "o-4", "o-5", "o-6"))
				wantIDs(t, failed(t, response, err), "m1", "m2", "m3", "m4", "m5", "m6")
				if took := time.Since(start); took > by {
					t.Errorf("of %s, with a reserve of %s: answered after %s, want %s at the latest", limit, reserve, took, by)
				}
				time.Sleep(time.Minute) // a release can continue beside the answer
			})
		}
	}
}
