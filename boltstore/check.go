package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"go.etcd.io/bbolt"

	"github.com/once-lambda/once/idempotent/driver"
)

// check reads the whole file and reports whether the bucket exists. bbolt notices
// a damaged page only if it follows a damaged pointer. A record that is lost by
// damage would let its handler run again, so check looks for every way in which a
// record can be lost.
func (s *Store) check() (found bool, err error) {
	info, err := os.Stat(s.path)
	if err != nil {
		return false, fmt.Errorf("boltstore: %w", err)
	}
	foreign := false
	err = s.view(func(tx *bbolt.Tx) error {
		if want := tx.Size(); info.Size() < want {
			return &damagedError{what: fmt.Sprintf("the file is truncated: %d of at least %d bytes exist", info.Size(), want)}
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
			return &damagedError{what: "its records are missing"}
		}
		return nil
	})
	if err == nil && foreign {
		err = fmt.Errorf("boltstore: %s is the bbolt file of another program: it was not changed; choose another path", s.path)
	}
	return found, err
}

// emptyPages is the size of a bbolt file without any commit.
const emptyPages = 4

// checkPages reads all pages without following pointers. It checks that each page
// has its own number and a known type, and that no page is both in use and free.
// bbolt would overwrite a page that a damaged free list contains, and count to
// four billion for a damaged length.
func checkPages(tx *bbolt.Tx) error {
	pages, pointers, roots := 0, 0, 1
	if tx.Bucket(bucket).Root() != 0 { // small buckets are stored in the root's page
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
			continue // its content has no meaning
		case "branch":
			pages++
			pointers += p.Count
		case "leaf":
			pages++
		case "meta", "freelist":
		default:
			return &damagedError{what: fmt.Sprintf("page %d has an unknown type", id)}
		}
		last := id + p.OverflowCount
		if last >= end {
			return &damagedError{what: fmt.Sprintf("page %d points beyond the end", id)}
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
		return &damagedError{what: fmt.Sprintf("%d of %d pages exist", pages, pointers+roots)}
	}
	return nil
}

// checkRecords reads all records, compares their checksums, looks each one up, and
// compares their number with the stored number.
func checkRecords(b *bbolt.Bucket) error {
	var previous []byte
	count := uint64(0)
	c := b.Cursor()
	for key, value := c.First(); key != nil; key, value = c.Next() {
		if previous != nil && bytes.Compare(key, previous) <= 0 {
			// A page that points to the wrong page could also cause an endless
			// loop.
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
		return &damagedError{what: fmt.Sprintf("%d of %d records exist", count, want)}
	}
	return nil
}

// added updates the number of records in the same transaction. The number is
// stored as the bucket's sequence, which is written with every commit anyway.
func added(b *bbolt.Bucket, n int) error {
	return b.SetSequence(b.Sequence() + uint64(n))
}

// damagedError reports that the content of the file differs from what was written.
type damagedError struct{ path, what string }

func (e *damagedError) Error() string {
	return fmt.Sprintf("boltstore: %s is damaged (%s): restore it from a copy, or move it away to start with an empty store; requests that ran since the copy, or all requests, may then run again", e.path, e.what)
}

func isDamage(err error) bool {
	var e *damagedError
	return errors.As(err, &e)
}
