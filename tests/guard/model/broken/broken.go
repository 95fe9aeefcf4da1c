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
)

// Blind replaces the current record without checking its version.
type Blind struct{ driver.Store }

// Replace writes r over any record.
func (s Blind) Replace(ctx context.Context, r driver.Record, _ driver.Version) (*driver.Record, error) {
	return replace(ctx, s.Store, r)
}

// replace writes r over the current record.
func replace(ctx context.Context, s driver.Store, r driver.Record) (*driver.Record, error) {
	for {
		stands, err := s.Get(ctx, r.ID)
		if err != nil {
			return nil, err
		}
		if met, err := s.Replace(ctx, r, stands.Version); met == nil || err != nil {
			return nil, err
		}
	}
}

// Overwriting inserts over a record that has not expired.
type Overwriting struct{ driver.Store }

// Insert writes r over any record.
func (s Overwriting) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	met, err := s.Store.Insert(ctx, r, now)
	if met == nil || err != nil {
		return nil, err
	}
	return replace(ctx, s.Store, r)
}

// Hasty treats a record as expired as soon as its lease has ended.
type Hasty struct{ driver.Store }

// Insert writes r over a record whose lease has ended.
func (s Hasty) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	met, err := s.Store.Insert(ctx, r, now)
	if met == nil || err != nil || now.Before(met.LeaseEnd) {
		return met, err
	}
	return replace(ctx, s.Store, r)
}

// Upserting creates the record that Replace did not find.
type Upserting struct{ driver.Store }

// Replace writes r even if there is no record.
func (s Upserting) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	met, err := s.Store.Replace(ctx, r, was)
	if errors.Is(err, idempotent.ErrNoRecord) {
		return s.Insert(ctx, r, time.Time{})
	}
	return met, err
}

// Familiar treats every record with the writer's owner token as the writer's
// own write, and returns it with the writer's version.
type Familiar struct{ driver.Store }

// Insert returns a record with the caller's token as the caller's own write.
func (s Familiar) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	return familiar(r)(s.Store.Insert(ctx, r, now))
}

// Replace returns a record with the caller's token as the caller's own write.
func (s Familiar) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	return familiar(r)(s.Store.Replace(ctx, r, was))
}

func familiar(r driver.Record) func(*driver.Record, error) (*driver.Record, error) {
	return func(met *driver.Record, err error) (*driver.Record, error) {
		if met != nil && met.Owner == r.Owner {
			met.Version = r.Version
		}
		return met, err
	}
}

// Forgetful acknowledges the outcome of a handler and does not store it.
type Forgetful struct{ driver.Store }

// Replace drops completed records.
func (s Forgetful) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	stands, err := s.Get(ctx, r.ID)
	if err == nil && r.State == driver.StateCompleted && stands.Version == was {
		return nil, nil
	}
	return s.Store.Replace(ctx, r, was)
}

// Racy decides about an insert by an earlier read.
type Racy struct{ driver.Store }

// Insert reads whether there is a record, and then writes.
func (s Racy) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	stands, err := s.Get(ctx, r.ID)
	runtime.Gosched()
	switch {
	case errors.Is(err, idempotent.ErrNoRecord):
		return Overwriting(s).Insert(ctx, r, now)
	case err != nil:
		return nil, err
	case stands.Expires.IsZero() || stands.Expires.After(now):
		return stands, nil
	}
	return s.Store.Insert(ctx, r, now)
}

// Stale returns the state before the last write.
type Stale struct {
	driver.Store
	mu     sync.Mutex
	before map[idempotent.RecordID]*driver.Record
}

// Replace remembers what it replaced.
func (s *Stale) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	old, _ := s.Store.Get(ctx, r.ID)
	met, err := s.Store.Replace(ctx, r, was)
	if met == nil && err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.before == nil {
			s.before = map[idempotent.RecordID]*driver.Record{}
		}
		s.before[r.ID] = old
	}
	return met, err
}

// Get returns the record before the last one.
func (s *Stale) Get(ctx context.Context, id idempotent.RecordID) (*driver.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.before[id]; old != nil {
		return old.Clone(), nil
	}
	return s.Store.Get(ctx, id)
}
