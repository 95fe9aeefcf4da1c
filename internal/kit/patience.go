// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"testing"
	"time"
)

// Patience is how long a test waits for a condition. It ends only what hangs: a busy
// machine needs minutes for what an idle one does in a second.
const Patience = 15 * time.Minute

// Eventually waits until the condition is true, and fails t if it is false for Patience.
// It looks often at first, and twice a second in the end.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	pause := 20 * time.Millisecond
	for end := time.Now().Add(Patience); !condition(); time.Sleep(pause) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", Patience, what)
		}
		pause = min(pause*5/4, 500*time.Millisecond)
	}
}
