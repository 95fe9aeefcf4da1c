// SPDX-License-Identifier: Apache-2.0

package boltstore_test

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// A change of one bit is found, as is the record of another id.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	r := record(1, at)
	good, err := boltstore.Encode(&r)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		_, err := boltstore.Decode(r.ID, good[:n])
		wantError(t, err, "a record is truncated")
	}
	_, err = boltstore.Decode(record(2, at).ID, good)
	wantError(t, err, "a record's checksum is wrong")
	_, err = boltstore.Decode(r.ID, good[:4]) // a header alone
	wantError(t, err, "a record's checksum is wrong")
	for i := range good {
		flipped := bytes.Clone(good)
		flipped[i] ^= 0x20
		_, err := boltstore.Decode(r.ID, flipped)
		wantError(t, err, "a record's checksum is wrong")
	}
}

// A record that could not be read again is not written.
func TestInvalidRecord(t *testing.T) {
	t.Parallel()
	_, err := boltstore.Encode(&driver.Record{ID: "charge#1", State: 99})
	wantError(t, err, "boltstore: ", "unknown state")
}

// put writes value without using the store's methods.
func put(t testing.TB, path string, id idempotent.RecordID, value []byte) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(boltstore.Bucket).Put([]byte(id), value)
	}); err != nil {
		t.Fatal(err)
	}
}

// TestUnreadableRecord: an unreadable record does not let its handler run. It is
// neither replaced nor removed, and all other keys work.
func TestUnreadableRecord(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "once.db")
	s := open(t, path)
	expired := record(1, at.AddDate(-1, 0, 0))
	insert(t, s, expired)
	s.Close()
	put(t, path, expired.ID, boltstore.Later(expired.ID))

	s = open(t, path) // which purges
	_, err := s.Get(t.Context(), expired.ID)
	wantError(t, err, path, "format version 77")
	_, err = s.Insert(t.Context(), expired, at)
	wantError(t, err, "format version 77")
	_, err = s.Replace(t.Context(), expired, expired.Version)
	wantError(t, err, "format version 77")
	insert(t, s, record(2, time.Time{}))
}
