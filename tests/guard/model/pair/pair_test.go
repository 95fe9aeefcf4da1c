// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
)

// enough is the least number of schedules of a scenario, and often the least number
// that show a fact.
const enough, often = 1000, 3

var scenarios = []scenario{
	{name: "a run of ReconcileDue for one operation, a handler for the other", actors: []role{due("charge"), handler("refund")}, last: []role{due("charge"), handler("refund")}, shows: []string{
		"found by the scan", "marked unknown", "processed for the other operation", "position replaced", "position taken by another",
		"position lost while it read", "killed with the position", "record written by another", "asked again after the pause", "two read at the same time",
	}},
	{name: "two handlers for one operation", done: true, actors: []role{handler("refund"), handler("refund")}, last: []role{due("charge"), handler("refund")}, shows: []string{
		"found by the scan", "marked unknown", "released", "position replaced", "position taken by another",
		"position lost while it read", "killed with the position", "record written by another", "asked again after the pause", "two read at the same time",
	}},
	{name: "a run that announced itself", herald: stored, actors: []role{due("charge"), due("charge")}, last: []role{due("charge"), handler("refund")}, shows: []string{
		"listed in progress", "found by the scan", "marked unknown", "processed for the other operation", "record written by another",
	}},
	{name: "an announcement in transit", herald: inTransit, actors: []role{due("charge"), requeue("charge"), arrives}, last: []role{due("charge"), handler("refund")}, shows: []string{
		"announced", "announced too late", "listed in progress", "found by the scan", "marked unknown", "record written by another",
	}},
	{name: "an operator", actors: []role{due("refund"), requeue("refund")}, last: []role{due("charge"), due("refund")}, shows: []string{
		"found by the scan", "marked unknown", "requeued", "requeued, its lease first", "position replaced", "killed with the position",
		"record written by another", "asked again after the pause",
	}},
}

// After one fault in any order of the calls, the end of each lease is processed,
// each record is asked about by the reconciler that has its resolver and by one at a
// time, and the evidence is written once.
func TestPairs(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := run(&s)
				if r.broken != "" {
					t.Fatalf("%s\n  %s", r.broken, strings.Join(r.trace, "\n  "))
				}
				t.Logf("%d schedules, %d ends, %v", r.schedules, r.ends, r.shown)
				if r.schedules < enough {
					t.Errorf("%d schedules, want at least %d", r.schedules, enough)
				}
				for _, fact := range s.shows {
					if r.shown[fact] < often {
						t.Errorf("%d schedules showed: %s", r.shown[fact], fact)
					}
				}
			})
		})
	}
}

// Two searches run the same schedules.
func TestSearch_Repeatable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scenario{actors: []role{handler("refund")}, last: []role{due("charge"), handler("refund")}}
		if first, second := run(s), run(s); !reflect.DeepEqual(first, second) {
			t.Errorf("the first search: %+v\nthe second: %+v", first, second)
		}
	})
}
