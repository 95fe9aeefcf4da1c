package boltstore

import (
	"context"
	"errors"

	"go.etcd.io/bbolt"

	"github.com/once-lambda/once/idempotent/driver"
)

// Replace writes r in place of the version was; otherwise it writes nothing
// and returns the record that stands, or [idempotent.ErrNoRecord]. The context
// is looked at before the transaction and while waiting for another writer; a
// transaction that began is finished.
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
