//go:build !race

package bench

import (
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
)

const (
	factLimit   = 300 * time.Nanosecond // telling an observer one fact
	flushLimit  = 3 * time.Microsecond  // the facts of an invocation and their line
	flushAllocs = 3
)

// A fact costs at most 300 ns: for the guard to tell it to an observer that does
// nothing, and for the metrics to count it.
func TestObserverOverhead(t *testing.T) {
	unobserved, observed := replayer(t, nil), replayer(t, idempotent.ObserverFunc(nobody))
	o := newMetrics(t)
	within(t, "telling a fact", factLimit, func() time.Duration {
		took := each(observed, unobserved)
		return took[0] - took[1]
	})
	within(t, "counting a fact", factLimit, func() time.Duration { return each(func() { tell(o, usual[:1]) })[0] })
}

// A flush costs at most 3 µs and 3 allocations, the facts before it included.
func TestFlush(t *testing.T) {
	o := newMetrics(t)
	kinds := all()
	within(t, "flushing an invocation", flushLimit, func() time.Duration { return each(func() { flush(o, usual) })[0] })
	within(t, "flushing every kind of fact", 2*flushLimit, func() time.Duration { return each(func() { flush(o, kinds) })[0] })
	if n := testing.AllocsPerRun(100, func() { flush(o, kinds) }); n > flushAllocs {
		t.Errorf("a flush allocates %.0f times, want %d at most", n, flushAllocs)
	} else {
		t.Logf("a flush allocates %.0f times; the limit is %d", n, flushAllocs)
	}
}

func within(t *testing.T, what string, limit time.Duration, measure func() time.Duration) {
	t.Helper()
	for i := range attempts {
		took := measure()
		t.Logf("%s, measurement %d of at most %d: %s; the limit is %s", what, i+1, attempts, took, limit)
		if took <= limit {
			return
		}
	}
	t.Errorf("%s is above the limit in each measurement", what)
}
