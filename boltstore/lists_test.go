// SPDX-License-Identifier: Apache-2.0

package boltstore_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"testing"
	"time"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/idempotent/driver"
)

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
	s := open(t, filepath.Join(t.TempDir(), "once.db"))
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
	for want, list := range map[string]iter.Seq2[driver.Listed, error]{"3120": s.Due(t.Context()), "43120": s.Exhausted(t.Context())} {
		if got := order(t, list, s); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// A list yields an error if its context ends during the iteration.
func TestListEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "once.db"))
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

// A step without a time is read without a time.
func TestStepWithoutATime(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "once.db"))
	r := record(1, time.Time{})
	r.Steps = []driver.StepRecord{{Name: "a", Mode: driver.AtMostOnce, Attempt: 1}}
	insert(t, s, r)
	got, err := s.Get(t.Context(), r.ID)
	if err != nil || len(got.Steps) != 1 || !got.Steps[0].At.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
}
