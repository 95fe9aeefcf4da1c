package idempotent_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

// waits sends a request that finds another one running, and returns when it
// looked again, counted from its start, and how long it took. It has so much
// time left.
func waits(t *testing.T, s *watched, left time.Duration, optFns ...func(*idempotent.Options)) (looks []time.Duration, took time.Duration, err error) {
	t.Helper()
	key, start := newKey(), time.Now()
	s.holds(t, key, idempotent.Record{State: idempotent.StateInProgress, LeaseEnd: now().Add(time.Hour)})
	s.get = func() (*idempotent.Record, error) {
		looks = append(looks, time.Since(start))
		return s.record(t, key), nil
	}
	g, _ := newGuardOver(t, s, optFns...)
	_, err = idempotent.Do(new(idempotenttest.Clock).Invocation(t.Context(), left), g, key, forbidden(t))
	return looks, time.Since(start), err
}

func waitFor(d time.Duration) func(*idempotent.Options) {
	return func(o *idempotent.Options) { o.WaitFor = d }
}

// A twin is looked at after about 50 ms and then ever less often, down to once
// a second, by Get alone and for as long as WaitFor says: that the twin takes
// its time is no contention.
func TestWaitingLooksEverLessOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const patience = 20 * time.Second
		s := watch()
		looks, took, err := waits(t, s, time.Hour, waitFor(patience))
		if !errors.Is(err, idempotent.ErrInProgress) || took > patience || took < patience-1500*time.Millisecond {
			t.Errorf("got error %v after %s, want ErrInProgress after about %s", err, took, patience)
		}
		pause, before := 50*time.Millisecond, time.Duration(0)
		for i, at := range looks {
			if d := at - before; d < pause/2 || d >= pause*3/2 {
				t.Errorf("look %d came %s after the one before, want half to one and a half of %s", i+1, d, pause)
			}
			pause, before = min(pause*3/2, time.Second), at
		}
		wantCalls(t, s, append([]string{"insert"}, slices.Repeat([]string{"get"}, len(looks))...)...)
	})
}

// Patience ends with the time that the handler would have.
func TestWaitingLeavesNoDeadlineBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const left = 10 * time.Second // of which half a second is reserved
		_, took, err := waits(t, watch(), left, waitFor(time.Hour))
		if !errors.Is(err, idempotent.ErrInProgress) || took > left-500*time.Millisecond || took < left-2*time.Second {
			t.Errorf("got error %v after %s, want ErrInProgress shortly before %s", err, took, left)
		}
	})
}

// A look that fails ends the waiting, and is told.
func TestWaitingEndsWithTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, key, down := watch(), newKey(), errors.New("down")
		s.holds(t, key, idempotent.Record{State: idempotent.StateInProgress, LeaseEnd: now().Add(time.Hour)})
		s.get = func() (*idempotent.Record, error) { return nil, down }
		g, events := newGuardOver(t, s, waitFor(time.Minute))
		_, err := idempotent.Do(t.Context(), g, key, forbidden(t))
		if !errors.Is(err, idempotent.ErrStore) || !errors.Is(err, down) {
			t.Errorf("got error %v, want ErrStore", err)
		}
		if got := events.Kinds(); !slices.Equal(got, []idempotent.EventKind{idempotent.EventStoreError}) {
			t.Errorf("got events %v, want store_error", got)
		}
	})
}
