package idempotent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
)

// An event about a record reports the recovery with which the record was claimed,
// whatever the reporting code declares.
func TestEventsHaveTheRecordsRecovery(t *testing.T) {
	t.Parallel()
	store, key := memstore.New(), newKey()
	rerun, _ := newGuardOver(t, store, func(o *idempotent.Options) { o.Recovery = idempotent.Rerun })
	reconcile, events := newGuardOver(t, store)
	_, err := idempotent.Do(t.Context(), rerun, key, func(ctx context.Context) (string, error) {
		_, err := idempotent.Do(ctx, reconcile, key, forbidden(t))
		if !errors.As(err, new(*idempotent.InProgressError)) {
			t.Errorf("the second request: got error %v, want InProgressError", err)
		}
		return "ch_1", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Events() {
		if e.Recovery != idempotent.Rerun {
			t.Errorf("the event %s has the recovery %s, want that of the record: %s", e.Kind, e.Recovery, idempotent.Rerun)
		}
	}
	if n := events.Count(event.InProgress); n != 1 {
		t.Errorf("%d events %s, want 1", n, event.InProgress)
	}
}

// Settled is when the state last changed to one that ends a run. Each such change
// sets it again, and a new run clears it.
func TestSettledIsTheLastChange(t *testing.T) {
	t.Parallel()
	store, key, clock := memstore.New(), newKey(), &idempotenttest.Clock{}
	g, _ := newGuardOver(t, store, func(o *idempotent.Options) { o.Now = clock.Now })
	settled := func() time.Time {
		r, err := store.Get(t.Context(), key.RecordID())
		if err != nil {
			t.Fatal(err)
		}
		return r.Settled
	}
	request := func(h func(context.Context) (string, error)) {
		clock.Advance(time.Hour)
		_, _ = idempotent.Do(clock.Invocation(t.Context(), time.Minute), g, key, h)
	}
	var times []time.Time
	request(func(context.Context) (string, error) { return "", idempotent.NotExecuted(errors.New("busy")) })
	times = append(times, settled())
	request(func(context.Context) (string, error) {
		if at := settled(); !at.IsZero() {
			t.Errorf("Settled is %s while the handler runs, want none", at)
		}
		return "", errors.New("no reply")
	})
	times = append(times, settled())
	clock.Advance(time.Hour)
	if err := g.Resolve(t.Context(), key.RecordID(), idempotent.Resolved("ch_1")); err != nil {
		t.Fatal(err)
	}
	times = append(times, settled())
	for i := 1; i < len(times); i++ {
		if d := times[i].Sub(times[i-1]); d < time.Hour || d > 2*time.Hour {
			t.Errorf("retryable, unknown and completed at %s, want them an hour apart", times)
		}
	}
}

// By default reconciliation gives up a record after ten attempts to resolve it.
func TestDefaultMaxAttempts(t *testing.T) {
	t.Parallel()
	store, key, clock := memstore.New(), newKey(), &idempotenttest.Clock{}
	g, _ := newGuardOver(t, store, func(o *idempotent.Options) { o.Now = clock.Now })
	if _, err := idempotent.Do(t.Context(), g, key, func(context.Context) (string, error) { return "", errors.New("no reply") }); err == nil {
		t.Fatal("got no error")
	}
	asked := 0
	for range 20 {
		clock.Advance(24 * time.Hour)
		if _, err := idempotent.ReconcileDue(t.Context(), g, func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
			asked++
			return idempotent.Later(0), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := store.Get(t.Context(), key.RecordID())
	if err != nil || asked != 10 || !r.Exhausted || r.ReconcileAttempts != 10 {
		t.Errorf("the resolver was called %d times and the record is %+v (%v), want it given up after 10", asked, r, err)
	}
}
