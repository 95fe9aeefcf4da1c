// SPDX-License-Identifier: Apache-2.0

//go:build !race

// The race detector would distort the measurement, so these limits are checked
// without it (make test-cost).

package lambdahttp_test

import (
	"testing"

	"github.com/once-lambda/once/internal/measuretest"
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
					took := measuretest.Quickest(100, 50, sends(t, runtime), sends(t, c), sends(t, bare))
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

// sends returns a function that sends the request of c once. It does nothing if c
// is the zero call.
func sends(t *testing.T, c call) func() {
	i := 0
	return func() {
		if c.send == nil {
			return
		}
		i++
		if err := c.send(i); err != nil {
			t.Fatal(err)
		}
	}
}
