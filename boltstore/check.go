package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"go.etcd.io/bbolt"

	"github.com/once-lambda/once/idempotent/driver"
)

// check reads the whole file. bbolt itself notices a damaged page only when a
// damaged pointer leads it astray; a record that cannot be found for one would
// be permission to run again, so every way of losing one is looked for here.
// It reports whether the bucket is there.
func (s *Store) check() (found bool, err error) {
	info, err := os.Stat(s.path)
	if err != nil {
		return false, fmt.Errorf("boltstore: %w", err)
	}
	foreign := false
	err = s.view(func(tx *bbolt.Tx) error {
		if want := tx.Size(); info.Size() < want {
			return &damagedError{what: fmt.Sprintf("it is cut off: %d of at least %d bytes are there", info.Size(), want)}
		}
		err := tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			ours := b != nil && bytes.Equal(name, bucket)
			found, foreign = found || ours, foreign || !ours
			return nil
		})
		switch {
		case err != nil || foreign:
			return err
		case found:
			if err := checkPages(tx); err != nil {
				return err
			}
			return checkRecords(tx.Bucket(bucket))
		case tx.Size() > emptyPages*int64(tx.DB().Info().PageSize):
			return &damagedError{what: "its records are gone"}
		}
		return nil
	})
	if err == nil && foreign {
		err = fmt.Errorf("boltstore: %s is the bbolt file of another program; it has not been changed. Name another path", s.path)
	}
	return found, err
}

// emptyPages is the size of a bbolt file that nothing was ever written to.
const emptyPages = 4

// checkPages counts the pages without following a pointer: each one is what it
// says and where it says, and none is both in use and free. bbolt would write
// over a page that a damaged free list offers, and count to four billion for a
// damaged length.
func checkPages(tx *bbolt.Tx) error {
	pages, pointers, roots := 0, 0, 1
	if tx.Bucket(bucket).Root() != 0 { // small ones lie inside the root's page
		roots++
	}
	end := int(tx.Size()) / tx.DB().Info().PageSize
	for id := 0; id < end; id++ {
		p, err := tx.Page(id)
		if err != nil {
			return err
		}
		switch p.Type {
		case "free":
			continue // what it holds is of no meaning
		case "branch":
			pages++
			pointers += p.Count
		case "leaf":
			pages++
		case "meta", "freelist":
		default:
			return &damagedError{what: fmt.Sprintf("page %d is of no known type", id)}
		}
		last := id + p.OverflowCount
		if last >= end {
			return &damagedError{what: fmt.Sprintf("page %d leads beyond the end", id)}
		}
		for id < last {
			id++
			if p, err := tx.Page(id); err != nil {
				return err
			} else if p.Type == "free" {
				return &damagedError{what: fmt.Sprintf("page %d is in use and free", id)}
			}
		}
	}
	// Every page of a tree but its root has one pointer to it.
	if pages != pointers+roots {
		return &damagedError{what: fmt.Sprintf("%d of %d pages are there", pages, pointers+roots)}
	}
	return nil
}

// checkRecords walks through all records, compares their checksums, looks each
// of them up, and compares their number with the one that is kept.
func checkRecords(b *bbolt.Bucket) error {
	var previous []byte
	count := uint64(0)
	c := b.Cursor()
	for key, value := c.First(); key != nil; key, value = c.Next() {
		if previous != nil && bytes.Compare(key, previous) <= 0 {
			// A page that points to the wrong one could also lead round in circles.
			return &damagedError{what: "its keys are out of order"}
		}
		if b.Get(key) == nil {
			return &damagedError{what: "a record cannot be found"}
		}
		if err := intact(driver.RecordID(key), value); err != nil {
			return err
		}
		previous = key
		count++
	}
	if want := b.Sequence(); count != want {
		return &damagedError{what: fmt.Sprintf("%d of %d records are there", count, want)}
	}
	return nil
}

// added keeps the number of records up to date, in the same transaction. It
// lies in the bucket's sequence, which is written with every commit anyway.
func added(b *bbolt.Bucket, n int) error {
	return b.SetSequence(b.Sequence() + uint64(n))
}

// damagedError says that the file does not hold what was written to it.
type damagedError struct{ path, what string }

func (e *damagedError) Error() string {
	return fmt.Sprintf("boltstore: %s is damaged (%s). Restore it from a copy, or move it away to start with an empty store; requests that ran since the copy, or ever, may then run again", e.path, e.what)
}

func isDamage(err error) bool {
	var e *damagedError
	return errors.As(err, &e)
}
