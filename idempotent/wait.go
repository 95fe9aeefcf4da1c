// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/timing"
)

// maxWaiting is how many requests of one guard wait for one key at the same time.
// Each poll costs a read, and each waiting request occupies a client's connection.
const maxWaiting = 100

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
	leave func() // lets another request wait in place of this one; nil: waiting has not begun
}

// await pauses and then reads the record of the running request again, of which
// existing was read before. It returns false if the request must not wait longer:
// WaitFor has passed, the time of ctx, which is that of a handler, has ended, or enough
// other requests wait for the key.
func (a *attempt) await(ctx context.Context, w *waiter, existing *driver.Record, now time.Time) (r *driver.Record, again bool, err error) {
	if a.opts.WaitFor == 0 {
		return nil, false, nil
	}
	if w.until.IsZero() {
		if w.leave = a.guard.join(a.id); w.leave == nil {
			return nil, false, nil
		}
		w.until, w.pause = now.Add(a.opts.WaitFor), waitFirst
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
	case ctx.Err() != nil && !timing.TimeUp(ctx):
		return nil, false, nil // the caller canceled, which also caused the store's error
	case err != nil:
		err = storeError(a.id, driver.OpGet, err)
		a.observe(ctx, event.StoreError, existing, err)
		return nil, false, err
	}
	return r, true, nil
}

// join lets a request wait for the key of id until it calls leave. It returns nil
// if enough requests wait for it.
func (g *Guard) join(id RecordID) (leave func()) {
	w := &g.waiting
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count[id] == maxWaiting {
		return nil
	}
	if w.count == nil {
		w.count = map[RecordID]int{}
	}
	w.count[id]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.count[id]--; w.count[id] == 0 {
			delete(w.count, id)
		}
	}
}
