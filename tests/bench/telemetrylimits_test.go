//go:build !race

package bench

import (
	"testing"

	"github.com/once-lambda/once/idempotent/event"
)

// The limits of telemetry, in parts of what a replay takes on the store in
// memory, which is the quickest that a guarded call can be.
const (
	tellLimit   = 0.20 // telling an observer one fact: a difference of two replays, which differ by some percent anyway
	countLimit  = 0.05 // counting a fact
	flushLimit  = 0.50 // the facts of an invocation and their line
	flushAllocs = 3
)

// A fact costs a small part of a replay: for the guard to tell it to an observer
// that does nothing, and for the metrics to count it.
func TestObserverOverhead(t *testing.T) {
	replay, observed := replayer(t, nil), replayer(t, event.ObserverFunc(nobody))
	o := newMetrics(t)
	within(t, "telling a fact", tellLimit, func() float64 {
		took := each(observed, replay)
		return float64(took[0]-took[1]) / float64(took[1])
	})
	within(t, "counting a fact", countLimit, func() float64 { return part(func() { tell(o, usual[:1]) }, replay) })
}

// A flush costs less than a replay, and 3 allocations at most, the facts before
// it included.
func TestFlush(t *testing.T) {
	o, replay := newMetrics(t), replayer(t, nil)
	kinds := all()
	within(t, "flushing an invocation", flushLimit, func() float64 { return part(func() { flush(o, usual) }, replay) })
	within(t, "flushing every kind of fact", 2*flushLimit, func() float64 { return part(func() { flush(o, kinds) }, replay) })
	if n := testing.AllocsPerRun(100, func() { flush(o, kinds) }); n > flushAllocs {
		t.Errorf("a flush allocates %.0f times, want %d at most", n, flushAllocs)
	} else {
		t.Logf("a flush allocates %.0f times; the limit is %d", n, flushAllocs)
	}
}

// part returns what op takes, in parts of what whole takes.
func part(op, whole side) float64 {
	took := each(op, whole)
	return float64(took[0]) / float64(took[1])
}

func within(t *testing.T, what string, limit float64, measure func() float64) {
	t.Helper()
	for i := range attempts {
		took := measure()
		t.Logf("%s, measurement %d of at most %d: %.3f of a replay; the limit is %.2f", what, i+1, attempts, took, limit)
		if took <= limit {
			return
		}
	}
	t.Errorf("%s is above the limit in each measurement", what)
}
