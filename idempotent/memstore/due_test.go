// SPDX-License-Identifier: Apache-2.0

package memstore_test

import (
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/memstore"
)

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
