package boltstore

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/bbolt"

	"github.com/once-lambda/once/idempotent/driver"
)

// errRefused rolls back a write transaction without a write, so that it makes no
// fsync.
var errRefused = errors.New("boltstore: refused")

// Insert writes r unless there is a record that has not expired at now; it then
// returns that record. It checks the context before the transaction and while it
// waits for another writer. A transaction that has begun is finished.
func (s *Store) Insert(ctx context.Context, r driver.Record, now time.Time) (existing *driver.Record, err error) {
	// Most requests with a live record end here, without an fsync and without
	// waiting for a writer.
	existing, err = s.Get(ctx, r.ID)
	switch {
	case err == nil && live(existing, now):
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
		case err == nil && live(existing, now):
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

// live reports whether r prevents an insert at now.
func live(r *driver.Record, now time.Time) bool {
	return r.Expires.IsZero() || r.Expires.After(now)
}
