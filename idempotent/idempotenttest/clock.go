// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"context"
	"sync/atomic"
	"time"
)

// Clock is a clock for [idempotent.Options.Now]. It runs with the real clock,
// plus what it was advanced by: context deadlines are compared with real time,
// so it starts there. It is safe for concurrent use; the zero Clock is ready.
type Clock struct {
	ahead atomic.Int64
	still time.Time // the suites' clocks stand still here, because a slow machine must not end a lease
}

// Now returns the real time plus everything the clock was advanced by.
func (c *Clock) Now() time.Time {
	at := c.still
	if at.IsZero() {
		at = time.Now()
	}
	return at.Add(time.Duration(c.ahead.Load()))
}

// Advance moves the clock by d. A negative d sets it back.
func (c *Clock) Advance(d time.Duration) { c.ahead.Add(int64(d)) }

// advanceTo moves the clock forward to t. It does nothing if t has passed.
func (c *Clock) advanceTo(t time.Time) {
	if d := t.Sub(c.Now()); d > 0 {
		c.Advance(d)
	}
}

// Invocation returns a context with a deadline d from now by this clock, as
// Lambda passes it to a handler. The context is not cancelled at its deadline:
// in Lambda, the platform ends the process instead.
func (c *Clock) Invocation(ctx context.Context, d time.Duration) context.Context {
	return invocation{ctx, c.Now().Add(d)}
}

type invocation struct {
	context.Context
	deadline time.Time
}

func (i invocation) Deadline() (time.Time, bool) { return i.deadline, true }
