// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"context"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent/driver"
)

// Explored explores as Explore does. It returns the story of what is broken, or nothing,
// how many schedules were tried, a hash of all stories, and the facts.
func Explored(t *testing.T, body func(*World), optFns ...func(*ExploreOptions)) (story string, tried int, hash uint64, facts map[string]int) {
	x := newExplorer(t, body, optFns)
	if text, ok := x.report(""); !ok {
		story, _, _ = strings.Cut(text, "\n\ngoroutine ")
	}
	return story, x.tried, x.stories.Sum64(), x.facts
}

// Report returns what Explore reports.
func Report(t *testing.T, body func(*World), alone string, optFns ...func(*ExploreOptions)) (text string, ok bool) {
	return newExplorer(t, body, optFns).report(alone)
}

// Shortened returns the faults that are left of a schedule, and how many runs that took.
func Shortened(t *testing.T, body func(*World), asked string) (left string, tried int) {
	x := newExplorer(t, body, nil)
	s, err := parseSchedule(asked)
	if err != nil {
		t.Fatal(err)
	}
	w := x.shortened(x.run(s))
	return w.asked.String(), x.tried
}

// Harms returns what can happen at a point of each kind.
func Harms() map[string]string {
	all := map[string]string{}
	for name, p := range map[string]pointKind{"store": storePoint, "effect": effectPoint, "SQL": sqlPoint, "SDK": sdkPoint, "provider": providerPoint, "keyed": keyedPoint} {
		all[name] = strings.Join(harms(p), " ")
	}
	return all
}

// Break replaces each call of the store.
func Break(w *World, f func(context.Context, *StoreCall, driver.Store)) {
	s := w.store
	w.store = Intercept(s, func(ctx context.Context, c *StoreCall) { f(ctx, c, s) })
}

// Possible returns how many schedules have two faults at most.
func Possible(t *testing.T, body func(*World)) int {
	x := newExplorer(t, body, []func(*ExploreOptions){func(o *ExploreOptions) { o.Schedules = 1 << 9 }})
	x.report("")
	return x.possible
}

// Compared returns what Explore compares of two answers.
func Compared(first, again any) (a, b string) {
	x, y := ofBoth(comparable(first), comparable(again))
	return string(x), string(y)
}

var OutcomeOf = outcomeOf

// Rules returns all rules.
func Rules() (all []string) {
	for _, r := range rules {
		all = append(all, r.text)
	}
	return all
}

var OneAtATime = oneAtATime
