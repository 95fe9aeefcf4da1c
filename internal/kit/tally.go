// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Tally counts how often a test has seen each fact, because a test that covered
// nothing would prove nothing. The zero value is ready, and safe for concurrent use.
type Tally struct {
	mu     sync.Mutex
	counts map[string]int
}

// Add adds n to the count of a fact.
func (y *Tally) Add(fact string, n int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.counts == nil {
		y.counts = map[string]int{}
	}
	y.counts[fact] += n
}

// Count returns how often a fact was seen.
func (y *Tally) Count(fact string) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.counts[fact]
}

// Least fails t for each of the facts that was seen less than n times.
func (y *Tally) Least(t testing.TB, n int, facts ...string) {
	t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, fact := range facts {
		if y.counts[fact] < n {
			t.Errorf("%q was seen %d times, want at least %d", fact, y.counts[fact], n)
		}
	}
}

// Most fails t if a fact was seen more than n times.
func (y *Tally) Most(t testing.TB, n int, fact string) {
	t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.counts[fact] > n {
		t.Errorf("%q was seen %d times, want at most %d", fact, y.counts[fact], n)
	}
}

// String lists the facts with their counts, a line for each.
func (y *Tally) String() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	var b strings.Builder
	for _, fact := range slices.Sorted(maps.Keys(y.counts)) {
		fmt.Fprintf(&b, "\n%7d %s", y.counts[fact], fact)
	}
	return b.String()
}
