//go:build !race

// With the race detector, pools drop objects, so allocations are counted without
// it (make cover).

package idempotent_test

import (
	"strconv"
	"testing"
)

// A small request on a store in memory may allocate at most 24 times at first and
// 13 times as a replay. The test does not run in parallel, because the
// allocations of other tests would count.
func TestWrapAllocations(t *testing.T) {
	h, ctx, n := benchmarkGuard(t), t.Context(), 0
	send := func(order string) {
		if _, err := h(ctx, chargeRequest{"acme", order, 4200}); err != nil {
			t.Fatal(err)
		}
	}
	first := testing.AllocsPerRun(500, func() {
		n++
		send(strconv.Itoa(n))
	})
	replay := testing.AllocsPerRun(500, func() { send("1") })
	t.Logf("a first request: %v allocations, a replay: %v", first, replay)
	if first > 24 || replay > 13 {
		t.Error("want 24 and 13 at most")
	}
}
