//go:build !race

// The race detector would be what is measured, so these limits are held
// without it (make test-cost).

package lambdahttp_test

import (
	"testing"
	"time"
)

// A request that no store is asked about costs a part of what the Lambda
// runtime takes anyway, to decode the request's event and to encode its answer:
// 0.15 of it at most to let it pass, a third to refuse it. What the exchange itself
// takes (bare) is not counted. The tests for each event type run one after the
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
						t.Errorf("%s takes %.2f of what the runtime takes, want %.2f at most", c.name, part, c.limit)
					}
				}
			}
		})
	}
}

// fastest returns what each call takes when nothing else is in the way, 0 for a
// call that does nothing. The calls take turns, so that all meet the same
// machine. Of many turns, each too short to be interrupted often, the shortest
// counts.
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
