// SPDX-License-Identifier: Apache-2.0

//go:build !race

package bench

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/telemetry"
	"github.com/once-lambda/once/telemetry/emf"
)

func newMetrics(tb testing.TB) *emf.Observer {
	tb.Helper()
	o, err := emf.New(io.Discard, "Charges")
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

// usual are the events of an invocation; all is every kind of event.
var usual = []event.Kind{event.Reserved, event.StepDone, event.Completed, event.RequestEnded}

func all() (kinds []event.Kind) {
	for _, m := range telemetry.Metrics() {
		kinds = append(kinds, m.Kind)
	}
	return kinds
}

func tell(o event.Observer, kinds []event.Kind) {
	for _, kind := range kinds {
		e := event.Event{Kind: kind, Operation: "charge"}
		if kind == event.RequestEnded {
			e.Durations = event.Durations{Claim: 3 * time.Millisecond, Handler: 200 * time.Millisecond, Settle: 4 * time.Millisecond}
		}
		o.Observe(context.Background(), e)
	}
}

// flush observes the events of an invocation and flushes.
func flush(o *emf.Observer, kinds []event.Kind) {
	tell(o, kinds)
	if err := o.Flush(); err != nil {
		panic(err)
	}
}

// replayer returns a call that replays a stored outcome, with this observer: two
// events.
func replayer(tb testing.TB, observer event.Observer) func() {
	tb.Helper()
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Observer = observer })
	if err != nil {
		tb.Fatal(err)
	}
	ctx := tb.Context()
	key := idempotent.Key{Operation: "charge", Scope: "acme", ID: "o-1", Fingerprint: idempotent.FingerprintBytes([]byte("request"))}
	return func() {
		if _, err := idempotent.Do(ctx, guard, key, func(context.Context) (int, error) { return 1, nil }); err != nil {
			panic(err)
		}
	}
}

func nobody(context.Context, event.Event) {}

func BenchmarkObserver(b *testing.B) {
	o := newMetrics(b)
	kinds := all()
	for name, op := range map[string]func(){
		"replay/unobserved": replayer(b, nil),
		"replay/observed":   replayer(b, event.ObserverFunc(nobody)),
		"emf/fact":          func() { tell(o, usual[:1]) },
		"emf/usual":         func() { flush(o, usual) },
		"emf/all":           func() { flush(o, kinds) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				op()
			}
		})
	}
}

// The limits of telemetry, relative to a replay on the store in memory, which is
// the fastest possible guarded call.
const (
	tellLimit   = 0.30 // passing two events to an observer: a difference of two replays, which vary by some percent
	countLimit  = 0.05 // counting an event
	flushLimit  = 0.50 // the events of an invocation and their line
	flushAllocs = 3
)

// Events cost a small part of a replay: for the guard to measure and pass those of
// a replay to an observer that does nothing, and for the metrics to count one.
func TestObserverOverhead(t *testing.T) {
	replay, observed := replayer(t, nil), replayer(t, event.ObserverFunc(nobody))
	o := newMetrics(t)
	within(t, "observing the events of a replay", tellLimit, func() float64 {
		return part(t, observed, replay) - 1
	})
	within(t, "counting an event", countLimit, func() float64 { return part(t, func() { tell(o, usual[:1]) }, replay) })
}

// A flush costs less than a replay, and at most 3 allocations, including the
// events before it.
func TestFlush(t *testing.T) {
	o, replay := newMetrics(t), replayer(t, nil)
	kinds := all()
	within(t, "flushing an invocation", flushLimit, func() float64 { return part(t, func() { flush(o, usual) }, replay) })
	within(t, "flushing every kind of event", 2*flushLimit, func() float64 { return part(t, func() { flush(o, kinds) }, replay) })
	if n := testing.AllocsPerRun(100, func() { flush(o, kinds) }); n > flushAllocs {
		t.Errorf("a flush allocates %.0f times, want %d at most", n, flushAllocs)
	} else {
		t.Logf("a flush allocates %.0f times; the limit is %d", n, flushAllocs)
	}
}

// part returns the duration of op relative to that of whole.
func part(t testing.TB, op, whole side) float64 {
	t.Helper()
	took := kit.Quickest(t, 50, 1000, op, whole)
	return float64(took[0]) / float64(took[1])
}

func within(t *testing.T, what string, limit float64, part func() float64) {
	t.Helper()
	kit.Within(t, func() (string, bool) {
		took := part()
		return fmt.Sprintf("%s takes %.3f of a replay; the limit is %.2f", what, took, limit), took <= limit
	})
}
