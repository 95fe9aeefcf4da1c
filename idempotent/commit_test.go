// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/errtype"
)

// ledger is a store whose transactions also book an entry atomically. They can be
// made to fail in every way that a Transaction may.
type ledger struct {
	*memstore.Store
	booked []string
	fail   []error                        // of the next transactions; nil: no failure
	lose   bool                           // the first one is applied, and its reply is lost
	before func(context.Context, *ledger) // called once, before the first transaction
}

var (
	errLost    = errors.New("the reply was lost")
	errRefused = fmt.Errorf("%w: sold out", idempotent.ErrNotApplied)
)

func (l *ledger) book(entry string) idempotent.Transaction {
	return func(ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
		if f := l.before; f != nil {
			l.before = nil
			f(ctx, l)
		}
		if len(l.fail) > 0 {
			err := l.fail[0]
			l.fail = l.fail[1:]
			if err != nil {
				return nil, err
			}
		}
		met, err := l.Replace(ctx, next, was)
		if err == nil && met == nil {
			l.booked = append(l.booked, entry)
		}
		if l.lose {
			l.lose = false
			return nil, errLost
		}
		return met, err
	}
}

func commit(ctx context.Context, result any, write idempotent.Transaction) error {
	e, _ := idempotent.FromContext(ctx)
	return e.Commit(ctx, result, write)
}

// The record after a handler that commits, and what its caller gets.
func TestCommit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		ledger  ledger
		handler func(ctx context.Context, l *ledger) (string, error)
		value   string
		err     error // of the first caller
		state   driver.State
		booked  int
		events  []event.Kind
	}{
		{
			name: "applied", value: "ok", state: driver.StateCompleted, booked: 1,
			handler: func(ctx context.Context, l *ledger) (string, error) { return "ok", commit(ctx, "ok", l.book("a")) },
			events:  []event.Kind{event.Reserved, event.Completed},
		}, {
			name: "an error after it changes nothing", value: "ok", state: driver.StateCompleted, booked: 1,
			handler: func(ctx context.Context, l *ledger) (string, error) {
				if err := commit(ctx, "ok", l.book("a")); err != nil {
					return "", err
				}
				return "", errDown
			},
			events: []event.Kind{event.Reserved, event.Completed, event.Contradicted, event.Replayed},
		}, {
			name: "another result after it changes nothing", value: "ok", state: driver.StateCompleted, booked: 1,
			handler: func(ctx context.Context, l *ledger) (string, error) { return "other", commit(ctx, "ok", l.book("a")) },
			events:  []event.Kind{event.Reserved, event.Completed},
		}, {
			name: "refused: the handler decides", err: idempotent.NotExecuted(errRefused), state: driver.StateRetryable,
			ledger: ledger{fail: []error{errRefused}},
			handler: func(ctx context.Context, l *ledger) (string, error) {
				return "", idempotent.NotExecuted(commit(ctx, "ok", l.book("a")))
			},
		}, {
			name: "refused: another transaction", value: "less", state: driver.StateCompleted, booked: 1,
			ledger: ledger{fail: []error{errRefused}},
			handler: func(ctx context.Context, l *ledger) (string, error) {
				if err := commit(ctx, "ok", l.book("a")); err != errRefused {
					return "", errDown
				}
				return "less", commit(ctx, "less", l.book("b"))
			},
		}, {
			name: "in doubt and not applied", err: errLost, state: driver.StateUnknown,
			ledger:  ledger{fail: []error{errLost}},
			handler: func(ctx context.Context, l *ledger) (string, error) { return "ok", commit(ctx, "ok", l.book("a")) },
		}, {
			name: "in doubt, and the handler ignores it", err: errLost, state: driver.StateUnknown,
			ledger: ledger{fail: []error{errLost}},
			handler: func(ctx context.Context, l *ledger) (string, error) {
				_ = commit(ctx, "ok", l.book("a"))
				return "ok", nil
			},
		}, {
			name: "in doubt, then refused, and the handler ignores it", err: errLost, state: driver.StateUnknown,
			ledger: ledger{fail: []error{errLost, errRefused}},
			handler: func(ctx context.Context, l *ledger) (string, error) {
				_ = commit(ctx, "ok", l.book("a"))
				if err := commit(ctx, "ok", l.book("a")); !errors.As(err, new(*idempotent.StoreError)) || errors.Is(err, idempotent.ErrNotApplied) {
					return "", errDown
				}
				return "ok", nil
			},
		}, {
			name: "in doubt, and the handler returns Final", err: errLost, state: driver.StateUnknown,
			ledger: ledger{fail: []error{errLost}},
			handler: func(ctx context.Context, l *ledger) (string, error) {
				_ = commit(ctx, "ok", l.book("a"))
				return "", idempotent.Final("x", "")
			},
		}, {
			name: "in doubt and applied", value: "ok", state: driver.StateCompleted, booked: 1,
			ledger:  ledger{lose: true},
			handler: func(ctx context.Context, l *ledger) (string, error) { return "", commit(ctx, "ok", l.book("a")) },
			events:  []event.Kind{event.Reserved, event.StoreError, event.Completed, event.Replayed},
		}, {
			name: "in doubt, applied, tried again", value: "ok", state: driver.StateCompleted, booked: 1,
			ledger: ledger{lose: true},
			handler: func(ctx context.Context, l *ledger) (string, error) {
				if err := commit(ctx, "ok", l.book("a")); !errors.As(err, new(*idempotent.StoreError)) {
					return "", errDown
				}
				return "other", commit(ctx, "ok", l.book("a"))
			},
		}, {
			name: "in doubt, not applied, tried again", value: "ok", state: driver.StateCompleted, booked: 1,
			ledger: ledger{fail: []error{errLost}},
			handler: func(ctx context.Context, l *ledger) (string, error) {
				if err := commit(ctx, "ok", l.book("a")); !errors.As(err, new(*idempotent.StoreError)) {
					return "", errDown
				}
				return "ok", commit(ctx, "ok", l.book("a"))
			},
		}, {
			name: "in doubt, not applied, tried again after a sweep", value: "ok", state: driver.StateCompleted, booked: 1,
			ledger: ledger{fail: []error{errLost}},
			handler: func(ctx context.Context, l *ledger) (string, error) {
				if err := commit(ctx, "ok", l.book("a")); !errors.As(err, new(*idempotent.StoreError)) {
					return "", errDown
				}
				e, _ := idempotent.FromContext(ctx)
				r, err := l.Get(ctx, e.RecordID())
				if err != nil {
					return "", err
				}
				was := r.Version
				r.State, r.Version = driver.StateUnknown, driver.Version{9}
				if met, err := l.Replace(ctx, *r, was); met != nil || err != nil {
					return "", errDown
				}
				return "ok", commit(ctx, "ok", l.book("a"))
			},
		}, {
			name: "after evidence that came when the lease had ended", value: "by the webhook", state: driver.StateCompleted,
			ledger: ledger{before: func(ctx context.Context, l *ledger) {
				e, _ := idempotent.FromContext(ctx)
				g, _ := idempotent.New(l.Store, func(o *idempotent.Options) {
					o.Logger, o.Now = quiet, func() time.Time { return time.Now().Add(time.Hour) }
				})
				if err := g.Resolve(ctx, e.RecordID(), idempotent.Resolved("by the webhook")); err != nil {
					panic(err)
				}
			}},
			handler: func(ctx context.Context, l *ledger) (string, error) {
				err := commit(ctx, "ok", l.book("a"))
				if !errors.As(err, new(*idempotent.SettledError)) {
					return "", errDown
				}
				return "", err
			},
		}, {
			name: "a second one", err: idempotent.ErrExecutionEnded, state: driver.StateCompleted, booked: 1, value: "ok",
			handler: func(ctx context.Context, l *ledger) (string, error) {
				if err := commit(ctx, "ok", l.book("a")); err != nil {
					return "", err
				}
				if err := commit(ctx, "ok", l.book("b")); err != idempotent.ErrExecutionEnded {
					return "", errDown
				}
				if _, err := idempotent.Step(ctx, "late", never[int]); err != idempotent.ErrExecutionEnded {
					return "", errDown
				}
				return "ok", nil
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := test.ledger
			l.Store = memstore.New()
			g, events := newGuardOver(t, l.Store)
			key := newKey()
			value, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) { return test.handler(ctx, &l) })
			if test.value == "" && (err == nil || err.Error() != test.err.Error() && !errors.Is(err, test.err)) || test.value != "" && err != nil || value != test.value {
				t.Errorf("the caller gets %q, %v; want %q, %v", value, err, test.value, test.err)
			}
			r := record(t, l, key)
			if r.State != test.state || len(l.booked) != test.booked {
				t.Errorf("the record is %s (%s) and %d entries are booked, want %s and %d", r.State, r.Reason, len(l.booked), test.state, test.booked)
			}
			if got := fmt.Sprint(events.Kinds()); test.events != nil && got != fmt.Sprint(test.events) {
				t.Errorf("events %s, want %s", got, test.events)
			}
			if test.state == driver.StateCompleted {
				again, err := idempotent.Do(t.Context(), g, key, never[string])
				if again != test.value || err != nil {
					t.Errorf("a retry gets %q, %v; want %q", again, err, test.value)
				}
			}
		})
	}
}

// FM60, FM14: a worker that outlived its lease commits, with the domain write, on
// the current record while it still owns it; never after a takeover.
func TestLateCommit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		recovery idempotent.Recovery
		want     error
		booked   int
		kind     event.Kind
	}{
		{"marked unknown", idempotent.Reconcile, nil, 1, event.LateCompletion},
		{"taken over", idempotent.Rerun, new(idempotent.LeaseLostError), 0, event.LeaseLost},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			clock := &idempotenttest.Clock{}
			l := &ledger{Store: memstore.New()}
			g, events := newGuardOver(t, l.Store, func(o *idempotent.Options) { o.Now, o.Recovery = clock.Now, test.recovery })
			key := newKey()
			ctx := clock.Invocation(t.Context(), time.Minute)
			_, err := idempotent.Do(ctx, g, key, func(ctx context.Context) (string, error) {
				clock.Advance(time.Hour)
				other, err := idempotent.Do(clock.Invocation(t.Context(), time.Minute), g, key, func(context.Context) (string, error) { return "other", nil })
				if test.recovery == idempotent.Rerun && (other != "other" || err != nil) || test.recovery == idempotent.Reconcile && !errors.As(err, new(*idempotent.UnresolvedError)) {
					t.Errorf("the second request gets %q, %v", other, err)
				}
				err = commit(ctx, "late", l.book("a"))
				if test.want == nil && err != nil || test.want != nil && !errors.As(err, new(*idempotent.SettledError)) {
					t.Errorf("Commit returned %v", err)
				}
				return "late", err
			})
			if err != nil {
				t.Errorf("the late worker's caller gets error %v", err)
			}
			// A late owner that is refused contradicts nothing.
			if len(l.booked) != test.booked || events.Count(test.kind) == 0 || events.Count(event.Contradicted) != 0 {
				t.Errorf("%d entries are booked, want %d; events %s", len(l.booked), test.booked, events.Kinds())
			}
		})
	}
}

// A step's transaction is recorded once, with its writes, however often it is
// tried.
func TestCommitStep(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		ledger ledger
		again  bool  // the handler tries the step again in the same run
		err    error // of the first attempt
		booked int   // after it
		final  int   // after a second attempt
	}{
		{name: "applied", err: errDown, booked: 1, final: 1},
		{name: "refused", ledger: ledger{fail: []error{errRefused}}, err: errRefused, final: 1},
		{name: "refused, tried again", ledger: ledger{fail: []error{errRefused}}, again: true, err: errDown, booked: 1, final: 1},
		{name: "in doubt, not applied", ledger: ledger{fail: []error{errLost}}, err: errLost, final: 1},
		{name: "in doubt, applied", ledger: ledger{lose: true}, err: errLost, booked: 1, final: 1},
		{name: "in doubt, not applied, tried again", ledger: ledger{fail: []error{errLost}}, again: true, err: errDown, booked: 1, final: 1},
		{name: "in doubt, applied, tried again", ledger: ledger{lose: true}, again: true, err: errDown, booked: 1, final: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := test.ledger
			l.Store = memstore.New()
			g, _ := newGuardOver(t, l.Store, resume("order"))
			key := newKey()
			var last error = errDown
			handler := func(ctx context.Context) (string, error) {
				id, err := idempotent.CommitStep(ctx, "order", "order_1", l.book("a"))
				if err != nil && test.again {
					id, err = idempotent.CommitStep(ctx, "order", "order_1", l.book("a"))
				}
				if err != nil {
					return "", err
				}
				return id, last
			}
			if _, err := idempotent.Do(t.Context(), g, key, handler); !errtype.Matches(err, test.err) {
				t.Errorf("got error %v, want %v", err, test.err)
			}
			if len(l.booked) != test.booked {
				t.Errorf("%d entries are booked, want %d", len(l.booked), test.booked)
			}
			last = nil
			if id, err := idempotent.Do(t.Context(), g, key, handler); id != "order_1" || err != nil {
				t.Errorf("the second attempt: %q, %v", id, err)
			}
			if len(l.booked) != test.final {
				t.Errorf("%d entries are booked in the end, want %d", len(l.booked), test.final)
			}
		})
	}
}

// A handler that ignores a step in doubt does not complete the record, because
// the step's writes may be missing.
func TestCommitStepInDoubtIsNotDone(t *testing.T) {
	t.Parallel()
	l := &ledger{Store: memstore.New(), fail: []error{errLost, errRefused}}
	g, _ := newGuardOver(t, l.Store, resume("order"))
	key := newKey()
	handler := func(ctx context.Context) (string, error) {
		_, first := idempotent.CommitStep(ctx, "order", "order_1", l.book("a"))
		if len(l.booked) == 0 {
			_, second := idempotent.CommitStep(ctx, "order", "order_1", l.book("a"))
			for call, err := range []error{first, second, commit(ctx, "done", l.book("b"))} {
				if !errors.As(err, new(*idempotent.StoreError)) || errors.Is(err, idempotent.ErrNotApplied) {
					t.Errorf("call %d returned %v", call, err)
				}
			}
		}
		return "done", nil
	}
	if _, err := idempotent.Do(t.Context(), g, key, handler); !errors.Is(err, errLost) {
		t.Errorf("got error %v, want %v", err, errLost)
	}
	if r := record(t, l, key); r.State != driver.StateRetryable || len(l.booked) != 0 {
		t.Errorf("the record is %s and %v is booked", r.State, l.booked)
	}
	if v, err := idempotent.Do(t.Context(), g, key, handler); v != "done" || err != nil || len(l.booked) != 1 {
		t.Errorf("the second attempt: %q, %v, booked %v", v, err, l.booked)
	}
}

func TestCommitStepWithoutExecution(t *testing.T) {
	t.Parallel()
	if _, err := idempotent.CommitStep(t.Context(), "order", 1, nil); !errors.As(err, new(*idempotent.StepError)) {
		t.Errorf("got error %v", err)
	}
}

// A large result is stored beside the record before the transaction.
func TestCommitLargeResult(t *testing.T) {
	t.Parallel()
	store := newChunked()
	g, _ := newGuardOver(t, store)
	key := newKey()
	large := make([]int, 20_000)
	for i := range large {
		large[i] = i * i
	}
	if _, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) ([]int, error) {
		return large, commit(ctx, large, store.Replace)
	}); err != nil {
		t.Fatal(err)
	}
	if r := record(t, store, key); r.Chunks.Count == 0 || r.Result != nil {
		t.Errorf("the result is not in chunks: %+v", r.Chunks)
	}
	again, err := idempotent.Do(t.Context(), g, key, never[[]int])
	if err != nil || fmt.Sprint(again) != fmt.Sprint(large) {
		t.Errorf("a retry gets error %v and %d numbers", err, len(again))
	}
}

// A panic after a commit does not change the record, and is reported.
func TestPanicAfterCommit(t *testing.T) {
	t.Parallel()
	s, key := watch(), newKey()
	g, events := newGuardOver(t, s)
	func() {
		defer func() { recover() }()
		idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
			e, _ := idempotent.FromContext(ctx)
			if err := e.Commit(ctx, "ch_1", s.inner.Replace); err != nil {
				t.Error(err)
			}
			panic("afterwards")
		})
	}()
	if r := s.record(t, key); r.State != driver.StateCompleted || events.Count(event.Contradicted) != 1 {
		t.Errorf("the record is %s, and the events are %v", r.State, events.Kinds())
	}
	wantCalls(t, s, "insert") // the transaction is not a call of the guard
}

// A committed result is stored, and the outcome reports that.
func TestCommitIsStored(t *testing.T) {
	t.Parallel()
	s := watch()
	g, _ := newGuardOver(t, s)
	out, err := idempotent.DoOutcome(t.Context(), g, newKey(), func(ctx context.Context) (string, error) {
		e, _ := idempotent.FromContext(ctx)
		return "ch_1", e.Commit(ctx, "ch_1", s.inner.Replace)
	})
	if err != nil || !out.Stored || out.Replayed || out.Value != "ch_1" {
		t.Errorf("got %+v, %v", out, err)
	}
}
