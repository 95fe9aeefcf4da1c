package idempotent

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// Pauses of a request that waits for another one: about waitFirst before the
// first look, then each 1.5 times as long as the one before, at most waitMax.
const (
	waitFirst = 50 * time.Millisecond
	waitMax   = time.Second
)

// waiter holds the waiting state of one request.
type waiter struct {
	until time.Time // zero: waiting has not begun
	pause time.Duration
}

// await pauses and then reads the record of the running request again. It returns
// false if the time is up: WaitFor has passed, or waiting longer would use the
// handler's own time.
func (a *attempt) await(ctx context.Context, w *waiter, now time.Time) (r *driver.Record, again bool, err error) {
	if a.opts.WaitFor == 0 {
		return nil, false, nil
	}
	if w.until.IsZero() {
		w.until, w.pause = now.Add(a.opts.WaitFor), waitFirst
		if w.until.After(a.window.handlerEnd) {
			w.until = a.window.handlerEnd
		}
	}
	pause := w.pause/2 + rand.N(w.pause) // jitter: concurrent waiters should not poll at the same time
	if !now.Add(pause).Before(w.until) {
		return nil, false, nil
	}
	w.pause = min(w.pause*3/2, waitMax)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, false, nil
	}
	r, err = a.guard.store.Get(ctx, a.id)
	switch {
	case errors.Is(err, ErrNoRecord):
		return nil, true, nil
	case ctx.Err() != nil:
		return nil, false, nil // the caller canceled, which also caused the store's error
	case err != nil:
		return nil, false, storeError(a.id, driver.OpGet, err)
	}
	return r, true, nil
}
