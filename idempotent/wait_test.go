package idempotent_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/errtype"
)

// waits sends a request, with the time left, that finds another one running. It
// returns when the request polled, measured from its start, and how long it took.
func waits(t *testing.T, s *watched, left time.Duration, optFns ...func(*idempotent.Options)) (looks []time.Duration, took time.Duration, err error) {
	t.Helper()
	key, start := newKey(), time.Now()
	s.holds(t, key, driver.Record{State: driver.StateInProgress, LeaseEnd: now().Add(time.Hour)})
	s.get = func() (*driver.Record, error) {
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

// A waiting request polls after about 50 ms and then less and less often, down to
// once a second, with Get only and for as long as WaitFor. A long wait does not
// count as contention.
func TestWaitingLooksEverLessOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const patience = 20 * time.Second
		s := watch()
		looks, took, err := waits(t, s, time.Hour, waitFor(patience))
		if !errors.As(err, new(*idempotent.InProgressError)) || took > patience || took < patience-1500*time.Millisecond {
			t.Errorf("got error %v after %s, want InProgressError after about %s", err, took, patience)
		}
		pause, before := 50*time.Millisecond, time.Duration(0)
		for i, at := range looks {
			if d := at - before; d < pause/2 || d >= pause*3/2 {
				t.Errorf("poll %d came %s after the one before, want half to one and a half of %s", i+1, d, pause)
			}
			pause, before = min(pause*3/2, time.Second), at
		}
		wantCalls(t, s, append([]string{"insert"}, slices.Repeat([]string{"get"}, len(looks))...)...)
	})
}

// F52: waiting ends when the handler's own time would end.
func TestWaitingLeavesNoDeadlineBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const left = 10 * time.Second // of which half a second is reserved
		_, took, err := waits(t, watch(), left, waitFor(time.Hour))
		if !errors.As(err, new(*idempotent.InProgressError)) || took > left-500*time.Millisecond || took < left-2*time.Second {
			t.Errorf("got error %v after %s, want InProgressError shortly before %s", err, took, left)
		}
	})
}

// A poll that fails ends the waiting and is reported.
func TestWaitingEndsWithTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, key, down := watch(), newKey(), errors.New("down")
		s.holds(t, key, driver.Record{State: driver.StateInProgress, LeaseEnd: now().Add(time.Hour)})
		s.get = func() (*driver.Record, error) { return nil, down }
		g, events := newGuardOver(t, s, waitFor(time.Minute))
		_, err := idempotent.Do(t.Context(), g, key, forbidden(t))
		if !errors.As(err, new(*idempotent.StoreError)) || !errors.Is(err, down) {
			t.Errorf("got error %v, want StoreError", err)
		}
		if got := events.Kinds(); !slices.Equal(got, []event.Kind{event.StoreError}) {
			t.Errorf("got events %v, want store_error", got)
		}
	})
}

// A request that waited until its own time was over gets the state it waited for,
// if that is an answer, and does not take over any record.
func TestWaitedUntilTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for state, want := range map[driver.State]error{
			driver.StateCompleted:  nil,
			driver.StateInProgress: new(idempotent.InProgressError),
			driver.StateRetryable:  new(idempotent.NoTimeError),
			driver.StateUnknown:    new(idempotent.NoTimeError),
		} {
			const whole = 10 * time.Second
			s, key, clock := watch(), newKey(), new(idempotenttest.Clock)
			s.holds(t, key, driver.Record{State: driver.StateInProgress, LeaseEnd: now().Add(time.Hour)})
			s.get = func() (*driver.Record, error) {
				clock.Advance(whole)
				return s.change(t, key, func(r *driver.Record) {
					r.State, r.Encoding, r.Result = state, "json", []byte(`"ch_1"`)
				}), nil
			}
			g, _ := newGuardOver(t, s, waitFor(time.Hour), func(o *idempotent.Options) { o.Now = clock.Now })
			out, err := idempotent.DoOutcome(clock.Invocation(t.Context(), whole), g, key, forbidden(t))
			if !errtype.Matches(err, want) || out.Replayed != (want == nil) {
				t.Errorf("%s: got %+v and %v, want %v", state, out, err, want)
			}
		}
	})
}

// If the other request's record is gone by then, the waiting request gets no
// answer.
func TestWaitedForNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const whole = 10 * time.Second
		s, key, clock := watch(), newKey(), new(idempotenttest.Clock)
		s.holds(t, key, driver.Record{State: driver.StateInProgress, LeaseEnd: now().Add(time.Hour)})
		s.get = func() (*driver.Record, error) {
			clock.Advance(whole)
			return nil, idempotent.ErrNoRecord
		}
		g, _ := newGuardOver(t, s, waitFor(time.Hour), func(o *idempotent.Options) { o.Now = clock.Now })
		if _, err := idempotent.Do(clock.Invocation(t.Context(), whole), g, key, forbidden(t)); !errors.As(err, new(*idempotent.NoTimeError)) {
			t.Errorf("got %v", err)
		}
	})
}

// A request that comes when its time is over gets no answer, even if its outcome
// is in the cache.
func TestTooLateForTheCache(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, key, clock := watch(), newKey(), new(idempotenttest.Clock)
		g, _ := newGuardOver(t, s, func(o *idempotent.Options) { o.Now, o.CacheEntries = clock.Now, 10 })
		for _, want := range []struct {
			left time.Duration
			err  error
		}{{time.Minute, nil}, {time.Minute, nil}, {0, new(idempotent.NoTimeError)}} {
			if _, err := idempotent.Do(clock.Invocation(t.Context(), want.left), g, key, charged); !errtype.Matches(err, want.err) {
				t.Errorf("%s left: got %v, want %v", want.left, err, want.err)
			}
		}
	})
}
