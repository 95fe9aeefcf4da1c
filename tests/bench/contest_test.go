package bench

import (
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
)

// side is one operation of one of the two sides that are compared.
type side func()

const (
	pairs    = 61 // of turns, one of each side
	attempts = 5  // for a median below the limit
)

// cost is the cost of several operations: wall time, and the processor time of
// this process, user and system, including the runtime.
type cost struct{ wall, cpu time.Duration }

// turn runs n operations from a clean heap, so that one side does not collect
// the other's garbage.
func turn(op side, n int) cost {
	runtime.GC()
	cpu, start := processorTime(), time.Now()
	for range n {
		op()
	}
	return cost{time.Since(start), processorTime() - cpu}
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ratios are medians over pairs of turns: the cost of the toolkit relative to
// the other side.
type ratios struct{ wall, cpu float64 }

func (r ratios) String() string { return fmt.Sprintf("wall %.3f, processor %.3f", r.wall, r.cpu) }

func (r ratios) within(limit ratios) bool { return r.wall <= limit.wall && r.cpu <= limit.cpu }

// compare runs both sides in turns of n operations. The side that begins
// changes with every pair, so that a drift of the machine favours no side.
func compare(ours, theirs side, n int) ratios {
	turn(ours, n) // connections and caches are warm after this
	turn(theirs, n)
	var wall, cpu []float64
	for i := range pairs {
		var a, b cost
		if i%2 == 0 {
			a, b = turn(ours, n), turn(theirs, n)
		} else {
			b, a = turn(theirs, n), turn(ours, n)
		}
		wall = append(wall, float64(a.wall)/float64(b.wall))
		cpu = append(cpu, float64(a.cpu)/float64(b.cpu))
	}
	return ratios{median(wall), median(cpu)}
}

func median(v []float64) float64 {
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// wantWithin compares until the medians are within the limit, at most attempts
// times, and prints every measurement.
func wantWithin(t *testing.T, limit ratios, ours, theirs side, n int) {
	t.Helper()
	for i := range attempts {
		got := compare(ours, theirs, n)
		t.Logf("measurement %d of at most %d: %s; the limits are %s; medians of %d pairs of %d operations", i+1, attempts, got, limit, pairs, n)
		if got.within(limit) {
			return
		}
	}
	t.Errorf("above the limits in each of %d measurements", attempts)
}

func TestMedian(t *testing.T) {
	for _, row := range []struct {
		v    []float64
		want float64
	}{{[]float64{3, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}, {[]float64{7}, 7}} {
		if got := median(row.v); got != row.want {
			t.Errorf("the median of %v is %v, want %v", row.v, got, row.want)
		}
	}
}
