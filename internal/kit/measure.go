// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"slices"
	"testing"
	"time"
)

// The functions below compare the cost of operations within one process, for tests
// with limits. Machines are noisy, so nothing is compared with a number of another
// day: the operations run in turns, under the same conditions. A disturbance only
// adds time, so the quickest turn of each is compared, or the median of many.

// Turns calls each of ops once in each of n turns, and returns what they returned,
// by operation. Each turn begins with another operation, so that a drift of the
// machine favours none.
func Turns[T any](n int, ops ...func() T) [][]T {
	got := make([][]T, len(ops))
	for turn := range n {
		for i := range ops {
			i = (i + turn) % len(ops)
			got[i] = append(got[i], ops[i]())
		}
	}
	return got
}

// Quickest returns the processor time of one call of each op, with what it leaves to
// other goroutines: the quickest of n turns with the given number of calls. Short turns
// are rarely disturbed. It ends t if an operation took no time, because nothing was
// measured and no limit would be exceeded.
func Quickest(t testing.TB, n, calls int, ops ...func()) []time.Duration {
	t.Helper()
	return quickest(t, ProcessorTime, n, calls, ops...)
}

func quickest(t testing.TB, now func() time.Duration, n, calls int, ops ...func()) []time.Duration {
	t.Helper()
	timed := make([]func() time.Duration, len(ops))
	for i, op := range ops {
		timed[i] = func() time.Duration {
			began := now()
			for range calls {
				op()
			}
			return (now() - began) / time.Duration(calls)
		}
	}
	quickest := make([]time.Duration, len(ops))
	for i, took := range Turns(n, timed...) {
		if quickest[i] = slices.Min(took); quickest[i] <= 0 {
			t.Fatalf("operation %d took %s: nothing was measured", i, quickest[i])
		}
	}
	return quickest
}

// Median returns the median of v. It ends t if that is not above zero, as [Quickest]
// does.
func Median[N time.Duration | float64](t testing.TB, v []N) N {
	t.Helper()
	v = slices.Sorted(slices.Values(v))
	median := (v[(len(v)-1)/2] + v[len(v)/2]) / 2
	if median <= 0 {
		t.Fatalf("the median is %v: nothing was measured", median)
	}
	return median
}

// attempts is how often a measurement is repeated. The load of a neighbour
// passes; a slower program stays slow.
const attempts = 5

// Within measures until the result is within the limit, and fails t if it never
// is. It logs each result.
func Within(t testing.TB, measure func() (result string, within bool)) {
	t.Helper()
	for i := range attempts {
		result, within := measure()
		t.Logf("measurement %d of at most %d: %s", i+1, attempts, result)
		if within {
			return
		}
	}
	t.Errorf("above the limit in each of %d measurements", attempts)
}
