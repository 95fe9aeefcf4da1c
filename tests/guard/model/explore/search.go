// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"fmt"
	"slices"
	"strings"
)

// Report is the result of a search.
type Report struct {
	Schedules int // distinct ones that were run, to their end, or into a state that was seen before
	Steps     int // performed for the first time, in all schedules
	States    int // distinct
	Ends      int // distinct records in the end
	Answers   int // distinct answers to callers
	Shown     map[string]int
	Violation *Violation
}

// Violation is a schedule that breaks an invariant.
type Violation struct {
	Invariant string
	Wrong     string
	Schedule  []string // what happens, step by step
	steps     []step
}

func (v *Violation) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is broken: %s\n", v.Invariant, v.Wrong)
	for i, s := range v.Schedule {
		fmt.Fprintf(&b, "%3d  %s\n", i+1, s)
	}
	return b.String()
}

// Search runs all schedules of a scenario, or those up to the first that breaks
// an invariant, which it returns shortened. It is an error if a scenario has
// more than limit schedules.
func Search(s Scenario, limit int) (Report, error) {
	return (&search{scenario: &s, limit: limit, merge: true}).run()
}

// search is one search, with switches for tests that it loses nothing.
type search struct {
	scenario  *Scenario
	limit     int
	merge     bool // a schedule ends in a state that another one has reached
	allOrders bool // also those of steps that commute

	// saw, if set, is called for every step that is performed for the first
	// time.
	saw func(before state, faults int, s step, w *world)

	report  Report
	fewest  map[state]int // the fewest faults with which a state was reached
	ends    map[string]bool
	answers map[string]bool
	open    [][]step // the beginnings of schedules that are still to be run
	fibers  fibers
}

func (s *search) run() (Report, error) {
	s.report.Shown = map[string]int{}
	s.fewest, s.ends, s.answers = map[state]int{}, map[string]bool{}, map[string]bool{}
	s.open = [][]step{nil}
	defer s.fibers.end()
	for len(s.open) > 0 && s.report.Violation == nil {
		if s.report.Schedules == s.limit {
			return s.report, fmt.Errorf("explore: the scenario has more than %d schedules", s.limit)
		}
		last := len(s.open) - 1
		schedule := s.open[last]
		s.open = s.open[:last]
		s.runOne(schedule)
	}
	s.report.States, s.report.Ends, s.report.Answers = len(s.fewest), len(s.ends), len(s.answers)
	return s.report, nil
}

// runOne runs the schedule with this beginning, and then takes the first step
// at every turn. It leaves the other steps for later runs.
func (s *search) runOne(schedule []step) {
	w := newWorld(s.scenario, &s.fibers)
	w.allOrders = s.allOrders
	defer w.abandon()
	s.report.Schedules++
	if n := len(schedule); n > 0 {
		for _, step := range schedule[:n-1] {
			w.do(step) // the invariants were checked when it was performed for the first time
		}
		s.perform(w, schedule[n-1])
	}
	for s.goesOn(w, schedule) {
		next := w.steps()
		// Each schedule gets its own copy, because the slices share their
		// beginnings.
		for _, alternative := range slices.Backward(next[1:]) {
			s.open = append(s.open, append(slices.Clip(schedule), alternative))
		}
		schedule = append(slices.Clip(schedule), next[0])
		s.perform(w, next[0])
	}
	for i, name := range factNames {
		if w.facts&(1<<i) != 0 {
			s.report.Shown[name]++
		}
	}
}

func (s *search) perform(w *world, next step) {
	if s.saw == nil {
		w.perform(next)
	} else {
		before, faults := w.state(), w.faults
		w.perform(next)
		s.saw(before, faults, next, w)
	}
	s.report.Steps++
	if a := w.answered; a != nil {
		s.answers[fmt.Sprintf("%s %q %t %v", a.name, a.value, a.stored, a.err)] = true
	}
}

// goesOn reports whether to follow the schedule that led to w.
func (s *search) goesOn(w *world, schedule []step) bool {
	switch {
	case w.broken != nil:
		s.report.Violation = shorten(s.scenario, &s.fibers, schedule)
		return false
	case w.ended:
		s.ends[fmt.Sprintf("%s %s %d", w.record.State, w.record.Result, w.record.Attempt)] = true
		return false
	}
	state := w.state()
	if fewest, seen := s.fewest[state]; !seen || w.faults < fewest {
		s.fewest[state] = w.faults
	} else if s.merge {
		return false
	}
	return true
}

// abandon ends the actors that are still running.
func (w *world) abandon() {
	for _, a := range w.actors {
		if a.active() || !a.fired.IsZero() && !a.gone() {
			a.crash()
		}
	}
}
