package boltstore

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/bbolt"

	"github.com/once-lambda/once/idempotent/driver"
)

// errRefused ends a write transaction that has nothing to write, so that it
// costs no fsync.
var errRefused = errors.New("boltstore: refused")

// Insert writes r unless a record stands that has not expired at now, and
// returns that one. The context is looked at before the transaction and while
// waiting for another writer; a transaction that began is finished.
func (s *Store) Insert(ctx context.Context, r driver.Record, now time.Time) (existing *driver.Record, err error) {
	// Most requests that meet a live record meet it here, without an fsync and
	// without waiting for a writer.
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
		// Somebody may have been quicker since.
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

// live reports whether r stands in the way of an insert at now.
func live(r *driver.Record, now time.Time) bool {
	return r.Expires.IsZero() || r.Expires.After(now)
}
