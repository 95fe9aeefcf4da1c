//go:build !race

package bench

import (
	"testing"

	"github.com/once-lambda/once/idempotent/event"
)

// The limits of telemetry, relative to a replay on the store in memory, which is
// the fastest possible guarded call.
const (
	tellLimit   = 0.20 // passing one event to an observer: a difference of two replays, which vary by some percent
	countLimit  = 0.05 // counting an event
	flushLimit  = 0.50 // the events of an invocation and their line
	flushAllocs = 3
)

// An event costs a small part of a replay: for the guard to pass it to an
// observer that does nothing, and for the metrics to count it.
func TestObserverOverhead(t *testing.T) {
	replay, observed := replayer(t, nil), replayer(t, event.ObserverFunc(nobody))
	o := newMetrics(t)
	within(t, "observing an event", tellLimit, func() float64 {
		took := each(observed, replay)
		return float64(took[0]-took[1]) / float64(took[1])
	})
	within(t, "counting an event", countLimit, func() float64 { return part(func() { tell(o, usual[:1]) }, replay) })
}

// A flush costs less than a replay, and at most 3 allocations, including the
// events before it.
func TestFlush(t *testing.T) {
	o, replay := newMetrics(t), replayer(t, nil)
	kinds := all()
	within(t, "flushing an invocation", flushLimit, func() float64 { return part(func() { flush(o, usual) }, replay) })
	within(t, "flushing every kind of event", 2*flushLimit, func() float64 { return part(func() { flush(o, kinds) }, replay) })
	if n := testing.AllocsPerRun(100, func() { flush(o, kinds) }); n > flushAllocs {
		t.Errorf("a flush allocates %.0f times, want %d at most", n, flushAllocs)
	} else {
		t.Logf("a flush allocates %.0f times; the limit is %d", n, flushAllocs)
	}
}

// part returns the duration of op relative to that of whole.
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
