// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"context"
	"runtime"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/tests/guard/model"
)

// trace is the result of a member's calls.
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

type memberKey struct{}

// memberOf returns who makes a call with this context.
func memberOf(ctx context.Context) *member { return ctx.Value(memberKey{}).(*member) }

// invocation returns the context of a request, with a deadline in the test's time, at
// which the context does not end.
func (m *member) invocation(deadline time.Time) context.Context {
	return invocation{context.WithValue(context.Background(), memberKey{}, m), deadline}
}

type invocation struct {
	context.Context
	deadline time.Time
}

func (i invocation) Deadline() (time.Time, bool) { return i.deadline, true }

// network returns the connection to a store. The reply to a write may get lost
// there. The caller then sends the write again, as the client of a real store
// does below the guard, and gets the answer to that. No call ends with its
// context: a millisecond of the test's time is too short for a call on a busy
// machine.
func network(s driver.Store) driver.Store {
	return idempotenttest.Intercept(s, func(ctx context.Context, c *idempotenttest.StoreCall) {
		switch c.Op {
		case driver.OpInsert, driver.OpReplace:
			if c.Record.Announced {
				memberOf(ctx).announce(func() (sight, bool) {
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
			m := memberOf(ctx)
			yield(m.r)
			c.Do(context.WithoutCancel(ctx))
			m.hears(sightOf(c.Current), false)
		default:
			c.Do(ctx)
		}
	})
}

// send makes the write of r until its reply arrives.
func send(ctx context.Context, r *driver.Record, write func() (*driver.Record, error)) (*driver.Record, error) {
	m := memberOf(ctx)
	yield(m.r)
	before := false
	if m.r.IntN(16) == 0 {
		m.lost++
		met, err := write() // the reply is lost
		before = met == nil && err == nil
		runtime.Gosched() // other goroutines do not wait for the second try
	}
	met, err := write()
	switch now := met == nil && err == nil; {
	case now || before && met != nil && met.Version == r.Version:
		m.hears(sightOf(r), true)
		before = before && now // two writes, with another owner's in between
	default:
		m.hears(sightOf(met), false)
	}
	if before {
		m.overtaken = append(m.overtaken, sightOf(r))
	}
	return met, err
}

func (m *member) hears(s sight, wrote bool) {
	m.trace = trace{asked: true, wrote: wrote, stood: s}
}
