// SPDX-License-Identifier: Apache-2.0

package memstore

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

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
