// SPDX-License-Identifier: Apache-2.0

//go:build !race

// With the race detector, pools drop objects, so allocations are counted without
// it (make cover).

package idempotent_test

import (
	"context"
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
)

func benchmarkGuard(tb testing.TB) func(context.Context, chargeRequest) (string, error) {
	tb.Helper()
	g, err := idempotent.New(memstore.New())
	if err != nil {
		tb.Fatal(err)
	}
	return idempotent.Wrap(g, byOrder, func(context.Context, chargeRequest) (string, error) { return "ch_1", nil })
}

// A first request: claim, handler, outcome.
func BenchmarkWrapFirst(b *testing.B) {
	b.ReportAllocs()
	var h func(context.Context, chargeRequest) (string, error)
	ctx := b.Context()
	for i := 0; b.Loop(); i++ {
		if i%1024 == 0 {
			h = benchmarkGuard(b) // otherwise it measures garbage collection of a growing store
		}
		if _, err := h(ctx, chargeRequest{"acme", strconv.Itoa(i), 4200}); err != nil {
			b.Fatal(err)
		}
	}
}

// A retry: the stored outcome.
func BenchmarkWrapReplay(b *testing.B) {
	b.ReportAllocs()
	h, ctx := benchmarkGuard(b), b.Context()
	for b.Loop() {
		if _, err := h(ctx, chargeRequest{"acme", "order-1", 4200}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFingerprintOf(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := idempotent.FingerprintOf(chargeRequest{"acme", "order-1", 4200}); err != nil {
			b.Fatal(err)
		}
	}
}

// A small request on a store in memory may allocate at most 24 times at first and 8 times
// as a replay, and four times more with a deadline, beside what encoding/json allocates,
// which depends on the Go release. The test does not run in parallel, because the
// allocations of other tests would count.
func TestWrapAllocations(t *testing.T) {
	limited, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	encode := func(v any) float64 {
		return testing.AllocsPerRun(500, func() { _, _ = json.Marshal(v) })
	}
	request, result := encode(chargeRequest{"acme", "1", 4200}), encode("ch_1")
	decode := testing.AllocsPerRun(500, func() { _ = json.Unmarshal([]byte(`"ch_1"`), new(string)) })
	for _, c := range []struct {
		name               string
		ctx                context.Context
		most, mostAsReplay float64
	}{{"without a deadline", t.Context(), 24, 8}, {"with a deadline", limited, 28, 12}} {
		h, ctx, n := benchmarkGuard(t), c.ctx, 0
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
		t.Logf("%s: a first request: %v allocations, a replay: %v; to encode a request %v, a result %v, to decode one %v", c.name, first, replay, request, result, decode)
		if first-request-result > c.most || replay-request-decode > c.mostAsReplay || min(first, replay) < 1 {
			t.Errorf("%s: want %v and %v at most beside them, and 1 at least, or nothing was measured", c.name, c.most, c.mostAsReplay)
		}
	}
}
