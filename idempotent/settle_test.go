// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/errtype"
)

// Handlers.

func charged(context.Context) (string, error) { return "ch_1", nil }

func noAnswer(context.Context) (string, error) { return "", errDown }

func returns(err error) handlerFunc {
	return func(context.Context) (string, error) { return "", err }
}

func panicking(value any) handlerFunc {
	return func(context.Context) (string, error) { panic(value) }
}

// stepping has a step that ends with err, and returns what then makes of that.
func stepping(err error, then func(error) error, mode ...func(*idempotent.StepOptions)) handlerFunc {
	return func(ctx context.Context) (string, error) {
		_, got := idempotent.Step(ctx, "s", returns(err), mode...)
		return "", then(got)
	}
}

// refused has a transaction that is refused, and returns what then makes of that.
func refused(then func(error) error) handlerFunc {
	return func(ctx context.Context) (string, error) {
		return "", then(commit(ctx, "x", func(context.Context, driver.Record, driver.Version) (*driver.Record, error) { return nil, errRefused }))
	}
}

func same(err error) error { return err }

func instead(err error) func(error) error { return func(error) error { return err } }

// F31, F32, F33, F38, F39, G03, G04: the record that a handler leaves, by recovery and by
// how its steps and the handler end. A retry replays a completed record, runs on a
// retryable one, and is refused while it is unknown.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	const (
		reconcile, resumes, reruns = idempotent.Reconcile, idempotent.Resume, idempotent.Rerun

		completed, retryable, unknown = driver.StateCompleted, driver.StateRetryable, driver.StateUnknown

		failed = driver.ReasonHandlerError
	)
	final := idempotent.Final("declined", "no funds")
	none, unsure := idempotent.NotExecuted(errDown), idempotent.Unknown(errDown)
	wrap := func(err error) error { return fmt.Errorf("w: %w", err) }
	for _, c := range []struct {
		name     string
		recovery idempotent.Recovery
		handler  handlerFunc
		err      error // that its caller gets, or the value of its panic
		state    driver.State
		reason   driver.Reason
		steps    int // that are recorded
	}{
		{"a result", reconcile, charged, nil, completed, driver.ReasonResult, 0},
		{"an error", reconcile, returns(errDown), errDown, unknown, failed, 0},
		{"an error", reruns, returns(errDown), errDown, retryable, failed, 0},
		{"NotExecuted", reconcile, returns(none), none, retryable, driver.ReasonNotExecuted, 0},
		{"NotExecuted", reruns, returns(none), none, retryable, driver.ReasonNotExecuted, 0},
		{"Unknown", reconcile, returns(unsure), unsure, unknown, driver.ReasonUnknown, 0},
		{"Unknown", reruns, returns(unsure), unsure, unknown, driver.ReasonUnknown, 0},
		{"Final", reconcile, returns(final), final, completed, driver.ReasonFinal, 0},
		{"Final", reruns, returns(final), final, completed, driver.ReasonFinal, 0},
		// A helper deep inside cannot prove for the whole operation that nothing
		// happened, but it can declare that the outcome is unknown.
		{"wrapped NotExecuted", reconcile, returns(wrap(none)), none, unknown, failed, 0},
		{"joined NotExecuted", reconcile, returns(errors.Join(none, errDown)), none, unknown, failed, 0},
		{"NotExecuted around Unknown", reconcile, returns(idempotent.NotExecuted(unsure)), unsure, unknown, driver.ReasonUnknown, 0},
		{"wrapped Final", reconcile, returns(wrap(final)), final, completed, driver.ReasonFinal, 0},
		{"joined Final", reconcile, returns(errors.Join(final, errDown)), final, unknown, failed, 0},
		{"wrapped Unknown", reruns, returns(wrap(unsure)), unsure, unknown, driver.ReasonUnknown, 0},
		{"joined Unknown", reruns, returns(errors.Join(errDown, unsure)), unsure, unknown, driver.ReasonUnknown, 0},
		{"Unknown around Final", reruns, returns(idempotent.Unknown(final)), final, unknown, driver.ReasonUnknown, 0},
		// A panic does not prove that nothing happened.
		{"panic with NotExecuted", reconcile, panicking(none), none, unknown, driver.ReasonPanic, 0},
		{"panic with Final", reconcile, panicking(final), final, unknown, driver.ReasonPanic, 0},
		{"panic with NotExecuted", reruns, panicking(none), none, retryable, driver.ReasonPanic, 0},
		{"panic with Unknown", reruns, panicking(unsure), unsure, unknown, driver.ReasonUnknown, 0},
		// The refusal of a transaction is not about what the handler did before it.
		{"a refused transaction", reconcile, refused(same), errRefused, unknown, failed, 0},
		{"a refused transaction", resumes, refused(same), errRefused, retryable, failed, 0},
		{"a refused transaction", reruns, refused(same), errRefused, retryable, failed, 0},
		{"a refused transaction, declared", reconcile, refused(idempotent.NotExecuted), errRefused, retryable, driver.ReasonNotExecuted, 0},
		// Final and Unknown pass through a step. NotExecuted undoes the step and declares
		// nothing more for a handler that returns it unchanged.
		{"a step fails", resumes, stepping(errDown, same), errDown, retryable, failed, 1},
		{"a step fails with Final", reconcile, stepping(final, same), final, completed, driver.ReasonFinal, 0},
		{"a step fails with Unknown", resumes, stepping(unsure, same), unsure, unknown, driver.ReasonUnknown, 1},
		{"a step not executed", reconcile, stepping(none, same), none, unknown, failed, 0},
		{"a step not executed", resumes, stepping(none, same), none, retryable, failed, 0},
		{"a step not executed, wrapped", resumes, stepping(wrap(none), same), none, retryable, failed, 1},
		{"at most once, fails", resumes, stepping(errDown, same, atMostOnce), errDown, unknown, driver.ReasonInterrupted, 1},
		{"at most once, fails", reruns, stepping(errDown, same, atMostOnce), errDown, unknown, driver.ReasonInterrupted, 1},
		{"at most once, not executed", resumes, stepping(none, same, atMostOnce), none, retryable, failed, 0},
		{"at most once, fails, and Final", resumes, stepping(errDown, instead(final), atMostOnce), final, completed, driver.ReasonFinal, 0},
		{"at most once, fails, and continues", resumes, stepping(errDown, instead(nil), atMostOnce), nil, completed, driver.ReasonResult, 0},
		{"at most once, done, and fails", reruns, stepping(nil, instead(errDown), atMostOnce), errDown, retryable, failed, 1},
		{"a step, and fails", reruns, stepping(nil, instead(errDown)), errDown, retryable, failed, 1},
		{"a step, and NotExecuted", resumes, stepping(nil, instead(none)), none, retryable, failed, 1},
		{"a step, and NotExecuted", reconcile, stepping(nil, instead(none)), none, unknown, failed, 1},
		{"a step, and Unknown", resumes, stepping(nil, instead(unsure)), unsure, unknown, driver.ReasonUnknown, 1},
	} {
		name := fmt.Sprintf("%s, %s", c.name, c.recovery)
		f := newFixture(t, func(o *idempotent.Options) { o.Recovery, o.Steps = c.recovery, []string{"s"} })
		var out idempotent.Outcome[string]
		var err error
		func() {
			defer func() {
				if value := recover(); value != nil {
					err, _ = value.(error)
				}
			}()
			out, err = f.outcome(c.handler)
		}()
		if !errors.Is(err, c.err) || out.Replayed || out.Stored != (c.state == driver.StateCompleted) {
			t.Errorf("%s: got %+v, %v; want %v", name, out, err, c.err)
		}
		r := f.record()
		if r.State != c.state || r.Reason != c.reason || r.Recovery != c.recovery || len(r.Steps) != c.steps {
			t.Errorf("%s: the record is %+v, want %s for %s with %d steps", name, r, c.state, c.reason, c.steps)
		}
		// What waits for evidence, or for a request that continues its steps, is listed.
		if waits := c.state == driver.StateUnknown ||
			c.state == driver.StateRetryable && c.recovery == resumes && c.steps > 0; r.Due.IsZero() == waits || r.Expires.IsZero() != waits {
			t.Errorf("%s: due %s, expires %s", name, r.Due, r.Expires)
		}
		again, err := f.outcome(func(context.Context) (string, error) { return "ch_2", nil })
		switch c.state {
		case driver.StateRetryable:
			if err != nil || again.Value != "ch_2" {
				t.Errorf("%s: the retry got %+v, %v, want it to run", name, again, err)
			}
		case driver.StateUnknown:
			if !errors.As(err, new(*idempotent.UnresolvedError)) {
				t.Errorf("%s: the retry got %+v, %v, want UnresolvedError", name, again, err)
			}
		default:
			if !again.Replayed || !again.Stored || again.Value != out.Value ||
				fmt.Sprint(err) != fmt.Sprint(c.err) || c.err != nil && !errors.As(err, new(*idempotent.FinalError)) {
				t.Errorf("%s: the retry got %+v, %v, want a replay", name, again, err)
			}
		}
	}
}

// FM44, FM62: what an owner's outcome meets in the store: other parties, who judged its
// record meanwhile, and a store that fails. In all of them, callers get one outcome.
func TestOwnerAgainstSweepers(t *testing.T) {
	t.Parallel()
	final := idempotent.Final("declined", "")
	state := func(s driver.State) func(*driver.Record) {
		return func(r *driver.Record) { r.State = s }
	}
	evidence := func(result string) func(*driver.Record) {
		return func(r *driver.Record) {
			r.State, r.Encoding, r.Result = driver.StateCompleted, "json", []byte(`"`+result+`"`)
		}
	}
	for name, c := range map[string]struct {
		err     error // of the handler; nil: ch_1
		replace func(*call)
		value   string // that the caller gets
		want    error
		stored  bool
		state   driver.State
		writes  int
		events  string // after reserved
	}{
		"a sweeper": {
			replace: first(after(state(driver.StateUnknown))), value: "ch_1", stored: true,
			state: driver.StateCompleted, writes: 2, events: "late_completion",
		},
		"a sweeper, and the handler failed": {err: errDown, want: errDown, replace: first(after(state(driver.StateUnknown))), state: driver.StateUnknown, writes: 1},
		"a sweeper, and nothing was executed": {
			err: idempotent.NotExecuted(errDown), want: errDown, replace: first(after(state(driver.StateUnknown))),
			state: driver.StateRetryable, writes: 2, events: "late_completion",
		},
		"a resolver that found nothing": {
			replace: first(after(state(driver.StateRetryable))), value: "ch_1", stored: true,
			state: driver.StateCompleted, writes: 2, events: "contradicted late_completion",
		},
		"evidence": {
			replace: first(after(evidence("other"))), value: "other", stored: true,
			state: driver.StateCompleted, writes: 1, events: "contradicted replayed",
		},
		"equal evidence": {
			replace: first(after(evidence("ch_1"))), value: "ch_1", stored: true,
			state: driver.StateCompleted, writes: 1, events: "replayed",
		},
		"evidence, and the handler failed": {
			err: errDown, replace: first(after(evidence("other"))), value: "other", stored: true,
			state: driver.StateCompleted, writes: 1, events: "contradicted replayed",
		},
		"another run": {
			replace: first(after(func(r *driver.Record) { r.Owner[0]++ })), want: new(idempotent.LeaseLostError),
			state: driver.StateInProgress, writes: 1, events: "lease_lost",
		},
		"the outcome of another run": {
			replace: first(after(func(r *driver.Record) { r.Owner[0]++; evidence("other")(r) })),
			value:   "other", stored: true, state: driver.StateCompleted, writes: 1, events: "lease_lost replayed",
		},
		"a record that is gone": {
			replace: fail(idempotent.ErrNoRecord), value: "ch_1",
			state: driver.StateInProgress, writes: 1, events: "completion_failed",
		},
		"another write every time": {
			replace: after(state(driver.StateUnknown)), value: "ch_1",
			state: driver.StateUnknown, writes: 4, events: "completion_failed",
		},
		"a store that is down":            {replace: fail(errDown), value: "ch_1", state: driver.StateInProgress, writes: 1, events: "completion_failed"},
		"no reply":                        {replace: lose(errDown), value: "ch_1", state: driver.StateCompleted, writes: 1, events: "completion_failed"},
		"Final, and a store that is down": {err: final, want: final, replace: fail(errDown), state: driver.StateInProgress, writes: 1, events: "completion_failed"},
		"no room for its result": {replace: func(c *call) {
			if len(c.StoreCall.Record.Result) > 0 {
				c.Err = driver.ErrTooLarge
				return
			}
			c.do()
		}, value: "ch_1", state: driver.StateCompleted, writes: 2, events: "completion_failed completed"},
		"no room at all": {replace: fail(driver.ErrTooLarge), value: "ch_1", state: driver.StateInProgress, writes: 2, events: "completion_failed completion_failed"},
	} {
		f := newFixture(t)
		f.on(driver.OpReplace, c.replace)
		out, err := f.outcome(func(context.Context) (string, error) {
			if c.err != nil {
				return "", c.err
			}
			return "ch_1", nil
		})
		if out.Value != c.value || !errtype.Matches(err, c.want) || out.Stored != c.stored {
			t.Errorf("%s: got %+v, %v; want %q, stored %t, %v", name, out, err, c.value, c.stored, c.want)
		}
		if state := f.record().State; state != c.state {
			t.Errorf("%s: the record is %s, want %s", name, state, c.state)
		}
		for _, e := range f.events.Events() {
			if e.Kind == event.CompletionFailed && !errors.As(e.Err, new(slog.LogValuer)) {
				t.Errorf("%s: logs cannot show the error %T", name, e.Err)
			}
		}
		calls, want := append([]string{"insert"}, slices.Repeat([]string{"replace"}, c.writes)...), strings.TrimSpace("reserved "+c.events)
		if kinds := f.kinds(); kinds != want || !slices.Equal(f.calls, calls) {
			t.Errorf("%s: events %q after %v, want %q after %d writes", name, kinds, f.calls, want, c.writes)
		}
	}
}

// An owner whose record was marked meanwhile writes its outcome over the
// current record. Other parties' changes stay, except for what this run must set.
func TestLateOutcomeKeepsWhatOthersWrote(t *testing.T) {
	t.Parallel()
	later := map[string]map[string]json.RawMessage{"": {"later": []byte("1")}}
	for own, want := range map[string]string{"": "orders/other", "orders/1": "orders/1"} {
		f := newFixture(t)
		f.on(driver.OpReplace, first(func(c *call) {
			f.clock.Advance(time.Minute)
			f.change(func(r *driver.Record) {
				r.State, r.Ref, r.ReconcileAttempts = driver.StateUnknown, "orders/other", 3
				r.SetExtra(later)
			})
			c.do()
		}))
		if _, err := f.do(func(ctx context.Context) (string, error) {
			e, _ := idempotent.FromContext(ctx)
			return "ch_1", e.SetRef(own)
		}); err != nil {
			t.Error(err)
		}
		r := f.record()
		if r.State != driver.StateCompleted || r.Ref != want || r.ReconcileAttempts != 0 ||
			!reflect.DeepEqual(r.Extra(), later) || !r.Since.Equal(start.Add(time.Minute)) {
			t.Errorf("the record is %+v, want it completed now for %q, with what a later version wrote and nothing left to reconcile", r, want)
		}
	}
}

// A write id is reused only if it cannot have been applied and replaced before
// the reply came, which is true for completions, of an owner and by evidence.
func TestWriteIDsOfLaterRounds(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		err      error
		evidence func(*fixture) idempotent.Resolution // after it; nil: none
		same     bool
	}{
		"completed":           {same: true},
		"final":               {err: idempotent.Final("declined", ""), same: true},
		"retryable":           {err: idempotent.NotExecuted(errDown)},
		"evidence":            {err: errDown, evidence: func(*fixture) idempotent.Resolution { return idempotent.Resolved("ch_1") }, same: true},
		"proven not executed": {err: errDown, evidence: (*fixture).notExecuted},
	} {
		f := newFixture(t)
		var ids []driver.Version
		note := func(c *call) {
			if ids = append(ids, c.StoreCall.Record.Version); c.n == 1 {
				f.change(func(r *driver.Record) { r.State = driver.StateUnknown })
			}
			c.do()
		}
		if row.evidence == nil {
			f.on(driver.OpReplace, note)
		}
		_, _ = f.do(returns(row.err))
		if row.evidence != nil {
			f.clock.Advance(time.Hour)
			f.on(driver.OpReplace, note)
			f.mustResolve(row.evidence(f))
		}
		if len(ids) != 2 || (ids[0] == ids[1]) != row.same {
			t.Errorf("%s: written under %x; want twice, and the same id: %v", name, ids, row.same)
		}
	}
}

// The reference that a run sets has at most 1,024 bytes of UTF-8, is written with its
// steps and its outcome, and stays until another run sets one.
func TestSetRef(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	longest := strings.Repeat("x", 1024)
	var leaked *idempotent.Execution
	for _, ref := range []string{"orders/1", "", "orders/7"} {
		_, _ = f.do(func(ctx context.Context) (string, error) {
			leaked, _ = idempotent.FromContext(ctx)
			for _, wrong := range []string{longest + "x", "\xff"} {
				if err := leaked.SetRef(wrong); err == nil {
					t.Errorf("%.10q was accepted", wrong)
				}
			}
			if ref == "" {
				return "", idempotent.NotExecuted(errDown)
			}
			if err := leaked.SetRef(ref); err != nil || ref == "orders/1" {
				return "", idempotent.NotExecuted(err)
			}
			err := leaked.SetRef(longest)
			if _, stepErr := idempotent.Step(ctx, "s", charged); stepErr != nil || f.record().Ref != longest {
				t.Errorf("after a step: %v, the reference is %q", stepErr, f.record().Ref)
			}
			return "", errors.Join(err, leaked.SetRef(ref), errDown)
		})
		if want := f.record().Ref; want != ref && (ref != "" || want != "orders/1") {
			t.Errorf("after a run that set %q the record has %q", ref, want)
		}
	}
	// FM64's rule holds for every method of an execution: a goroutine that the
	// handler left behind changes nothing.
	if err := leaked.SetRef("orders/8"); !errors.Is(err, idempotent.ErrExecutionEnded) {
		t.Errorf("after the outcome: got error %v, want ErrExecutionEnded", err)
	}
	_, err := f.do(forbidden(t))
	var unresolved *idempotent.UnresolvedError
	if !errors.As(err, &unresolved) || unresolved.Ref != "orders/7" || unresolved.RetryAfter != time.Minute {
		t.Errorf("got error %#v, want the reference and a minute to wait", err)
	}
}

// The claim stores the reference of the key, so a run that is killed is found by it. No
// reference refuses a request, and the first one that is recorded stays.
func TestKeyRef(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	long := strings.Repeat("é", 600)
	key := idempotent.KeyFrom("charge", func(order string) (string, string) { return "s", "i" }).
		WithRef(func(order string) string {
			if order == "panics" {
				panic(order)
			}
			return order
		})
	sends := func(order string, fn func(context.Context) (string, error)) (idempotent.Outcome[string], error) {
		k, err := key(t.Context(), order)
		if err != nil {
			t.Fatal(err)
		}
		k.Fingerprint = f.key.Fingerprint
		f.key = k
		return idempotent.DoOutcome(f.invocation(), f.guard, k, fn)
	}
	refers := func(when, want string) {
		t.Helper()
		if got := f.record().Ref; got != want {
			t.Errorf("%s: the record has %q, want %q", when, got, want)
		}
	}
	refused := func(ctx context.Context) (string, error) { return "", idempotent.NotExecuted(errDown) }
	for order, want := range map[string]string{
		"1033": "1033", "": "", "panics": "", "caf\xe9": "caf\uFFFD", long: strings.Repeat("é", 512), "x" + long: "x" + strings.Repeat("é", 511),
	} {
		f = newFixture(t)
		_, _ = sends(order, func(context.Context) (string, error) {
			refers("while it runs", want) // as if it was killed now
			return "ok", nil
		})
		refers("afterwards", want)
	}
	f = newFixture(t)
	_, _ = sends("1033", refused)
	_, _ = sends("1034", func(ctx context.Context) (string, error) {
		refers("taken over", "1033")
		e, _ := idempotent.FromContext(ctx)
		return "ok", e.SetRef("orders/1033")
	})
	refers("set by the run", "orders/1033")
	if out, err := sends("1035", never[string]); err != nil || out.Ref != "orders/1033" {
		t.Errorf("the replay has %q, error %v", out.Ref, err)
	}
	f.clock.Advance(time.Hour)
	if err := f.guard.Forget(t.Context(), f.key.RecordID(), idempotent.Correction{Token: f.record().Token(), Actor: "a", Reason: "r"}); err != nil {
		t.Fatal(err)
	}
	_, _ = sends("1036", value("ok"))
	refers("forgotten", "1036")
	failing := idempotent.KeyFunc[string](func(context.Context, string) (idempotent.Key, error) { return idempotent.Key{}, errDown })
	if k, err := failing.WithRef(func(string) string { return "1" })(t.Context(), ""); err != errDown || k.Ref != "" {
		t.Errorf("a KeyFunc that fails: %+v, %v", k, err)
	}
}

// An adapter gets the expiry and the reference of a stored outcome, and neither
// for any other outcome.
func TestOutcomeSaysHowLongItStands(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		err     error
		commits bool
		stored  bool
	}{
		"a result": {nil, false, true},
		"Final":    {idempotent.Final("declined", ""), false, true},
		"a Commit": {nil, true, true},
		"nothing":  {idempotent.NotExecuted(nil), false, false},
	} {
		f := newFixture(t)
		for _, replayed := range []bool{false, true} {
			out, _ := f.outcome(func(ctx context.Context) (string, error) {
				e, _ := idempotent.FromContext(ctx)
				if err := e.SetRef("orders/7"); err != nil {
					t.Error(err)
				}
				if row.commits {
					return "x", commit(ctx, "x", f.Replace)
				}
				return "x", row.err
			})
			want, ref := f.record().Expires, "orders/7"
			if !row.stored {
				want, ref = time.Time{}, ""
			}
			if out.Replayed != (replayed && row.stored) || out.Stored != row.stored || want.IsZero() == row.stored || !out.Expires.Equal(want) || out.Ref != ref {
				t.Errorf("%s: got %+v, want it to expire %s", name, out, want)
			}
		}
	}
}

// A retention shorter than the lease is honored for an outcome that is written
// after the handler returned, because no handler is running.
func TestShortRetentionIsHonoured(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		handler handlerFunc
		expires time.Duration
	}{
		"a result":     {charged, time.Second},
		"Final":        {returns(idempotent.Final("declined", "")), time.Second},
		"not executed": {returns(idempotent.NotExecuted(errDown)), time.Second},
		"a commit, while the handler may be running": {func(ctx context.Context) (string, error) {
			e, _ := idempotent.FromContext(ctx)
			return "ch_1", commit(ctx, "ch_1", e.Store().Replace)
		}, 13 * time.Second},
	} {
		f := newFixture(t, func(o *idempotent.Options) { o.Retention = time.Second })
		_, _ = f.do(row.handler)
		if r := f.record(); !r.Expires.Equal(start.Add(row.expires)) {
			t.Errorf("%s: it expires after %s, want %s", name, r.Expires.Sub(start), row.expires)
		}
	}
}

// A write of a step that hangs ends with the handler's time and leaves the
// reserve to the outcome, whose write includes the step's result.
func TestHungStepWriteLeavesTheReserve(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, resume("charge", "ship"), func(o *idempotent.Options) { o.Now = time.Now })
		f.on(driver.OpReplace, func(c *call) {
			if c.StoreCall.Record.State == driver.StateInProgress {
				<-c.ctx.Done() // the reply never comes
				c.Err = c.ctx.Err()
				return
			}
			c.do()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		_, err := idempotent.Do(ctx, f.guard, f.key, func(ctx context.Context) (string, error) {
			_, err := idempotent.Step(ctx, "charge", charged)
			if waited := time.Since(began); err != nil || waited != 9500*ms {
				t.Errorf("the step returned %v after %s, want nothing after 9.5s", err, waited)
			}
			return "", errDown
		})
		r := f.record()
		if step, _ := r.Step("charge"); !errors.Is(err, errDown) || r.State != driver.StateRetryable || !step.Finished {
			t.Errorf("got error %v; the record is %s with the steps %+v", err, r.State, r.Steps)
		}
	})
}

// A store that uses the execution, as a middleware may, does not deadlock.
func TestStoreMayLookAtTheExecution(t *testing.T) {
	t.Parallel()
	f := newFixture(t, resume("charge", "order"))
	looks := 0
	f.on(driver.OpReplace, func(c *call) {
		if e, ok := idempotent.FromContext(c.ctx); ok {
			looks += e.Attempt()
			if err := e.SetRef("order 7"); err != nil && !errors.Is(err, idempotent.ErrExecutionEnded) {
				t.Error(err)
			}
		}
		c.do()
	})
	_, err := f.do(func(ctx context.Context) (string, error) {
		e, _ := idempotent.FromContext(ctx)
		_, charge := idempotent.Step(ctx, "charge", charged, atMostOnce)
		_, order := idempotent.CommitStep(ctx, "order", 1, e.Store().Replace)
		return "x", errors.Join(charge, order, commit(ctx, "x", e.Store().Replace))
	})
	if err != nil || looks != 4 {
		t.Errorf("%d writes, %v; want 4: the mark, the step, its commit, the outcome", looks, err)
	}
}

// A sweeper releases a record whose owner knows that an AtMostOnce step has
// begun. The owner's own "retryable" must not lose that, or the step would run
// twice.
func TestLateOwnerWritesTheStepsItKnows(t *testing.T) {
	t.Parallel()
	f := newFixture(t, resume("charge", "ship"))
	_, _ = f.do(func(ctx context.Context) (string, error) {
		f.on(driver.OpReplace, fail(errDown)) // the store fails for a while
		if v, err := idempotent.Step(ctx, "charge", charged); err != nil || v != "ch_1" {
			t.Errorf("got %q, %v", v, err)
		}
		f.on(driver.OpReplace, nil)
		f.clock.Advance(time.Hour)
		f.sweep()
		if r := f.record(); r.State != driver.StateRetryable || len(r.Steps) != 0 {
			t.Fatalf("the record is %s with %d steps", r.State, len(r.Steps))
		}
		return "", errDown
	})
	if s, _ := f.record().Step("charge"); !s.Finished {
		t.Errorf("the record has the steps %+v, want the finished charge", f.record().Steps)
	}
	if v, err := f.do(func(ctx context.Context) (string, error) { return idempotent.Step(ctx, "charge", forbidden(t)) }); err != nil || v != "ch_1" {
		t.Errorf("the next run gets %q, %v", v, err)
	}
}

// A panic whose value is not an error is reported without its text, which may
// contain secrets.
func TestPanicIsToldWithoutItsText(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if value := f.panics(panicking("secret")); value != "secret" {
		t.Errorf("recovered %v, want the handler's own panic", value)
	}
	last := f.events.Events()[1]
	if last.Kind != event.MarkedUnknown || last.Err == nil || !strings.Contains(last.Err.Error(), "panicked") || strings.Contains(last.Err.Error(), "secret") {
		t.Errorf("got event %+v", last)
	}
}
