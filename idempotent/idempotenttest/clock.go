// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent/event"
)

// Recorder is an [event.Observer] that stores every event. It is safe for
// concurrent use; the zero Recorder is ready.
type Recorder struct {
	mu     sync.Mutex
	events []event.Event
}

// Observe stores e.
func (r *Recorder) Observe(_ context.Context, e event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// Events returns the events observed so far, in order.
func (r *Recorder) Events() []event.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Kinds returns the kinds of the events observed so far, in order.
func (r *Recorder) Kinds() []event.Kind {
	var kinds []event.Kind
	for _, e := range r.Events() {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// Count returns how many events of a kind were observed so far.
func (r *Recorder) Count(kind event.Kind) int {
	n := 0
	for _, k := range r.Kinds() {
		if k == kind {
			n++
		}
	}
	return n
}

// Clock is a clock for [idempotent.Options.Now] that stands still until a test
// advances it, so that no lease ends because the machine is slow. It starts at the
// real time of its first use, because package context ends a context at its deadline
// in real time. It is safe for concurrent use; the zero Clock is ready.
//
// A guard with a Clock that stands still waits for another request without a limit,
// see [idempotent.Operation.WaitFor]. Test code that waits in a bubble of
// [testing/synctest], without a Clock.
type Clock struct {
	mu sync.Mutex
	at time.Time // zero: not used yet
}

// Now returns the real time of the first use, plus everything the clock was
// advanced by.
func (c *Clock) Now() time.Time { return c.move(0) }

// Advance moves the clock by d. A negative d sets it back.
func (c *Clock) Advance(d time.Duration) { c.move(d) }

func (c *Clock) move(d time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		c.at = time.Now()
	}
	c.at = c.at.Add(d)
	return c.at
}

// advanceTo moves the clock forward to t. It does nothing if t has passed.
func (c *Clock) advanceTo(t time.Time) {
	c.Advance(max(0, t.Sub(c.Now())))
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
