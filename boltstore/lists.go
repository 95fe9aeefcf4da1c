// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"context"
	"iter"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/once-lambda/once/idempotent/driver"
)

var _ driver.DueLister = (*Store)(nil)

// Due lists the records that wait for reconciliation and are due after a time, the
// earliest due first. The zero time lists all. Like all lists it reads the whole file in
// one transaction.
func (s *Store) Due(ctx context.Context, after time.Time) iter.Seq2[driver.Listed, error] {
	return entries(s.list(ctx, func(r *driver.Record) bool { return r.Scheduled() && r.Due.After(after) }))
}

// Exhausted lists the records that reconciliation has given up, the earliest
// first.
func (s *Store) Exhausted(ctx context.Context) iter.Seq2[driver.Listed, error] {
	return entries(s.list(ctx, func(r *driver.Record) bool { return r.Exhausted }))
}

// entries yields the entries of listed records.
func entries(list iter.Seq2[driver.Record, error]) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		list(func(r driver.Record, err error) bool { return yield(r.Listed(), err) })
	}
}

// All lists every record, including expired ones, in the order of their creation.
func (s *Store) All(ctx context.Context) iter.Seq2[driver.Record, error] {
	return s.list(ctx, func(*driver.Record) bool { return true })
}

// found is a record in a list, or the id of an unreadable record and the error.
type found struct {
	record driver.Record
	err    error
}

// list yields the matching records of one snapshot of the file. The consumer may
// write during the iteration.
func (s *Store) list(ctx context.Context, match func(*driver.Record) bool) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		all, err := s.collect(ctx, match)
		if err != nil {
			yield(driver.Record{}, err)
			return
		}
		for i := range all {
			if err := ctx.Err(); err != nil {
				yield(driver.Record{}, err)
				return
			}
			if !yield(all[i].record, all[i].err) {
				return
			}
		}
	}
}

func (s *Store) collect(ctx context.Context, match func(*driver.Record) bool) (all []found, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucket).ForEach(func(key, value []byte) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			id := driver.RecordID(key)
			r, err := decode(id, value)
			switch {
			case err != nil:
				all = append(all, found{driver.Record{ID: id}, err})
			case match(r):
				all = append(all, found{record: *r})
			}
			return nil
		})
	})
	slices.SortStableFunc(all, func(a, b found) int {
		if c := a.record.Due.Compare(b.record.Due); c != 0 {
			return c
		}
		return a.record.Created.Compare(b.record.Created)
	})
	return all, err
}
