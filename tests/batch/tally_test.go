package batch

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
	for _, fact := range facts {
		if y.counts[fact] < n {
			t.Errorf("%q was seen %d times, want at least %d", fact, y.counts[fact], n)
		}
	}
}

func (y *tally) String() string {
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(y.counts)) {
		fmt.Fprintf(&b, "\n%7d %s", y.counts[what], what)
	}
	return b.String()
}
