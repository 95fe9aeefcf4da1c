package boltstore

import (
	"context"

	"go.etcd.io/bbolt"

	"github.com/once-lambda/once/idempotent/driver"
)

// Get returns the record, expired or not, or [idempotent.ErrNoRecord]. It checks
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
