// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/errtype"
	"github.com/once-lambda/once/internal/kit"
)

// Failures of a transaction, and what its caller, the observer and the record
// then know.

// committing runs one handler that commits, and returns the error of Commit.
func committing(t *testing.T, write func(s *memstore.Store, key idempotent.Key) idempotent.Transaction, optFns ...func(*idempotent.Options)) (r *driver.Record, events []event.Kind, said error) {
	t.Helper()
	s, key := memstore.New(), newKey()
	g, recorder := newGuardOver(t, s, optFns...)
	_, _ = idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
		said = commit(ctx, "done", write(s, key))
		return "done", said
	})
	r, err := s.Get(t.Context(), key.RecordID())
	if err != nil && !errors.Is(err, idempotent.ErrNoRecord) {
		t.Fatal(err)
	}
	return r, recorder.Kinds(), said
}

func fails(err error) func(*memstore.Store, idempotent.Key) idempotent.Transaction {
	return func(*memstore.Store, idempotent.Key) idempotent.Transaction {
		return func(context.Context, driver.Record, driver.Version) (*driver.Record, error) {
			return nil, err
		}
	}
}

// contended returns a transaction that finds another write every time.
func contended(s *memstore.Store, _ idempotent.Key) idempotent.Transaction {
	writes := byte(0)
	return func(ctx context.Context, next driver.Record, _ driver.Version) (*driver.Record, error) {
		writes++
		met, err := s.Get(ctx, next.ID)
		if err == nil {
			met.Version = driver.Version{writes}
		}
		return met, err
	}
}

func TestCommitErrors(t *testing.T) {
	t.Parallel()
	// Too large: nothing was written.
	r, events, said := committing(t, fails(driver.ErrTooLarge))
	if !errors.Is(said, driver.ErrTooLarge) || !errors.Is(said, idempotent.ErrNotApplied) || r.State != driver.StateUnknown || slices.Contains(events, event.StoreError) {
		t.Errorf("too large: %v, the record is %s, events %s", said, r.State, events)
	}
	// The record is gone.
	_, events, said = committing(t, fails(idempotent.ErrNoRecord))
	if !errors.As(said, new(*idempotent.LeaseLostError)) || !slices.Contains(events, event.LeaseLost) {
		t.Errorf("gone: %v, events %s", said, events)
	}
	// The transaction fails with a Final error: it may have been applied, so its
	// error is not an outcome.
	r, _, said = committing(t, fails(idempotent.Final("declined", "")))
	if !errors.As(said, new(*idempotent.StoreError)) || r.State != driver.StateUnknown {
		t.Errorf("Final: %v, the record is %s", said, r.State)
	}
	// After a transaction without a reply, the handler's own error reaches its caller.
	g, _ := newGuard(t)
	if _, err := idempotent.Do(t.Context(), g, newKey(), func(ctx context.Context) (string, error) {
		_ = commit(ctx, "done", fails(errLost)(nil, idempotent.Key{}))
		return "", errDown
	}); err != errDown {
		t.Errorf("the caller got %v, want the handler's error", err)
	}
	// Another write comes first every time.
	_, _, said = committing(t, contended)
	if !errors.Is(said, idempotent.ErrNotApplied) {
		t.Errorf("contended: %v", said)
	}
	// The transaction finds its own earlier try: it was applied.
	r, events, said = committing(t, func(s *memstore.Store, _ idempotent.Key) idempotent.Transaction {
		return func(ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
			if met, err := s.Replace(ctx, next, was); met != nil || err != nil {
				t.Error(met, err)
			}
			return s.Replace(ctx, next, was)
		}
	})
	if said != nil || r.State != driver.StateCompleted || slices.Contains(events, event.Contradicted) {
		t.Errorf("sent again by the SDK: %v, the record is %s, events %s", said, r.State, events)
	}
}

// A result that does not encode, and a Commit that comes too late, are not sent.
func TestCommitIsNotSent(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t)
	sent := func(context.Context, driver.Record, driver.Version) (*driver.Record, error) {
		t.Error("the transaction was sent")
		return nil, nil
	}
	_, _ = idempotent.Do(t.Context(), g, newKey(), func(ctx context.Context) (string, error) {
		if err := commit(ctx, make(chan int), sent); !errors.Is(err, idempotent.ErrNotApplied) {
			t.Errorf("a channel as the result: %v", err)
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if err := commit(ended, "x", sent); !errors.Is(err, context.Canceled) || !errors.Is(err, idempotent.ErrNotApplied) {
			t.Errorf("under an ended context: %v", err)
		}
		if _, err := idempotent.CommitStep(ctx, "x", letters(200_000), sent); !errors.As(err, new(*idempotent.StepError)) || !errors.Is(err, idempotent.ErrNotApplied) {
			t.Errorf("a large result of a step: %v", err)
		}
		return "", errDown
	})
	// A second Commit, and one after a reply that was lost.
	l := &ledger{Store: memstore.New(), lose: true}
	g, events := newGuardOver(t, l.Store)
	_, err := idempotent.Do(t.Context(), g, newKey(), func(ctx context.Context) (string, error) {
		if err := commit(ctx, "x", l.book("a")); !errors.As(err, new(*idempotent.StoreError)) {
			t.Errorf("the lost reply: %v", err)
		}
		if err := commit(ctx, "x", l.book("a")); err != nil {
			t.Errorf("the next try: %v", err)
		}
		if err := commit(ctx, "x", sent); err != idempotent.ErrExecutionEnded {
			t.Errorf("a second Commit: %v", err)
		}
		return "x", nil
	})
	if err != nil || events.Count(event.Completed) != 1 || events.Count(event.Contradicted) != 0 || len(l.booked) != 1 {
		t.Errorf("%v, events %s, booked %v", err, events.Kinds(), l.booked)
	}
}

// Writes of other parties that Commit finds, and the reported events.
func TestCommitMeets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*driver.Record)
		want   error
		kinds  []event.Kind
	}{
		{"a step of its own", func(r *driver.Record) {}, nil, []event.Kind{"reserved", "completed"}},
		{"a sweeper", func(r *driver.Record) { r.State = driver.StateUnknown }, nil, []event.Kind{"reserved", "late_completion"}},
		{"a resolver that found nothing", func(r *driver.Record) { r.State = driver.StateRetryable }, nil, []event.Kind{"reserved", "contradicted", "late_completion"}},
		{"a webhook", func(r *driver.Record) {
			r.State, r.Encoding, r.Result = driver.StateCompleted, "json", []byte(`"w"`)
		}, new(idempotent.SettledError),
			[]event.Kind{"reserved", "contradicted", "replayed"}},
		{"another owner", func(r *driver.Record) { r.Owner[0]++ }, new(idempotent.LeaseLostError), []event.Kind{"reserved", "lease_lost", "lease_lost"}},
	} {
		r, kinds, said := committing(t, func(s *memstore.Store, key idempotent.Key) idempotent.Transaction {
			met := false
			return func(ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
				if !met {
					met = true
					other := record(t, s, key)
					other.Version = driver.Version{9}
					c.change(other)
					if _, err := s.Replace(ctx, *other, was); err != nil {
						t.Fatal(err)
					}
				}
				return s.Replace(ctx, next, was)
			}
		})
		if !errtype.Matches(said, c.want) || c.want == nil && (said != nil || r.State != driver.StateCompleted) {
			t.Errorf("%s: %v, the record is %s", c.name, said, r.State)
		}
		if fmt.Sprint(kinds) != fmt.Sprint(c.kinds) {
			t.Errorf("%s: events %s, want %s", c.name, kinds, c.kinds)
		}
	}
}

// A transaction that found another write is sent again as a new request: with
// another version, and with the chunks of the result under that version.
func TestCommitAgainIsAnotherRequest(t *testing.T) {
	t.Parallel()
	s, key, want := newChunked(), newKey(), noise(50_000)
	g, _ := newGuardOver(t, s, func(o *idempotent.Options) { o.Codec = raw{} })
	var versions []driver.Version
	_, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
		return want, commit(ctx, want, func(ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
			if versions = append(versions, next.Version); len(versions) == 1 {
				other := record(t, s, key)
				other.Version = driver.Version{9}
				if met, err := s.Replace(ctx, *other, was); met != nil || err != nil {
					t.Fatal(met, err)
				}
			}
			return s.Replace(ctx, next, was)
		})
	})
	if err != nil || len(versions) != 2 || versions[0] == versions[1] {
		t.Errorf("error %v; the transaction was sent with the versions %x", err, versions)
	}
	if got, err := idempotent.Do(t.Context(), g, key, forbidden(t)); got != want || err != nil {
		t.Errorf("a retry gets %d bytes, error %v", len(got), err)
	}
}

// brittle fails to store chunks.
type brittle struct{ *chunked }

func (brittle) PutChunks(context.Context, idempotent.RecordID, driver.Version, []byte, time.Time) (int, error) {
	return 0, errDown
}

// writeOnly stores chunks but never returns them.
type writeOnly struct{ *chunked }

func (writeOnly) GetChunks(context.Context, idempotent.RecordID, driver.Version, int) ([]byte, error) {
	return nil, errDown
}

// A large result is stored before the transaction, or the transaction is not
// sent. A retry in the same process gets it from the cache.
func TestCommitLargeResultAtHand(t *testing.T) {
	t.Parallel()
	large := make([]int, 20_000)
	for i := range large {
		large[i] = i * i
	}
	broken := brittle{newChunked()}
	g, events := newGuardOver(t, broken)
	_, err := idempotent.Do(t.Context(), g, newKey(), func(ctx context.Context) ([]int, error) {
		err := commit(ctx, large, broken.Replace)
		if !errors.Is(err, idempotent.ErrNotApplied) || !errors.Is(err, errDown) {
			t.Errorf("Commit: %v", err)
		}
		return nil, idempotent.NotExecuted(err)
	})
	if !errors.Is(err, errDown) || events.Count(event.StoreError) != 1 {
		t.Errorf("%v, events %s", err, events.Kinds())
	}

	s := newChunked()
	w := watchOver(s)
	g, _ = newGuardOver(t, struct {
		*watched
		driver.ChunkStore
	}{w, writeOnly{s}}, func(o *idempotent.Options) { o.CacheEntries, o.CacheBytes = 1, 1<<20 })
	for _, after := range []error{nil, errDown} { // what the handler returns after its Commit
		w.calls = nil
		key := newKey()
		for range 2 {
			if v, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) ([]int, error) {
				return large, cmp.Or(commit(ctx, large, s.Replace), after)
			}); err != nil || !slices.Equal(v, large) {
				t.Errorf("%v after Commit: %d numbers, %v", after, len(v), err)
			}
		}
		if len(w.calls) != 1 {
			t.Errorf("%v; want a retry to use the cache", w.calls)
		}
	}
}

// A step's transaction that was not applied has no effect: the handler can
// continue without it, or try again.
func TestCommitStepThatWasNotApplied(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		value any
		write func(*memstore.Store, idempotent.Key) idempotent.Transaction
	}{
		"refused":         {"x", fails(errRefused)},
		"too large":       {"x", fails(driver.ErrTooLarge)},
		"not to be sent":  {string(make([]byte, 10)), fails(fmt.Errorf("%w: too many items", idempotent.ErrNotApplied))},
		"contended":       {"x", contended},
		"does not encode": {math.NaN(), nil},
	} {
		for _, again := range []bool{false, true} {
			s, key := memstore.New(), newKey()
			g, events := newGuardOver(t, s, resume("order"))
			v, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
				var err error
				if text, ok := c.value.(string); ok {
					_, err = idempotent.CommitStep(ctx, "order", text, c.write(s, key))
				} else {
					_, err = idempotent.CommitStep(ctx, "order", c.value.(float64), s.Replace)
				}
				if err == nil || errors.As(err, new(*idempotent.StoreError)) {
					t.Errorf("%s: the step: %v", name, err)
				}
				if again {
					return idempotent.CommitStep(ctx, "order", "y", s.Replace)
				}
				if len(record(t, s, key).Steps) != 0 {
					t.Errorf("%s: the record was written", name)
				}
				return "y", nil
			})
			if v != "y" || err != nil || events.Count(event.StoreError) != 0 {
				t.Errorf("%s, again %t: %q, %v, events %s", name, again, v, err, events.Kinds())
			}
		}
	}
	// For an undeclared step nothing is sent.
	s := memstore.New()
	g, _ := newGuardOver(t, s, resume("order"))
	if _, err := idempotent.Do(t.Context(), g, newKey(), func(ctx context.Context) (int, error) {
		return idempotent.CommitStep(ctx, "mail", 1, func(context.Context, driver.Record, driver.Version) (*driver.Record, error) {
			t.Error("the transaction was sent")
			return nil, nil
		})
	}); !errors.As(err, new(*idempotent.StepError)) {
		t.Error(err)
	}
}

// The result of a step is the recorded one, not a mixture with this run's value.
func TestCommitStepGivesWhatIsRecorded(t *testing.T) {
	t.Parallel()
	s, key := memstore.New(), newKey()
	g, events := newGuardOver(t, s, resume("order"))
	for i := range 2 {
		_, _ = idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
			got, err := idempotent.CommitStep(ctx, "order", map[int]string{i: "x"}, s.Replace)
			if err != nil || len(got) != 1 || got[0] != "x" {
				t.Errorf("run %d: %v, %v", i, got, err)
			}
			return "", errDown
		})
	}
	if events.Count(event.StepDone) != 1 || events.Count(event.StepReplayed) != 1 {
		t.Errorf("events %s", events.Kinds())
	}

	// The first try was applied and its reply lost; the second has another result.
	l := &ledger{Store: memstore.New(), lose: true}
	g, events = newGuardOver(t, l.Store, resume("order"))
	_, err := idempotent.Do(t.Context(), g, newKey(), func(ctx context.Context) (string, error) {
		if _, err := idempotent.CommitStep(ctx, "order", map[int]string{1: "x"}, l.book("a")); !errors.As(err, new(*idempotent.StoreError)) || !errors.Is(err, errLost) {
			t.Errorf("the lost reply: %v", err)
		}
		got, err := idempotent.CommitStep(ctx, "order", map[int]string{2: "x"}, l.book("b"))
		if err != nil || len(got) != 1 || got[1] != "x" {
			t.Errorf("the next try: %v, %v", got, err)
		}
		return "done", err
	})
	if err != nil || len(l.booked) != 1 || events.Count(event.StoreError) != 1 || events.Count(event.StepDone) != 1 {
		t.Errorf("%v, booked %v, events %s", err, l.booked, events.Kinds())
	}
}

// The step's transaction finds its own earlier try, or another party's record.
func TestCommitStepMeets(t *testing.T) {
	t.Parallel()
	s, key := memstore.New(), newKey()
	g, _ := newGuardOver(t, s, resume("order"))
	writes := 0
	if _, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (int, error) {
		return idempotent.CommitStep(ctx, "order", 1, func(ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
			writes++
			if met, err := s.Replace(ctx, next, was); met != nil || err != nil {
				t.Error(met, err)
			}
			return s.Replace(ctx, next, was) // the SDK sent it again
		})
	}); err != nil || writes != 1 {
		t.Errorf("%v after %d transactions", err, writes)
	}
	_, err := idempotent.Do(t.Context(), g, newKey(), func(ctx context.Context) (int, error) {
		v, err := idempotent.CommitStep(ctx, "order", 1, func(_ context.Context, next driver.Record, _ driver.Version) (*driver.Record, error) {
			next.Owner, next.Version = driver.Owner{9}, driver.Version{9}
			return &next, nil
		})
		if !errors.As(err, new(*idempotent.LeaseLostError)) || errors.As(err, new(*idempotent.StoreError)) {
			t.Errorf("another owner: %v", err)
		}
		return v, err
	})
	if !errors.As(err, new(*idempotent.LeaseLostError)) {
		t.Error(err)
	}
}

// After a transaction in doubt, NotExecuted does not count, and the caller gets
// the transaction's error. An error that declares nothing stays.
func TestCommitInDoubtReachesTheCaller(t *testing.T) {
	t.Parallel()
	for _, own := range []error{nil, errDown} {
		l := &ledger{Store: memstore.New(), fail: []error{errLost}}
		g, _ := newGuardOver(t, l.Store)
		key := newKey()
		_, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
			lost := commit(ctx, "x", l.book("a"))
			if own != nil {
				return "", own
			}
			return "", idempotent.NotExecuted(lost)
		})
		if own != nil && err != own || own == nil && (!errors.Is(err, errLost) || idempotent.IsNotExecuted(err)) {
			t.Errorf("%v: got error %#v", own, err)
		}
		if r := record(t, l, key); r.State != driver.StateUnknown {
			t.Errorf("%v: the record is %s", own, r.State)
		}
	}
}

// A step of another owner is not a step of this run.
func TestStepOfAnotherOwnerIsNotReplayed(t *testing.T) {
	t.Parallel()
	s, key := watch(), newKey()
	s.replace = func(context.Context, driver.Record) (*driver.Record, error) {
		s.replace = nil
		return s.change(t, key, func(r *driver.Record) {
			r.Owner[0]++
			r.Steps = []driver.StepRecord{{Name: "b", Finished: true, Encoding: "json", Result: []byte(`"theirs"`)}}
		}), nil
	}
	_, _ = s.do(t, key, func(ctx context.Context) (string, error) {
		for _, name := range []string{"a", "b"} {
			if v, err := idempotent.Step(ctx, name, charged); !errors.As(err, new(*idempotent.LeaseLostError)) {
				t.Errorf("step %s: %q, %v", name, v, err)
			}
		}
		return "", errDown
	})
}

// A Commit whose reply was lost can be tried again, also after a step found what
// it had written. No later step runs.
func TestCommitAgainAfterAStep(t *testing.T) {
	t.Parallel()
	for _, mode := range [][]func(*idempotent.StepOptions){nil, {atMostOnce}} {
		l := &ledger{Store: memstore.New(), lose: true}
		g, events := newGuardOver(t, l.Store, resume("a"))
		v, err := idempotent.Do(t.Context(), g, newKey(), func(ctx context.Context) (string, error) {
			if err := commit(ctx, "x", l.book("a")); !errors.Is(err, errLost) {
				t.Errorf("the lost reply: %v", err)
			}
			if _, err := idempotent.Step(ctx, "a/1", charged, mode...); err != idempotent.ErrExecutionEnded {
				t.Errorf("the step: %v", err)
			}
			if _, err := idempotent.Step(ctx, "a/2", never[string], mode...); err != idempotent.ErrExecutionEnded {
				t.Errorf("the next step: %v", err)
			}
			if err := commit(ctx, "y", l.book("a")); !errors.As(err, new(*idempotent.SettledError)) {
				t.Errorf("a Commit with another result: %v", err)
			}
			if err := commit(ctx, "x", l.book("a")); err != nil {
				t.Errorf("a Commit with the same result: %v", err)
			}
			return "x", nil
		})
		if v != "x" || err != nil || len(l.booked) != 1 || events.Count(event.Completed) != 1 || events.Count(event.Contradicted) != 0 {
			t.Errorf("%q, %v, booked %v, events %s", v, err, l.booked, events.Kinds())
		}
	}
}

// After a step found what a Commit had written, every caller gets that, whatever
// the handler returns.
func TestStepFindsTheCommit(t *testing.T) {
	t.Parallel()
	for _, own := range []error{nil, errDown} {
		l := &ledger{Store: memstore.New(), lose: true}
		g, events := newGuardOver(t, l.Store, resume("a"))
		var ended context.Context
		v, err := idempotent.Do(t.Context(), g, newKey(), func(ctx context.Context) (string, error) {
			ended = ctx
			_ = commit(ctx, "x", l.book("a"))
			_, _ = idempotent.Step(ctx, "a", charged)
			return "y", own
		})
		if err := commit(context.WithoutCancel(ended), "x", l.book("a")); err != idempotent.ErrExecutionEnded {
			t.Errorf("a Commit after the end of the handler: %v", err)
		}
		if v != "x" || err != nil || events.Count(event.Contradicted) != 0 {
			t.Errorf("the handler returned %v: the caller got %q, %v; events %s", own, v, err, events.Kinds())
		}
	}
}

// A Commit whose outcome another party has stored, even an equal one, made no writes:
// the next one does not agree with that outcome.
func TestCommitAgainAfterEvidence(t *testing.T) {
	t.Parallel()
	key := newKey()
	l := &ledger{Store: memstore.New(), before: func(ctx context.Context, l *ledger) {
		r := record(t, l, key)
		was := r.Version
		r.Version, r.State, r.Encoding, r.Result = driver.Version{9}, driver.StateCompleted, "json", []byte(`"x"`)
		if met, err := l.Replace(ctx, *r, was); met != nil || err != nil {
			t.Error(met, err)
		}
	}}
	g, _ := newGuardOver(t, l.Store)
	v, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
		for call := range 2 {
			if err := commit(ctx, "x", l.book("a")); !errors.As(err, new(*idempotent.SettledError)) {
				t.Errorf("Commit %d: %v", call, err)
			}
		}
		return "y", nil
	})
	if v != "x" || err != nil || len(l.booked) != 0 {
		t.Errorf("the caller got %q, %v; booked %v", v, err, l.booked)
	}
}

// A second Commit that cannot open the stored result is in doubt, too.
func TestCommitAgainCannotRead(t *testing.T) {
	t.Parallel()
	sealer := kit.NewSealer()
	sealer.BeforeOpen = func(context.Context, []byte, []byte) error { return errDown }
	l := &ledger{Store: memstore.New(), lose: true}
	g, _ := newGuardOver(t, l.Store, sealer.Option)
	_, _ = idempotent.Do(t.Context(), g, newKey(), func(ctx context.Context) (string, error) {
		for call := range 2 {
			if err := commit(ctx, "x", l.book("a")); !errors.As(err, new(*idempotent.StoreError)) {
				t.Errorf("Commit %d: %v", call, err)
			}
		}
		return "x", nil
	})
}

// After a transaction in doubt, NotExecuted does not count.
func TestCommitInDoubtIsNotNothing(t *testing.T) {
	t.Parallel()
	for recovery, want := range map[idempotent.Recovery]driver.State{idempotent.Reconcile: driver.StateUnknown, idempotent.Resume: driver.StateRetryable} {
		l := &ledger{Store: memstore.New(), fail: []error{errLost}}
		g, _ := newGuardOver(t, l.Store, resume("a"), func(o *idempotent.Options) { o.Recovery = recovery })
		key := newKey()
		_, _ = idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
			return "", idempotent.NotExecuted(commit(ctx, "x", l.book("a")))
		})
		if r := record(t, l, key); r.State != want || r.Due.IsZero() || !r.Expires.IsZero() {
			t.Errorf("%s: the record is %s, due %s, expires %s", recovery, r.State, r.Due, r.Expires)
		}
	}
}

// Two steps in doubt are both in doubt.
func TestCommitStepTwoDoubts(t *testing.T) {
	t.Parallel()
	l := &ledger{Store: memstore.New(), fail: []error{errLost, errLost}}
	g, _ := newGuardOver(t, l.Store, resume("a", "b"))
	_, err := idempotent.Do(t.Context(), g, newKey(), func(ctx context.Context) (string, error) {
		for _, name := range []string{"a", "b"} {
			if _, err := idempotent.CommitStep(ctx, name, 1, l.book(name)); !errors.Is(err, errLost) {
				t.Error(err)
			}
		}
		if _, err := idempotent.CommitStep(ctx, "b", 1, l.book("b")); err != nil {
			t.Error(err)
		}
		return "done", nil
	})
	if !errors.Is(err, errLost) {
		t.Errorf("the handler continued without its step a: %v", err)
	}
}
