// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"context"
	"runtime"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/tests/guard/model"
)

// caller is a request, or evidence, as the network and the observer see it. It
// is in the context of every call that is made for it.
type caller struct {
	delays func() bool       // decides for each call whether others come first; nil: never
	loses  func() bool       // decides for each write whether its reply is lost; nil: never
	watch  func(event.Event) // gets the events of the observer
	// announces makes the write of an announcement, on the goroutine of a timer. It gets
	// the record after it, and whether it was written.
	announces func(write func() (sight, bool))

	trace
	lost      int     // how many replies got lost
	overtaken []sight // of unreported writes: the reply was lost, and the second try found another owner's record
}

// trace is the result of a caller's calls.
type trace struct {
	asked bool  // whether there was one
	wrote bool  // whether the last one was a write, and done
	stood sight // of the record after it
}

// sight is what the network has seen of a record. The zero sight is of no
// record.
type sight struct {
	version driver.Version
	owner   driver.Owner
	key     model.Key // without the names
}

func sightOf(r *driver.Record) sight {
	if r == nil {
		return sight{}
	}
	return sight{r.Version, r.Owner, model.Of(r, "")}
}

type callerKey struct{}

// invocation returns the context of the caller's request, with a deadline in
// the test's time, at which the context does not end.
func (c *caller) invocation(deadline time.Time) context.Context {
	return invocation{context.WithValue(context.Background(), callerKey{}, c), deadline}
}

type invocation struct {
	context.Context
	deadline time.Time
}

func (i invocation) Deadline() (time.Time, bool) { return i.deadline, true }

// observe is the observer of all guards here.
func observe(ctx context.Context, e event.Event) { callerOf(ctx).watch(e) }

func callerOf(ctx context.Context) *caller { return ctx.Value(callerKey{}).(*caller) }

// network returns the connection to a store. The reply to a write may get lost
// there. The caller then sends the write again, as the client of a real store
// does below the guard, and gets the answer to that. No call ends with its
// context: a millisecond of the test's time is too short for a call on a busy
// machine.
func network(s driver.Store) driver.Store {
	return idempotenttest.Intercept(s, func(ctx context.Context, c *idempotenttest.StoreCall) {
		switch c.Op {
		case driver.OpInsert, driver.OpReplace:
			if by := callerOf(ctx); c.Record.Announced && by.announces != nil {
				by.announces(func() (sight, bool) {
					if c.Do(context.WithoutCancel(ctx)); c.Current != nil {
						return sightOf(c.Current), false
					}
					return sightOf(&c.Record), c.Err == nil
				})
				return
			}
			c.Current, c.Err = send(ctx, &c.Record, func() (*driver.Record, error) {
				c.Do(context.WithoutCancel(ctx))
				return c.Current, c.Err
			})
		case driver.OpGet:
			by := callerOf(ctx)
			by.waits()
			c.Do(context.WithoutCancel(ctx))
			by.hears(sightOf(c.Current), false)
		default:
			c.Do(ctx)
		}
	})
}

// send makes the write of r until its reply arrives.
func send(ctx context.Context, r *driver.Record, write func() (*driver.Record, error)) (*driver.Record, error) {
	c := callerOf(ctx)
	c.waits()
	before := false
	if c.loses != nil && c.loses() {
		c.lost++
		met, err := write() // the reply is lost
		before = met == nil && err == nil
		runtime.Gosched() // other goroutines do not wait for the second try
	}
	met, err := write()
	switch now := met == nil && err == nil; {
	case now || before && met != nil && met.Version == r.Version:
		c.hears(sightOf(r), true)
		before = before && now // two writes, with another owner's in between
	default:
		c.hears(sightOf(met), false)
	}
	if before {
		c.overtaken = append(c.overtaken, sightOf(r))
	}
	return met, err
}

// waits lets other goroutines run first, sometimes.
func (c *caller) waits() {
	if c.delays != nil && c.delays() {
		runtime.Gosched()
	}
}

func (c *caller) hears(s sight, wrote bool) {
	c.trace = trace{asked: true, wrote: wrote, stood: s}
}
