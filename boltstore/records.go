// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"context"
	"errors"
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

// Get returns the record, expired or not, or [driver.ErrNoRecord]. It checks
// the context before the transaction.
func (s *Store) Get(ctx context.Context, id driver.RecordID) (r *driver.Record, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	err = s.view(func(tx *bbolt.Tx) (err error) {
		r, err = read(tx, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// read returns the record id in the view of tx.
func read(tx *bbolt.Tx, id driver.RecordID) (*driver.Record, error) {
	value := tx.Bucket(bucket).Get([]byte(id))
	if value == nil {
		return nil, driver.ErrNoRecord
	}
	return decode(id, value)
}

// Insert writes r unless there is a record that has not expired at now; it then
// returns that record. It checks the context before the transaction and while it
// waits for another writer. A transaction that has begun is finished.
func (s *Store) Insert(ctx context.Context, r driver.Record, now time.Time) (existing *driver.Record, err error) {
	// Most requests with a live record end here, without an fsync and without
	// waiting for a writer.
	existing, err = s.Get(ctx, r.ID)
	switch {
	case err == nil && !existing.Expired(now):
		return existing, nil
	case err != nil && !errors.Is(err, driver.ErrNoRecord):
		return nil, err
	}
	value, err := encode(&r)
	if err != nil {
		return nil, err
	}
	err = s.update(ctx, func(tx *bbolt.Tx) (err error) {
		// Another writer may have inserted a record since.
		existing, err = read(tx, r.ID)
		switch {
		case err == nil && !existing.Expired(now):
			return errRefused
		case err != nil && !errors.Is(err, driver.ErrNoRecord):
			return err
		}
		b := tx.Bucket(bucket)
		if existing == nil {
			if err := added(b, 1); err != nil {
				return err
			}
		}
		existing = nil
		return b.Put([]byte(r.ID), value)
	})
	if err != nil && !errors.Is(err, errRefused) {
		return nil, err
	}
	return existing, nil
}

// Replace writes r if the record has the version was. Otherwise it writes nothing
// and returns the current record, or [driver.ErrNoRecord]. It checks the
// context before the transaction and while it waits for another writer. A
// transaction that has begun is finished.
func (s *Store) Replace(ctx context.Context, r driver.Record, was driver.Version) (current *driver.Record, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	value, err := encode(&r)
	if err != nil {
		return nil, err
	}
	err = s.update(ctx, func(tx *bbolt.Tx) (err error) {
		current, err = read(tx, r.ID)
		switch {
		case err != nil:
			return err
		case current.Version != was:
			return errRefused
		}
		current = nil
		return tx.Bucket(bucket).Put([]byte(r.ID), value)
	})
	if err != nil && !errors.Is(err, errRefused) {
		return nil, err
	}
	return current, nil
}

// Delete removes the record id if it has the version was and is completed or
// retryable. Otherwise it removes nothing and returns the current record, or
// [driver.ErrNoRecord].
//
// The key of a deleted record counts as new. So use Delete only for records past
// their Expires. Delete does not check Expires: the caller does, and the version
// ensures that the deleted record is the one that the caller read. [Store.Purge]
// removes all expired records.
func (s *Store) Delete(ctx context.Context, id driver.RecordID, was driver.Version) (current *driver.Record, err error) {
	err = s.update(ctx, func(tx *bbolt.Tx) (err error) {
		current, err = read(tx, id)
		switch {
		case err != nil:
			return err
		case current.Version != was, !current.Deletable():
			return errRefused
		}
		current = nil
		b := tx.Bucket(bucket)
		return errors.Join(b.Delete([]byte(id)), added(b, -1))
	})
	if err != nil && !errors.Is(err, errRefused) {
		return nil, err
	}
	return current, nil
}

const (
	// grace is how long an expired record stays, as in the other stores: a worker
	// whose clock is slow still finds it.
	grace = time.Hour
	// purgeBatch limits how many records one transaction reads. A long transaction
	// would prevent bbolt from reusing pages, and make writers wait.
	purgeBatch = 1000
)

// Purge removes the records that expired more than an hour before now and returns
// how many. A record of a later version stays; a damaged one ends the purge with
// an error. Open calls Purge once. A long-running process should call it from time
// to time, because otherwise the file grows. Purge checks the context between
// transactions of 1,000 records.
func (s *Store) Purge(ctx context.Context, now time.Time) (int, error) {
	dropped := 0
	after := []byte(nil) // the last key read
	for {
		if err := ctx.Err(); err != nil {
			return dropped, err
		}
		var expired [][]byte
		last, err := s.scan(after, now, &expired)
		if err != nil {
			return dropped, err
		}
		if len(expired) > 0 {
			n, err := s.drop(ctx, expired, now)
			dropped += n
			if err != nil {
				return dropped, err
			}
		}
		if last == nil {
			return dropped, nil
		}
		after = last
	}
}

// scan reads the next batch of records after the key after and collects the keys
// of those to remove. It returns the last key read, or nil at the end.
func (s *Store) scan(after []byte, now time.Time, expired *[][]byte) (last []byte, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucket).Cursor()
		key, value := c.Seek(after)
		if after != nil && string(key) == string(after) {
			key, value = c.Next()
		}
		for range purgeBatch {
			if key == nil {
				last = nil
				return nil
			}
			last = append(last[:0], key...)
			old, err := outlived(key, value, now)
			if err != nil {
				return err
			}
			if old {
				*expired = append(*expired, append([]byte{}, key...))
			}
			key, value = c.Next()
		}
		return nil
	})
	return last, err
}

// drop deletes the records keys, except those that were replaced since.
func (s *Store) drop(ctx context.Context, keys [][]byte, now time.Time) (n int, err error) {
	err = s.update(ctx, func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		for _, key := range keys {
			value := b.Get(key)
			if value == nil {
				continue
			}
			old, err := outlived(key, value, now)
			if err != nil {
				return err
			}
			if !old {
				continue
			}
			if err := b.Delete(key); err != nil {
				return err
			}
			n++
		}
		return added(b, -n)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// outlived reports whether the record expired long enough ago. A record of a later
// version never counts as such, because this version does not know what it
// protects.
func outlived(key, value []byte, now time.Time) (bool, error) {
	r, err := decode(driver.RecordID(key), value)
	if isDamage(err) {
		return false, err
	}
	return err == nil && r.ExpiredBefore(now, grace), nil
}
