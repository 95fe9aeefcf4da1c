package boltstore

import (
	"context"
	"time"

	"go.etcd.io/bbolt"

	"github.com/once-lambda/once/idempotent/driver"
)

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
	return err == nil && !r.Expires.IsZero() && r.Expires.Add(grace).Before(now), nil
}
