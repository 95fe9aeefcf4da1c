package idempotenttest

import (
	"context"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// Time: deadlines, leases, skewed clocks and retention.
var timeScenarios = []scenario{
	// F35: no other request runs before the lease ends. The test computes this
	// from the deadline of the invocation: the record's own would hide a lease
	// that is too short.
	{"FM15_HandlerIgnoresItsDeadline", func(l *lab) {
		invocation, deadline := l.invocation()
		_, err := l.worker(rerun).doIn(invocation, l.key, func(context.Context) (string, error) {
			l.clock.AdvanceTo(deadline)
			l.worker(rerun).wantRefused(new(idempotent.InProgressError))
			l.clock.AdvanceTo(deadline.Add(margin - 500*time.Millisecond))
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
		if n := a.tap.calls.Load(); n != 0 {
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
				l.clock.AdvanceTo(deadline.Add(-before))
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
			l.clock.AdvanceTo(deadline.Add(-500 * time.Millisecond))
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
		l.crashAfterEffect("ch_a")
		l.endLease()
		l.worker().wantRefused(new(idempotent.UnresolvedError))
		l.clock.Advance(10 * 365 * 24 * time.Hour)
		l.worker().wantRefused(new(idempotent.UnresolvedError))
		l.wantState(driver.StateUnknown)
		l.wantEffects(1)
	}},
	{"FM59_CrashedNeverExpires", func(l *lab) {
		l.crashAfterEffect("ch_a")
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
	a.tap.onInsert = func(write func() (*driver.Record, error)) (*driver.Record, error) {
		met, err := write()
		l.clock.Advance(d)
		return met, err
	}
	_, err := a.do(l.never())
	l.mustBe(err, new(idempotent.NoTimeError))
	l.wantState(driver.StateRetryable)
	l.worker().wantRuns("ch_b")
	l.wantEffects(1)
}
