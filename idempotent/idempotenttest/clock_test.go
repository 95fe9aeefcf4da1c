// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"testing"
	"testing/synctest"
	"time"
)

// A Clock stands still while real time passes, which is that of the bubble here. A test
// moves it forward and back.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		begun := time.Now()
		for _, row := range []struct{ pause, advance, want time.Duration }{
			{0, 0, 0}, {time.Hour, 0, 0}, {time.Hour, time.Minute, time.Minute}, {0, -2 * time.Minute, -time.Minute},
		} {
			time.Sleep(row.pause)
			c.Advance(row.advance)
			if got := c.Now().Sub(begun); got != row.want {
				t.Errorf("after %+v the clock has moved by %s", row, got)
			}
		}
	})
}
