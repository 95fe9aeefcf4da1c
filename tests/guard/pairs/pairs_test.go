// SPDX-License-Identifier: Apache-2.0

package pairs

import (
	"flag"
	"fmt"
	"testing"

	"github.com/once-lambda/once/idempotent/idempotenttest"
)

var (
	seed      = flag.Uint64("seed", 1, "for the rows")
	schedules = flag.Int("schedules", 40, "of each row")
)

// Each pair of settings keeps what the row promises.
func TestPairs(t *testing.T) {
	rows := cover(settings, together, *seed)
	missing := map[pair]bool{}
	for _, p := range pairsOf(settings, together) {
		missing[p] = true
	}
	t.Logf("%d rows have %d pairs", len(rows), len(missing))
	for i, r := range rows {
		for _, p := range r.pairs(settings) {
			if delete(missing, p); !together(p) {
				t.Errorf("row %d has %v, which do not go together", i, p)
			}
		}
		t.Run(fmt.Sprint(i, " ", r.String(settings)), func(t *testing.T) {
			idempotenttest.Explore(t, r.explore, func(o *idempotenttest.ExploreOptions) { o.Schedules = *schedules })
		})
	}
	if len(missing) > 0 {
		t.Errorf("no row has %v", missing)
	}
}
