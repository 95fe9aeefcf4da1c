// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/faults"
)

// Claims: lost replies, races for a key, other requests under a key, and
// expired records.
var claimScenarios = []scenario{
	{"FM01_InsertReplyLost", func(l *lab) {
		a := l.worker()
		a.inject(faults.On(driver.OpInsert, faults.Repeated))
		out, err := a.do(l.charge("ch_a"))
		l.must(err)
		if out.Value != "ch_a" || out.Replayed || !out.Stored {
			l.Fatalf("A got %+v, want its own stored result", out)
		}
		l.wantEffects(1)
		l.worker().wantReplay("ch_a")
	}},
	{"FM01_TakeoverReplyLost", func(l *lab) {
		l.retryable()
		b := l.worker()
		b.inject(faults.On(driver.OpReplace, faults.Repeated))
		b.wantRuns("ch_b")
		l.wantEffects(1)
	}},
	{"FM02_InsertGivenUp_Released", func(l *lab) {
		a := l.worker()
		a.inject(faults.On(driver.OpInsert, faults.LostReply))
		_, err := a.do(l.never())
		l.mustBe(err, new(idempotent.StoreError))
		l.mustBe(err, faults.ErrInjected)
		l.wantState(driver.StateRetryable)
		l.worker().wantRuns("ch_b")
		l.wantEffects(1)
	}},
	{"FM02_InsertGivenUp_NotReleased", func(l *lab) {
		a := l.worker()
		a.inject(faults.On(driver.OpInsert, faults.LostReply), faults.On(driver.OpReplace, faults.LostRequest))
		_, err := a.do(l.never())
		l.mustBe(err, new(idempotent.StoreError))
		l.worker().wantRefused(new(idempotent.InProgressError))
		l.endLease()
		l.worker().wantRefused(new(idempotent.UnresolvedError))
		l.wantState(driver.StateUnknown)
	}},
	{"FM03_RetryUnderTheSameRequestID", func(l *lab) {
		sameID := func(o *idempotent.Options) {
			o.RequestID = func(context.Context) string { return "one-request-id" }
		}
		a := l.worker(sameID)
		a.inject(faults.On(driver.OpInsert, faults.LostReply), faults.On(driver.OpReplace, faults.LostRequest))
		_, err := a.do(l.never())
		l.mustBe(err, new(idempotent.StoreError))
		// The retry has the same request id, but must not adopt the record
		// because of it.
		l.worker(sameID).wantRefused(new(idempotent.InProgressError))
	}},
	{"FM04_OwnRecordBecameUnknownMeanwhile", func(l *lab) {
		a := l.worker()
		a.hooks[driver.OpInsert] = func(ctx context.Context, c *StoreCall) {
			c.Do(ctx)
			l.must(c.Err)
			l.endLease()
			l.worker().wantRefused(new(idempotent.UnresolvedError))
			c.Do(ctx)
		}
		_, err := a.do(l.never())
		l.mustBe(err, new(idempotent.UnresolvedError))
		l.wantState(driver.StateUnknown)
	}},
	// F30: of several simultaneous requests exactly one executes.
	{"FM05_SimultaneousRequests", func(l *lab) {
		l.race(driver.OpInsert)
		l.wantEffects(1)
	}},
	{"FM06_OtherRequestWhileInProgress", func(l *lab) {
		other := l.key
		other.Fingerprint = idempotent.FingerprintBytes([]byte("another request"))
		_, err := l.worker().do(func(context.Context) (string, error) {
			_, err := l.worker().doKey(other, l.never())
			l.mustBe(err, new(idempotent.MismatchError))
			return "ch_1", nil
		})
		l.must(err)
	}},
	{"FM07_OtherRequestAfterCompletion", func(l *lab) {
		other := l.key
		other.Fingerprint = idempotent.FingerprintBytes([]byte("another request"))
		l.worker().wantRuns("ch_1")
		_, err := l.worker().doKey(other, l.never())
		l.mustBe(err, new(idempotent.MismatchError))
		l.worker().wantReplay("ch_1")
	}},
	{"FM11_CrashAfterTheClaim", func(l *lab) {
		l.crash(func(context.Context) {})
		l.endLease()
		b := l.worker()
		b.wantRefused(new(idempotent.UnresolvedError))
		// The reconciler queries the provider by the downstream key, and the
		// provider does not know it.
		l.must(b.notExecuted())
		l.worker().wantRuns("ch_b")
		l.wantEffects(1)
	}},
	{"FM11_KilledAtItsDeadline", func(l *lab) {
		a, killed := l.worker(), make(chan struct{})
		a.hooks[driver.OpReplace] = func(ctx context.Context, c *StoreCall) {
			select {
			case <-killed:
				c.Err = faults.ErrInjected
			default: // of the handler, which writes nothing itself
				c.Do(context.WithoutCancel(ctx)) // however long the engine takes
				close(killed)
			}
		}
		// A second of real time: the clock stands still, and a timer begins the announcement.
		_, _ = a.doIn(l.clock.Invocation(context.Background(), time.Second), l.key, func(context.Context) (string, error) {
			<-killed
			return "", errNoReply
		})
		if r := l.record(); r.State != driver.StateInProgress || !r.Announced {
			l.Fatalf("a run was killed at its deadline: the record is %s, and announced: %t", r.State, r.Announced)
		}
		l.endLease()
		l.wantListed()
		l.worker().wantRefused(new(idempotent.UnresolvedError))
		l.wantState(driver.StateUnknown)
		if l.record().Announced {
			l.Fatal("the record is unknown, and still announced")
		}
	}},
	// F34: a record past its retention counts as missing, although the store
	// still has it.
	{"FM19_ExpiredButStillThere", func(l *lab) {
		l.worker().wantRuns("ch_1")
		l.clock.advanceTo(l.record().Expires.Add(-time.Second))
		l.worker().wantReplay("ch_1")
		l.clock.advanceTo(l.record().Expires)
		b := l.worker()
		b.wantRuns("ch_2")
		if n := b.calls.Load(); n != 2 {
			l.Fatalf("%d calls to the store, want 2: the claim that replaces the expired record, and the outcome", n)
		}
		l.worker().wantReplay("ch_2")
		l.wantEffects(2)
		if got := l.record().Attempt; got != 1 {
			l.Fatalf("the new record has %d attempts, want 1", got)
		}
	}},
	{"FM21_SimultaneousReplacersOfAnExpiredRecord", func(l *lab) {
		l.worker().wantRuns("ch_old")
		l.clock.advanceTo(l.record().Expires)
		l.race(driver.OpInsert)
		l.wantEffects(2)
	}},
	// F32: a takeover is one atomic step, too.
	{"FM33_SimultaneousTakeovers", func(l *lab) {
		l.retryable()
		l.race(driver.OpReplace)
		l.wantEffects(1)
	}},
	{"FM51_ManyLoopsOneProcess", func(l *lab) { l.loops(l.worker()) }},
	{"FM51_ManyLoopsOneProcessWithACache", func(l *lab) { l.loops(l.worker(cached)) }},
	{"FM66_ExpiryBetweenInsertAndJudgement", func(l *lab) {
		l.worker().wantRuns("ch_1")
		expires := l.record().Expires
		l.clock.advanceTo(expires.Add(-time.Second))
		b := l.worker()
		b.hooks[driver.OpInsert] = func(ctx context.Context, c *StoreCall) {
			c.Do(ctx)
			l.clock.advanceTo(expires.Add(time.Second))
		}
		b.wantReplay("ch_1")
		l.wantEffects(1)
	}},
	{"FM66_ExpiryWhileTakingOver", func(l *lab) {
		l.retryable()
		b := l.worker()
		b.hooks[driver.OpReplace] = func(ctx context.Context, c *StoreCall) {
			delete(b.hooks, driver.OpReplace)
			l.worker().wantRuns("ch_other")
			l.clock.advanceTo(l.record().Expires)
			c.Do(ctx)
		}
		// B's own deadline has passed with the clock, so it does not claim the
		// key.
		_, err := b.do(l.never())
		l.mustBe(err, new(idempotent.NoTimeError))
		l.wantEffects(1)
		l.worker().wantRuns("ch_new")
		l.wantEffects(2)
	}},
}

// retryable leaves the record of a request that proved that it had no effect.
func (l *lab) retryable() {
	l.Helper()
	busy := idempotent.NotExecuted(errors.New("busy"))
	_, err := l.worker().do(func(context.Context) (string, error) { return "", busy })
	l.mustBe(err, busy)
}

// loops sends requests from many loops of one process that share a guard, as in
// a runtime that serves several requests at once. The one handler that is called
// returns only when every other loop got an answer.
func (l *lab) loops(w *worker) {
	l.Helper()
	const loops = 8
	var all, answered sync.WaitGroup
	answered.Add(loops)
	for range loops {
		all.Go(func() {
			first := sync.OnceFunc(answered.Done)
			for range 8 {
				_, err := w.do(func(ctx context.Context) (string, error) {
					first()
					answered.Wait()
					return l.charge("ch_loop")(ctx)
				})
				first()
				if err != nil && !errors.As(err, new(*idempotent.InProgressError)) {
					l.Errorf("a loop got error %v", err)
				}
			}
		})
	}
	all.Wait()
	l.wantEffects(1)
	w.wantReplay("ch_loop")
}

// race sends racers requests at once. They wait for each other twice: no call
// of op proceeds before every request has reached its own, and the handler that
// is called returns only when every other request was answered. All the others
// must be refused.
func (l *lab) race(op driver.Op) {
	l.Helper()
	var (
		atTheStore sync.WaitGroup
		entered    atomic.Bool
		answers    = make(chan error, racers)
		answered   = make(chan struct{})
	)
	atTheStore.Add(racers)
	for range racers {
		go func() {
			arrive := sync.OnceFunc(atTheStore.Done)
			err := errNoAnswer
			defer func() { arrive(); answers <- err }()
			w := l.worker()
			w.hooks[op] = func(ctx context.Context, c *StoreCall) {
				arrive()
				atTheStore.Wait()
				c.Do(ctx)
			}
			_, err = w.do(func(ctx context.Context) (string, error) {
				arrive() // without a call of op
				if entered.CompareAndSwap(false, true) {
					<-answered
				}
				return l.charge("ch_race")(ctx)
			})
		}()
	}
	var losers []error
	for range racers - 1 {
		losers = append(losers, <-answers)
	}
	close(answered)
	winner := <-answers
	for _, err := range losers {
		l.mustBe(err, new(idempotent.InProgressError))
	}
	l.must(winner)
}

var errNoAnswer = errors.New("the request was not answered")

// Waiting for a running request with the same key. The guard pauses in real time
// before it looks again, and the clock advances when it looks.
var waitScenarios = []scenario{
	// F52: a second request waits for the first,
	{"FM37_TwinCompletes", func(l *lab) {
		entered, finish := make(chan struct{}), make(chan struct{})
		release := sync.OnceFunc(func() { close(finish) })
		var twin sync.WaitGroup
		defer func() { release(); twin.Wait() }()
		var failed error
		done := make(chan struct{})
		twin.Go(func() {
			defer close(done)
			_, failed = l.worker().do(func(ctx context.Context) (string, error) {
				close(entered)
				<-finish
				return l.charge("ch_a")(ctx)
			})
		})
		select {
		case <-entered:
		case <-done:
			l.Fatalf("the running request was not admitted: %v", failed)
		}
		b := l.worker(patient)
		looks := 0
		b.hooks[driver.OpGet] = func(ctx context.Context, c *StoreCall) {
			if looks++; looks == 2 {
				release()
				<-done
				l.must(failed)
			}
			c.Do(ctx)
		}
		b.wantReplay("ch_a")
		if looks < 2 {
			l.Fatalf("B looked %d times", looks)
		}
		l.wantEffects(1)
	}},
	{"FM37_TwinCrashes", func(l *lab) {
		l.crashAfterEffect()
		b := l.worker(patient)
		b.hooks[driver.OpGet] = func(ctx context.Context, c *StoreCall) {
			delete(b.hooks, driver.OpGet)
			l.endLease()
			c.Do(ctx)
		}
		// B's invocation lasts until after the end of A's lease.
		_, err := b.doIn(l.clock.Invocation(context.Background(), time.Hour), l.key, l.never())
		l.mustBe(err, new(idempotent.UnresolvedError))
		l.wantEffects(1)
	}},
	{"FM37_TwinLeavesNothing", func(l *lab) {
		_, err := l.worker().do(func(context.Context) (string, error) {
			b := l.worker(hasty)
			looks := 0
			b.hooks[driver.OpGet] = func(_ context.Context, c *StoreCall) {
				looks++
				b.looksSlowly()
				c.Err = idempotent.ErrNoRecord // deleted; the insert reads it again
			}
			_, err := b.do(l.never())
			if looks == 0 {
				l.Error("B did not wait")
			}
			return "", err
		}) // B gives up after WaitFor
		l.mustBe(err, new(idempotent.InProgressError))
	}},
	{"FM37_StoreFailsWhileWaiting", func(l *lab) {
		_, err := l.worker().do(func(context.Context) (string, error) {
			b := l.worker(patient)
			b.inject(faults.On(driver.OpGet, faults.LostRequest))
			_, err := b.do(l.never())
			return "", err
		})
		l.mustBe(err, new(idempotent.StoreError))
	}},
	// F52: and not beyond its own deadline.
	{"FM37_OwnDeadline", func(l *lab) {
		_, err := l.worker().do(func(context.Context) (string, error) {
			b := l.worker(func(o *idempotent.Options) { o.WaitFor = time.Hour })
			b.looksSlowly()
			const own = 3 * time.Second
			began := l.clock.Now()
			_, err := b.doIn(l.clock.Invocation(context.Background(), own), l.key, l.never())
			l.mustBe(err, new(idempotent.InProgressError))
			if took := l.clock.Now().Sub(began); took > own {
				l.Errorf("B waited for %s of its %s", took, own)
			}
			return "ch_a", nil
		})
		l.must(err)
	}},
	{"FM37_CallerGoesAway", func(l *lab) {
		_, err := l.worker().do(func(context.Context) (string, error) {
			b := l.worker(func(o *idempotent.Options) { o.WaitFor = time.Hour })
			ctx, cancel := context.WithCancel(l.clock.Invocation(context.Background(), time.Hour))
			looks := 0
			b.hooks[driver.OpGet] = func(ctx context.Context, c *StoreCall) {
				looks++
				cancel()
				c.Do(ctx)
			}
			_, err := b.doIn(ctx, l.key, l.never())
			l.mustBe(err, new(idempotent.InProgressError))
			if looks != 1 {
				l.Errorf("B read the record %d times, but its caller was cancelled at the first", looks)
			}
			return "ch_a", nil
		})
		l.must(err)
	}},
}

// looksSlowly lets each read of the worker take half a second.
func (w *worker) looksSlowly() {
	w.hooks[driver.OpGet] = func(ctx context.Context, c *StoreCall) {
		w.clock.Advance(500 * time.Millisecond)
		c.Do(ctx)
	}
}

// patient waits longer than any operation here takes on a busy machine. hasty
// waits for almost no time.
func patient(o *idempotent.Options) { o.WaitFor = 30 * time.Second }
func hasty(o *idempotent.Options)   { o.WaitFor = 500 * time.Millisecond }

// Time: deadlines, leases, skewed clocks and retention.
var timeScenarios = []scenario{
	// F35: no other request runs before the lease ends. The test computes this
	// from the deadline of the invocation: the record's own would hide a lease
	// that is too short.
	{"FM15_HandlerIgnoresItsDeadline", func(l *lab) {
		invocation, deadline := l.invocation()
		_, err := l.worker(rerun).doIn(invocation, l.key, func(context.Context) (string, error) {
			l.clock.advanceTo(deadline)
			l.worker(rerun).wantRefused(new(idempotent.InProgressError))
			l.clock.advanceTo(deadline.Add(margin - 500*time.Millisecond))
			l.worker(rerun).wantRefused(new(idempotent.InProgressError))
			return "ch_1", nil
		})
		l.must(err)
		l.worker().wantReplay("ch_1")
	}},
	{"FM16_NoTimeAtEntry", func(l *lab) {
		a := l.worker()
		for _, left := range []time.Duration{0, -time.Second, -time.Hour} {
			ctx := l.clock.Invocation(context.Background(), left)
			_, err := a.doIn(ctx, l.key, l.never())
			l.mustBe(err, new(idempotent.NoTimeError))
			l.mustBe(err, context.DeadlineExceeded)
		}
		ctx, cancel := context.WithCancel(l.clock.Invocation(context.Background(), timeout))
		cancel()
		_, err := a.doIn(ctx, l.key, l.never())
		l.mustBe(err, new(idempotent.NoTimeError))
		l.mustBe(err, context.Canceled)
		if n := a.calls.Load(); n != 0 {
			l.Fatalf("%d calls to the store, want none", n)
		}
	}},
	{"FM17_NoDeadline", func(l *lab) {
		const long = time.Hour
		a := l.worker(func(o *idempotent.Options) { o.DefaultLease = long })
		_, err := a.doIn(context.Background(), l.key, func(ctx context.Context) (string, error) {
			if _, ok := ctx.Deadline(); !ok {
				l.Error("the handler's context has no deadline, though its lease ends")
			}
			left := l.record().LeaseEnd.Sub(l.clock.Now())
			if left > long || left < long-time.Minute {
				l.Errorf("the lease ends in %s, want DefaultLease", left)
			}
			l.clock.Advance(long - time.Minute)
			l.worker().wantRefused(new(idempotent.InProgressError))
			l.clock.Advance(2 * time.Minute)
			l.worker().wantRefused(new(idempotent.UnresolvedError))
			return "ch_a", nil
		})
		l.must(err)
		l.worker().wantReplay("ch_a")
	}},
	{"FM18_SkewAroundTheLeaseEnd", func(l *lab) {
		const skew = 5 * time.Second
		wide := func(o *idempotent.Options) { o.Recovery, o.LeaseMargin = idempotent.Rerun, skew }
		invocation, deadline := l.invocation()
		_, err := l.worker(wide).doIn(invocation, l.key, func(context.Context) (string, error) {
			// A may work until its own clock reaches the deadline. B's clock is
			// ahead.
			for _, before := range []time.Duration{2 * time.Second, 500 * time.Millisecond} {
				l.clock.advanceTo(deadline.Add(-before))
				ahead := l.worker(wide, func(o *idempotent.Options) {
					o.Now = func() time.Time { return l.clock.Now().Add(skew) }
				})
				ahead.wantRefused(new(idempotent.InProgressError))
				behind := l.worker(wide, func(o *idempotent.Options) {
					o.Now = func() time.Time { return l.clock.Now().Add(-skew) }
				})
				behind.wantRefused(new(idempotent.InProgressError))
			}
			return "ch_a", nil
		})
		l.must(err)
		l.worker(wide).wantReplay("ch_a")
	}},
	{"FM18_SkewAroundTheExpiry", func(l *lab) {
		const skew = 5 * time.Second
		// A retention shorter than the lease, and a handler that commits and
		// continues: the record must not expire while the handler runs.
		short := func(o *idempotent.Options) {
			o.Recovery, o.LeaseMargin, o.Retention = idempotent.Rerun, skew, time.Second
		}
		a := l.worker(short)
		invocation, deadline := l.invocation()
		_, err := a.doIn(invocation, l.key, func(ctx context.Context) (string, error) {
			l.must(a.commit(ctx, "ch_a"))
			l.clock.advanceTo(deadline.Add(-500 * time.Millisecond))
			ahead := l.worker(short, func(o *idempotent.Options) {
				o.Now = func() time.Time { return l.clock.Now().Add(skew) }
			})
			ahead.wantReplay("ch_a")
			return "ch_a", nil
		})
		l.must(err)
	}},
	// Once the handler has returned, a short retention is honoured: the record
	// acts as a short lock per key.
	{"FM18_ShortRetentionIsHonoured", func(l *lab) {
		short := func(o *idempotent.Options) { o.Recovery, o.Retention = idempotent.Rerun, lease/2 }
		l.worker(short).wantRuns("ch_1")
		l.clock.Advance(lease / 4)
		l.worker(short).wantReplay("ch_1")
		l.clock.Advance(lease / 4)
		l.worker(short).wantRuns("ch_2")
	}},
	// F42: a request never changes an unknown record, however late it comes.
	{"FM59_UnknownNeverExpires", func(l *lab) {
		l.crashAfterEffect()
		l.endLease()
		l.worker().wantRefused(new(idempotent.UnresolvedError))
		l.clock.Advance(10 * 365 * 24 * time.Hour)
		l.worker().wantRefused(new(idempotent.UnresolvedError))
		l.wantState(driver.StateUnknown)
		l.wantEffects(1)
	}},
	{"FM59_CrashedNeverExpires", func(l *lab) {
		l.crashAfterEffect()
		l.clock.Advance(10 * 365 * 24 * time.Hour)
		l.worker().wantRefused(new(idempotent.UnresolvedError))
		l.wantEvents(event.MarkedUnknown)
		l.wantState(driver.StateUnknown)
		l.wantEffects(1)
	}},
	{"FM59_UnlessItWasAskedFor", func(l *lab) {
		bounded := func(o *idempotent.Options) { o.UnresolvedRetention = 30 * 24 * time.Hour }
		_, err := l.worker(bounded).do(func(context.Context) (string, error) { return "", errNoReply })
		l.mustBe(err, errNoReply)
		l.clock.Advance(30*24*time.Hour - time.Minute)
		l.worker(bounded).wantRefused(new(idempotent.UnresolvedError))
		l.clock.Advance(2 * time.Minute)
		l.worker(bounded).wantRuns("ch_b")
	}},
	{"FM59_UnknownUnderRerunNeverExpires", func(l *lab) {
		_, err := l.worker(rerun).do(func(context.Context) (string, error) {
			return "", idempotent.Unknown(errNoReply)
		})
		l.mustBe(err, errNoReply)
		l.clock.Advance(10 * 365 * 24 * time.Hour)
		l.worker(rerun).wantRefused(new(idempotent.UnresolvedError))
	}},
	{"FM65_ClaimTookLongerThanTheLease", func(l *lab) { l.slowClaim(lease + time.Second) }},
	{"FM65_ClaimLeftLessThanTheReserve", func(l *lab) { l.slowClaim(timeout - 100*time.Millisecond) }},
}

// invocation returns the context of an invocation with the usual time-out, and
// its deadline.
func (l *lab) invocation() (context.Context, time.Time) {
	ctx := l.clock.Invocation(context.Background(), timeout)
	deadline, _ := ctx.Deadline()
	return ctx, deadline
}

// slowClaim makes the write of the claim take d.
func (l *lab) slowClaim(d time.Duration) {
	l.Helper()
	a := l.worker()
	a.hooks[driver.OpInsert] = func(ctx context.Context, c *StoreCall) {
		c.Do(ctx)
		l.clock.Advance(d)
	}
	a.hooks[driver.OpReplace] = func(ctx context.Context, c *StoreCall) {
		c.Do(context.WithoutCancel(ctx)) // however long the engine takes
	}
	_, err := a.do(l.never())
	l.mustBe(err, new(idempotent.NoTimeError))
	l.wantState(driver.StateRetryable)
	l.worker().wantRuns("ch_b")
	l.wantEffects(1)
}
