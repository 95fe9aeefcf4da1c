// SPDX-License-Identifier: Apache-2.0

package lambdadurable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/smithy-go"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdadurable"
)

type order struct {
	ID    string `json:"id"`
	Count int    `json:"count"`
}

type receipt struct {
	Receipt order `json:"receipt"`
}

// fixture is a guarded handler that starts executions of a stand-in for Lambda.
type fixture struct {
	t       *testing.T
	clock   idempotenttest.Clock
	lambda  *service
	store   *memstore.Store
	orders  *lambdadurable.Function
	handler func(context.Context, order) (receipt, error)
}

func newFixture(t *testing.T, optFns ...func(*lambdadurable.Options)) *fixture {
	t.Helper()
	w := &fixture{t: t, store: memstore.New()}
	w.lambda = newService(t, w.clock.Now)
	w.orders = w.function(w.lambda.client(), "orders:live", optFns...)
	w.handler = w.serve(w.store, w.orders)
	return w
}

func (w *fixture) function(client lambdadurable.Client, name string, optFns ...func(*lambdadurable.Options)) *lambdadurable.Function {
	w.t.Helper()
	f, err := lambdadurable.New(client, name, append([]func(*lambdadurable.Options){func(o *lambdadurable.Options) { o.Now = w.clock.Now }}, optFns...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	return f
}

func (w *fixture) guard(s driver.Store, optFns ...func(*idempotent.Options)) *idempotent.Guard {
	w.t.Helper()
	g, err := idempotent.New(s, append([]func(*idempotent.Options){func(o *idempotent.Options) {
		o.Now, o.Logger, o.Retention = w.clock.Now, slog.New(slog.DiscardHandler), 90*24*time.Hour
	}}, optFns...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	return g
}

func resumes(o *idempotent.Operation) {
	o.Recovery, o.Steps = idempotent.Resume, []string{lambdadurable.Step}
}

func byID(_ context.Context, o order) (idempotent.Key, error) {
	return idempotent.Key{Operation: "order", Scope: "shop", ID: o.ID}, nil
}

// serve returns the handler over a store.
func (w *fixture) serve(s driver.Store, f *lambdadurable.Function) func(context.Context, order) (receipt, error) {
	handle := idempotent.Wrap(w.guard(s), byID, func(ctx context.Context, o order) (receipt, error) {
		return lambdadurable.Run[receipt](ctx, f, o)
	}, resumes)
	return func(ctx context.Context, o order) (receipt, error) {
		return handle(w.clock.Invocation(ctx, 10*time.Second), o)
	}
}

// reconcile runs a reconciler.
func (w *fixture) reconcile(optFns ...func(*idempotent.ReconcileOptions)) idempotent.Report {
	w.t.Helper()
	report, err := kit.Reconcile(w.t.Context(), w.guard(w.store), lambdadurable.Resolver[receipt](w.orders, nil), optFns...)
	if err != nil {
		w.t.Fatal(err)
	}
	return report
}

// record returns the only record.
func (w *fixture) record(o order) *driver.Record {
	w.t.Helper()
	key, _ := byID(w.t.Context(), o)
	r, err := w.store.Get(w.t.Context(), key.RecordID())
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *fixture) mustRun(o order) *lambdadurable.RunningError {
	w.t.Helper()
	_, err := w.handler(w.t.Context(), o)
	running, ok := errors.AsType[*lambdadurable.RunningError](err)
	if !ok {
		w.t.Fatalf("got %v, want a RunningError", err)
	}
	return running
}

var (
	book  = order{ID: "o-1", Count: 2}
	books = `{"id":"o-1","count":2}`
)

// The first request starts the execution. Later ones are asked to come back while
// it runs, and get its result when it has ended; then the result is stored. docs/durable.md
// gives the price of a request: its writes of the record, of which the first one of a
// retry is refused, and its calls of Lambda. The error has a text for logs, without the
// key, the payload or the ARN.
func TestRun(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	key, _ := byID(t.Context(), book)
	for i, total := range []struct{ writes, starts, gets int }{{3, 1, 0}, {3, 1, 1}, {3, 1, 2}, {3, 1, 4}, {1, 1, 4}, {1, 1, 4}} { // the end is asked for without its data, and then with it
		if i == 3 {
			w.clock.Advance(time.Minute)
		}
		const enough = 100
		p := &process{left: enough}
		got, err := w.serve(p.store(w.store), w.orders)(t.Context(), book)
		running, _ := errors.AsType[*lambdadurable.RunningError](err)
		switch inProgress := (*idempotent.InProgressError)(nil); {
		case i >= 3:
			if err != nil || got.Receipt != book {
				t.Errorf("request %d: %+v, %v", i+1, got, err)
			}
		case running == nil || running.ARN != w.lambda.executions[0].arn || running.RetryAfter != 5*time.Second:
			t.Errorf("request %d: %v", i+1, err)
		case !errors.As(err, &inProgress) || inProgress.RecordID != key.RecordID() || inProgress.RetryAfter != 5*time.Second:
			t.Errorf("the error wraps %+v", inProgress)
		default:
			if text := fmt.Sprint(running.LogValue()); text != err.Error() || strings.Contains(text, "o-1") || strings.Contains(text, "arn:") {
				t.Errorf("the text is %q", text)
			}
		}
		if writes := enough - p.left; writes != total.writes || w.lambda.calls["Invoke"] != total.starts || w.lambda.calls["Get"] != total.gets || w.lambda.calls["List"] != 0 {
			t.Errorf("request %d: %d writes and altogether the calls %v, want %+v", i+1, writes, w.lambda.calls, total)
		}
	}
}

// Each way in which an execution ends without a result is a Final error: it is
// stored, and the key starts no other execution. Options.Final can replace its text.
func TestFailures(t *testing.T) {
	t.Parallel()
	for _, failure := range []lambdadurable.Failure{
		{Status: "FAILED", Type: "OutOfStock", Message: "no more of it"},
		{Status: "TIMED_OUT"},
		{Status: "STOPPED", Type: "Operator", Message: "stopped by hand"},
	} {
		for how := range 4 {
			reconciled, own := how%2 == 0, how/2 == 0
			var seen []lambdadurable.Failure
			w := newFixture(t, func(o *lambdadurable.Options) {
				if own {
					o.Final = func(e lambdadurable.Failure) (string, string) {
						seen = append(seen, e)
						return "out_of_stock", "There is no more of it."
					}
				}
			})
			w.lambda.fate = func(string) (time.Duration, types.ExecutionStatus) { return time.Hour, failure.Status }
			w.mustRun(book)
			w.clock.Advance(time.Hour)
			if reconciled {
				if report := w.reconcile(); report.Completed != 1 {
					t.Errorf("the reconciler reports %+v", report)
				}
			}
			for range 2 {
				_, err := w.handler(t.Context(), book)
				final, ok := idempotent.AsFinal(err)
				standard := ok && final.Code == string(failure.Status) && strings.HasPrefix(final.Message, "The durable execution ") && !strings.Contains(final.Message, "no more")
				if replaced := ok && final.Code == "out_of_stock" && final.Message == "There is no more of it."; own != replaced || own == standard {
					t.Errorf("%s: got %v", failure.Status, err)
				}
			}
			if own && (len(seen) != 1 || seen[0] != failure) {
				t.Errorf("Final got %+v, want %+v", seen, failure)
			}
			if w.lambda.starts(books) != 1 {
				t.Errorf("%d executions", w.lambda.starts(books))
			}
		}
	}
}

// A retry can spell the same JSON differently. Lambda then refuses the name, and
// the execution that exists is the one of this request.
func TestTheSameRequestInOtherBytes(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	handle := idempotent.Wrap(w.guard(w.store),
		func(context.Context, json.RawMessage) (idempotent.Key, error) { return byID(t.Context(), book) },
		func(ctx context.Context, raw json.RawMessage) (receipt, error) {
			return lambdadurable.Run[receipt](ctx, w.orders, raw)
		}, resumes)
	first := json.RawMessage(`{"id": "o-1",  "count": 2}`)
	w.lambda.fault = func(string) fault { return lost }
	if _, err := handle(t.Context(), first); err == nil {
		t.Error("a lost reply is no error")
	}
	other := json.RawMessage(`{ "count": 2, "id": "o-1" }`)

	// While the list fails, or the execution is not listed, nothing is guessed.
	w.lambda.fault = func(call string) fault { return map[string]fault{"List": throttled}[call] }
	if _, err := handle(t.Context(), other); err == nil || !strings.Contains(err.Error(), "list the executions of orders") {
		t.Errorf("got %v", err)
	}
	w.lambda.fault = nil
	w.lambda.unlisted = time.Second
	if _, err := handle(t.Context(), other); err == nil || !strings.Contains(err.Error(), "does not list it") {
		t.Errorf("got %v", err)
	}
	w.clock.Advance(time.Second)
	if _, err := handle(t.Context(), other); !errors.As(err, new(*lambdadurable.RunningError)) {
		t.Errorf("got %v", err)
	}
	w.clock.Advance(time.Minute)
	if got, err := handle(t.Context(), other); err != nil || got.Receipt != book {
		t.Errorf("got %+v, %v", got, err)
	}
	if len(w.lambda.executions) != 1 || w.lambda.executions[0].payload != string(first) {
		t.Errorf("executions: %+v", w.lambda.executions)
	}
}

// A refused call starts nothing, and nothing is asked about it.
func TestARefusedStart(t *testing.T) {
	t.Parallel()
	w := newFixture(t, func(o *lambdadurable.Options) { o.RetryAfter = 30 * time.Second })
	for _, what := range []fault{throttled, failed} {
		w.lambda.fault = func(string) fault { return what }
		_, err := w.handler(t.Context(), book)
		if _, refused := errors.AsType[smithy.APIError](err); !refused || w.lambda.calls["List"] != 0 || w.record(book).State != driver.StateRetryable {
			t.Errorf("got %v after %v, and the record is %s", err, w.lambda.calls, w.record(book).State)
		}
	}
	w.lambda.fault = nil
	if running := w.mustRun(book); running.RetryAfter != 30*time.Second {
		t.Errorf("got %+v", running)
	}
}

// A durable handler without a result. The zero value of a type that needs one is no
// outcome.
func TestNoResult(t *testing.T) {
	t.Parallel()
	testNoResult[*receipt](t, "")
	testNoResult[[]receipt](t, "")
	testNoResult[map[string]receipt](t, "")
	testNoResult[any](t, "")
	testNoResult[struct{}](t, "")
	testNoResult[receipt](t, "succeeded without a result, and a lambdadurable_test.receipt needs one")
	testNoResult[int](t, "succeeded without a result, and a int needs one")
}

func testNoResult[T any](t *testing.T, want string) {
	t.Helper()
	w := newFixture(t)
	w.lambda.noResult = true
	handle := idempotent.Wrap(w.guard(w.store), byID, func(ctx context.Context, o order) (T, error) {
		return lambdadurable.Run[T](ctx, w.orders, o)
	}, resumes)
	if _, err := handle(t.Context(), book); !errors.As(err, new(*lambdadurable.RunningError)) {
		t.Errorf("got %v", err)
	}
	w.clock.Advance(time.Minute)
	got, err := handle(t.Context(), book)
	if completed := w.record(book).State == driver.StateCompleted; completed != (want == "") || completed != (err == nil) || !completed && !strings.Contains(err.Error(), want) {
		t.Errorf("%T: got %v, %v, and the record is %s", got, got, err, w.record(book).State)
	}
}

// An outcome whose data is not in Lambda's reply is not stored: the next request
// asks again. A reply need not say that it has the data, and a failure need not have any.
func TestDataLeftOut(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		what   fault
		status types.ExecutionStatus
		lacks  bool
	}{{bare, "SUCCEEDED", true}, {bare, "FAILED", true}, {silent, "SUCCEEDED", true}, {unsaid, "SUCCEEDED", false}, {unsaid, "FAILED", false}} {
		w := newFixture(t)
		w.lambda.fate = func(string) (time.Duration, types.ExecutionStatus) { return time.Minute, row.status }
		w.mustRun(book)
		w.clock.Advance(time.Hour)
		w.lambda.fault = func(string) fault { return row.what }
		for range 2 {
			if !row.lacks {
				break
			}
			if _, err := w.handler(t.Context(), book); err == nil || !strings.Contains(err.Error(), "left the data out") {
				t.Errorf("%+v: got %v", row, err)
			}
			w.clock.Advance(time.Hour)
			if report := w.reconcile(); report.Completed != 0 || report.Failed != 1 {
				t.Errorf("%+v: the reconciler: %+v", row, report)
			}
		}
		if row.lacks {
			w.lambda.fault = nil
			w.clock.Advance(time.Hour)
		}
		if report := w.reconcile(); report.Completed != 1 {
			t.Errorf("%+v, with its data: %+v", row, report)
		}
	}
}

// Requests of one key at the same moment start one execution.
func TestRequestsAtTheSameMoment(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			_, err := w.handler(t.Context(), book)
			if !errors.As(err, new(*idempotent.InProgressError)) {
				t.Errorf("got %v", err)
			}
		})
	}
	all.Wait()
	if w.lambda.starts(books) != 1 {
		t.Errorf("%d executions", w.lambda.starts(books))
	}
}

// A message of a queue is done once the execution has started.
func TestStart(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	handle := idempotent.Wrap(w.guard(w.store), byID, func(ctx context.Context, o order) (string, error) {
		return lambdadurable.Start(ctx, w.orders, o)
	}, resumes)
	first, err := handle(t.Context(), book)
	if err != nil || first != w.lambda.executions[0].arn {
		t.Errorf("got %q, %v", first, err)
	}
	if again, err := handle(t.Context(), book); err != nil || again != first || len(w.lambda.executions) != 1 {
		t.Errorf("got %q, %v after %d executions", again, err, len(w.lambda.executions))
	}
}

// Two functions have different executions of records with the same key, because
// names are unique in an account. A version or alias does not count: a deployment
// between two attempts must not start a second execution.
func TestNames(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	id := idempotent.Key{Operation: "order", Scope: "shop", ID: "o-1"}.RecordID()
	name := w.orders.ExecutionName(id)
	if !executionName.MatchString(name) || len(name) != 48 {
		t.Errorf("the name is %q", name)
	}
	for _, same := range []string{"orders:8", "orders:$LATEST", "123456789012:function:orders:live", "arn:aws:lambda:eu-west-1:123456789012:function:orders:live"} {
		if got := w.function(w.lambda.client(), same).ExecutionName(id); got != name {
			t.Errorf("%s: another name, %q", same, got)
		}
	}
	if got := w.function(w.lambda.client(), "orders-staging:live").ExecutionName(id); got == name {
		t.Error("another function has the same name")
	}
	other := idempotent.Key{Operation: "order", Scope: "shop", ID: "o-2"}.RecordID()
	if w.orders.ExecutionName(other) == name {
		t.Error("another record has the same name")
	}
	// The name must never change, or an attempt after an update of this package
	// would start a second execution.
	if want := "once-r3FzkMpr9Fdo5cegLZ7MllTdZS3OiUkZZYuCPC7dbh4"; name != want {
		t.Errorf("the name was %s and is %s", want, name)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	for _, function := range []string{"", "orders", ":live", "orders:", "123456789012:function:orders", "arn:aws:lambda:eu-west-1:123456789012:function:orders", "or ders:live"} {
		if _, err := lambdadurable.New(w.lambda.client(), function); err == nil || !strings.Contains(err.Error(), "orders:live") {
			t.Errorf("%q: %v", function, err)
		}
	}
	if _, err := lambdadurable.New(nil, "orders:live"); err == nil {
		t.Error("a missing client is accepted")
	}
	if _, err := lambdadurable.New(w.lambda.client(), "orders:live", func(o *lambdadurable.Options) { o.RetryAfter = -1 }); err == nil {
		t.Error("a negative time is accepted")
	}
}

// Wrong uses start nothing.
func TestWrongUse(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	if _, err := lambdadurable.Run[receipt](t.Context(), w.orders, book); err == nil || !strings.Contains(err.Error(), "guarded handler") {
		t.Errorf("outside: %v", err)
	}
	for _, recovery := range []idempotent.Recovery{idempotent.Reconcile, idempotent.Rerun} {
		handle := idempotent.Wrap(w.guard(memstore.New()), byID, func(ctx context.Context, o order) (string, error) {
			return lambdadurable.Start(ctx, w.orders, o)
		}, func(o *idempotent.Operation) { o.Recovery = recovery })
		if _, err := handle(t.Context(), book); err == nil || !strings.Contains(err.Error(), "Resume") {
			t.Errorf("%v: %v", recovery, err)
		}
	}
	for name, input := range map[string]any{"a channel": make(chan int), "broken JSON": json.RawMessage(`{`)} {
		handle := idempotent.Wrap(w.guard(memstore.New()), byID, func(ctx context.Context, _ order) (string, error) {
			return lambdadurable.Start(ctx, w.orders, input)
		}, resumes)
		if _, err := handle(t.Context(), book); err == nil || !strings.Contains(err.Error(), "encode the input") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(w.lambda.calls) != 0 {
		t.Errorf("calls: %v", w.lambda.calls)
	}
}

// plain is a function that is not durable: Lambda accepts the event and returns no
// execution.
type plain struct {
	lambdadurable.Client
	invoked int
}

func (p *plain) Invoke(context.Context, *lambda.InvokeInput, ...func(*lambda.Options)) (*lambda.InvokeOutput, error) {
	p.invoked++
	return &lambda.InvokeOutput{StatusCode: 202}, nil
}

// An event that a function without durable executions accepted may have been
// processed, and a retry would not be recognised: the outcome is unknown.
func TestAFunctionThatIsNotDurable(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	client := &plain{Client: w.lambda.client()}
	handle := w.serve(w.store, w.function(client, "orders:live"))
	if _, err := handle(t.Context(), book); !idempotent.IsUnknown(err) || !strings.Contains(err.Error(), "is the function durable?") {
		t.Errorf("got %v", err)
	}
	if _, err := handle(t.Context(), book); !errors.As(err, new(*idempotent.UnresolvedError)) || client.invoked != 1 {
		t.Errorf("got %v after %d events", err, client.invoked)
	}
}

// What Lambda returns cannot always be used; nothing is stored then, and nothing is
// started again.
func TestAnswersThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.lambda.fate = func(string) (time.Duration, types.ExecutionStatus) { return 0, "PAUSED" }
	w.mustRun(book)
	if _, err := w.handler(t.Context(), book); err == nil || !strings.Contains(err.Error(), `unknown status "PAUSED"`) {
		t.Errorf("got %v", err)
	}
	w.lambda.executions[0].status = types.ExecutionStatusSucceeded
	w.lambda.executions[0].payload = `"text with a secret"`
	_, err := w.handler(t.Context(), book)
	if err == nil || !strings.Contains(err.Error(), "does not decode") || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
	w.lambda.executions[0].payload = books
	if got, err := w.handler(t.Context(), book); err != nil || got.Receipt != book || w.lambda.calls["Invoke"] != 1 {
		t.Errorf("got %+v, %v after %v", got, err, w.lambda.calls)
	}
}

// Lambda may forget a name a day after the execution was started. After that, an
// attempt whose predecessor may have started one does not start another.
func TestForgottenNames(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.lambda.retention = 24 * time.Hour
	w.lambda.fault = func(string) fault { return lost }
	if _, err := w.handler(t.Context(), book); err == nil {
		t.Error("a lost reply is no error")
	}
	w.lambda.fault = nil
	w.clock.Advance(26 * time.Hour) // a minute to run, and its retention
	for range 2 {
		if _, err := w.handler(t.Context(), book); err == nil || errors.As(err, new(*lambdadurable.RunningError)) {
			t.Errorf("got %v", err)
		}
	}
	if w.lambda.starts(books) != 1 || w.record(book).State != driver.StateUnknown {
		t.Errorf("%d executions, and the record is %s", w.lambda.starts(books), w.record(book).State)
	}
}

// The handler was killed between Invoke and the record. The reconciler finds the
// execution by its name, before and after its end.
func TestResolverFindsTheExecutionByName(t *testing.T) {
	t.Parallel()
	for _, ended := range []bool{false, true} {
		w := newFixture(t)
		w.lambda.fate = func(string) (time.Duration, types.ExecutionStatus) { return time.Hour, types.ExecutionStatusSucceeded }
		w.lambda.fault = func(string) fault { return lost }
		if _, err := w.handler(t.Context(), book); err == nil {
			t.Error("a lost reply is no error")
		}
		w.lambda.fault = nil
		other := *w.lambda.executions[0]
		other.name, other.arn, other.payload = other.name+"-2", other.arn+"-2", `"other"`
		w.lambda.executions = append(w.lambda.executions, &other)
		w.lambda.unlisted = 5 * time.Minute
		w.clock.Advance(2 * time.Minute)
		if report := w.reconcile(); report.Postponed != 1 || report.Failed != 0 || w.record(book).State != driver.StateRetryable {
			t.Errorf("not listed yet: %+v, %s", report, w.record(book).State)
		}
		w.clock.Advance(5 * time.Minute)
		if ended {
			w.clock.Advance(time.Hour)
		}
		key, _ := byID(t.Context(), book)
		resolution, err := lambdadurable.Resolver[receipt](w.orders, nil)(t.Context(), w.guard(w.store).Pending(*w.record(book)))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.guard(w.store).Resolve(t.Context(), key.RecordID(), resolution); err != nil {
			t.Fatal(err)
		}
		var s struct{ At time.Time }
		began := w.lambda.executions[0].began.Truncate(time.Second)
		if recorded, err := w.guard(w.store).Pending(*w.record(book)).Step(t.Context(), lambdadurable.Step, &s); !ended && (!recorded || !s.At.Equal(began)) {
			t.Errorf("the execution is recorded: %t, %v, as begun at %s, want %s", recorded, err, s.At, began)
		}
		w.clock.Advance(time.Hour)
		if got, err := w.handler(t.Context(), book); err != nil || got.Receipt != book {
			t.Errorf("got %+v, %v", got, err)
		}
		if w.lambda.calls["Invoke"] != 1 {
			t.Errorf("calls: %v", w.lambda.calls)
		}
	}
}

// An execution that Lambda has removed, or never began, may have had any outcome: it
// is unknown, for a request and for the reconciler, and the key starts no other one.
// Soon after the start, "not found" proves nothing.
func TestAnExecutionThatDoesNotExist(t *testing.T) {
	t.Parallel()
	for _, discarded := range []bool{false, true} {
		for _, reconciled := range []bool{false, true} {
			w := newFixture(t)
			w.lambda.retention = 24 * time.Hour
			w.lambda.fate = func(string) (time.Duration, types.ExecutionStatus) { return time.Minute, types.ExecutionStatusFailed }
			w.lambda.discards = func(string) bool { return discarded }
			arn := w.mustRun(book).ARN
			w.lambda.executions[0].arn = "unknown for a moment"
			w.clock.Advance(2 * time.Minute)
			w.mustRun(book)
			w.clock.Advance(2 * time.Minute)
			if report := w.reconcile(); report.Postponed != 1 || w.record(book).State != driver.StateRetryable {
				t.Errorf("a moment later: %+v", report)
			}
			w.lambda.executions[0].arn = arn
			w.clock.Advance(25 * time.Hour)
			if reconciled {
				if report := w.reconcile(); report.MarkedUnknown != 1 || report.Completed+report.Failed != 0 || report.Pending != 1 {
					t.Errorf("the reconciler: %+v", report)
				}
			} else if _, err := w.handler(t.Context(), book); !idempotent.IsUnknown(err) {
				t.Errorf("a request got %v", err)
			}
			w.clock.Advance(time.Hour)
			if report := w.reconcile(); report.Postponed != 1 || report.Completed+report.Failed != 0 {
				t.Errorf("asked again: %+v", report)
			}
			if _, err := w.handler(t.Context(), book); !errors.As(err, new(*idempotent.UnresolvedError)) || w.lambda.calls["Invoke"] != 1 {
				t.Errorf("got %v after %v", err, w.lambda.calls)
			}
		}
	}
}

// A start that Lambda discarded is settled as not made. If that outcome is discarded
// too, the same key starts again, under the same name.
func TestADiscardedStartIsSettled(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.lambda.discards = func(string) bool { return w.lambda.calls["Invoke"] == 1 }
	w.mustRun(book)
	w.clock.Advance(25 * time.Hour)
	if report := w.reconcile(); report.MarkedUnknown != 1 {
		t.Errorf("the reconciler: %+v", report)
	}
	id := w.record(book).ID
	if err := w.guard(w.store).Resolve(t.Context(), id, idempotent.ResolvedFinal("not_started", "The order was not placed.")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.handler(t.Context(), book); !errors.As(err, new(*idempotent.FinalError)) {
		t.Errorf("got %v", err)
	}
	forget := idempotent.Correction{Token: w.record(book).Token(), Actor: "an operator", Reason: "the start is in the dead-letter queue"}
	if err := w.guard(w.store).Forget(t.Context(), id, forget); err != nil {
		t.Fatal(err)
	}
	w.mustRun(book)
	w.clock.Advance(time.Hour)
	if got, err := w.handler(t.Context(), book); err != nil || got.Receipt != book || w.lambda.executions[0].name != w.lambda.executions[1].name {
		t.Errorf("got %+v, %v", got, err)
	}
}

// An execution of some days is asked about until its own time-out ends it. The time
// after which other released records are given up does not apply.
func TestResolverOfALongExecution(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.lambda.fate = func(string) (time.Duration, types.ExecutionStatus) {
		return 60 * time.Hour, types.ExecutionStatusTimedOut
	}
	w.mustRun(book)
	for range 59 {
		w.clock.Advance(time.Hour)
		if report := w.reconcile(); report.Exhausted+report.Failed+report.Pending != 0 {
			t.Fatalf("while it runs: %+v", report)
		}
	}
	w.clock.Advance(2 * time.Hour)
	if report := w.reconcile(); report.Completed != 1 {
		t.Errorf("after its end: %+v", report)
	}
}

// Failures of the calls are failures of the resolver; nothing is concluded from
// them.
func TestResolverWhileLambdaFails(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.lambda.fate = func(string) (time.Duration, types.ExecutionStatus) { return 0, types.ExecutionStatusSucceeded }
	w.lambda.fault = func(string) fault { return lost }
	if _, err := w.handler(t.Context(), book); err == nil {
		t.Error("a lost reply is no error")
	}
	for _, call := range []string{"List", "Get"} {
		for _, what := range []fault{throttled, failed, lost} {
			w.lambda.fault = func(c string) fault {
				if c == call {
					return what
				}
				return none
			}
			w.clock.Advance(2 * time.Hour)
			if report := w.reconcile(); report.Failed != 1 || report.Completed != 0 {
				t.Errorf("%s: %+v", call, report)
			}
		}
	}
	w.lambda.fault = nil
	w.clock.Advance(2 * time.Hour)
	if report := w.reconcile(); report.Completed != 1 {
		t.Errorf("at last: %+v", report)
	}
}

// A result of another type is a failure of the resolver, and not an outcome.
func TestResolverOfAnotherType(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.mustRun(book)
	w.clock.Advance(time.Hour)
	report, err := kit.Reconcile(t.Context(), w.guard(w.store), lambdadurable.Resolver[int](w.orders, nil))
	if err != nil || report.Failed != 1 || w.record(book).State != driver.StateRetryable {
		t.Errorf("%+v, %v, and the record is %s", report, err, w.record(book).State)
	}
}

// What the resolver answers, without a reconciler around it.
func TestResolverAnswers(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.mustRun(book)
	pending := w.guard(w.store).Pending(*w.record(book))
	ask := func(p idempotent.PendingRecord) (idempotent.Resolution, error) {
		t.Helper()
		return lambdadurable.Resolver[receipt](w.orders, nil)(t.Context(), p)
	}
	running := func(err error) bool { return errors.As(err, new(*idempotent.InProgressError)) }
	if got, err := ask(pending); !running(err) {
		t.Errorf("running: %+v, %v", got, err)
	}

	unrecorded := idempotent.PendingRecord{ID: pending.ID, Created: pending.Created}
	if got, err := ask(unrecorded); err != nil || got == idempotent.Later(0) {
		t.Errorf("running and not recorded: %+v, %v", got, err)
	}
	w.lambda.fault = func(string) fault { return throttled }
	if _, err := ask(unrecorded); err == nil || !strings.Contains(err.Error(), "list the executions of orders") {
		t.Errorf("a failed list: %v", err)
	}
	// A failure is not the end of the retention, however late it is.
	w.clock.Advance(48 * time.Hour)
	if _, err := ask(pending); err == nil {
		t.Error("a failed call, two days later, is no error")
	}
	w.lambda.fault = nil
	w.lambda.executions[0].arn += " is removed"
	began := w.lambda.executions[0].began
	for age, is := range map[time.Duration]func(error) bool{24*time.Hour - time.Millisecond: running, 24 * time.Hour: idempotent.IsUnknown} {
		w.orders = w.function(w.lambda.client(), "orders:live", func(o *lambdadurable.Options) { o.Now = func() time.Time { return began.Add(age) } })
		if got, err := ask(pending); !is(err) {
			t.Errorf("missing, after %s: %+v, %v", age, got, err)
		}
	}
	// By default, the clock is that of the machine.
	w.orders, _ = lambdadurable.New(w.lambda.client(), "orders:live")
	if got, err := ask(pending); running(err) != (time.Since(began) < 24*time.Hour) {
		t.Errorf("missing: %+v, %v", got, err)
	}
}

// A step that cannot be read is an error, and Lambda is not asked.
func TestResolverOfAStepThatCannotBeRead(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.lambda.fault = func(string) fault { return failed }
	if _, err := w.handler(t.Context(), book); err == nil {
		t.Error("an internal error is no error")
	}
	key, _ := byID(t.Context(), book)
	if err := w.guard(w.store).Resolve(t.Context(), key.RecordID(), idempotent.ResolvedStep(lambdadurable.Step, "another type")); err != nil {
		t.Fatal(err)
	}
	calls := len(w.lambda.calls)
	_, err := lambdadurable.Resolver[receipt](w.orders, nil)(t.Context(), w.guard(w.store).Pending(*w.record(book)))
	if !errors.As(err, new(*idempotent.StepError)) || len(w.lambda.calls) != calls {
		t.Errorf("got %v after %v", err, w.lambda.calls)
	}
}
