// SPDX-License-Identifier: Apache-2.0

package lambdadurable_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/lambdadurable"
)

// A caller that does not come back: the reconciler stores the result.
func TestResolverStoresTheResult(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.lambda.fate = func(string) (time.Duration, types.ExecutionStatus) { return time.Hour, types.ExecutionStatusSucceeded }
	w.mustRun(book)
	w.clock.Advance(2 * time.Minute)
	if report := w.reconcile(); report.Completed != 0 || report.Postponed != 1 || report.Pending != 0 {
		t.Errorf("while it runs: %+v", report) // and no alarm, because nothing is unknown
	}
	w.clock.Advance(time.Hour)
	if report := w.reconcile(); report.Completed != 1 {
		t.Errorf("after its end: %+v", report)
	}
	calls := w.lambda.calls["Get"]
	if got, err := w.handler(t.Context(), book); err != nil || got.Receipt != book || w.lambda.calls["Get"] != calls {
		t.Errorf("got %+v, %v", got, err)
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
	forget := idempotent.ForgetRequest{Token: w.record(book).Token(), Actor: "an operator", Reason: "the start is in the dead-letter queue"}
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

// The evidence for records of other handlers is made by a function, for example
// with lambdahttp.Resolved.
func TestResolverPassesTheResultOn(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.mustRun(book)
	w.clock.Advance(time.Hour)
	var seen []receipt
	resolve := lambdadurable.Resolver(w.orders, func(r receipt) idempotent.Resolution {
		seen = append(seen, r)
		return idempotent.Resolved(receipt{Receipt: order{ID: "changed"}})
	})
	if report, err := idempotent.ReconcileDue(t.Context(), w.guard(w.store), resolve); err != nil || report.Completed != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	if got, err := w.handler(t.Context(), book); err != nil || got.Receipt.ID != "changed" || len(seen) != 1 || seen[0].Receipt != book {
		t.Errorf("got %+v, %v; the function got %v", got, err, seen)
	}
}

// A result of another type is a failure of the resolver, and not an outcome.
func TestResolverOfAnotherType(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.mustRun(book)
	w.clock.Advance(time.Hour)
	report, err := idempotent.ReconcileDue(t.Context(), w.guard(w.store), lambdadurable.Resolver[int](w.orders, nil))
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
