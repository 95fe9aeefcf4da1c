package idempotenttest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// weather holds the faults of a lab's calls, until they are over.
type weather struct {
	*Faults
	wire bool // the faults are below a client of the store
	over atomic.Bool

	// felt reports whether a guard got an error, or lost time. A fault that the
	// client recovers from is not felt.
	felt atomic.Bool
}

// newWeather returns the weather of a plan. A slow call advances the clock.
func newWeather(plan Plan, clock *Clock, seed uint64) *weather {
	w := &weather{Faults: &Faults{}}
	w.Plan = func(c Call) Fault {
		if plan == nil || w.over.Load() {
			return NoFault
		}
		return plan(c)
	}
	w.Slow = func(_ context.Context, c Call) {
		w.felt.Store(true)
		clock.Advance(delay(seed, c))
	}
	return w
}

// delay returns how long a slow call takes: a negligible time, or longer than
// what is left to the handler, the deadline or the lease.
func delay(seed uint64, c Call) time.Duration {
	delays := []time.Duration{100 * time.Millisecond, timeout / 3, timeout - 100*time.Millisecond, timeout + time.Second, lease + time.Second}
	return delays[rand.New(rand.NewPCG(seed, uint64(c.N))).IntN(len(delays))]
}

// feel returns err, the error of a call, and records whether a fault caused it.
// If the faults are below a client, any error may be the client's own form of
// the fault; otherwise only the injected error counts.
func (w *weather) feel(err error) error {
	reply := err == nil || errors.Is(err, idempotent.ErrNoRecord) || errors.Is(err, driver.ErrTooLarge)
	if !reply && len(w.Injected()) > 0 && (w.wire || errors.Is(err, ErrInjected)) {
		w.felt.Store(true)
	}
	return err
}

// getsOn checks that the key recovers after the faults: it has a stored outcome,
// or gets one when the lease has ended and evidence was given.
func (l *lab) getsOn() {
	l.Helper()
	w := l.worker()
	for range 4 {
		out, err := w.do(l.charge("ch_calm"))
		_, final := errors.AsType[*idempotent.FinalError](err)
		switch {
		case err == nil, final, errors.As(err, new(*idempotent.ReplayUnavailableError)):
			l.wantState(driver.StateCompleted)
			again, errAgain := w.do(l.never())
			if again.Value != out.Value || (err == nil) != (errAgain == nil) || err == nil && !again.Replayed {
				l.Fatalf("a request got %+v and error %v, and the next one %+v and error %v", out, err, again, errAgain)
			}
			return
		case errors.As(err, new(*idempotent.InProgressError)):
			l.endLease()
		case errors.As(err, new(*idempotent.UnresolvedError)):
			l.endLease()
			if l.history.mayHaveRun(l.record().Owner) {
				l.must(w.found("ch_found"))
			} else {
				l.must(w.notExecuted())
			}
		default:
			l.Fatalf("a request got error %v, although the faults are over", err)
		}
	}
	l.Fatal("the key does not recover, although the faults are over")
}
