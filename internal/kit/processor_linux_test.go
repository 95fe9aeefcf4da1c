// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"syscall"
	"testing"
	"time"
)

// The processor time is that of getrusage(2), which leaves out what a thread has used
// since the last tick.
func TestProcessorTime(t *testing.T) {
	t.Parallel()
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	const ticks = 100 * time.Millisecond
	for before := used(); used()-before < ticks; { // work
	}
	before, got, after := used(), ProcessorTime(), used()
	if got < before || got > after+ticks {
		t.Errorf("%v, and %v and %v by getrusage", got, before, after)
	}
}
