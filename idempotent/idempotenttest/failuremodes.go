// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"slices"
	"testing"
)

// RunFailureModes drives a guard over the store through the failure modes of
// the design, with one subtest per row, named after it. A and B are the first
// and the second request with one key. Every row also checks the invariants of
// the design on all writes, handler calls and answers.
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
