package boltstore

import (
	"context"
	"errors"

	"go.etcd.io/bbolt"

	"github.com/once-lambda/once/idempotent/driver"
)

// Delete removes the record id if its Version is was and it is completed or
// retryable; otherwise it removes nothing and returns the record that stands, or
// [idempotent.ErrNoRecord].
//
// The key of a deleted record counts as new. So Delete is for records past
// their Expires alone: it is the caller who looks, and the version ties the
// deletion to what was seen. [Store.Purge] drops all of those at once.
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
