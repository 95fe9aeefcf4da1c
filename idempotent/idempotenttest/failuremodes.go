package idempotenttest

import (
	"log/slog"
	"testing"
)

// RunFailureModes drives a guard over the store through the failure modes of
// the design, a subtest per row and named by it. A and B stand for the first
// and the second request with one key.
func RunFailureModes(t *testing.T, f Fixture) {
	t.Helper()
	for _, group := range [][]scenario{claimScenarios, outcomeScenarios, timeScenarios, evidenceScenarios, resultScenarios, waitScenarios} {
		for _, s := range group {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				s.run(newLab(t, f))
			})
		}
	}
}

// scenario is one row of the failure modes, or one variant of a row.
type scenario struct {
	name string
	run  func(l *lab)
}

// discard keeps the guard's log lines out of the test's output.
var discard = slog.New(slog.DiscardHandler)
