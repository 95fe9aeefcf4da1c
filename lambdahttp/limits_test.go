//go:build !race

// The race detector would be what is measured, so these limits are held
// without it (make test-cost).

package lambdahttp_test

import (
	"testing"
	"time"
)

// A request that passes through costs 2 µs at most, and a refusal 5 µs, of this
// package's own: what the exchange takes without it (bare) is not counted. The
// tests for each event type run one after the other, alone.
func TestLimits(t *testing.T) {
	for name, calls := range benched {
		t.Run(name, func(t *testing.T) {
			bare := time.Duration(0)
			for _, c := range calls(t) {
				if c.name == "bare" {
					bare = fastest(t, c)
				}
				if c.limit == 0 {
					continue
				}
				own := fastest(t, c) - bare
				t.Logf("%-24s %s", c.name, own)
				if own > c.limit {
					t.Errorf("%s takes %s, want %s at most", c.name, own, c.limit)
				}
			}
		})
	}
}

// fastest returns what a call takes when nothing else is in the way: of many
// turns, each too short to be interrupted often, the shortest counts. A
// neighbour's load passes, a slower program stays slow.
func fastest(t *testing.T, c call) time.Duration {
	const turns, each = 300, 50
	least := time.Hour
	for range turns {
		begun := time.Now()
		for i := range each {
			if err := c.send(i); err != nil {
				t.Fatal(err)
			}
		}
		least = min(least, time.Since(begun))
	}
	return least / each
}
