package idempotenttest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// Claims: lost replies, races for a key, other requests under a key, and
// expired records.
var claimScenarios = []scenario{
	{"FM01_InsertReplyLost", func(l *lab) {
		a := l.worker()
		a.inject(On(OpInsert, Repeated))
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
		b.inject(On(OpReplace, Repeated))
		b.wantRuns("ch_b")
		l.wantEffects(1)
	}},
	{"FM02_InsertGivenUp_Released", func(l *lab) {
		a := l.worker()
		a.inject(On(OpInsert, LostReply))
		_, err := a.do(l.never())
		l.mustBe(err, new(idempotent.StoreError))
		l.mustBe(err, ErrInjected)
		l.wantState(driver.StateRetryable)
		l.worker().wantRuns("ch_b")
		l.wantEffects(1)
	}},
	{"FM02_InsertGivenUp_NotReleased", func(l *lab) {
		a := l.worker()
		a.inject(On(OpInsert, LostReply), On(OpReplace, LostRequest))
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
		a.inject(On(OpInsert, LostReply), On(OpReplace, LostRequest))
		_, err := a.do(l.never())
		l.mustBe(err, new(idempotent.StoreError))
		// The retry has the same request id, but must not adopt the record
		// because of it.
		l.worker(sameID).wantRefused(new(idempotent.InProgressError))
	}},
	{"FM04_OwnRecordBecameUnknownMeanwhile", func(l *lab) {
		a := l.worker()
		a.tap.onInsert = func(write func() (*driver.Record, error)) (*driver.Record, error) {
			_, err := write()
			l.must(err)
			l.endLease()
			l.worker().wantRefused(new(idempotent.UnresolvedError))
			return write()
		}
		_, err := a.do(l.never())
		l.mustBe(err, new(idempotent.UnresolvedError))
		l.wantState(driver.StateUnknown)
	}},
	// F30: of several simultaneous requests exactly one executes.
	{"FM05_SimultaneousRequests", func(l *lab) {
		l.race(OpInsert)
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
	// F34: a record past its retention counts as missing, although the store
	// still has it.
	{"FM19_ExpiredButStillThere", func(l *lab) {
		l.worker().wantRuns("ch_1")
		l.clock.AdvanceTo(l.record().Expires.Add(-time.Second))
		l.worker().wantReplay("ch_1")
		l.clock.AdvanceTo(l.record().Expires)
		b := l.worker()
		b.wantRuns("ch_2")
		if n := b.tap.calls.Load(); n != 2 {
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
		l.clock.AdvanceTo(l.record().Expires)
		l.race(OpInsert)
		l.wantEffects(2)
	}},
	// F32: a takeover is one atomic step, too.
	{"FM33_SimultaneousTakeovers", func(l *lab) {
		l.retryable()
		l.race(OpReplace)
		l.wantEffects(1)
	}},
	{"FM51_ManyLoopsOneProcess", func(l *lab) { l.loops(l.worker()) }},
	{"FM51_ManyLoopsOneProcessWithACache", func(l *lab) { l.loops(l.worker(cached)) }},
	{"FM66_ExpiryBetweenInsertAndJudgement", func(l *lab) {
		l.worker().wantRuns("ch_1")
		expires := l.record().Expires
		l.clock.AdvanceTo(expires.Add(-time.Second))
		b := l.worker()
		b.tap.onInsert = func(write func() (*driver.Record, error)) (*driver.Record, error) {
			met, err := write()
			l.clock.AdvanceTo(expires.Add(time.Second))
			return met, err
		}
		b.wantReplay("ch_1")
		l.wantEffects(1)
	}},
	{"FM66_ExpiryWhileTakingOver", func(l *lab) {
		l.retryable()
		b := l.worker()
		b.tap.onReplace = func(_ driver.Record, write func() (*driver.Record, error)) (*driver.Record, error) {
			b.tap.onReplace = nil
			l.worker().wantRuns("ch_other")
			l.clock.AdvanceTo(l.record().Expires)
			return write()
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
	l.wantState(driver.StateRetryable)
}

// loops sends requests from many loops of one process that share a guard, as in
// a runtime that serves several requests at once. The one handler that is
// called returns only when every other loop was refused because of it, or has
// ended.
func (l *lab) loops(w *worker) {
	l.Helper()
	const loops = 8
	var (
		wg      sync.WaitGroup
		entered atomic.Bool
		refused [loops]atomic.Bool
		met     [loops]chan struct{}
	)
	for i := range loops {
		met[i] = make(chan struct{})
	}
	for i := range loops {
		wg.Go(func() {
			meet := sync.OnceFunc(func() { close(met[i]) })
			defer meet()
			for range 8 {
				out, err := w.do(func(ctx context.Context) (string, error) {
					if entered.CompareAndSwap(false, true) {
						for other := range met {
							if other != i {
								<-met[other]
							}
						}
					}
					return l.charge("ch_loop")(ctx)
				})
				switch {
				case errors.As(err, new(*idempotent.InProgressError)):
					refused[i].Store(true)
					meet()
				case err != nil || out.Value != "ch_loop":
					l.Errorf("a loop got %+v and error %v", out, err)
				}
			}
		})
	}
	wg.Wait()
	together := 1
	for i := range refused {
		together += one(refused[i].Load())
	}
	if together != loops {
		l.Fatalf("%d of %d loops were refused by the running request", together, loops)
	}
	l.wantEffects(1)
	w.wantReplay("ch_loop")
}

// race sends racers requests at once. They wait for each other twice: no call
// of op proceeds before every request has reached its own, and the handler that
// is called returns only when every other request was answered. All the others
// must be refused.
func (l *lab) race(op Op) {
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
			meet := func(write func() (*driver.Record, error)) (*driver.Record, error) {
				arrive()
				atTheStore.Wait()
				return write()
			}
			if op == OpInsert {
				w.tap.onInsert = meet
			} else {
				w.tap.onReplace = func(_ driver.Record, write func() (*driver.Record, error)) (*driver.Record, error) {
					return meet(write)
				}
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
	l.worker().wantReplay("ch_race")
}

var errNoAnswer = errors.New("the request was not answered")
