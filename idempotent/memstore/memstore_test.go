// SPDX-License-Identifier: Apache-2.0

package memstore_test

import (
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
)

var fixture = idempotenttest.Fixture{
	Open: func(testing.TB) driver.Store { return memstore.New() },
}

func TestStore(t *testing.T) { idempotenttest.RunStore(t, fixture) }

// The zero value is an empty store.
func TestZeroStore(t *testing.T) {
	t.Parallel()
	var s memstore.Store
	r := driver.Record{ID: idempotent.Key{Operation: "zero", Scope: "tenant", ID: "1"}.RecordID()}
	if _, err := s.Get(t.Context(), r.ID); !errors.Is(err, idempotent.ErrNoRecord) {
		t.Errorf("Get: %v", err)
	}
	if _, err := s.Replace(t.Context(), r, r.Version); !errors.Is(err, idempotent.ErrNoRecord) {
		t.Errorf("Replace: %v", err)
	}
	for range s.Due(t.Context(), time.Time{}) {
		t.Error("something is due")
	}
	if met, err := s.Insert(t.Context(), r, time.Now()); met != nil || err != nil {
		t.Fatal(met, err)
	}
	if _, err := s.Get(t.Context(), r.ID); err != nil {
		t.Error(err)
	}
}

func TestExpiredRecordsAreDropped(t *testing.T) {
	t.Parallel()
	s, now := memstore.New(), time.Now()
	insert := func(n int, expires time.Time) (ids []idempotent.RecordID) {
		for range n {
			id := idempotent.Key{Operation: "sweep", Scope: "tenant", ID: rand.Text()}.RecordID()
			if met, err := s.Insert(t.Context(), driver.Record{ID: id, Expires: expires}, now); met != nil || err != nil {
				t.Fatal(met, err)
			}
			ids = append(ids, id)
		}
		return ids
	}
	old := insert(1000, now.Add(-2*time.Hour))
	graced := insert(10, now.Add(-time.Minute))
	forever := insert(2000, time.Time{})
	present := func(ids []idempotent.RecordID) (n int) {
		for _, id := range ids {
			if _, err := s.Get(t.Context(), id); err == nil {
				n++
			}
		}
		return n
	}
	if got := present(old); got != 0 {
		t.Errorf("%d of %d records that expired two hours ago are still stored", got, len(old))
	}
	if present(graced) != len(graced) || present(forever) != len(forever) {
		t.Error("a record was dropped before its time")
	}
}

// Records that have been due for longest come first, so that a run that is out of
// time has done the most urgent ones.
func TestDueListsTheEarliestFirst(t *testing.T) {
	t.Parallel()
	s, at := memstore.New(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, n := range []int{3, 1, 4, 0, 2, 6, 5, 7} {
		r := driver.Record{ID: idempotent.RecordID(string(rune('a' + n))), State: driver.StateUnknown, Due: at.Add(time.Duration(n) * time.Minute)}
		if _, err := s.Insert(t.Context(), r, at); err != nil {
			t.Fatal(err)
		}
	}
	got := ""
	for r, err := range s.Due(t.Context(), time.Time{}) {
		if err != nil {
			t.Fatal(err)
		}
		got += string(r.ID)
	}
	if got != "abcdefgh" {
		t.Errorf("listed %s", got)
	}
}
