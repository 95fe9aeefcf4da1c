// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"bytes"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/once-lambda/once/idempotent/driver"
)

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
