// SPDX-License-Identifier: Apache-2.0

package lambdabatch_test

import (
	"context"
	"errors"
	"fmt"
	"math"
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
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdabatch"
)

// A constructor panics if an option is invalid, and names the option.
func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	sqs := func(optFns ...func(*lambdabatch.Options)) { lambdabatch.SQS(w.guard, w.handle, w.options(optFns...)) }
	for _, row := range []struct {
		want  string // empty: the options are valid
		build func()
	}{
		{"", func() { sqs() }},
		{"SQS: the guard is nil", func() { lambdabatch.SQS(nil, w.handle, w.options()) }},
		{"SQS: the handler is nil", func() { lambdabatch.SQS[order](w.guard, nil, w.options()) }},
		{"Options.Operation", func() { sqs(func(o *lambdabatch.Options) { o.Operation = "" }) }},
		{"Options.ID is not set", func() { sqs(func(o *lambdabatch.Options) { o.ID = nil }) }},
		{"Options.ID is not set", func() { lambdabatch.SQSFIFO(w.guard, w.handle, w.options(func(o *lambdabatch.Options) { o.ID = nil })) }},
		{"Options.ID returns the message id", func() { sqs(itemID) }},
		{"Options.ID returns the message id", func() { lambdabatch.SQSFIFO(w.guard, w.handle, w.options(itemID)) }},
		{"", func() { sqs(itemID, noRedrive) }},
		{"", func() { lambdabatch.Kinesis(w.guard, w.handle, w.options(itemID)) }},
		{"Options.NoRedrive", func() { lambdabatch.DynamoDB(w.guard, w.handle, w.options(noRedrive)) }},
		{"", func() { lambdabatch.Kinesis(w.guard, w.handle, w.options(func(o *lambdabatch.Options) { o.ID = nil })) }},
		{"Options.Recovery", func() { sqs(recovery(idempotent.Rerun + 1)) }},
		{"", func() { sqs(recovery(idempotent.Reconcile)) }},
		{"Options.Steps", func() { sqs(recovery(idempotent.Resume)) }},
		{"Concurrency", func() { sqs(concurrency(-1)) }},
		{"Reserve", func() { sqs(func(o *lambdabatch.Options) { o.Reserve = -1 }) }},
		{"Redelivery", func() { sqs(func(o *lambdabatch.Options) { o.Redelivery = -1 }) }},
		{"Options.Retention", func() { sqs(guarded(func(o *idempotent.Options) { o.Retention = -1 })) }},
		{"Options.UnresolvedRetention", func() { sqs(guarded(func(o *idempotent.Options) { o.UnresolvedRetention = -1 })) }},
		{"Options.ChangeVisibility", func() { lambdabatch.Kinesis(w.guard, w.handle, w.options(new(changes).option)) }},
		{"Backoff", func() { sqs(func(o *lambdabatch.Options) { o.Backoff = -1 }) }},
		{"needs Options.ChangeVisibility", func() { sqs(func(o *lambdabatch.Options) { o.Backoff = 1 }) }},
		{"", func() { sqs(new(changes).option, func(o *lambdabatch.Options) { o.Backoff = 1 }) }},
		{"needs Options.PerGroup", func() { lambdabatch.SQSFIFO(w.guard, w.handle, w.options(concurrency(2))) }},
		{"", func() { lambdabatch.SQSFIFO(w.guard, w.handle, w.options(concurrency(2), perGroup)) }},
		{"Options.PerGroup", func() { sqs(perGroup) }},
		{"Options.PerGroup", func() { lambdabatch.Kinesis(w.guard, w.handle, w.options(perGroup)) }},
		{"DefaultLease", func() { sqs(guarded(func(o *idempotent.Options) { o.DefaultLease = time.Second })) }},
		{"JSON Pointer", func() { lambdabatch.Field("order_id") }},
		{"message attribute", func() { lambdabatch.Attribute("") }},
	} {
		got := panicOf(row.build)
		if (got == "") != (row.want == "") || !strings.Contains(got, row.want) {
			t.Errorf("got the panic %q, want %q in it", got, row.want)
		}
	}
}

func itemID(o *lambdabatch.Options)    { o.ID = lambdabatch.ItemID }
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
// retention if that is longer.
func TestRetentionFollowsTheSource(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, row := range map[string]struct {
		retention, redelivery time.Duration
		noRedrive             bool
		want                  time.Duration
	}{
		"defaults":           {want: 23 * day},
		"shorter retention":  {retention: time.Hour, want: 23 * day},
		"longer retention":   {retention: 30 * day, want: 30 * day},
		"longer redelivery":  {retention: time.Hour, redelivery: 42 * day, want: 42 * day},
		"shorter than a day": {retention: time.Hour, redelivery: 2 * time.Hour, want: 2 * time.Hour},
		"equal":              {retention: 2 * time.Hour, redelivery: 2 * time.Hour, want: 2 * time.Hour},
		"no redrive":         {noRedrive: true, want: 4*day + 12*time.Hour},
		"both declared":      {noRedrive: true, redelivery: 15 * day, want: 15 * day},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			h := lambdabatch.SQS(w.guard, w.handle, w.options(
				func(o *lambdabatch.Options) { o.Redelivery, o.NoRedrive = row.redelivery, row.noRedrive },
				guarded(func(o *idempotent.Options) { o.Retention = row.retention })))
			wantIDs(t, w.send(h, messages("o-1")))
			w.clock.Advance(row.want - time.Minute)
			wantIDs(t, w.send(h, messages("o-1")))
			w.wantRuns("o-1")
			w.clock.Advance(2 * time.Minute)
			wantIDs(t, w.send(h, messages("o-1")))
			w.wantRuns("o-1", "o-1")
		})
	}
}

// A record without an outcome is stored for as long as the source redelivers,
// so that its message does not run again.
func TestUnresolvedRetentionFollowsTheSource(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ retention, want time.Duration }{
		"no limit": {0, 365 * 24 * time.Hour},
		"shorter":  {48 * time.Hour, lambdabatch.SQSRedelivery},
		"longer":   {30 * 24 * time.Hour, 30 * 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			h := lambdabatch.SQS(w.guard, w.handle, w.options(recovery(idempotent.Reconcile),
				guarded(func(o *idempotent.Options) { o.UnresolvedRetention = row.retention })))
			w.on("o-1", returns(errBroken))
			wantIDs(t, w.send(h, messages("o-1")), "m1")
			w.clock.Advance(row.want - time.Minute)
			wantIDs(t, w.send(h, messages("o-1")), "m1")
			w.wantRuns("o-1")
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
	if !strings.Contains(w.log(), "item=m2 error_type=lambdabatch.itemIDError\n") {
		t.Errorf("the log:\n%s", w.log())
	}
	wantIDs(t, w.send(lambdabatch.SQS(w.guard, w.handle, w.options(fallback, noRedrive)), batch))
	w.wantRuns("o-1", "")
}

// A panic or runtime.Goexit in any function fails only its own message.
func TestPanicsAreOneMessages(t *testing.T) {
	t.Parallel()
	isTwo := func(r *lambdabatch.Message) bool { return strings.Contains(string(r.Body), "o-2") }
	for name, option := range map[string]func(*fixture) func(*lambdabatch.Options){
		"ID": func(*fixture) func(*lambdabatch.Options) {
			return func(o *lambdabatch.Options) {
				field := o.ID
				o.ID = func(ctx context.Context, r *lambdabatch.Message) (string, error) {
					if isTwo(r) {
						panic("ID")
					}
					return field(ctx, r)
				}
			}
		},
		"Scope": func(*fixture) func(*lambdabatch.Options) {
			return func(o *lambdabatch.Options) {
				o.Scope = func(_ context.Context, r *lambdabatch.Message) (string, error) {
					if isTwo(r) {
						panic("Scope")
					}
					return "all", nil
				}
			}
		},
		"Fingerprint": func(*fixture) func(*lambdabatch.Options) {
			return func(o *lambdabatch.Options) {
				o.Fingerprint = func(r *lambdabatch.Message) (idempotent.Fingerprint, error) {
					if isTwo(r) {
						panic("Fingerprint")
					}
					return idempotent.FingerprintBytes(r.Body), nil
				}
			}
		},
		"Decode": func(*fixture) func(*lambdabatch.Options) {
			return func(o *lambdabatch.Options) {
				o.Decode = func(body []byte, v any) error {
					if strings.Contains(string(body), "o-2") {
						panic("Decode")
					}
					v.(*order).ID = string(body[len(body)-5 : len(body)-2])
					return nil
				}
			}
		},
		"handler": func(w *fixture) func(*lambdabatch.Options) {
			w.on("o-2", func(context.Context) error { panic("handler") })
			return func(*lambdabatch.Options) {}
		},
		"Goexit": func(w *fixture) func(*lambdabatch.Options) {
			w.on("o-2", func(context.Context) error { runtime.Goexit(); return nil })
			return func(*lambdabatch.Options) {}
		},
	} {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s %d", name, n), func(t *testing.T) {
				t.Parallel()
				w := newFixture(t)
				h := lambdabatch.SQS(w.guard, w.handle, w.options(concurrency(n), option(w)))
				wantIDs(t, w.send(h, messages("o-1", "o-2", "o-3")), "m2")
				if told := strings.Contains(w.log(), "panic_type=string stack="); told != (name != "Goexit") || strings.Contains(w.log(), "panic_type=<nil>") {
					t.Errorf("the log reports a panic: %t\n%s", told, w.log())
				}
				if strings.Contains(w.log(), "InvalidKeyError") { // the key may be valid; it was not read
					t.Errorf("the log reports an invalid key:\n%s", w.log())
				}
			})
		}
	}
}

// An error of a function in the options fails only its own message, and leaves
// no record.
func TestErrorsBeforeTheClaim(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]func(*lambdabatch.Options){
		"no id": func(o *lambdabatch.Options) { o.ID = lambdabatch.Attribute("order") },
		"ID": func(o *lambdabatch.Options) {
			o.ID = func(context.Context, *lambdabatch.Message) (string, error) { return "x", errBroken }
		},
		"Scope": func(o *lambdabatch.Options) {
			o.Scope = func(context.Context, *lambdabatch.Message) (string, error) { return "x", errBroken }
		},
		"no scope": func(o *lambdabatch.Options) {
			o.Scope = func(context.Context, *lambdabatch.Message) (string, error) { return "", nil }
		},
		"Fingerprint": func(o *lambdabatch.Options) {
			o.Fingerprint = func(*lambdabatch.Message) (idempotent.Fingerprint, error) {
				return idempotent.FingerprintBytes(nil), errBroken
			}
		},
		"Decode": func(o *lambdabatch.Options) { o.Decode = func([]byte, any) error { return errBroken } },
	} {
		w := newFixture(t)
		h := lambdabatch.SQS(w.guard, w.handle, w.options(option))
		wantIDs(t, w.send(h, messages("o-1")), "m1")
		w.wantRuns()
		if n := w.seen.Count(event.Reserved); n != 0 {
			t.Errorf("%s: %d records were claimed", name, n)
		}
		if strings.Contains(w.log(), "acme") {
			t.Errorf("%s: the log shows the text of the error:\n%s", name, w.log())
		}
		if is := strings.Contains(w.log(), "error_type=*lambdabatch.DecodeError"); is != (name == "Decode") {
			t.Errorf("%s: the log:\n%s", name, w.log())
		}
	}
	decode := &lambdabatch.DecodeError{Err: errBroken}
	if !errors.Is(decode, errBroken) || strings.Contains(decode.Error(), "acme") {
		t.Errorf("the error is %q", decode)
	}
}

// A failed message without an id cannot be named, so the whole batch is
// redelivered. A message that succeeded needs no id.
func TestMessagesWithoutAnID(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	h := lambdabatch.SQS(w.guard, w.handle, w.options())
	batch := messages("o-1", "o-2", "o-3")
	batch.Records[1].MessageId = ""
	wantIDs(t, w.send(h, batch))
	w.on("o-4", returns(errBroken))
	batch.Records[1].Body = `{"order_id":"o-4"}`
	response, err := h(w.invocation(), batch)
	var unnamed *lambdabatch.UnnamedError
	if !errors.As(err, &unnamed) || unnamed.Index != 1 || !strings.Contains(err.Error(), "record 1") || len(response.BatchItemFailures) != 0 {
		t.Errorf("got %+v %v, want an UnnamedError", response, err)
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

// At most Concurrency messages run at the same time; by default one.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 4} {
		synctest.Test(t, func(t *testing.T) {
			w := newFixture(t)
			limit := max(n, 1)
			var (
				mu       sync.Mutex
				now, top int
				full     = make(chan struct{})
				once     sync.Once
			)
			h := lambdabatch.SQS(w.guard, func(context.Context, order) error {
				mu.Lock()
				now++
				top = max(top, now)
				if now == limit {
					once.Do(func() { close(full) })
				}
				mu.Unlock()
				<-full // blocks until the limit is reached
				mu.Lock()
				now--
				mu.Unlock()
				return nil
			}, w.options(concurrency(n)))
			var ids []string
			for i := range 20 {
				ids = append(ids, fmt.Sprintf("o-%d", i))
			}
			wantIDs(t, w.send(h, messages(ids...)))
			if top != limit {
				t.Errorf("%d messages ran at the same time, want %d", top, limit)
			}
		})
	}
}

// Messages without a key that may run at all run at the same time, because they
// are not copies of each other.
func TestConcurrency_WithoutAKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		var together sync.WaitGroup
		together.Add(3)
		h := lambdabatch.SQS(w.guard, func(context.Context, string) error {
			together.Done()
			together.Wait() // blocks until all three are running
			return nil
		}, w.options(concurrency(3), func(o *lambdabatch.Options) {
			o.ID = lambdabatch.Attribute("order")
			o.Guard = func(g *idempotent.Options) { g.AllowMissingKey = true }
		}))
		wantIDs(t, w.send(h, messages("o-1", "o-2", "o-3")))
	})
}

// A message whose key could not be computed is not treated as one without a
// key.
func TestPanicIsNoMissingKey(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	h := lambdabatch.SQS(w.guard, w.handle, w.options(func(o *lambdabatch.Options) {
		o.ID = func(context.Context, *lambdabatch.Message) (string, error) { panic("ID") }
		o.Guard = func(g *idempotent.Options) { g.AllowMissingKey = true }
	}))
	wantIDs(t, w.send(h, messages("o-1")), "m1")
	w.wantRuns()
	if strings.Contains(w.log(), "error_type=*idempotent.") {
		t.Errorf("the guard was called:\n%s", w.log())
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
		{w.options(), `{}`, "operation=fulfil item=m1 error_type=logs.Error error=\"lambdabatch: the body has no string or number in the field of Options.ID\"\n"},
		{noScope, `{"order_id":"o-2"}`, "operation=fulfil item=m1 error_type=*errors.errorString\n"},
		{w.options(func(o *lambdabatch.Options) { o.ID = lambdabatch.Attribute("order") }), `{}`, "operation=fulfil item=m1 error_type=*idempotent.NoKeyError error=\"" + (&idempotent.NoKeyError{Operation: "fulfil"}).Error() + "\"\n"},
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
	h := lambdabatch.SQS(w.guard, w.handle, w.options(guarded(func(o *idempotent.Options) { o.Logger, o.Now = nil, nil })))
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
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	var (
		mu   sync.Mutex
		runs = map[string]int{}
	)
	w := &fixture{t: t}
	h := lambdabatch.SQS(guard, func(_ context.Context, o order) error {
		mu.Lock()
		defer mu.Unlock()
		runs[o.ID]++
		return nil
	}, w.options(concurrency(4)))
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
				response, err := h(t.Context(), event)
				if err != nil {
					t.Error(err)
					return
				}
				event.Records = slices.DeleteFunc(event.Records, func(m events.SQSMessage) bool {
					return !slices.Contains(response.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: m.MessageId})
				})
				if len(event.Records) == 0 {
					return
				}
				runtime.Gosched() // let the other invocations run
			}
			t.Error("messages are redelivered without end")
		})
	}
	done.Wait()
	if len(runs) != orders {
		t.Errorf("%d orders ran, want %d", len(runs), orders)
	}
	for id, n := range runs {
		if n != 1 {
			t.Errorf("%s ran %d times", id, n)
		}
	}
}

// F02: a field of the body is the key.
func TestFields(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ pointer, body, want string }{
		{"/order_id", `{"order_id":"o-1"}`, "o-1"},
		{"/order/id", `{"order":{"id":"o-1"}}`, "o-1"},
		{"/orders/1/id", `{"orders":[{"id":"a"},{"id":"b"}]}`, "b"},
		{"/orders/2", `{"orders":["a","b"]}`, ""},
		{"/orders/-1", `{"orders":["a","b"]}`, ""},
		{"/0", `["a"]`, "a"},
		{"/a", `["x"]`, ""},
		{"/0", `{"0":"a"}`, "a"},
		{"/a~1b", `{"a/b":"x"}`, "x"},
		{"/a~0b", `{"a~b":"x"}`, "x"},
		{"/a~01", `{"a~1":"x"}`, "x"},
		{"/", `{"":"x"}`, "x"},
		{"/n", `{"n":9007199254740993}`, "9007199254740993"},
		{"/n", `{"n":9007199254740992}`, "9007199254740992"},
		{"/n", `{"n":9007199254740993.0}`, "9007199254740993"},
		{"/n", `{"n":100}`, "100"},
		{"/n", `{"n":100.0}`, "100"},
		{"/n", `{"n":1e2}`, "100"},
		{"/n", `{"n":"1e2"}`, "1e2"},
		{"/n", `{"n":-0}`, "0"},
		{"/n", `{"n":1E+999999999}`, "1e999999999"},
		{"/n", `{"n":1e` + strings.Repeat("9", 19) + `}`, ""},
		{"/n", "{\"n\":\"\xff\"}", ""},
		{"/n", `{"n":"\ud800"}`, ""},
		{"/n", `{"n":0}`, "0"},
		{"/n", `{"n":""}`, ""},
		{"/n", `{"n":null}`, ""},
		{"/n", `{"n":true}`, ""},
		{"/n", `{"n":{"a":1}}`, ""},
		{"/n", `{"m":1}`, ""},
		{"/n", `{"n":"x"`, ""},
		{"/n", `"n"`, ""},
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

// 10,000 messages of one order run once, and 10,000 orders run 10,000 times.
func TestTenThousand(t *testing.T) {
	t.Parallel()
	for _, distinct := range []int{1, math.MaxInt} {
		w := newFixture(t)
		var ids []string
		for i := range 10_000 {
			ids = append(ids, fmt.Sprintf("o-%d", i%distinct))
		}
		wantIDs(t, w.send(lambdabatch.SQS(w.guard, w.handle, w.options(concurrency(4))), messages(ids...)))
		if want := min(distinct, 10_000); len(w.runs) != want {
			t.Errorf("got %d runs, want %d", len(w.runs), want)
		}
	}
}
