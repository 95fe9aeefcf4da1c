// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/bbolt"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// HoldWriter makes every writer of s wait until release is called.
func HoldWriter(s *Store) (release func()) {
	s.write <- struct{}{}
	return func() { <-s.write }
}

// Encode and Decode encode and decode records.
func Encode(r *driver.Record) ([]byte, error) { return encode(r) }

func Decode(id idempotent.RecordID, data []byte) (*driver.Record, error) {
	return decode(id, data)
}

// Later returns a stored record of a format version that does not exist yet.
func Later(id idempotent.RecordID) []byte { return seal(id, []byte(`{"v":77}`)) }

// Bucket is the name of the bucket.
var Bucket = bucket

// Drop is the second half of Purge.
func Drop(s *Store, keys [][]byte, now time.Time) (int, error) {
	return s.drop(context.Background(), keys, now)
}

// OpenError returns Open's error for an error of bbolt.
func OpenError(path string, err error) error { return openError(path, time.Second, err) }

// SyncDir makes Open call f instead of syncing the file's directory.
func SyncDir(f func(dir string) error) func(*Options) { return func(o *Options) { o.syncDir = f } }

// Explain returns the store's error for an error of a bbolt transaction.
func Explain(s *Store, err error) error {
	return s.transaction(func(func(*bbolt.Tx) error) error { return err }, nil)
}

// Remove deletes a record without using the store's methods.
func Remove(ctx context.Context, s *Store, id idempotent.RecordID) error {
	return s.update(ctx, func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		if b.Get([]byte(id)) == nil {
			return nil
		}
		return errors.Join(b.Delete([]byte(id)), added(b, -1))
	})
}

// Put writes records without using the store's methods, even while HoldWriter is
// active.
func Put(s *Store, values map[idempotent.RecordID][]byte) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		for id, value := range values {
			if b.Get([]byte(id)) == nil {
				if err := added(b, 1); err != nil {
					return err
				}
			}
			if err := b.Put([]byte(id), value); err != nil {
				return err
			}
		}
		return nil
	})
}
