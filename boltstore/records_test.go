// SPDX-License-Identifier: Apache-2.0

package boltstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// TestInsertRace: an insert returns the record that another writer inserted
// between its read and its write.
func TestInsertRace(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	const racers = 32
	r := record(1, time.Time{})
	won := make(chan byte, racers)
	var wg sync.WaitGroup
	release := boltstore.HoldWriter(s) // all of them read, and find no record
	for n := range byte(racers) {
		wg.Go(func() {
			mine := r
			mine.Version = version(n)
			met, err := s.Insert(t.Context(), mine, at)
			if err != nil {
				t.Error(err)
			} else if met == nil {
				won <- n
			}
		})
	}
	release()
	wg.Wait()
	close(won)
	if len(won) != 1 {
		t.Fatalf("%d inserts won, want 1", len(won))
	}
	if got, err := s.Get(t.Context(), r.ID); err != nil || got.Version != version(<-won) {
		t.Errorf("the current record is not the winner's: %v, %v", got, err)
	}
}

// TestInsertMeetsWhatCameMeanwhile: while an insert waits, another writer inserts
// a record, readable or not. The insert replaces neither.
func TestInsertMeetsWhatCameMeanwhile(t *testing.T) {
	t.Parallel()
	theirs := record(1, time.Time{})
	theirs.Ref = "orders/theirs"
	readable, err := boltstore.Encode(&theirs)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string][]byte{"readable": readable, "unreadable": boltstore.Later(theirs.ID)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, _ := newStore(t)
				release := boltstore.HoldWriter(s)
				var met *driver.Record
				var err error
				go func() { met, err = s.Insert(t.Context(), record(1, time.Time{}), at) }()
				synctest.Wait() // it has found no record, and waits
				if err := boltstore.Put(s, map[idempotent.RecordID][]byte{theirs.ID: value}); err != nil {
					t.Fatal(err)
				}
				release()
				synctest.Wait()
				if name == "readable" {
					if err != nil || met == nil || met.Ref != theirs.Ref {
						t.Errorf("got %+v, %v; want the other writer's record", met, err)
					}
					return
				}
				wantError(t, err, "format version 77")
				if _, err := s.Get(t.Context(), theirs.ID); err == nil {
					t.Error("it was replaced")
				}
			})
		})
	}
}

// TestRefusalNeedsNoTurn: an insert finds a live record without waiting for a
// writer, and also an unreadable record.
func TestRefusalNeedsNoTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStore(t)
		live, unreadable := record(1, time.Time{}), record(2, time.Time{})
		insert(t, s, live)
		if err := boltstore.Put(s, map[idempotent.RecordID][]byte{unreadable.ID: boltstore.Later(unreadable.ID)}); err != nil {
			t.Fatal(err)
		}
		defer boltstore.HoldWriter(s)()
		for _, r := range []driver.Record{live, unreadable} {
			var met *driver.Record
			var err error
			answered := false
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				met, err = s.Insert(ctx, r, at)
				answered = true
			}()
			synctest.Wait()
			if !answered || (met != nil) != (r.ID == live.ID) || (err != nil) != (r.ID == unreadable.ID) {
				t.Errorf("answered %v: %+v, %v", answered, met, err)
			}
			cancel()
			synctest.Wait()
		}
	})
}

// TestReplacedByInsertIsOneRecord: an insert that replaces an expired record does
// not change the number of records, by which a lost record is detected.
func TestReplacedByInsertIsOneRecord(t *testing.T) {
	t.Parallel()
	s, path := newStore(t)
	insert(t, s, record(1, at))
	insert(t, s, record(1, time.Time{}))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, path)
}

// Delete removes only completed and retryable records, and only in the given
// version; the file stays valid.
func TestDelete(t *testing.T) {
	t.Parallel()
	s, path := newStore(t)
	left := 0
	for n, row := range []struct {
		state driver.State
		goes  bool
	}{
		{driver.StateInProgress, false},
		{driver.StateCompleted, true},
		{driver.StateRetryable, true},
		{driver.StateUnknown, false},
	} {
		r := record(n, time.Time{})
		r.State = row.state
		insert(t, s, r)
		if current, err := s.Delete(t.Context(), r.ID, version(99)); err != nil || current == nil || current.Version != r.Version {
			t.Errorf("%s, another version: got %v, %v", row.state, current, err)
		}
		current, err := s.Delete(t.Context(), r.ID, r.Version)
		if err != nil || (current == nil) != row.goes {
			t.Errorf("%s: got %v, %v; gone should be %t", row.state, current, err, row.goes)
		}
		_, err = s.Get(t.Context(), r.ID)
		if gone := errors.Is(err, idempotent.ErrNoRecord); gone != row.goes {
			t.Errorf("%s: gone is %t (%v)", row.state, gone, err)
		}
		if !row.goes {
			left++
		}
	}
	if current, err := s.Delete(t.Context(), record(9, at).ID, version(9)); current != nil || !errors.Is(err, idempotent.ErrNoRecord) {
		t.Errorf("no record: got %v, %v, want ErrNoRecord", current, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, err := range open(t, path).All(t.Context()) { // opening compared the number of records
		if err != nil {
			t.Error(err)
		}
		found++
	}
	if found != left || left != 2 {
		t.Errorf("%d records are left, want %d", found, left)
	}
}

// With KeepExpired a tool that only reads changes nothing.
func TestKeepExpired(t *testing.T) {
	t.Parallel()
	s, path := newStore(t)
	old := record(1, at.AddDate(-1, 0, 0))
	insert(t, s, old)
	for _, keep := range []bool{true, false} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, path, func(o *boltstore.Options) { o.KeepExpired = keep })
		if _, err := s.Get(t.Context(), old.ID); errors.Is(err, idempotent.ErrNoRecord) == keep {
			t.Errorf("KeepExpired %t: %v", keep, err)
		}
	}
}

// F34, F90: Purge removes expired records and nothing else.
func TestPurge(t *testing.T) {
	t.Parallel()
	s, path := newStore(t)
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

// TestPurgeMany: Open removes more records than one transaction reads, and if all are
// removed, none is skipped between two transactions.
func TestPurgeMany(t *testing.T) {
	t.Parallel()
	const many = 2500
	for _, every := range []int{1, 3} {
		s, path := newStore(t)
		fill(t, s, many, func(n int) time.Time {
			if n%every == 0 {
				return at.AddDate(-1, 0, 0)
			}
			return time.Time{}
		})
		for range 2 { // the second time shows that the file is valid after the purge
			s.Close()
			s = open(t, path)
			for n := range many {
				_, err := s.Get(t.Context(), record(n, at).ID)
				if gone := errors.Is(err, idempotent.ErrNoRecord); gone != (n%every == 0) {
					t.Fatalf("record %d: gone is %t (%v)", n, gone, err)
				}
			}
		}
	}
}

// TestPurgeOfDamage: a damaged record may protect a request from running again. It
// ends the purge with an error, in both of its phases.
func TestPurgeOfDamage(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
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
		s, _ := newStore(t)
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
	s, _ := newStore(t)
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

// order returns the numbers of the records in a list, in its order.
func order(t *testing.T, list iter.Seq2[driver.Listed, error], s *boltstore.Store) (refs string) {
	t.Helper()
	for e, err := range list {
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Get(t.Context(), e.ID)
		if err != nil {
			t.Fatal(err)
		}
		refs += r.Ref
	}
	return refs
}

// Lists are in the order of due times, and of creation times if those are equal.
func TestListOrder(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	for n, due := range []int{3, 1, 2, 1, 0} { // minutes; 0: never
		for i, exhausted := range []bool{false, true} {
			r := record(2*n+i, time.Time{})
			r.State, r.Encoding, r.Result = driver.StateUnknown, "", nil
			r.Ref, r.Exhausted = fmt.Sprint(n), exhausted
			r.Created = at.Add(-time.Duration(n) * time.Second)
			if due > 0 {
				r.Due = at.Add(time.Duration(due) * time.Minute)
			}
			insert(t, s, r)
		}
	}
	for want, list := range map[string]iter.Seq2[driver.Listed, error]{"3120": s.Due(t.Context(), time.Time{}), "43120": s.Exhausted(t.Context())} {
		if got := order(t, list, s); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// A list yields an error if its context ends during the iteration.
func TestListEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	for n := range 3 {
		insert(t, s, record(n, time.Time{}))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read, failed := 0, 0
	for r, err := range s.All(ctx) {
		if err != nil {
			if failed++; r.ID != "" || !errors.Is(err, context.Canceled) {
				t.Errorf("%q, %v", r.ID, err)
			}
			continue
		}
		read++
		cancel()
	}
	if read != 1 || failed != 1 {
		t.Errorf("%d records and %d errors", read, failed)
	}
}

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
	s, _ := newStore(t)
	for want, r := range map[string]driver.Record{"unknown state": {ID: "charge#1", State: 99}, "id": {State: driver.StateInProgress}} {
		_, err := s.Insert(t.Context(), r, at)
		wantError(t, err, "boltstore: ", want)
	}
}

// TestUnreadableRecord: an unreadable record does not let its handler run. It is
// neither replaced nor removed, and all other keys work.
func TestUnreadableRecord(t *testing.T) {
	t.Parallel()
	s, path := newStore(t)
	expired := record(1, at.AddDate(-1, 0, 0))
	if err := boltstore.Put(s, map[idempotent.RecordID][]byte{expired.ID: boltstore.Later(expired.ID)}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = open(t, path) // which purges
	_, err := s.Get(t.Context(), expired.ID)
	wantError(t, err, path, "format version 77")
	_, err = s.Insert(t.Context(), expired, at)
	wantError(t, err, "format version 77")
	_, err = s.Replace(t.Context(), expired, expired.Version)
	wantError(t, err, "format version 77")
	insert(t, s, record(2, time.Time{}))
}
