// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"fmt"
	"slices"
	"strings"
	"testing"
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

func TestQuickest(t *testing.T) {
	t.Parallel()
	calls := 0
	if got := Quickest(4, 5, func() { calls++ }, func() {}); len(got) != 2 || got[0] < 0 || calls != 20 {
		t.Errorf("got %v after %d calls", got, calls)
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		v    []float64
		want float64
	}{{[]float64{3, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}, {[]float64{7}, 7}} {
		if got := Median(row.v); got != row.want {
			t.Errorf("the median of %v is %v, want %v", row.v, got, row.want)
		}
	}
}

// failures collects the failures of a test instead of reporting them.
type failures struct {
	testing.TB
	of []string
}

func (f *failures) Logf(string, ...any)            {}
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
