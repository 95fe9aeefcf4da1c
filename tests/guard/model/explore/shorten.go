// SPDX-License-Identifier: Apache-2.0

package explore

import "slices"

// shorten removes steps from a schedule that are not needed to break an
// invariant, until no run of steps can be removed. It works without turns.
func shorten(s *Scenario, f *fibers, schedule []step) *Violation {
	steps := slices.DeleteFunc(slices.Clone(schedule), func(s step) bool { return s.what == stay })
	v := retry(s, f, steps)
	for size := len(v.steps) / 2; size > 0; {
		shorter := (*Violation)(nil)
		for i := 0; i+size <= len(v.steps) && shorter == nil; i++ {
			shorter = retry(s, f, slices.Delete(slices.Clone(v.steps), i, i+size))
		}
		if shorter == nil {
			size /= 2
			continue
		}
		v = shorter
		size = min(size, len(v.steps)/2)
	}
	return v
}

// retry runs a schedule that may no longer be valid, up to where it breaks an
// invariant. It returns nil if it does not.
func retry(s *Scenario, f *fibers, schedule []step) *Violation {
	w := newWorld(s, f)
	w.allOrders, w.tracing = true, true
	defer w.abandon()
	for i, next := range schedule {
		if !slices.Contains(w.steps(), next) {
			return nil
		}
		w.perform(next)
		if w.broken != nil {
			w.broken.Schedule, w.broken.steps = w.trace, schedule[:i+1]
			return w.broken
		}
	}
	return nil
}
