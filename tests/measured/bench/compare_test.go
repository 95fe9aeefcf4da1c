// SPDX-License-Identifier: Apache-2.0

//go:build !race

package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/telemetry"
	"github.com/once-lambda/once/telemetry/emf"
)

// side is one operation of one of the two sides that are compared.
type side = func()

// pairs is the number of turns of each side.
const pairs = 61

// ratios are medians over pairs of turns: the cost of the toolkit relative to
// the other side.
type ratios struct{ wall, cpu float64 }

func (r ratios) String() string {
	if r.wall == 0 {
		return fmt.Sprintf("processor %.3f", r.cpu)
	}
	return fmt.Sprintf("wall %.3f, processor %.3f", r.wall, r.cpu)
}

// wantWithin compares both sides in turns of n operations. Without a limit for
// the wall time, only the processor time counts.
func wantWithin(t *testing.T, limit ratios, ours, theirs side, n int) {
	t.Helper()
	turn(ours, n) // connections and caches are warm after this
	turn(theirs, n)
	kit.Within(t, func() (string, bool) {
		took := kit.Turns(pairs, func() cost { return turn(ours, n) }, func() cost { return turn(theirs, n) })
		var wall, cpu []float64
		for i, a := range took[0] {
			b := took[1][i]
			wall = append(wall, float64(a.wall)/float64(b.wall))
			cpu = append(cpu, float64(a.cpu)/float64(b.cpu))
		}
		got := ratios{kit.Median(t, wall), kit.Median(t, cpu)}
		return fmt.Sprintf("%s; the limits are %s; medians of %d pairs of %d operations", got, limit, pairs, n),
			(limit.wall == 0 || got.wall <= limit.wall) && got.cpu <= limit.cpu
	})
}

// cost is the cost of several operations: wall time, and the processor time of
// this process, user and system, including the runtime.
type cost struct{ wall, cpu time.Duration }

// turn runs n operations from a clean heap, so that one side does not collect
// the other's garbage.
func turn(op side, n int) cost {
	runtime.GC()
	cpu, start := kit.ProcessorTime(), time.Now()
	for range n {
		op()
	}
	return cost{time.Since(start), kit.ProcessorTime() - cpu}
}

// Both sides use one client and one table, so that neither has an advantage.
var (
	endpoint string
	client   *dynamodb.Client
	table    string
	wire     = &meteredTransport{}
)

// meteredTransport counts requests.
type meteredTransport struct{ requests atomic.Int64 }

func (m *meteredTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	m.requests.Add(1)
	return http.DefaultTransport.RoundTrip(r)
}

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	if os.Getenv("AWS_LAMBDA_RUNTIME_API") != "" { // a process of environment_test.go
		return function()
	}
	at, stop, err := engine.DynamoDBLocal()
	if err == nil {
		endpoint = at
		defer stop()
		client = dynamostore.NewClient(engine.Config(endpoint), func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: wire} })
		table = "once-" + strings.ToLower(rand.Text())
		err = createTable()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func createTable() error {
	store, err := dynamostore.New(client, table)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
	defer cancel()
	return store.CreateTable(ctx)
}

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
// the fastest possible guarded call. They are two to five times what was measured
// for parts, because a call takes less than a microsecond. Allocations are exact.
const (
	tellLimit  = 1.50 // a replay that passes its two events to an observer
	countLimit = 0.05 // counting an event
	flushLimit = 0.50 // the events of an invocation and their line
	fullLimit  = 2.00 // events of every kind and their line

	turns = 2000 // calls in one turn, which takes some milliseconds
)

// Events cost a small part of a replay: for the guard to measure and pass those of
// a replay to an observer that does nothing, and for the metrics to count one. None
// allocates.
func TestObserverOverhead(t *testing.T) {
	replay, observed := replayer(t, nil), replayer(t, event.ObserverFunc(nobody))
	o := newMetrics(t)
	count := func() { tell(o, usual[:1]) }
	wantWithin(t, ratios{cpu: tellLimit}, observed, replay, turns)
	wantWithin(t, ratios{cpu: countLimit}, count, replay, turns)
	allocates(t, "counting an event", 0, count)
	if with, without := testing.AllocsPerRun(100, observed), testing.AllocsPerRun(100, replay); with != without {
		t.Errorf("a replay allocates %.0f times with an observer and %.0f without, want no difference", with, without)
	}
}

// A flush costs less than a replay, with the events of an invocation before it. With
// events of every kind it costs about as much as one. It never allocates.
func TestFlush(t *testing.T) {
	o, replay := newMetrics(t), replayer(t, nil)
	kinds := all()
	wantWithin(t, ratios{cpu: flushLimit}, func() { flush(o, usual) }, replay, turns)
	wantWithin(t, ratios{cpu: fullLimit}, func() { flush(o, kinds) }, replay, turns)
	allocates(t, "a flush", 0, func() { flush(o, kinds) })
}

func allocates(t *testing.T, what string, want float64, op func()) {
	t.Helper()
	if n := testing.AllocsPerRun(100, op); n != want {
		t.Errorf("%s allocates %.0f times, want %.0f", what, n, want)
	}
}
