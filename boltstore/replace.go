package boltstore

import (
	"context"
	"errors"

	"go.etcd.io/bbolt"

	"github.com/once-lambda/once/idempotent/driver"
)

// Replace writes r if the record has the version was. Otherwise it writes nothing
// and returns the current record, or [idempotent.ErrNoRecord]. It checks the
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
