package boltstore_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/idempotent"
)

// F34, F90: Purge removes expired records and nothing else.
func TestPurge(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "once.db")
	s := open(t, path)
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
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.Purge(t.Context(), at); n != 0 || err != nil {
		t.Errorf("the second Purge dropped %d records, %v", n, err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("a Purge with nothing to drop changed the file (%v)", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Purge(ended, at); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}

// TestPurgeManyAtOpen: Open removes more records than one transaction reads.
func TestPurgeManyAtOpen(t *testing.T) {
	t.Parallel()
	const many = 2500
	path := filepath.Join(t.TempDir(), "once.db")
	s := open(t, path)
	fill(t, s, many, func(n int) time.Time {
		if n%3 == 0 {
			return at.AddDate(-1, 0, 0)
		}
		return time.Time{}
	})
	s.Close()

	for range 2 { // the second time shows that the file is valid after the purge
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

// TestPurgeOfWholeBatches: if every record is removed, none is skipped between two
// transactions.
func TestPurgeOfWholeBatches(t *testing.T) {
	t.Parallel()
	const many = 2500
	s := open(t, filepath.Join(t.TempDir(), "once.db"))
	fill(t, s, many, func(int) time.Time { return at.AddDate(-1, 0, 0) })
	if n, err := s.Purge(t.Context(), at); n != many || err != nil {
		t.Errorf("dropped %d of %d, %v", n, many, err)
	}
}

// TestPurgeOfDamage: a damaged record may protect a request from running again. It
// ends the purge with an error, in both of its phases.
func TestPurgeOfDamage(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "once.db"))
	old := record(1, at.AddDate(-1, 0, 0))
	insert(t, s, old)
	if err := boltstore.Put(s, map[idempotent.RecordID][]byte{old.ID: []byte("damaged")}); err != nil {
		t.Fatal(err)
	}
	n, err := s.Purge(t.Context(), at)
	wantError(t, err, "is damaged")
	m, err := boltstore.Drop(s, [][]byte{[]byte(old.ID)}, at)
	wantError(t, err, "is damaged")
	if n != 0 || m != 0 {
		t.Errorf("dropped %d and %d", n, m)
	}
}

// TestPurgeEndsWithItsContext: the context also ends the wait for a writer.
func TestPurgeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, filepath.Join(t.TempDir(), "once.db"))
		insert(t, s, record(1, at.AddDate(-1, 0, 0)))
		defer boltstore.HoldWriter(s)()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if n, err := s.Purge(ctx, at); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dropped %d, %v; want the context's error", n, err)
		}
	})
}

// TestPurgeRace: a record that is replaced between the read and the delete stays.
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

// fill puts many records into s in one transaction.
func fill(t testing.TB, s *boltstore.Store, many int, expires func(n int) time.Time) {
	t.Helper()
	values := map[idempotent.RecordID][]byte{}
	for n := range many {
		r := record(n, expires(n))
		value, err := boltstore.Encode(&r)
		if err != nil {
			t.Fatal(err)
		}
		values[r.ID] = value
	}
	if err := boltstore.Put(s, values); err != nil {
		t.Fatal(err)
	}
}
