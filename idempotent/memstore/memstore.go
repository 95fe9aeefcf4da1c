// SPDX-License-Identifier: Apache-2.0

// Package memstore implements a store in memory, for tests and local runs. Its
// records are lost when the process ends.
package memstore

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// Store is a [driver.Store] in memory. The zero value is an empty store, as is
// the result of [New]. It is safe for concurrent use.
type Store struct {
	mu      sync.Mutex
	records map[driver.RecordID]*driver.Record
	sweepAt int // number of records at which Insert drops expired ones
}

var _ driver.Store = (*Store)(nil)

const (
	// grace is how long an expired record is still held, as in the other stores.
	grace = time.Hour
	// firstSweep is the number of records at which Insert first looks for expired
	// ones.
	firstSweep = 1024
)

// New returns an empty store.
func New() *Store {
	return &Store{}
}

// Insert writes r unless a record exists that has not expired at now.
func (s *Store) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.records[r.ID]; old != nil && !old.Expired(now) {
		return old.Clone(), nil
	}
	s.sweep(now)
	if s.records == nil {
		s.records = map[driver.RecordID]*driver.Record{}
	}
	mine := &r
	s.records[r.ID] = mine.Clone()
	return nil, nil
}

// Replace replaces the record if its version is was.
func (s *Store) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.records[r.ID]
	switch {
	case old == nil:
		return nil, driver.ErrNoRecord
	case old.Version != was:
		return old.Clone(), nil
	}
	mine := &r
	*old = *mine.Clone() // in place: callers only ever get clones of old
	return nil, nil
}

// Get returns the record, expired or not.
func (s *Store) Get(ctx context.Context, id driver.RecordID) (*driver.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[id]
	if r == nil {
		return nil, driver.ErrNoRecord
	}
	return r.Clone(), nil
}

// sweep drops records that expired an hour ago. It runs whenever the number of
// records has doubled since the last run, so the cost per insert stays constant.
func (s *Store) sweep(now time.Time) {
	if len(s.records) < s.sweepAt {
		return
	}
	for id, r := range s.records {
		if r.ExpiredBefore(now, grace) {
			delete(s.records, id)
		}
	}
	s.sweepAt = max(firstSweep, 2*len(s.records))
}

var _ driver.DueLister = (*Store)(nil)

// Due lists the records that wait for reconciliation and are due after a time, the
// earliest due first. The zero time lists all.
func (s *Store) Due(ctx context.Context, after time.Time) iter.Seq2[driver.Listed, error] {
	return s.list(ctx, func(r *driver.Record) bool { return r.Scheduled() && r.Due.After(after) })
}

// Exhausted lists the records that reconciliation gave up, the earliest first.
func (s *Store) Exhausted(ctx context.Context) iter.Seq2[driver.Listed, error] {
	return s.list(ctx, func(r *driver.Record) bool { return r.Exhausted })
}

// list yields the records that match now. The consumer may write meanwhile.
func (s *Store) list(ctx context.Context, match func(*driver.Record) bool) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		for _, r := range s.collect(match) {
			if err := ctx.Err(); err != nil {
				yield(driver.Listed{}, err)
				return
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (s *Store) collect(match func(*driver.Record) bool) (found []driver.Listed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.records {
		if match(r) {
			found = append(found, r.Listed())
		}
	}
	slices.SortFunc(found, func(a, b driver.Listed) int { return a.Due.Compare(b.Due) })
	return found
}
