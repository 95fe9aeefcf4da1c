// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

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

// bucket holds all records, from record id to encoded record.
var bucket = []byte("once.records")

// A stored record is its JSON form after a header: CRC-32C of the id, which is the
// key, and of the JSON. The format version is in the JSON, so damage is not mistaken
// for a later version.

const headerSize = crc32.Size

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode returns r in its stored form.
func encode(r *driver.Record) ([]byte, error) {
	doc, err := r.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("boltstore: %w", err)
	}
	return seal(r.ID, doc), nil
}

// seal puts the header before the JSON form of a record.
func seal(id driver.RecordID, doc []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, checksum(id, doc)), doc...)
}

// intact returns an error if the stored record id is damaged.
func intact(id driver.RecordID, data []byte) error {
	switch {
	case len(data) < headerSize:
		return &damagedError{what: "a record is truncated"}
	case binary.BigEndian.Uint32(data) != checksum(id, data[headerSize:]):
		return &damagedError{what: "a record's checksum is wrong"}
	}
	return nil
}

// decode reads the stored record id. It shares no memory with data.
func decode(id driver.RecordID, data []byte) (*driver.Record, error) {
	if err := intact(id, data); err != nil {
		return nil, err
	}
	r := new(driver.Record)
	if err := r.UnmarshalJSON(data[headerSize:]); err != nil {
		return nil, err
	}
	return r, nil
}

func checksum(id driver.RecordID, doc []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(id), castagnoli), castagnoli, doc)
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
