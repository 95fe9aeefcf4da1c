// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

func refer(t *testing.T, ctx context.Context, ref string) {
	t.Helper()
	e, _ := idempotent.FromContext(ctx)
	if err := e.SetRef(ref); err != nil {
		t.Error(err)
	}
}

// The reference that a run sets stays until another run sets one.
func TestReferenceOutlivesTheRun(t *testing.T) {
	t.Parallel()
	s, key := watch(), newKey()
	g, _ := newGuardOver(t, s)
	for _, ref := range []string{"orders/1", "", "orders/2"} {
		idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
			if ref != "" {
				refer(t, ctx, ref)
			}
			return "", idempotent.NotExecuted(errors.New("busy"))
		})
		want := ref
		if want == "" {
			want = "orders/1"
		}
		if got := s.record(t, key).Ref; got != want {
			t.Errorf("after a run that set %q the record has %q, want %q", ref, got, want)
		}
	}
	_, err := idempotent.Do(t.Context(), g, newKey(), func(ctx context.Context) (string, error) {
		refer(t, ctx, strings.Repeat("r", 1024)) // the maximum length
		return "", nil
	})
	if err != nil {
		t.Error(err)
	}
}

// FM62: an owner whose record was marked meanwhile writes its outcome over the
// current record. Other parties' changes stay, except for what this run must set.
func TestLateOutcomeKeepsWhatOthersWrote(t *testing.T) {
	t.Parallel()
	later := map[string]map[string]json.RawMessage{"": {"later": []byte("1")}}
	for _, own := range []string{"", "orders/1"} {
		s, key, clock := watch(), newKey(), &idempotenttest.Clock{}
		g, events := newGuardOver(t, s, func(o *idempotent.Options) { o.Now = clock.Now })
		var late time.Time
		s.replace = func(ctx context.Context, r driver.Record) (*driver.Record, error) {
			s.replace = nil
			clock.Advance(time.Minute)
			late = clock.Now()
			return s.change(t, key, func(r *driver.Record) {
				r.State, r.Ref, r.ReconcileAttempts = driver.StateUnknown, "orders/other", 3
				r.SetExtra(later)
			}), nil
		}
		out, err := idempotent.DoOutcome(t.Context(), g, key, func(ctx context.Context) (string, error) {
			if own != "" {
				refer(t, ctx, own)
			}
			return "ch_1", nil
		})
		if err != nil || !out.Stored || events.Count(event.LateCompletion) != 1 {
			t.Errorf("got %+v, error %v and events %v", out, err, events.Kinds())
		}
		want := own
		if want == "" {
			want = "orders/other"
		}
		r := s.record(t, key)
		if r.State != driver.StateCompleted || r.Ref != want || r.ReconcileAttempts != 0 || !reflect.DeepEqual(r.Extra(), later) {
			t.Errorf("the record is %+v, want it completed for %q, with what a later version wrote and nothing left to reconcile", r, want)
		}
		if r.Since.Before(late.Truncate(time.Millisecond)) {
			t.Errorf("settled at %v, want the time of the write that succeeded, %v", r.Since, late)
		}
	}
}

// A write id is reused only if it cannot have been applied and replaced before
// the reply came, which is true for completions.
func TestWriteIDsOfLaterRounds(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		err  error
		same bool
	}{
		"completed": {nil, true},
		"final":     {idempotent.Final("declined", ""), true},
		"retryable": {idempotent.NotExecuted(errors.New("busy")), false},
	} {
		s, key := watch(), newKey()
		ids := s.interrupted(t, key, func(r *driver.Record) { r.State = driver.StateUnknown })
		g, _ := newGuardOver(t, s)
		idempotent.Do(t.Context(), g, key, func(context.Context) (string, error) { return "", row.err })
		if len(*ids) != 2 || ((*ids)[0] == (*ids)[1]) != row.same {
			t.Errorf("%s: the outcome was written under %x; want twice, and the same id: %v", name, *ids, row.same)
		}
	}
}

// An owner that finds the record as it would write it writes nothing.
func TestAgreedOutcomeIsNotWrittenAgain(t *testing.T) {
	t.Parallel()
	s, key := watch(), newKey()
	g, events := newGuardOver(t, s)
	var swept *driver.Record
	idempotent.Do(t.Context(), g, key, func(context.Context) (string, error) {
		swept = s.change(t, key, func(r *driver.Record) { r.State = driver.StateUnknown })
		return "", errors.New("no reply")
	})
	if r := s.record(t, key); r.Version != swept.Version || events.Count(event.LateCompletion) != 0 || events.Count(event.CompletionFailed) != 0 {
		t.Errorf("the record is %+v, events %v; want what the sweeper wrote", r, events.Kinds())
	}
	wantCalls(t, s, "insert", "replace")
}

// If the store cannot hold the outcome even without its result, the guard does
// not try again. The events have errors whose texts logs can show.
func TestTooLargeWithoutItsResult(t *testing.T) {
	t.Parallel()
	s := watch()
	s.replace = func(context.Context, driver.Record) (*driver.Record, error) {
		return nil, driver.ErrTooLarge
	}
	g, events := newGuardOver(t, s)
	out, err := idempotent.DoOutcome(t.Context(), g, newKey(), charged)
	if err != nil || out.Value != "ch_1" || out.Stored || events.Count(event.CompletionFailed) != 2 {
		t.Errorf("got %+v, error %v and events %v", out, err, events.Kinds())
	}
	for _, e := range events.Events() {
		if e.Kind == event.CompletionFailed && !errors.As(e.Err, new(slog.LogValuer)) {
			t.Errorf("the event has the error %T", e.Err)
		}
	}
	wantCalls(t, s, "insert", "replace", "replace")
}

// The hint is for errors that leave a record unknown, not for those that let it
// run again.
func TestNoHintWhereNothingIsUnknown(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	g, _ := newGuard(t, func(o *idempotent.Options) {
		o.Recovery, o.Logger = idempotent.Rerun, slog.New(slog.NewTextHandler(&log, nil))
	})
	idempotent.Do(t.Context(), g, newKey(), func(context.Context) (string, error) { return "", errors.New("x") })
	if log.Len() != 0 {
		t.Errorf("got log %q", &log)
	}
}

// A retention shorter than the lease is honored for an outcome that is written
// after the handler returned, because no handler is running.
func TestShortRetentionIsHonoured(t *testing.T) {
	t.Parallel()
	const short = 5 * time.Second
	for name, row := range map[string]struct {
		handler handlerFunc
		done    bool // the handler has returned when the outcome is written
	}{
		"a result":     {charged, true},
		"Final":        {returns(idempotent.Final("declined", "")), true},
		"not executed": {returns(idempotent.NotExecuted(errDown)), true},
		"a commit": {func(ctx context.Context) (string, error) {
			e, _ := idempotent.FromContext(ctx)
			return "ch_1", commit(ctx, "ch_1", e.Store().Replace)
		}, false},
	} {
		w := newFixture()
		g := w.guard(t, func(o *idempotent.Options) { o.Retention = short })
		_, _ = idempotent.Do(w.clock.Invocation(t.Context(), 15*time.Minute), g, w.key, row.handler)
		r := w.record(t)
		want := r.Since.Add(short)
		if !row.done {
			want = r.LeaseEnd // the handler may still be running until then
		}
		if !r.Expires.Equal(want) {
			t.Errorf("%s: it expires %s after it was settled, want %s", name, r.Expires.Sub(r.Since), want.Sub(r.Since))
		}
	}
}

type handlerFunc = func(context.Context) (string, error)

// A handler is entered only if it has 100 ms or twice the duration of the last
// store call, but a fifth of the request's time is always enough, because the
// first call of a cold start is slow.
func TestTimeToEnter(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name       string
		time, call time.Duration
		enters     bool
	}{
		{"a fast store", 18 * time.Millisecond, 0, true},
		{"a slow store and much time", 10 * time.Second, 500 * time.Millisecond, true},
		{"a cold start: more than a fifth is left", 3 * time.Second, 1800 * time.Millisecond, true},
		{"a store that took nearly all of it", time.Second, 782 * time.Millisecond, false},
		{"less than a fifth and less than two calls", time.Second, 610 * time.Millisecond, false},
		{"less than a fifth, and 100 ms", 10 * time.Second, 30 * time.Millisecond, true},
		{"just enough", time.Second, 599 * time.Millisecond, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for _, takeover := range []bool{false, true} {
					s, key := watch(), newKey()
					s.insert = func(r driver.Record) (*driver.Record, error) {
						time.Sleep(row.call) // the bubble's clock
						return s.inner.Insert(t.Context(), r, time.Now())
					}
					if takeover {
						s.insert = nil
						s.holds(t, key, driver.Record{State: driver.StateRetryable})
						s.replace = func(ctx context.Context, r driver.Record) (*driver.Record, error) {
							s.replace = nil
							time.Sleep(row.call)
							return s.inner.Replace(ctx, r, s.record(t, key).Version)
						}
					}
					g, _ := newGuardOver(t, s)
					ctx, cancel := context.WithTimeout(t.Context(), row.time)
					defer cancel()
					entered := false
					_, err := idempotent.Do(ctx, g, key, func(context.Context) (string, error) { entered = true; return "", nil })
					if entered != row.enters || !row.enters && !errors.As(err, new(*idempotent.NoTimeError)) {
						t.Errorf("takeover %t: entered %t, %v; want %t", takeover, entered, err, row.enters)
					}
					if state := s.record(t, key).State; !row.enters && state != driver.StateRetryable {
						t.Errorf("takeover %t: the record is %s", takeover, state)
					}
				}
			})
		})
	}
}

// A request that waited for another one until little time was left is entered.
func TestTimeToEnterAfterWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, key := watch(), newKey()
		s.holds(t, key, driver.Record{State: driver.StateInProgress, Recovery: idempotent.Rerun, Owner: driver.Owner{1}, LeaseEnd: time.Now().Add(7500 * time.Millisecond).UTC()})
		g, _ := newGuardOver(t, s, func(o *idempotent.Options) { o.Recovery, o.WaitFor = idempotent.Rerun, time.Minute })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if v, err := idempotent.Do(ctx, g, key, charged); v != "ch_1" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
	})
}

// A write of a step that hangs ends with the handler's time and leaves the
// reserve to the outcome, whose write includes the step's result.
func TestHungStepWriteLeavesTheReserve(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, key := watch(), newKey()
		s.replace = func(ctx context.Context, r driver.Record) (*driver.Record, error) {
			if r.State == driver.StateInProgress {
				<-ctx.Done() // the reply never comes
				return nil, ctx.Err()
			}
			return s.inner.Replace(ctx, r, s.record(t, key).Version)
		}
		g, _ := newGuardOver(t, s, resume("charge", "ship"))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		_, err := idempotent.Do(ctx, g, key, func(ctx context.Context) (string, error) {
			_, err := idempotent.Step(ctx, "charge", charged)
			if waited := time.Since(began); err != nil || waited != 9500*time.Millisecond {
				t.Errorf("the step returned %v after %s, want nothing after 9.5s", err, waited)
			}
			return "", errDown
		})
		r := s.record(t, key)
		if step, _ := r.Step("charge"); !errors.Is(err, errDown) || r.State != driver.StateRetryable || !step.Finished {
			t.Errorf("got error %v; the record is %s with the steps %+v", err, r.State, r.Steps)
		}
	})
}

// A StoreError reports whether the handler had run, and names the operation.
func TestStoreErrorSaysWhetherTheHandlerRan(t *testing.T) {
	t.Parallel()
	check := func(name string, err error, entered bool, op driver.Op) {
		t.Helper()
		var failed *idempotent.StoreError
		if !errors.As(err, &failed) || failed.Entered != entered || failed.Op != op {
			t.Errorf("%s: got error %#v, want %s, entered %t", name, err, op, entered)
			return
		}
		if says := strings.Contains(err.Error(), "nothing was executed"); says == entered {
			t.Errorf("%s: the text is %q", name, err)
		}
	}
	s := watch()
	g, _ := newGuardOver(t, s, resume("charge", "order"))
	s.insert = func(driver.Record) (*driver.Record, error) { return nil, errDown }
	_, err := idempotent.Do(t.Context(), g, newKey(), charged)
	check("claim", err, false, driver.OpInsert)

	s = watch()
	g, _ = newGuardOver(t, s, resume("charge", "order"))
	lost := func(context.Context, driver.Record, driver.Version) (*driver.Record, error) { return nil, errLost }
	_, err = idempotent.Do(t.Context(), g, newKey(), func(ctx context.Context) (string, error) { return "", commit(ctx, "x", lost) })
	check("commit", err, true, driver.OpTransact)
	_, err = idempotent.Do(t.Context(), g, newKey(), func(ctx context.Context) (string, error) { return idempotent.CommitStep(ctx, "order", "x", lost) })
	check("a step's commit", err, true, driver.OpTransact)
	_, err = idempotent.Do(t.Context(), g, newKey(), func(ctx context.Context) (string, error) {
		s.replace = func(context.Context, driver.Record) (*driver.Record, error) { return nil, errDown }
		return idempotent.Step(ctx, "charge", forbidden(t), atMostOnce)
	})
	check("the mark of a step", err, true, driver.OpReplace)
	s = watch()
	g, _ = newGuardOver(t, s, resume("charge", "order"))
	key := newKey()
	_, err = idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
		s.replace = func(context.Context, driver.Record) (*driver.Record, error) {
			return s.change(t, key, func(*driver.Record) {}), nil // another write comes first, every time
		}
		return idempotent.Step(ctx, "charge", forbidden(t), atMostOnce)
	})
	check("the mark of a step that others prevent", err, true, driver.OpReplace)
}

// A store that uses the execution, as a middleware may, does not deadlock.
func TestStoreMayLookAtTheExecution(t *testing.T) {
	t.Parallel()
	s, key := watch(), newKey()
	looks := 0
	s.replace = func(ctx context.Context, r driver.Record) (*driver.Record, error) {
		if e, ok := idempotent.FromContext(ctx); ok {
			looks += e.Attempt()
			if err := e.SetRef("order 7"); err != nil && !errors.Is(err, idempotent.ErrExecutionEnded) {
				t.Error(err)
			}
		}
		return s.inner.Replace(ctx, r, s.record(t, key).Version)
	}
	g, _ := newGuardOver(t, s, resume("charge", "order"))
	_, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
		if _, err := idempotent.Step(ctx, "charge", charged, atMostOnce); err != nil {
			return "", err
		}
		write := func(ctx context.Context, next driver.Record, _ driver.Version) (*driver.Record, error) {
			return s.Replace(ctx, next, driver.Version{})
		}
		if _, err := idempotent.CommitStep(ctx, "order", 1, write); err != nil {
			return "", err
		}
		return "x", commit(ctx, "x", write)
	})
	if err != nil || looks != 4 {
		t.Errorf("%d writes, %v; want 4: the mark, the step, its commit, the outcome", looks, err)
	}
}

// After a Commit the outcome has the record's expiry and reference.
func TestOutcomeOfACommit(t *testing.T) {
	t.Parallel()
	w := newFixture()
	out, err := w.do(t, w.guard(t), func(ctx context.Context) (string, error) {
		e, _ := idempotent.FromContext(ctx)
		if err := e.SetRef("order 7"); err != nil {
			return "", err
		}
		return "x", commit(ctx, "x", w.Replace)
	})
	if r := w.record(t); err != nil || !out.Stored || out.Replayed || !out.Expires.Equal(r.Expires) || r.Expires.IsZero() || out.Ref != "order 7" {
		t.Errorf("got %+v, %v; the record expires %s", out, err, r.Expires)
	}
}

// A sweeper releases a record whose owner knows that an AtMostOnce step has
// begun. The owner's own "retryable" must not lose that, or the step would run
// twice.
func TestLateOwnerWritesTheStepsItKnows(t *testing.T) {
	t.Parallel()
	w := newFixture()
	store := watchOver(w.Store)
	declare := resume("charge", "ship")
	g, _ := newGuardOver(t, store, func(o *idempotent.Options) { o.Now = w.clock.Now }, declare)
	_, _ = idempotent.Do(w.clock.Invocation(t.Context(), 10*time.Second), g, w.key, func(ctx context.Context) (string, error) {
		store.replace = func(context.Context, driver.Record) (*driver.Record, error) { return nil, errDown } // the store fails for a while
		v, err := idempotent.Step(ctx, "charge", func(context.Context) (string, error) { return "ch_1", nil })
		if err != nil || v != "ch_1" {
			t.Errorf("got %q, %v", v, err)
		}
		store.replace = nil
		w.clock.Advance(time.Hour)
		if _, err := idempotent.ReconcileDue(t.Context(), w.guard(t), answer(idempotent.Later(0))); err != nil {
			t.Fatal(err)
		}
		if r := w.record(t); r.State != driver.StateRetryable || len(r.Steps) != 0 {
			t.Fatalf("the record is %s with %d steps", r.State, len(r.Steps))
		}
		return "", errDown
	})
	if s, _ := w.record(t).Step("charge"); !s.Finished {
		t.Errorf("the record has the steps %+v, want the finished charge", w.record(t).Steps)
	}
	out, err := w.do(t, w.guard(t, declare), func(ctx context.Context) (string, error) { return idempotent.Step(ctx, "charge", forbidden(t)) })
	if err != nil || out.Value != "ch_1" {
		t.Errorf("the next run gets %q, %v", out.Value, err)
	}
}

// Of three Commits the first two got no reply and the first was applied: the
// third must not report that nothing was written.
func TestCommitRemembersEveryDoubt(t *testing.T) {
	t.Parallel()
	w := newFixture()
	booked := 0
	transactions := []func(ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error){
		func(ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
			if met, err := w.Replace(ctx, next, was); met != nil || err != nil {
				t.Error(met, err)
			}
			booked++
			return nil, errLost
		},
		func(context.Context, driver.Record, driver.Version) (*driver.Record, error) { return nil, errLost },
		func(ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
			met, err := w.Replace(ctx, next, was)
			if met == nil && err == nil {
				booked++
			}
			return met, err
		},
	}
	out, err := w.do(t, w.guard(t), func(ctx context.Context) (string, error) {
		for i, write := range transactions {
			if err := commit(ctx, "ok", write); (err == nil) != (i == 2) {
				t.Errorf("commit %d: %v", i, err)
			}
		}
		return "ok", nil
	})
	if err != nil || out.Value != "ok" || !out.Stored || booked != 1 {
		t.Errorf("got %+v, %v with %d bookings", out, err, booked)
	}
}
