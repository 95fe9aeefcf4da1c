package boltstore

import (
	"context"
	"errors"

	"go.etcd.io/bbolt"

	"github.com/once-lambda/once/idempotent/driver"
)

// Delete removes the record id if it has the version was and is completed or
// retryable. Otherwise it removes nothing and returns the current record, or
// [idempotent.ErrNoRecord].
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
		case current.Version != was,
			current.State != driver.StateCompleted && current.State != driver.StateRetryable:
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
