// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/errtype"
)

// One millisecond is enough to claim, and one to run; less is not.
func TestTheLastMillisecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct {
			left          time.Duration // until the deadline; a fifth is reserved for the outcome
			claimed, runs bool
		}{
			{999 * time.Microsecond, false, false},
			{time.Millisecond, true, false},
			{1249 * time.Microsecond, true, false},
			{1250 * time.Microsecond, true, true},
		} {
			s, clock := watch(), new(idempotenttest.Clock)
			g, events := newGuardOver(t, s, func(o *idempotent.Options) { o.Now = clock.Now })
			ran := false
			_, err := idempotent.Do(clock.Invocation(t.Context(), row.left), g, newKey(), func(context.Context) (string, error) {
				ran = true
				return "", nil
			})
			if ran != row.runs || ran != (err == nil) || err != nil && !errors.As(err, new(*idempotent.NoTimeError)) {
				t.Errorf("%s: ran %v, error %v", row.left, ran, err)
			}
			if claimed := events.Count(event.Reserved) == 1; claimed != row.claimed || claimed != (len(s.calls) > 0) {
				t.Errorf("%s: claimed %v, calls %v", row.left, claimed, s.calls)
			}
		}
	})
}

// Reading the record takes time, too: a worker past its own deadline takes over
// no record.
func TestTakeoverInTheLastMillisecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for left, want := range map[time.Duration][]string{
			time.Millisecond: {"insert", "replace", "replace"}, // and released: too little time to run
			0:                {"insert"},
			-time.Second:     {"insert"},
		} {
			const whole = 10 * time.Second
			s, key, clock := watch(), newKey(), new(idempotenttest.Clock)
			s.holds(t, key, driver.Record{State: driver.StateRetryable})
			s.insert = func(driver.Record) (*driver.Record, error) {
				clock.Advance(whole - left)
				return s.record(t, key), nil
			}
			g, events := newGuardOver(t, s, func(o *idempotent.Options) { o.Now = clock.Now })
			_, err := idempotent.Do(clock.Invocation(t.Context(), whole), g, key, forbidden(t))
			if took := events.Count(event.TakenOver) == 1; !errors.As(err, new(*idempotent.NoTimeError)) || took != (len(want) > 1) {
				t.Errorf("%s left: got error %v and events %v", left, err, events.Kinds())
			}
			wantCalls(t, s, want...)
		}
	})
}

// FM66: a store whose clock is behind returns a record that has expired by the
// guard's clock. It counts as absent, and the insert is tried again.
func TestExpiredBetweenInsertAndJudgement(t *testing.T) {
	t.Parallel()
	s, key := watch(), newKey()
	expired := driver.Record{ID: key.RecordID(), State: driver.StateCompleted, Fingerprint: idempotenttest.StoredFingerprint(key), Expires: now()}
	s.insert = func(driver.Record) (*driver.Record, error) {
		s.insert = nil
		return &expired, nil
	}
	g, events := newGuardOver(t, s)
	if got, err := idempotent.Do(t.Context(), g, key, charged); got != "ch_1" || err != nil {
		t.Errorf("got %q and error %v, want it to run", got, err)
	}
	wantCalls(t, s, "insert", "insert", "replace")
	want := []event.Kind{event.ExpiredReplaced, event.Reserved, event.Completed}
	if got := events.Kinds(); !slices.Equal(got, want) {
		t.Errorf("got events %v, want %v", got, want)
	}
}

// F82: an ended lease is marked and the request refused in two calls, because the
// written record need not be read.
func TestMarkingUnknownTakesTwoCalls(t *testing.T) {
	t.Parallel()
	s, key := watch(), newKey()
	s.holds(t, key, driver.Record{State: driver.StateInProgress, LeaseEnd: now().Add(-time.Second)})
	g, events := newGuardOver(t, s)
	if _, err := idempotent.Do(t.Context(), g, key, forbidden(t)); !errors.As(err, new(*idempotent.UnresolvedError)) {
		t.Errorf("got error %v, want UnresolvedError", err)
	}
	wantCalls(t, s, "insert", "replace")
	want := []event.Kind{event.MarkedUnknown, event.Unresolved}
	if got := events.Kinds(); !slices.Equal(got, want) {
		t.Errorf("got events %v, want %v", got, want)
	}
}

// F81: every refusal is reported, with the error that the caller gets.
func TestRefusalsAreObserved(t *testing.T) {
	t.Parallel()
	for want, standing := range map[event.Kind]driver.Record{
		event.InProgress: {State: driver.StateInProgress, LeaseEnd: now().Add(time.Hour)},
		event.Unresolved: {State: driver.StateUnknown},
		event.StoreError: {State: 9},
		event.Mismatch:   {State: driver.StateCompleted},
	} {
		s, key := watch(), newKey()
		s.holds(t, key, standing)
		if want == event.Mismatch {
			key.Fingerprint = idempotent.FingerprintBytes([]byte("another request"))
		}
		g, events := newGuardOver(t, s)
		_, err := idempotent.Do(t.Context(), g, key, forbidden(t))
		if got := events.Events(); len(got) != 1 || got[0].Kind != want || err == nil || got[0].Err != err {
			t.Errorf("%s: got events %+v and error %v", want, got, err)
		}
	}
}

// A caller of an unresolved request is asked to wait until reconciliation is due;
// if it is due now, or overdue, for as long as reconciliation usually takes.
func TestUnresolvedSaysHowLong(t *testing.T) {
	t.Parallel()
	now := now()
	for due, want := range map[time.Duration]time.Duration{
		10 * time.Second: 10 * time.Second,
		time.Millisecond: time.Millisecond,
		0:                90 * time.Second,
		-time.Second:     90 * time.Second,
	} {
		s, key := watch(), newKey()
		s.holds(t, key, driver.Record{State: driver.StateUnknown, Due: now.Add(due)})
		g, _ := newGuardOver(t, s, fixed(now), func(o *idempotent.Options) { o.ReconcileAfter = 90 * time.Second })
		_, err := idempotent.Do(t.Context(), g, key, forbidden(t))
		var unresolved *idempotent.UnresolvedError
		if !errors.As(err, &unresolved) || unresolved.RetryAfter != want {
			t.Errorf("due in %s: got error %#v, want to wait %s", due, err, want)
		}
	}
}

// A claim without a reply is released with one write that has LeaseMargin, and
// the caller gets the error of the claim.
func TestUnheardClaimIsReleased(t *testing.T) {
	t.Parallel()
	down := errors.New("no reply")
	for name, releaseErr := range map[string]error{"released": nil, "not released": down} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, key := watch(), newKey()
				s.insert = func(r driver.Record) (*driver.Record, error) {
					if met, err := s.inner.Insert(t.Context(), r, time.Now()); met != nil || err != nil {
						t.Error(met, err)
					}
					return nil, down
				}
				s.replace = func(ctx context.Context, r driver.Record) (*driver.Record, error) {
					if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) != 3*time.Second {
						t.Errorf("the release may take until %v, want three seconds", deadline)
					}
					if releaseErr == nil {
						return s.inner.Replace(ctx, r, s.record(t, key).Version)
					}
					return nil, releaseErr
				}
				g, events := newGuardOver(t, s)
				if _, err := idempotent.Do(t.Context(), g, key, forbidden(t)); !errors.Is(err, down) {
					t.Errorf("got error %v, want %v", err, down)
				}
				want, state := []event.Kind{event.StoreError}, driver.StateInProgress
				if releaseErr == nil {
					want, state = append(want, event.Retryable), driver.StateRetryable
				}
				if got := events.Kinds(); !slices.Equal(got, want) {
					t.Errorf("got events %v, want %v", got, want)
				}
				if r := s.record(t, key); r.State != state {
					t.Errorf("the record is %s, want %s", r.State, state)
				}
				wantCalls(t, s, "insert", "replace")
			})
		})
	}
}

// AllowMissingKey runs a request without a key, but not one with an invalid key.
// Either way a missing key is reported.
func TestMissingIsNotInvalid(t *testing.T) {
	t.Parallel()
	fp := idempotent.FingerprintBytes(nil)
	for _, allow := range []bool{false, true} {
		g, events := newGuard(t, func(o *idempotent.Options) { o.AllowMissingKey = allow })
		_, err := idempotent.Do(t.Context(), g, idempotent.Key{Operation: "o", ID: "i", Fingerprint: fp}, forbidden(t))
		if !errors.As(err, new(*idempotent.InvalidKeyError)) || len(events.Kinds()) != 0 {
			t.Errorf("allow %v: got error %v and events %v, want InvalidKeyError", allow, err, events.Kinds())
		}
		got, err := idempotent.Do(t.Context(), g, idempotent.Key{Operation: "o", Scope: "s", Fingerprint: fp}, charged)
		if (err == nil) != allow || (got == "ch_1") != allow {
			t.Errorf("allow %v: a request without a key got %q and error %v", allow, got, err)
		}
		if all := events.Events(); len(all) != 1 || all[0].Kind != event.KeyMissing || all[0].Operation != "o" || all[0].KeyHash != "" {
			t.Errorf("allow %v: got events %+v, want key_missing without a key", allow, all)
		}
	}
}

// The record stores the request id of its last claim, and when the outcome was
// stored.
func TestRecordTellsByWhomAndWhen(t *testing.T) {
	t.Parallel()
	s, key, at := watch(), newKey(), now()
	g, _ := newGuardOver(t, s, fixed(at), func(o *idempotent.Options) {
		o.RequestID = func(context.Context) string { return "request-1" }
	})
	_, err := idempotent.Do(t.Context(), g, key, func(context.Context) (string, error) {
		if r := s.record(t, key); !r.Created.Equal(at) || !r.Since.IsZero() || r.RequestID != "request-1" {
			t.Errorf("the claim is created %v, settled %v, by %q", r.Created, r.Since, r.RequestID)
		}
		return "", nil
	})
	if r := s.record(t, key); err != nil || !r.Since.Equal(at) || r.RequestID != "request-1" {
		t.Errorf("the outcome is settled %v, by %q (%v)", r.Since, r.RequestID, err)
	}
}

// The end of a lease is stored in whole milliseconds, as stores keep it.
func TestLeaseEndsOnAMillisecond(t *testing.T) {
	t.Parallel()
	s, key, clock := watch(), newKey(), new(idempotenttest.Clock)
	g, _ := newGuardOver(t, s, func(o *idempotent.Options) { o.Now = clock.Now })
	clock.Advance(clock.Now().Truncate(time.Millisecond).Sub(clock.Now()))
	ctx := clock.Invocation(t.Context(), time.Minute+1234567*time.Nanosecond)
	deadline, _ := ctx.Deadline()
	_, err := idempotent.Do(ctx, g, key, func(context.Context) (string, error) {
		if r := s.record(t, key); r.LeaseEnd != r.LeaseEnd.Truncate(time.Millisecond) || deadline.Sub(r.LeaseEnd) > time.Millisecond {
			t.Errorf("the lease ends at %s, the deadline is at %s", r.LeaseEnd, deadline)
		}
		return "", nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A panic whose value is not an error is reported without its text, which may
// contain secrets.
func TestPanicIsToldWithoutItsText(t *testing.T) {
	t.Parallel()
	g, events := newGuard(t)
	func() {
		defer func() {
			if p := recover(); p != "secret" {
				t.Errorf("recovered %v, want the handler's own panic", p)
			}
		}()
		idempotent.Do(t.Context(), g, newKey(), func(context.Context) (string, error) { panic("secret") })
	}()
	last := events.Events()[len(events.Kinds())-1]
	if last.Kind != event.MarkedUnknown || last.Err == nil || !strings.Contains(last.Err.Error(), "panicked") || strings.Contains(last.Err.Error(), "secret") {
		t.Errorf("got event %+v", last)
	}
}

// A takeover starts again: a record that reconciliation had given up is due
// again.
func TestTakeoverOfTheExhausted(t *testing.T) {
	t.Parallel()
	s, key := watch(), newKey()
	s.holds(t, key, driver.Record{State: driver.StateRetryable, Recovery: idempotent.Resume, Exhausted: true, ReconcileAttempts: 10})
	g, _ := newGuardOver(t, s)
	_, err := idempotent.Do(t.Context(), g, key, func(context.Context) (string, error) {
		if r := s.record(t, key); r.Exhausted || r.ReconcileAttempts != 0 || r.Due.IsZero() {
			t.Errorf("while it runs: exhausted %t after %d attempts, due %v", r.Exhausted, r.ReconcileAttempts, r.Due)
		}
		return "", nil
	})
	if err != nil {
		t.Error(err)
	}
}

// An exhausted record is not reconciled until an operator acts, whenever it was
// due.
func TestUnresolvedAndExhausted(t *testing.T) {
	t.Parallel()
	for exhausted, want := range map[bool]time.Duration{false: time.Hour, true: time.Minute} {
		s, key, at := watch(), newKey(), now()
		s.holds(t, key, driver.Record{State: driver.StateUnknown, Due: at.Add(time.Hour), Exhausted: exhausted})
		g, _ := newGuardOver(t, s, fixed(at))
		_, err := idempotent.Do(t.Context(), g, key, forbidden(t))
		var unresolved *idempotent.UnresolvedError
		if !errors.As(err, &unresolved) || unresolved.RetryAfter != want {
			t.Errorf("exhausted %t: got %v, want it to be tried again after %s", exhausted, err, want)
		}
	}
}

// A retryable record with finished steps is due under Resume only.
func TestRetryableWithStepsUnderRerun(t *testing.T) {
	t.Parallel()
	for recovery, due := range map[idempotent.Recovery]bool{idempotent.Rerun: false, idempotent.Resume: true} {
		s, key := watch(), newKey()
		g, _ := newGuardOver(t, s, func(o *idempotent.Options) { o.Recovery, o.Steps = recovery, []string{"charge"} })
		_, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
			if _, err := idempotent.Step(ctx, "charge", charged); err != nil {
				t.Error(err)
			}
			return "", errors.New("later")
		})
		r := s.record(t, key)
		if err == nil || r.State != driver.StateRetryable || len(r.Steps) != 1 || r.Due.IsZero() == due || r.Expires.IsZero() != due {
			t.Errorf("%s: error %v, and the record is %s with %d steps, due %v, expires %v", recovery, err, r.State, len(r.Steps), r.Due, r.Expires)
		}
	}
}

// OpenSince is set under Resume only, to the start of the first run that may have
// left an unfinished step. Later runs keep it until the record is completed.
func TestOpenSinceIsTheFirstOpenRun(t *testing.T) {
	t.Parallel()
	s, key, start := watch(), newKey(), now()
	stepFails := func(ctx context.Context) (string, error) {
		return idempotent.Step(ctx, "charge", func(context.Context) (string, error) { return "", errDown })
	}
	dies := func(context.Context) (string, error) {
		s.replace = func(context.Context, driver.Record) (*driver.Record, error) { return nil, errDown }
		return "", errDown
	}
	for i, row := range []struct {
		recovery      idempotent.Recovery
		handler       handlerFunc
		during, after int // the run that OpenSince is the start of; 0: it is not set
	}{
		{idempotent.Rerun, dies, 0, 0},
		{idempotent.Resume, dies, 2, 2},
		{idempotent.Resume, dies, 2, 2},
		{idempotent.Rerun, dies, 0, 0},
		{idempotent.Resume, stepFails, 5, 5},
		{idempotent.Resume, charged, 5, 0},
	} {
		check := func(when string, run int) {
			want := time.Time{}
			if run > 0 {
				want = start.Add(time.Duration(run) * time.Hour)
			}
			if r := s.record(t, key); r.Attempt != i+1 || !r.OpenSince.Equal(want) {
				t.Errorf("%s run %d of %d: open since %v, want %v", when, r.Attempt, i+1, r.OpenSince, want)
			}
		}
		s.replace = nil
		g, _ := newGuardOver(t, s, fixed(start.Add(time.Duration(i+1)*time.Hour)), func(o *idempotent.Options) {
			o.Recovery, o.Steps = row.recovery, []string{"charge"}
		})
		_, _ = idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
			check("during", row.during)
			return row.handler(ctx)
		})
		check("after", row.after)
	}
}

// The lease can end between reading the record and refusing the request. The
// caller can then retry at once.
func TestRetryAfterIsNeverNegative(t *testing.T) {
	t.Parallel()
	s, key, clock := watch(), newKey(), new(idempotenttest.Clock)
	s.holds(t, key, driver.Record{State: driver.StateInProgress, LeaseEnd: now().Add(time.Hour)})
	s.insert = func(driver.Record) (*driver.Record, error) {
		clock.Advance(2 * time.Hour)
		return s.record(t, key), nil
	}
	g, _ := newGuardOver(t, s, func(o *idempotent.Options) { o.Now = clock.Now })
	_, err := idempotent.Do(t.Context(), g, key, forbidden(t))
	var running *idempotent.InProgressError
	if !errors.As(err, &running) || running.RetryAfter != 0 {
		t.Errorf("got %#v, want InProgressError without a wait", err)
	}
}

// A claim that leaves no time for the handler and cannot be released is reported:
// the record waits until its lease ends.
func TestUnreleasedClaimIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, clock := watch(), new(idempotenttest.Clock)
		s.replace = func(context.Context, driver.Record) (*driver.Record, error) { return nil, errDown }
		g, events := newGuardOver(t, s, func(o *idempotent.Options) { o.Now = clock.Now })
		_, err := idempotent.Do(clock.Invocation(t.Context(), time.Millisecond), g, newKey(), forbidden(t))
		if !errors.As(err, new(*idempotent.NoTimeError)) {
			t.Errorf("got error %v, want NoTimeError", err)
		}
		if got := events.Kinds(); !slices.Equal(got, []event.Kind{event.Reserved, event.CompletionFailed}) {
			t.Errorf("got events %v, want reserved and completion_failed", got)
		}
	})
}

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
	ctx, cancel := context.WithTimeout(t.Context(), left)
	defer cancel()
	_, err = idempotent.Do(ctx, g, key, forbidden(t))
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

// At most a hundred requests of a guard wait for one key. The others are refused at
// once, and after one of them has left, another one can wait. Other keys do not
// count.
func TestWaitingIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, key, other := watch(), newKey(), newKey()
		for _, k := range []idempotent.Key{key, other} {
			s.holds(t, k, driver.Record{State: driver.StateInProgress, LeaseEnd: now().Add(time.Hour)})
		}
		g, _ := newGuardOver(t, s.inner, waitFor(time.Minute)) // s supports one request at a time
		ask := func(k idempotent.Key) (waited time.Duration) {
			start := time.Now()
			if _, err := idempotent.Do(t.Context(), g, k, forbidden(t)); !errors.As(err, new(*idempotent.InProgressError)) {
				t.Errorf("got %v, want InProgressError", err)
			}
			return time.Since(start)
		}
		for range 2 { // the second round shows that the first one has left
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					if waited := ask(key); waited < 50*time.Second {
						t.Errorf("one of a hundred requests waited %s", waited)
					}
				})
			}
			synctest.Wait()
			if waited := ask(key); waited != 0 {
				t.Errorf("one more request waited %s", waited)
			}
			if waited := ask(other); waited < 50*time.Second {
				t.Errorf("a request with another key waited %s", waited)
			}
			wg.Wait()
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
