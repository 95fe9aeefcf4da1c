//go:build !race

// The race detector would distort the measurement, so these limits are checked
// without it (make test-cost).

package lambdahttp_test

import (
	"testing"
	"time"
)

// A request that does not call the store costs a fraction of the time that the
// Lambda runtime needs to decode the event and to encode the response: at most
// 0.15 to pass it through, and a third to refuse it. The cost of the exchange
// itself (bare) is not counted. The tests for each event type run one after the
// other, alone.
func TestLimits(t *testing.T) {
	for name, calls := range benched {
		t.Run(name, func(t *testing.T) {
			var runtime, bare call
			for _, c := range calls(t) {
				switch {
				case c.name == "runtime":
					runtime = c
				case c.name == "bare":
					bare = c
				case c.limit > 0:
					took := fastest(t, runtime, c, bare)
					part := float64(took[1]-took[2]) / float64(took[0])
					t.Logf("%-24s %.2f of %s", c.name, part, took[0])
					if part > c.limit {
						t.Errorf("%s takes %.2f of the runtime's time, want at most %.2f", c.name, part, c.limit)
					}
				}
			}
		})
	}
}

// fastest returns the shortest time of each call, and 0 for a call that does
// nothing. The calls take turns, so that all run under the same conditions.
// Each turn is short, so that few are interrupted.
func fastest(t *testing.T, calls ...call) []time.Duration {
	const turns, each = 100, 50
	least := make([]time.Duration, len(calls))
	for turn := range turns {
		for k, c := range calls {
			if c.send == nil {
				continue
			}
			begun := time.Now()
			for i := range each {
				if err := c.send(i); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(begun) / each; turn == 0 || took < least[k] {
				least[k] = took
			}
		}
	}
	return least
}
