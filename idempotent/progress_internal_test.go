// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"maps"
	"testing"
	"time"
)

// The counts of a run are those of its first entries, and what this and earlier runs
// have read behind them.
func TestProgressCounts(t *testing.T) {
	t.Parallel()
	at := func(minute int) time.Time { return time.Unix(0, 0).Add(time.Duration(minute) * time.Minute) }
	waits := func(pending, released, since int) Report {
		return Report{Pending: pending, PendingReleased: released, Oldest: at(since), OldestReleased: at(since), Operations: map[string]Waiting{"charge": {Pending: pending, Oldest: at(since)}}}
	}
	p := &progress{first: 10}
	for _, run := range []struct {
		name   string
		extent extent
		behind int // as the report counts
		since  int // the oldest
		listed bool
		next   time.Time
	}{
		{"the first run reads on", extent{entries: 15, behind: readsOn, passed: waits(5, 2, 30), last: at(1)}, 5, 30, true, at(1)},
		{"the first entries take its time", extent{entries: 10, behind: readsOn}, 5, 30, true, at(1)},
		{"another has no time for them", extent{entries: 9}, 5, 30, false, at(1)},
		{"the next one continues", extent{entries: 14, behind: readsContinue, passed: waits(4, 2, 20), last: at(2)}, 9, 20, true, at(2)},
		{"and comes to the end", extent{entries: 11, behind: readsContinue, passed: waits(1, 2, 30), last: at(3), toEnd: true}, 10, 20, true, time.Time{}},
		{"a new list begins", extent{entries: 12, behind: readsOn, passed: waits(2, 2, 30), last: at(1)}, 10, 20, true, at(1)},
		{"it is cut off", extent{entries: 9}, 10, 20, false, at(1)},
		{"it has become short", extent{entries: 9, toEnd: true}, 0, 40, true, time.Time{}},
		{"it has become long", extent{entries: 13, behind: readsOn, passed: waits(3, 2, 30), last: at(1)}, 3, 30, true, at(1)},
		{"the whole list is read", extent{entries: 12, behind: readsOn, passed: waits(2, 2, 30), last: at(2), toEnd: true}, 2, 30, true, time.Time{}},
		{"the first entries take its time again", extent{entries: 10, behind: readsOn}, 2, 30, true, time.Time{}},
		{"the run works on all that are behind", extent{entries: 12, behind: readsOn, toEnd: true}, 0, 40, true, time.Time{}},
		{"it does not come to the end", extent{entries: 11, behind: readsOn, passed: waits(1, 2, 30), last: at(1)}, 1, 30, true, at(1)},
	} {
		released := map[int]int{0: 0, 5: 2, 9: 4, 10: 6, 3: 2, 2: 2, 1: 2}[run.behind]
		got, want := waits(7, 1, 40), waits(7+run.behind, 1+released, run.since)
		p.count(&got, &run.extent)
		if got.Pending != want.Pending || got.PendingReleased != want.PendingReleased || !got.Oldest.Equal(want.Oldest) || !got.OldestReleased.Equal(want.OldestReleased) || !maps.Equal(got.Operations, want.Operations) {
			t.Errorf("%s: counted %+v, want %+v", run.name, got, want)
		}
		if got.Listed != run.listed || !p.after().Equal(run.next) {
			t.Errorf("%s: listed %t, the next run continues after %s, want %t and %s", run.name, got.Listed, p.after(), run.listed, run.next)
		}
	}
	var empty Report
	if empty.add(&Report{}); !empty.Oldest.IsZero() || !empty.OldestReleased.IsZero() || empty.Operations != nil {
		t.Errorf("nothing and nothing is %+v", empty)
	}
}
