// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent/driver"
)

// Explored explores as Explore does. It returns the story of what is broken, or nothing,
// how many schedules were tried, a hash of all stories, and the facts.
func Explored(t *testing.T, body func(*World), optFns ...func(*ExploreOptions)) (story string, tried int, hash uint64, facts map[string]int) {
	x := newExplorer(t, body, optFns)
	h := fnv.New64()
	x.ran = func(w *World) {
		fmt.Fprintln(h, w.asked, strings.Join(w.lines, "\n"), slices.Sorted(maps.Keys(w.facts)))
	}
	if w := x.explore(); w != nil {
		story = w.story()
	}
	return story, x.tried, h.Sum64(), x.facts
}

// Break replaces each call of the store.
func Break(w *World, f func(context.Context, *StoreCall, driver.Store)) {
	s := w.store
	w.store = Intercept(s, func(ctx context.Context, c *StoreCall) { f(ctx, c, s) })
}
