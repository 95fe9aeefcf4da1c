// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTurns(t *testing.T) {
	t.Parallel()
	var order strings.Builder
	op := func(name string) func() int {
		return func() int {
			order.WriteString(name)
			return order.Len()
		}
	}
	got := Turns(3, op("a"), op("b"), op("c"))
	if order.String() != "abcbcacab" {
		t.Errorf("the order is %s", &order)
	}
	if want := [][]int{{1, 6, 8}, {2, 4, 9}, {3, 5, 7}}; !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Time passes only by the first operation: the second takes none.
func TestQuickest(t *testing.T) {
	t.Parallel()
	f, calls, now := &failures{TB: t}, 0, time.Duration(0)
	got := quickest(f, func() time.Duration { return now }, 4, 5, func() { calls++; now += time.Microsecond }, func() {})
	if !slices.Equal(got, []time.Duration{time.Microsecond, 0}) || calls != 20 {
		t.Errorf("got %v after %d calls", got, calls)
	}
	if want := []string{"operation 1 took 0s: nothing was measured"}; !slices.Equal(f.of, want) {
		t.Errorf("failures %q, want %q", f.of, want)
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		v        []float64
		want     float64
		failures int
	}{{[]float64{3, 1, 2}, 2, 0}, {[]float64{4, 1, 3, 2}, 2.5, 0}, {[]float64{7}, 7, 0}, {[]float64{0, 0, 1}, 0, 1}, {[]float64{-1}, -1, 1}} {
		f := &failures{TB: t}
		if got := Median(f, row.v); got != row.want || len(f.of) != row.failures {
			t.Errorf("the median of %v is %v with failures %q, want %v with %d", row.v, got, f.of, row.want, row.failures)
		}
	}
}

// failures collects the failures of a test instead of reporting them.
type failures struct {
	testing.TB
	of []string
}

func (f *failures) Helper()                        {}
func (f *failures) Logf(string, ...any)            {}
func (f *failures) Fatalf(format string, a ...any) { f.Errorf(format, a...) }
func (f *failures) Errorf(format string, a ...any) { f.of = append(f.of, fmt.Sprintf(format, a...)) }

// A result above the limit is measured again, and a test whose results are all
// above it fails.
func TestWithin(t *testing.T) {
	t.Parallel()
	for good, want := range map[int]int{1: 0, attempts: 0, attempts + 1: 1} {
		f, n := &failures{TB: t}, 0
		Within(f, func() (string, bool) {
			n++
			return "", n == good
		})
		if len(f.of) != want || n != min(good, attempts) {
			t.Errorf("within the limit at measurement %d: %d measurements, failures %q", good, n, f.of)
		}
	}
}
