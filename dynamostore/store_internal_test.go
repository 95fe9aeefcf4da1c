// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	t.Parallel()
	const base, limit = 10 * time.Millisecond, 500 * time.Millisecond
	for doublings, full := range map[int]time.Duration{
		0: base, 1: 2 * base, 2: 4 * base, 5: 32 * base, 6: limit, 31: limit, 32: limit, 1000: limit,
	} {
		seen := map[time.Duration]bool{}
		for range 100 {
			d := backoff(base, limit, doublings)
			if d <= full/2 || d > full {
				t.Fatalf("backoff after %d doublings is %s, want up to %s and more than half of it", doublings, d, full)
			}
			seen[d] = true
		}
		if len(seen) < 90 {
			t.Errorf("only %d of 100 pauses after %d doublings differ", len(seen), doublings)
		}
	}
}
