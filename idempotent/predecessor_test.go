// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/memstore"
)

// asked returns an option that answers for the predecessor.
func asked(answer func(ctx context.Context, key idempotent.Key) (any, bool, error)) func(*idempotent.Options) {
	return func(o *idempotent.Options) { o.Predecessor = answer }
}

// notBegun answers that the predecessor has not begun.
func notBegun(context.Context, idempotent.Key) (any, bool, error) { return nil, false, nil }

// The predecessor is asked once a key is claimed, and not about a key whose outcome
// the guard has.
func TestPredecessorHasNotBegun(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	key := newKey()
	var questions []idempotent.Key
	g, events := newGuardOver(t, store, asked(func(_ context.Context, k idempotent.Key) (any, bool, error) {
		questions = append(questions, k)
		if r := record(t, store, key); r.State != driver.StateInProgress {
			t.Errorf("it was asked while the record was %s", r.State)
		}
		return nil, false, nil
	}))
	for range 2 {
		if got, err := idempotent.Do(t.Context(), g, key, charged); got != "ch_1" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if len(questions) != 1 || questions[0] != key {
		t.Errorf("it was asked about %+v", questions)
	}
	if got := fmt.Sprint(events.Kinds()); got != "[reserved completed replayed]" {
		t.Errorf("events %s", got)
	}
}

// What the predecessor has done is the outcome: it is stored and replayed as if the
// handler had returned it, and the handler never runs.
func TestPredecessorHasDoneIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		result any
		err    error
	}{
		"a value":       {result: "ch_7"},
		"encoded":       {result: json.RawMessage(`"ch_7"`)},
		"large":         {result: json.RawMessage(`"` + strings.Repeat("ch_7", 10_000) + `"`)},
		"a final error": {err: idempotent.Final("declined", "The card was declined.")},
	} {
		questions := 0
		store := newChunked()
		key := newKey()
		g, _ := newGuardOver(t, store, asked(func(context.Context, idempotent.Key) (any, bool, error) {
			questions++
			return c.result, true, c.err
		}))
		for range 2 {
			out, err := idempotent.DoOutcome(t.Context(), g, key, forbidden(t))
			if final := (*idempotent.FinalError)(nil); c.err != nil && (!errors.As(err, &final) || final.Code != "declined") || c.err == nil && (err != nil || !strings.HasPrefix(out.Value, "ch_7")) {
				t.Errorf("%s: got %q, %v", name, out.Value, err)
			}
			if !out.Replayed || !out.Stored || out.Expires.IsZero() {
				t.Errorf("%s: got %+v", name, out)
			}
		}
		if r := record(t, store, key); r.State != driver.StateCompleted || r.Reason != driver.ReasonPredecessor || questions != 1 {
			t.Errorf("%s: the record is %s (%s), %d questions", name, r.State, r.Reason, questions)
		}
	}
}

// The caller gets the predecessor's result although it cannot be stored.
func TestPredecessorResultIsNotStored(t *testing.T) {
	t.Parallel()
	store := watch()
	store.replace = func(context.Context, driver.Record) (*driver.Record, error) { return nil, errDown }
	g, _ := newGuardOver(t, store, asked(func(context.Context, idempotent.Key) (any, bool, error) { return "ch_7", true, nil }))
	out, err := idempotent.DoOutcome(t.Context(), g, newKey(), forbidden(t))
	if err != nil || out.Value != "ch_7" || !out.Replayed || out.Stored {
		t.Errorf("got %+v, %v", out, err)
	}
}

// Another request took the record over while the predecessor was asked.
func TestPredecessorOutlivesTheLease(t *testing.T) {
	t.Parallel()
	store := watch()
	store.replace = func(_ context.Context, r driver.Record) (*driver.Record, error) {
		r.Version, r.Owner, r.State = driver.Version{7}, driver.Owner{8}, driver.StateInProgress
		return &r, nil
	}
	g, _ := newGuardOver(t, store, asked(func(context.Context, idempotent.Key) (any, bool, error) { return "ch_7", true, nil }))
	if _, err := idempotent.Do(t.Context(), g, newKey(), forbidden(t)); !errors.As(err, new(*idempotent.LeaseLostError)) {
		t.Errorf("got error %v", err)
	}
}

// Another request took the record over and stored its outcome: that outcome stands.
func TestPredecessorMeetsAnOutcome(t *testing.T) {
	t.Parallel()
	store := watch()
	store.replace = func(_ context.Context, r driver.Record) (*driver.Record, error) {
		r.Version, r.Owner, r.Result = driver.Version{7}, driver.Owner{8}, []byte(`"ch_8"`)
		return &r, nil
	}
	g, _ := newGuardOver(t, store, asked(func(context.Context, idempotent.Key) (any, bool, error) { return "ch_7", true, nil }))
	if out, err := idempotent.DoOutcome(t.Context(), g, newKey(), forbidden(t)); err != nil || out.Value != "ch_8" || !out.Stored {
		t.Errorf("got %+v, %v", out, err)
	}
}

// A refusal reaches the caller, nothing runs, and the key is bound to no request:
// the next one may have another payload.
func TestPredecessorRefuses(t *testing.T) {
	t.Parallel()
	at := time.Now().Truncate(time.Millisecond)
	for name, c := range map[string]struct {
		answer func() (any, bool, error)
		want   func(error) bool
		event  event.Kind
	}{
		"in progress": {func() (any, bool, error) { return nil, false, &idempotent.InProgressError{} },
			func(err error) bool { return errors.As(err, new(*idempotent.InProgressError)) }, event.InProgress},
		"mismatch": {func() (any, bool, error) { return nil, false, &idempotent.MismatchError{} },
			func(err error) bool { return errors.As(err, new(*idempotent.MismatchError)) }, event.Mismatch},
		"failure":                         {func() (any, bool, error) { return nil, false, errDown }, askFailed, event.StoreError},
		"panic":                           {func() (any, bool, error) { panic("secret") }, askFailed, event.StoreError},
		"a result that cannot be encoded": {func() (any, bool, error) { return json.RawMessage(`{`), true, nil }, askFailed, event.StoreError},
	} {
		store := memstore.New()
		key := newKey()
		g, events := newGuardOver(t, store)
		asks := asked(func(context.Context, idempotent.Key) (any, bool, error) { return c.answer() })
		_, err := idempotent.Do(t.Context(), g, key, forbidden(t), asks, fixed(at))
		if err == nil || !c.want(err) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got error %v", name, err)
		}
		if n := events.Count(c.event); n != 1 {
			t.Errorf("%s: events %s", name, events.Kinds())
		}
		// A process whose clock is behind by the margin finds it expired too.
		if r := record(t, store, key); !r.Expires.Equal(at.Add(-3 * time.Second)) {
			t.Errorf("%s: the record expires at %s", name, r.Expires)
		}
		other := key
		other.Fingerprint = idempotent.FingerprintBytes([]byte("another request"))
		if _, err := idempotent.Lookup[string](t.Context(), g, other); !errors.Is(err, idempotent.ErrNoRecord) {
			t.Errorf("%s: Lookup got error %v", name, err)
		}
		if got, err := idempotent.Do(t.Context(), g, other, charged, asked(notBegun)); got != "ch_1" || err != nil {
			t.Errorf("%s: another request got %q, %v", name, got, err)
		}
	}
}

func askFailed(err error) bool {
	failed := (*idempotent.StoreError)(nil)
	return errors.As(err, &failed) && failed.Op == driver.OpPredecessor && !failed.Entered && strings.Contains(err.Error(), "Options.Predecessor: ask failed")
}

// A record that existed before keeps its fingerprint and its steps.
func TestPredecessorRefusesALaterAttempt(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	key := newKey()
	g, _ := newGuardOver(t, store, func(o *idempotent.Options) {
		o.Recovery, o.Steps = idempotent.Resume, []string{"pay"}
	})
	if _, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
		if _, err := idempotent.Step(ctx, "pay", charged); err != nil {
			t.Error(err)
		}
		return "", errDown
	}, asked(notBegun)); !errors.Is(err, errDown) {
		t.Fatal(err)
	}
	busy := asked(func(context.Context, idempotent.Key) (any, bool, error) {
		return nil, false, &idempotent.InProgressError{}
	})
	if _, err := idempotent.Do(t.Context(), g, key, forbidden(t), busy); !errors.As(err, new(*idempotent.InProgressError)) {
		t.Errorf("got error %v", err)
	}
	if r := record(t, store, key); r.State != driver.StateRetryable || len(r.Steps) != 1 || !r.Expires.IsZero() {
		t.Errorf("the record is %+v", r)
	}
	other := key
	other.Fingerprint = idempotent.FingerprintBytes([]byte("another request"))
	if _, err := idempotent.Do(t.Context(), g, other, charged, busy); !errors.As(err, new(*idempotent.MismatchError)) {
		t.Errorf("another request: got error %v", err)
	}
}

// The predecessor was interrupted: the record waits for evidence, under Rerun too.
func TestPredecessorWasInterrupted(t *testing.T) {
	t.Parallel()
	for _, recovery := range []idempotent.Recovery{idempotent.Reconcile, idempotent.Rerun} {
		store := memstore.New()
		key := newKey()
		g, events := newGuardOver(t, store, func(o *idempotent.Options) { o.Recovery, o.ReconcileAfter = recovery, 7*time.Second })
		interrupted := asked(func(context.Context, idempotent.Key) (any, bool, error) {
			return nil, false, idempotent.Unknown(errors.New("it was killed"))
		})
		for range 2 {
			_, err := idempotent.Do(t.Context(), g, key, forbidden(t), interrupted)
			if unresolved := (*idempotent.UnresolvedError)(nil); !errors.As(err, &unresolved) || unresolved.RetryAfter > 7*time.Second || unresolved.RetryAfter <= 0 {
				t.Errorf("%s: got error %v", recovery, err)
			}
		}
		if r := record(t, store, key); r.State != driver.StateUnknown || r.Reason != driver.ReasonPredecessor || r.Due.IsZero() {
			t.Errorf("%s: the record is %+v", recovery, r)
		}
		if got := fmt.Sprint(events.Kinds()); got != "[reserved marked_unknown unresolved]" {
			t.Errorf("%s: events %s", recovery, got)
		}
		for _, e := range events.Events() {
			if e.Kind == event.MarkedUnknown && (e.Err == nil || !idempotent.IsUnknown(e.Err)) {
				t.Errorf("%s: the event has the error %v", recovery, e.Err)
			}
		}
		if err := g.Resolve(t.Context(), key.RecordID(), idempotent.Resolved("ch_7")); err != nil {
			t.Error(err)
		}
		if got, err := idempotent.Do(t.Context(), g, key, forbidden(t), interrupted); got != "ch_7" || err != nil {
			t.Errorf("%s: after evidence a request got %q, %v", recovery, got, err)
		}
	}
}

// The predecessor's context ends with the handler's time, so that the reserve is left
// for the outcome.
func TestPredecessorHasTheHandlersTime(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	var asking, running time.Time
	ctx := s.clock.Invocation(t.Context(), 10*time.Second)
	request, _ := ctx.Deadline()
	if _, err := idempotent.Do(ctx, s.guard, newKey(), func(ctx context.Context) (string, error) {
		running, _ = ctx.Deadline()
		return charged(ctx)
	}, asked(func(ctx context.Context, _ idempotent.Key) (any, bool, error) {
		asking, _ = ctx.Deadline()
		return nil, false, nil
	})); err != nil {
		t.Fatal(err)
	}
	if want := request.Add(-500 * time.Millisecond); !asking.Equal(want) || !running.Equal(want) {
		t.Errorf("the predecessor has until %s and the handler until %s, want %s", asking, running, want)
	}
}

// A predecessor that takes all the time leaves none for the handler.
func TestPredecessorTakesAllTheTime(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	key := newKey()
	slow := asked(func(context.Context, idempotent.Key) (any, bool, error) {
		s.clock.Advance(time.Minute)
		return nil, false, nil
	})
	if _, err := idempotent.Do(s.clock.Invocation(t.Context(), 10*time.Second), s.guard, key, forbidden(t), slow); !errors.As(err, new(*idempotent.NoTimeError)) {
		t.Errorf("got error %v", err)
	}
}
