// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/once-lambda/once/idempotent"
)

// A search that merges schedules with the same state finds the states, the
// ends, the answers and the facts of a search that follows each schedule.
// Schedules that are merged behave in the same way from there on, and break the
// same invariants, also if the store is broken.
func TestMergingLosesNothing(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		Scenario
	}{
		{"one attempt, two faults", Scenario{Attempts: 1, Clock: clock{WholeLease}, Faults: 2}},
		{"two attempts", Scenario{Attempts: 2}},
		{"a resolver", Scenario{Attempts: 1, Resolvers: 1, Clock: clock{WholeLease}, Faults: 1}},
		{"a stranger", Scenario{Attempts: 1, Strangers: 1, Clock: clock{PastRetention}}},
		{"an announcement", Scenario{Announce: true, Attempts: 1, Plans: []plan{succeed}, Reapers: 1, Clock: clock{PastContext, RestOfLease}}},
		{"rerun", Scenario{Recovery: idempotent.Rerun, Attempts: 1, Sweepers: 1, Clock: clock{WholeLease}}},
		{"inserts that do not check for a record", Scenario{Attempts: 2, Plans: []plan{fail}, Store: overwriting}},
		{"writes that do not check the write id", Scenario{Attempts: 1, Resolvers: 1, Clock: clock{WholeLease}, Faults: 1, Store: blind}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.Ask = []string{} // no invariant may end a search early; the twins are checked instead
			merged := search{setUp: row.setUp, limit: limit, allOrders: true, merge: true}
			all := search{setUp: row.setUp, limit: limit, allOrders: true}
			seen := watchTwins(t, &all)
			inBubble(t, row.Announce, func() {
				run(t, &merged)
				run(t, &all)
			})
			t.Logf("%d schedules, merged %d; %d states, %d steps taken again from the same state, %d of them broke an invariant",
				all.report.Schedules, merged.report.Schedules, len(all.fewest), seen.again, seen.broken)
			same(t, "states", all.fewest, merged.fewest)
			sameFindings(t, &all, &merged)
			if seen.again < 1000 || row.Store != nil && seen.broken < 100 {
				t.Error("too few of them")
			}
		})
	}
}

// twins counts the steps that were repeated from the same state.
type twins struct{ again, broken int }

// watchTwins fails the test if one step from the same state leads to two
// different states, in what may follow or in what they break: then the first
// states were not the same.
func watchTwins(t *testing.T, s *search) *twins {
	type from struct {
		state  state
		faults int
		step   step
	}
	type to struct{ state, steps, broken string }
	leads, seen := map[from]to{}, &twins{}
	s.saw = func(before state, faults int, next step, at stage) {
		w := at.(*world)
		after := to{steps: fmt.Sprint(w.steps())}
		if !w.ended {
			after.state = fmt.Sprint(w.state())
		}
		w.asked = invariants
		w.check()
		if w.broken != nil {
			after.broken = w.broken.Invariant
		}
		w.asked, w.broken = nil, nil
		f := from{before, faults, next}
		first, again := leads[f]
		if !again {
			leads[f] = after
			return
		}
		seen.again++
		if after.broken != "" {
			seen.broken++
		}
		if first != after && !t.Failed() {
			t.Errorf("%v leads from one state to two:\n%+v\n%+v", next, first, after)
		}
	}
	return seen
}

// A search in which actors take turns finds the ends, the answers and the facts
// of one that also tries the orders of commuting steps.
func TestTurnsLoseNothing(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		Scenario
	}{
		{"two attempts", Scenario{Attempts: 2, Clock: clock{WholeLease}, Faults: 1}},
		{"a sweeper and a resolver", Scenario{Attempts: 1, Sweepers: 1, Resolvers: 1, Clock: clock{WholeLease}, Faults: 1}},
		{"two resolvers", Scenario{Attempts: 1, Resolvers: 2, Clock: clock{PastDeadline, PastLease}}},
		{"a courier", Scenario{Attempts: 1, Couriers: 1, Clock: clock{WholeLease}, Faults: 1}},
		{"resume, evidence about a step", Scenario{Recovery: idempotent.Resume, Step: &leastOnce, Attempts: 1, Witnesses: 1, Clock: clock{WholeLease}}},
		{"a stranger", Scenario{Attempts: 1, Strangers: 1, Clock: clock{WholeLease, PastRetention}}},
		{"an announcement", Scenario{Announce: true, Recovery: idempotent.Resume, Step: &leastOnce, Attempts: 1, Reapers: 1, Clock: clock{PastContext, RestOfLease}}},
		{"rerun, a sweeper", Scenario{Recovery: idempotent.Rerun, Attempts: 1, Sweepers: 1, Clock: clock{WholeLease}, Faults: 1}},
		{"commit", Scenario{Commit: true, Attempts: 2, Clock: clock{WholeLease}, Faults: 1}},
		{"rerun, two attempts", Scenario{Recovery: idempotent.Rerun, Attempts: 2, Clock: clock{PastRetention}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			turns := search{setUp: row.setUp, limit: limit, merge: true}
			all := search{setUp: row.setUp, limit: limit, merge: true, allOrders: true}
			inBubble(t, row.Announce, func() {
				run(t, &turns)
				run(t, &all)
			})
			t.Logf("%d schedules, in turns %d", all.report.Schedules, turns.report.Schedules)
			sameFindings(t, &all, &turns)
		})
	}
}

func run(t *testing.T, s *search) {
	t.Helper()
	if r, err := s.run(); err != nil || r.Violation != nil {
		t.Fatal(err, r.Violation)
	}
}

func sameFindings(t *testing.T, all, fewer *search) {
	t.Helper()
	same(t, "ends", all.ends, fewer.ends)
	same(t, "answers", all.answers, fewer.answers)
	same(t, "facts", all.report.Shown, fewer.report.Shown)
}

// same compares the keys of two maps.
func same[K comparable, V any](t *testing.T, what string, all, fewer map[K]V) {
	t.Helper()
	lost := slices.DeleteFunc(slices.Collect(maps.Keys(all)), func(k K) bool { _, found := fewer[k]; return found })
	if len(lost) > 0 || len(fewer) > len(all) {
		t.Errorf("%d %s are lost of %d, among them %v; found %d", len(lost), what, len(all), lost[:min(3, len(lost))], len(fewer))
	}
}
