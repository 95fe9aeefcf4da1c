package boltstore_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/idempotent"
)

func TestPurge(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "once.db"))
	expires := []struct {
		at   time.Time
		gone bool
	}{
		{time.Time{}, false}, // never
		{at.Add(time.Hour), false},
		{at, false},
		{at.Add(-time.Hour), false},
		{at.Add(-time.Hour - time.Millisecond), true},
		{at.AddDate(-1, 0, 0), true},
	}
	for n, e := range expires {
		insert(t, s, record(n, e.at))
	}
	if n, err := s.Purge(t.Context(), at); n != 2 || err != nil {
		t.Errorf("Purge dropped %d records, %v; want 2", n, err)
	}
	for n, e := range expires {
		_, err := s.Get(t.Context(), record(n, e.at).ID)
		if gone := errors.Is(err, idempotent.ErrNoRecord); gone != e.gone {
			t.Errorf("the record that expires at %s: gone is %t (%v)", e.at, gone, err)
		}
	}
	if n, err := s.Purge(t.Context(), at); n != 0 || err != nil {
		t.Errorf("the second Purge dropped %d records, %v", n, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Purge(ended, at); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}

// TestPurgeManyAtOpen: more records than one transaction looks at, and Open
// drops them.
func TestPurgeManyAtOpen(t *testing.T) {
	t.Parallel()
	const many = 2500
	path := filepath.Join(t.TempDir(), "once.db")
	open(t, path).Close()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(boltstore.Bucket)
		for n := range many {
			r := record(n, time.Time{})
			if n%3 == 0 {
				r.Expires = at.AddDate(-1, 0, 0)
			}
			value, err := boltstore.Encode(&r)
			if err != nil {
				return err
			}
			if err := b.Put([]byte(r.ID), value); err != nil {
				return err
			}
		}
		return b.SetSequence(many)
	}); err != nil {
		t.Fatal(err)
	}
	db.Close()

	for range 2 { // the second time shows that the file is whole after the purge
		s := open(t, path)
		left := 0
		for n := range many {
			_, err := s.Get(t.Context(), record(n, at).ID)
			if gone := errors.Is(err, idempotent.ErrNoRecord); gone != (n%3 == 0) {
				t.Fatalf("record %d: gone is %t (%v)", n, gone, err)
			} else if !gone {
				left++
			}
		}
		if want := many - (many+2)/3; left != want {
			t.Errorf("%d records are left, want %d", left, want)
		}
		s.Close()
	}
}

// TestPurgeRace: a record that is replaced between the look and the delete
// stays.
func TestPurgeRace(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "once.db"))
	old := record(1, at.AddDate(-1, 0, 0))
	insert(t, s, old)
	keys := [][]byte{[]byte(old.ID), []byte("charge#gone")}
	insert(t, s, record(1, time.Time{}))
	if n, err := boltstore.Drop(s, keys, at); n != 0 || err != nil {
		t.Errorf("dropped %d, %v", n, err)
	}
	if _, err := s.Get(t.Context(), old.ID); err != nil {
		t.Error(err)
	}
}
