package idempotenttest

import (
	"log/slog"
	"slices"
	"testing"
)

// RunFailureModes drives a guard over the store through the failure modes of
// the design, a subtest per row and named by it. A and B stand for the first
// and the second request with one key. Besides what a row is about, the
// invariants of the design are checked in each: whatever was written, entered
// and answered has to be legal.
func RunFailureModes(t *testing.T, f Fixture) {
	t.Helper()
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, f)
			s.run(l)
			for _, err := range l.history.judge(l.record()) {
				t.Error(err)
			}
		})
	}
}

// scenarios are all rows.
var scenarios = slices.Concat(claimScenarios, outcomeScenarios, timeScenarios, stepScenarios, evidenceScenarios, resultScenarios, waitScenarios)

// scenario is one row of the failure modes, or one variant of a row.
type scenario struct {
	name string
	run  func(l *lab)
}

// discard keeps the guard's log lines out of the test's output.
var discard = slog.New(slog.DiscardHandler)
