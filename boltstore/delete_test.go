package boltstore_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// Delete removes only completed and retryable records, and only in the given
// version; the file stays valid.
func TestDelete(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "once.db")
	s := open(t, path)
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
	path := filepath.Join(t.TempDir(), "once.db")
	s := open(t, path)
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
