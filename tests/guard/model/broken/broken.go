// SPDX-License-Identifier: Apache-2.0

// Package broken has stores that break one point of their contract each. The
// tests of the models and of the explorer have to find every one of them: a
// check that accepts these would prove nothing about other stores.
package broken

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

type call = idempotenttest.StoreCall

// on replaces one method of a store.
func on(op driver.Op, s driver.Store, f func(context.Context, *call)) driver.Store {
	return idempotenttest.Intercept(s, func(ctx context.Context, c *call) {
		if c.Op == op {
			f(ctx, c)
		} else {
			c.Do(ctx)
		}
	})
}

// overwrite writes over the current record.
func overwrite(ctx context.Context, s driver.Store, c *call) {
	for c.Current = nil; ; {
		stands, err := s.Get(ctx, c.Record.ID)
		if c.Err = err; err != nil {
			return
		}
		if met, err := s.Replace(ctx, c.Record, stands.Version); met == nil || err != nil {
			c.Err = err
			return
		}
	}
}

// Blind replaces the current record without checking its version.
func Blind(s driver.Store) driver.Store {
	return on(driver.OpReplace, s, func(ctx context.Context, c *call) { overwrite(ctx, s, c) })
}

// Overwriting inserts over a record that has not expired.
func Overwriting(s driver.Store) driver.Store {
	return on(driver.OpInsert, s, func(ctx context.Context, c *call) {
		if c.Do(ctx); c.Current != nil {
			overwrite(ctx, s, c)
		}
	})
}

// Hasty treats a record as expired as soon as its lease has ended.
func Hasty(s driver.Store) driver.Store {
	return on(driver.OpInsert, s, func(ctx context.Context, c *call) {
		if c.Do(ctx); c.Current != nil && !c.Now.Before(c.Current.LeaseEnd) {
			overwrite(ctx, s, c)
		}
	})
}

// Upserting creates the record that Replace did not find.
func Upserting(s driver.Store) driver.Store {
	return on(driver.OpReplace, s, func(ctx context.Context, c *call) {
		if c.Do(ctx); errors.Is(c.Err, idempotent.ErrNoRecord) {
			c.Current, c.Err = s.Insert(ctx, c.Record, time.Time{})
		}
	})
}

// Familiar treats every record with the writer's owner token as the writer's
// own write, and returns it with the writer's version.
func Familiar(s driver.Store) driver.Store {
	return idempotenttest.Intercept(s, func(ctx context.Context, c *call) {
		if c.Do(ctx); c.Op != driver.OpGet && c.Current != nil && c.Current.Owner == c.Record.Owner {
			c.Current.Version = c.Record.Version
		}
	})
}

// Forgetful acknowledges the outcome of a handler and does not store it.
func Forgetful(s driver.Store) driver.Store {
	return on(driver.OpReplace, s, func(ctx context.Context, c *call) {
		stands, err := s.Get(ctx, c.Record.ID)
		if dropped := err == nil && c.Record.State == driver.StateCompleted && stands.Version == c.Was; !dropped {
			c.Do(ctx)
		}
	})
}

// Racy decides about an insert by an earlier read.
func Racy(s driver.Store) driver.Store {
	return on(driver.OpInsert, s, func(ctx context.Context, c *call) {
		stands, err := s.Get(ctx, c.Record.ID)
		runtime.Gosched()
		switch {
		case errors.Is(err, idempotent.ErrNoRecord):
			c.Current, c.Err = Overwriting(s).Insert(ctx, c.Record, c.Now)
		case err != nil:
			c.Err = err
		case stands.Expires.IsZero() || stands.Expires.After(c.Now):
			c.Current = stands
		default:
			c.Do(ctx)
		}
	})
}

// Stale returns the state before the last write.
func Stale(s driver.Store) driver.Store {
	var mu sync.Mutex
	before := map[idempotent.RecordID]*driver.Record{}
	return idempotenttest.Intercept(s, func(ctx context.Context, c *call) {
		old, _ := s.Get(ctx, c.Record.ID)
		c.Do(ctx)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case c.Op == driver.OpReplace && c.Current == nil && c.Err == nil:
			before[c.Record.ID] = old
		case c.Op == driver.OpGet && before[c.Record.ID] != nil:
			c.Current, c.Err = before[c.Record.ID].Clone(), nil
		}
	})
}
