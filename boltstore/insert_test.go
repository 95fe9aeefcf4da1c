package boltstore_test

import (
	"context"
	"path/filepath"
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
	s := open(t, filepath.Join(t.TempDir(), "once.db"))
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
	for name, value := range map[string][]byte{"readable": readable, "unreadable": boltstore.SealVersion(theirs.ID, 77, "{}")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := open(t, filepath.Join(t.TempDir(), "once.db"))
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
		s := open(t, filepath.Join(t.TempDir(), "once.db"))
		live, unreadable := record(1, time.Time{}), record(2, time.Time{})
		insert(t, s, live)
		if err := boltstore.Put(s, map[idempotent.RecordID][]byte{unreadable.ID: boltstore.SealVersion(unreadable.ID, 77, "{}")}); err != nil {
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
	path := filepath.Join(t.TempDir(), "once.db")
	s := open(t, path)
	insert(t, s, record(1, at))
	insert(t, s, record(1, time.Time{}))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, path)
}
