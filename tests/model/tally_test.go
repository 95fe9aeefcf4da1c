package model_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
)

// tally counts what a test has shown: one that saw nothing would prove nothing.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func (y *tally) add(what string, n int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.counts == nil {
		y.counts = map[string]int{}
	}
	y.counts[what] += n
}

// least fails t for each of the facts that was seen less than n times.
func (y *tally) least(t testing.TB, n int, facts ...string) {
	t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, fact := range facts {
		if y.counts[fact] < n {
			t.Errorf("%q was seen %d times, want at least %d", fact, y.counts[fact], n)
		}
	}
}

func (y *tally) String() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	var b strings.Builder
	for i, what := range slices.Sorted(maps.Keys(y.counts)) {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %d", what, y.counts[what])
	}
	return b.String()
}

// most fails t if a fact was seen more than n times.
func (y *tally) most(t testing.TB, n int, fact string) {
	t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.counts[fact] > n {
		t.Errorf("%q was seen %d times, want at most %d", fact, y.counts[fact], n)
	}
}
