// SPDX-License-Identifier: Apache-2.0

package memstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// Insert looks for expired records only after the store has doubled, and drops
// those that expired an hour ago.
func TestSweep(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s, next := New(), 0
	insert := func(n int, expires time.Time) {
		t.Helper()
		for range n {
			next++
			r := driver.Record{ID: idempotent.RecordID(fmt.Sprint("sweep#", next)), Expires: expires}
			if met, err := s.Insert(t.Context(), r, now.Add(-3*time.Hour)); met != nil || err != nil {
				t.Fatal(met, err)
			}
		}
	}
	want := func(records, sweepAt int) {
		t.Helper()
		if len(s.records) != records || s.sweepAt != sweepAt {
			t.Errorf("%d records and a sweep at %d, want %d and %d", len(s.records), s.sweepAt, records, sweepAt)
		}
	}
	sweep := func() { s.sweep(now) }

	insert(firstSweep-1, now.Add(-2*time.Hour))
	sweep()
	want(firstSweep-1, firstSweep) // not yet
	insert(1, now.Add(-grace))
	sweep()
	want(1, firstSweep) // expired an hour ago to the millisecond: still there
	insert(1000, time.Time{})
	s.sweepAt = len(s.records)
	sweep()
	want(1001, 2*1001)
}
