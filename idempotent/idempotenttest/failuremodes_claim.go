package idempotenttest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent"
)

// The claim: lost replies, races for a key, other requests under a key, and
// records that expire.
var claimScenarios = []scenario{
	{"FM01_InsertReplyLost", func(l *lab) {
		a := l.worker()
		a.tap.onInsert = replyLost
		out, err := a.do(l.charge("ch_a"))
		l.must(err)
		if out.Value != "ch_a" || out.Replayed || !out.Stored {
			l.Fatalf("A got %+v, want its own stored result", out)
		}
		l.wantEffects(1)
		l.worker().wantReplay("ch_a")
	}},
	{"FM01_TakeoverReplyLost", func(l *lab) {
		a := l.worker()
		_, err := a.do(func(context.Context) (string, error) {
			return "", idempotent.NotExecuted(errors.New("busy"))
		})
		l.mustBe(err, err)
		b := l.worker()
		b.tap.onReplace = func(_ idempotent.Record, write func() (*idempotent.Record, error)) (*idempotent.Record, error) {
			return replyLost(write)
		}
		b.wantRuns("ch_b")
		l.wantEffects(1)
	}},
	{"FM02_InsertGivenUp_Released", func(l *lab) {
		a := l.worker()
		a.tap.onInsert = cut
		_, err := a.do(l.never())
		l.mustBe(err, idempotent.ErrStore)
		l.mustBe(err, errCut)
		l.wantState(idempotent.StateRetryable)
		l.worker().wantRuns("ch_b")
		l.wantEffects(1)
	}},
	{"FM02_InsertGivenUp_NotReleased", func(l *lab) {
		a := l.worker()
		a.tap.onInsert = cut
		a.tap.onReplace = func(idempotent.Record, func() (*idempotent.Record, error)) (*idempotent.Record, error) {
			return nil, errCut
		}
		_, err := a.do(l.never())
		l.mustBe(err, idempotent.ErrStore)
		l.worker().wantRefused(idempotent.ErrInProgress)
		l.endLease()
		l.worker().wantRefused(idempotent.ErrUnresolved)
		l.wantState(idempotent.StateUnknown)
	}},
	{"FM03_RetryUnderTheSameRequestID", func(l *lab) {
		sameID := func(o *idempotent.Options) {
			o.RequestID = func(context.Context) string { return "one-request-id" }
		}
		a := l.worker(sameID)
		a.tap.onInsert = cut
		a.tap.onReplace = func(idempotent.Record, func() (*idempotent.Record, error)) (*idempotent.Record, error) {
			return nil, errCut
		}
		_, err := a.do(l.never())
		l.mustBe(err, idempotent.ErrStore)
		// The retry carries the same request id and adopts nothing for it.
		l.worker(sameID).wantRefused(idempotent.ErrInProgress)
	}},
	{"FM04_OwnRecordBecameUnknownMeanwhile", func(l *lab) {
		a := l.worker()
		a.tap.onInsert = func(write func() (*idempotent.Record, error)) (*idempotent.Record, error) {
			_, err := write()
			l.must(err)
			l.endLease()
			l.worker().wantRefused(idempotent.ErrUnresolved)
			return write()
		}
		_, err := a.do(l.never())
		l.mustBe(err, idempotent.ErrUnresolved)
		l.wantState(idempotent.StateUnknown)
	}},
	{"FM05_SimultaneousRequests", func(l *lab) {
		answers := make(chan error, racers)
		done := make(chan struct{})
		for range racers {
			go func() {
				_, err := l.worker().do(func(context.Context) (string, error) {
					if l.effects.Add(1) == 1 {
						<-done // the winner works until all others were answered
					}
					return "ch_1", nil
				})
				answers <- err
			}()
		}
		for range racers - 1 {
			if err := <-answers; !errors.Is(err, idempotent.ErrInProgress) {
				l.Errorf("a loser got error %v, want ErrInProgress", err)
			}
		}
		close(done)
		l.must(<-answers)
		l.wantEffects(1)
		l.worker().wantReplay("ch_1")
	}},
	{"FM06_OtherRequestWhileInProgress", func(l *lab) {
		other := l.key
		other.Fingerprint = idempotent.FingerprintBytes([]byte("another request"))
		_, err := l.worker().do(func(context.Context) (string, error) {
			_, err := l.worker().doKey(other, l.never())
			l.mustBe(err, idempotent.ErrMismatch)
			return "ch_1", nil
		})
		l.must(err)
	}},
	{"FM07_OtherRequestAfterCompletion", func(l *lab) {
		other := l.key
		other.Fingerprint = idempotent.FingerprintBytes([]byte("another request"))
		l.worker().wantRuns("ch_1")
		_, err := l.worker().doKey(other, l.never())
		l.mustBe(err, idempotent.ErrMismatch)
		l.worker().wantReplay("ch_1")
	}},
	{"FM19_ExpiredButStillThere", func(l *lab) {
		l.worker().wantRuns("ch_1")
		l.clock.AdvanceTo(l.record().Expires.Add(-time.Second))
		l.worker().wantReplay("ch_1")
		l.clock.AdvanceTo(l.record().Expires)
		l.worker().wantRuns("ch_2")
		l.worker().wantReplay("ch_2")
		l.wantEffects(2)
		if got := l.record().Attempt; got != 1 {
			l.Fatalf("the new record counts %d attempts, want 1", got)
		}
	}},
	{"FM21_SimultaneousReplacersOfAnExpiredRecord", func(l *lab) {
		l.worker().wantRuns("ch_old")
		l.clock.AdvanceTo(l.record().Expires)
		l.race(racers)
		l.wantEffects(2)
	}},
	{"FM33_SimultaneousTakeovers", func(l *lab) {
		_, err := l.worker().do(func(context.Context) (string, error) {
			return "", idempotent.NotExecuted(errors.New("busy"))
		})
		if err == nil {
			l.Fatal("the handler's error was swallowed")
		}
		l.race(racers)
		l.wantEffects(1)
	}},
	{"FM66_ExpiryBetweenInsertAndJudgement", func(l *lab) {
		l.worker().wantRuns("ch_1")
		expires := l.record().Expires
		l.clock.AdvanceTo(expires.Add(-time.Second))
		b := l.worker()
		b.tap.onInsert = func(write func() (*idempotent.Record, error)) (*idempotent.Record, error) {
			met, err := write()
			l.clock.AdvanceTo(expires.Add(time.Second))
			return met, err
		}
		b.wantReplay("ch_1")
		l.wantEffects(1)
	}},
	{"FM66_ExpiryWhileTakingOver", func(l *lab) {
		_, err := l.worker().do(func(context.Context) (string, error) {
			return "", idempotent.NotExecuted(errors.New("busy"))
		})
		l.mustBe(err, err)
		b := l.worker()
		b.tap.onReplace = func(_ idempotent.Record, write func() (*idempotent.Record, error)) (*idempotent.Record, error) {
			b.tap.onReplace = nil
			l.worker().wantRuns("ch_other")
			l.clock.AdvanceTo(l.record().Expires)
			return write()
		}
		// B's own deadline has passed with the clock: it claims nothing any more.
		_, err = b.do(l.never())
		l.mustBe(err, idempotent.ErrNoTime)
		l.wantEffects(1)
		l.worker().wantRuns("ch_new")
		l.wantEffects(2)
	}},
}

// race sends n requests at once; one may run, the others are refused while it
// does or get its result.
func (l *lab) race(n int) {
	l.Helper()
	var wg sync.WaitGroup
	start := make(chan struct{})
	for range n {
		wg.Go(func() {
			<-start
			out, err := l.worker().do(l.charge("ch_race"))
			if err == nil && out.Value != "ch_race" || err != nil && !errors.Is(err, idempotent.ErrInProgress) {
				l.Errorf("a racer got %+v and error %v", out, err)
			}
		})
	}
	close(start)
	wg.Wait()
	l.worker().wantReplay("ch_race")
}
