package bench

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/memstore"
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
var usual = []event.Kind{event.Reserved, event.StepDone, event.Completed}

func all() (kinds []event.Kind) {
	for _, m := range telemetry.Metrics() {
		kinds = append(kinds, m.Kind)
	}
	return kinds
}

func tell(o event.Observer, kinds []event.Kind) {
	for _, kind := range kinds {
		o.Observe(context.Background(), event.Event{Kind: kind, Operation: "charge"})
	}
}

// flush observes the events of an invocation and flushes.
func flush(o *emf.Observer, kinds []event.Kind) {
	tell(o, kinds)
	if err := o.Flush(); err != nil {
		panic(err)
	}
}

// replayer returns a call that replays a stored outcome, with this observer: one
// event.
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

// each returns the duration of one call of each op: the fastest of several
// turns, because disturbances only add time. The ops take turns.
func each(ops ...func()) []time.Duration {
	const turns, n = 50, 1000
	best := slices.Repeat([]time.Duration{1 << 62}, len(ops))
	for range turns {
		for i, op := range ops {
			start := time.Now()
			for range n {
				op()
			}
			best[i] = min(best[i], time.Since(start)/n)
		}
	}
	return best
}
