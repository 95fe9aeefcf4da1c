package idempotenttest

import (
	"context"
	"sync/atomic"
	"time"
)

// Clock is a clock for [idempotent.Options.Now] that runs with the real one
// until it is advanced. It starts at the real time because the deadline of a
// context is told in that. It is safe for concurrent use; the zero Clock is
// ready.
type Clock struct{ ahead atomic.Int64 }

// Now returns the real time plus everything the clock was advanced by.
func (c *Clock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// Advance moves the clock by d, which may be negative: a clock that was set.
func (c *Clock) Advance(d time.Duration) { c.ahead.Add(int64(d)) }

// AdvanceTo moves the clock forward to t. It does nothing if t has passed.
func (c *Clock) AdvanceTo(t time.Time) {
	if d := t.Sub(c.Now()); d > 0 {
		c.Advance(d)
	}
}

// Invocation returns a context whose deadline is d from now by this clock, as
// the platform gives it to a handler. It never ends by itself, whatever the
// clock says: a handler that is cut off is the platform's doing, not the
// deadline's.
func (c *Clock) Invocation(ctx context.Context, d time.Duration) context.Context {
	return invocation{ctx, c.Now().Add(d)}
}

type invocation struct {
	context.Context
	deadline time.Time
}

func (i invocation) Deadline() (time.Time, bool) { return i.deadline, true }
