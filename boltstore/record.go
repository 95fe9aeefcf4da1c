// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/once-lambda/once/idempotent/driver"
)

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
