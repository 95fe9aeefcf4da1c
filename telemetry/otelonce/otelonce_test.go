// SPDX-License-Identifier: Apache-2.0

package otelonce_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	api "go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/telemetry"
	"github.com/once-lambda/once/telemetry/otelonce"
)

// lab is an observer with the SDK as its provider.
type lab struct {
	t        *testing.T
	reader   *metric.ManualReader
	spans    *tracetest.SpanRecorder
	observer *otelonce.Observer
	guard    *idempotent.Guard
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	var err error
	l.observer, err = otelonce.New(func(o *otelonce.Options) {
		o.MeterProvider = metric.NewMeterProvider(metric.WithReader(l.reader))
		o.TracerProvider = trace.NewTracerProvider(trace.WithSpanProcessor(l.spans))
		o.Now = func() time.Time { return time.UnixMilli(100_000) }
	})
	if err != nil {
		t.Fatal(err)
	}
	l.guard, err = idempotent.New(memstore.New(), func(o *idempotent.Options) {
		o.Observer, o.Logger = l.observer, slog.New(slog.DiscardHandler)
		o.RequestID = func(context.Context) string { return "r-1" }
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// charge returns a guarded handler in a span.
func (l *lab) charge(h func(context.Context, string) (string, error)) func(context.Context, string) (string, error) {
	return otelonce.Handler(l.observer, "charge", idempotent.Wrap(l.guard, idempotent.KeyFrom("charge", func(id string) (string, string) { return "acme", id }), h))
}

// collect returns the metrics that were recorded.
func (l *lab) collect() (all []metricdata.Metrics) {
	l.t.Helper()
	var got metricdata.ResourceMetrics
	if err := l.reader.Collect(l.t.Context(), &got); err != nil {
		l.t.Fatal(err)
	}
	for _, s := range got.ScopeMetrics {
		for _, m := range s.Metrics {
			if m.Description == "" {
				l.t.Errorf("%s has no description", m.Name)
			}
			all = append(all, m)
		}
	}
	return all
}

// counts returns the counters by name and operation.
func (l *lab) counts() map[string]map[string]int64 {
	l.t.Helper()
	counts := map[string]map[string]int64{}
	for _, m := range l.collect() {
		data, ok := m.Data.(metricdata.Sum[int64])
		if !ok {
			continue
		}
		if !data.IsMonotonic || m.Unit != "{event}" {
			l.t.Errorf("%s is %+v", m.Name, m)
		}
		counts[m.Name] = map[string]int64{}
		for _, p := range data.DataPoints {
			if p.Attributes.Len() != 1 {
				l.t.Errorf("%s has the attributes %v", m.Name, p.Attributes)
			}
			operation, _ := p.Attributes.Value("once.operation")
			counts[m.Name][operation.AsString()] += p.Value
		}
	}
	return counts
}

// gauges returns the gauges by name.
func (l *lab) gauges() map[string]float64 {
	l.t.Helper()
	gauges := map[string]float64{}
	for _, m := range l.collect() {
		switch data := m.Data.(type) {
		case metricdata.Gauge[float64]:
			gauges[m.Name] = data.DataPoints[0].Value
		case metricdata.Gauge[int64]:
			gauges[m.Name] = float64(data.DataPoints[0].Value)
		}
	}
	return gauges
}

func texts(all []attribute.KeyValue) (s []string) {
	for _, a := range all {
		s = append(s, string(a.Key)+"="+a.Value.String())
	}
	return s
}

// A request is a span with its facts as events, and the facts are counted.
func TestHandler(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	failure := errors.New("the card is secret")
	h := l.charge(func(_ context.Context, id string) (string, error) {
		if id == "o-2" {
			return "", failure
		}
		return "ch_1", nil
	})
	for _, id := range []string{"o-1", "o-1", "o-2"} {
		got, err := h(t.Context(), id)
		if id == "o-1" && (got != "ch_1" || err != nil) || id == "o-2" && err != failure {
			t.Errorf("got %q %v", got, err)
		}
	}
	var got []string
	for _, s := range l.spans.Ended() {
		line := fmt.Sprint(s.Name(), " ", s.Status().Code, s.Status().Description, " ", texts(s.Attributes()), ":")
		for _, e := range s.Events() {
			line += " " + e.Name
		}
		got = append(got, line)
	}
	want := []string{
		"charge Unset []: once.reserved once.completed once.request_ended",
		"charge Unset []: once.replayed once.request_ended",
		"charge Error [error.type=*errors.errorString]: once.reserved once.marked_unknown once.request_ended",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the spans:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	hash := idempotent.Key{Operation: "charge", Scope: "acme", ID: "o-2"}.RecordID().KeyHash()
	last := l.spans.Ended()[2].Events()[1]
	attrs := texts(last.Attributes)
	if wanted := []string{"once.operation=charge", "once.key_hash=" + hash, "once.reason=handler_error", "once.request_id=r-1", "once.attempt=1", "once.recovery=reconcile", "error.type=*errors.errorString"}; !slices.Equal(attrs, wanted) {
		t.Errorf("the fact has %q, want %q", attrs, wanted)
	}
	if last.Time.IsZero() || strings.Contains(fmt.Sprint(l.spans.Ended()), "secret") {
		t.Error("a fact has no time, or contains a secret")
	}
	counts := l.counts()
	for name, n := range map[string]int64{"once.reserved": 2, "once.replayed": 1, "once.completed": 1, "once.marked_unknown": 1, "once.request_ended": 3} {
		if c := counts[name]["charge"]; c != n {
			t.Errorf("%s is %d, want %d", name, c, n)
		}
	}
}

// An event without an attempt and without an error has no attribute for them.
func TestAttributesThatAreMissing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	otelonce.Handler(l.observer, "charge", func(ctx context.Context, _ int) (int, error) {
		l.observer.Observe(ctx, event.Event{Kind: event.KeyMissing, Operation: "charge"})
		return 0, nil
	})(t.Context(), 1)
	if got := texts(l.spans.Ended()[0].Events()[0].Attributes); !slices.Equal(got, []string{"once.operation=charge"}) {
		t.Errorf("the attributes are %q", got)
	}
}

// A fact of evidence about a step has the step's name.
func TestEvidenceAboutAStepNamesIt(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	h := l.charge(func(ctx context.Context, _ string) (string, error) {
		e, _ := idempotent.FromContext(ctx)
		return "ch_1", l.guard.Resolve(ctx, e.RecordID(), idempotent.ResolvedStep("ship", "s-1"))
	})
	if _, err := h(t.Context(), "o-1"); err != nil {
		t.Fatal(err)
	}
	events := l.spans.Ended()[0].Events()
	if len(events) != 4 || events[1].Name != "once.resolved" || !slices.Contains(texts(events[1].Attributes), "once.step=ship") {
		t.Errorf("the facts: %v", events)
	}
}

// A panic ends the span and continues.
func TestPanics(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	func() {
		defer func() {
			if p := recover(); p != "secret" {
				t.Errorf("the panic is %v", p)
			}
		}()
		l.charge(func(context.Context, string) (string, error) { panic("secret") })(t.Context(), "o-1")
	}()
	if ended := l.spans.Ended(); len(ended) != 1 || ended[0].Status().Code != codes.Error || !slices.Equal(texts(ended[0].Attributes()), []string{"error.type=panic"}) {
		t.Errorf("the spans: %+v", ended)
	}
}

// The handling of a message is a consumer span with its record.
func TestMessage(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	key := idempotent.Key{Operation: "fulfil", Scope: "queue", ID: "o-1", Fingerprint: idempotent.FingerprintBytes(nil)}
	work := otelonce.Message(l.observer, "orders", func(context.Context, string) error { return idempotent.NotExecuted(errors.New("closed")) }, semconv.MessagingSystemAWSSQS)
	for range 2 {
		_, err := idempotent.Do(t.Context(), l.guard, key, func(ctx context.Context) (int, error) { return 0, work(ctx, "o-1") })
		if err == nil {
			t.Error("the error was lost")
		}
	}
	ended := l.spans.Ended()
	if len(ended) != 2 || ended[1].Name() != "process orders" || ended[1].SpanKind() != oteltrace.SpanKindConsumer || ended[1].Status().Code != codes.Error {
		t.Fatalf("the spans: %+v", ended)
	}
	want := []string{
		"messaging.operation.type=process", "messaging.operation.name=process", "messaging.system=aws_sqs",
		"once.operation=fulfil", "once.key_hash=" + key.RecordID().KeyHash(), "once.attempt=2", "error.type=" + fmt.Sprintf("%T", idempotent.NotExecuted(errors.New("x"))),
	}
	if got := texts(ended[1].Attributes()); !slices.Equal(got, want) {
		t.Errorf("the attributes:\n%q\nwant\n%q", got, want)
	}
	if err := otelonce.Message(l.observer, "orders", func(context.Context, int) error { return nil })(t.Context(), 1); err != nil {
		t.Error(err)
	}
	if s := l.spans.Ended()[2]; s.Status().Code != codes.Unset || len(s.Attributes()) != 2 {
		t.Errorf("the span of a message that is not guarded: %+v", s)
	}
}

// Every kind of fact is counted; kinds of a later version are ignored.
func TestEveryFact(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, m := range telemetry.Metrics() {
		l.observer.Observe(t.Context(), event.Event{Kind: m.Kind, Operation: "charge", Step: "ship"})
	}
	l.observer.Observe(t.Context(), event.Event{Kind: "of a later version", Operation: "charge"})
	counts := l.counts()
	if len(counts) != len(telemetry.Metrics()) {
		t.Errorf("%d counters, want %d", len(counts), len(telemetry.Metrics()))
	}
	for name, by := range counts {
		if by["charge"] != 1 {
			t.Errorf("%s is %v", name, by)
		}
	}
}

// Operations beyond the limit count as "other".
func TestOperationsAreBounded(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 200 {
				l.observer.Observe(context.Background(), event.Event{Kind: event.Reserved, Operation: fmt.Sprint(i)})
			}
		})
	}
	all.Wait()
	counts := l.counts()
	by := counts["once.reserved"]
	if len(by) != 101 || by["other"] != 800 {
		t.Errorf("%d operations, %d others; want 101 and 800", len(by), by["other"])
	}
}

// The gauges cover all records that wait. A report of a list that failed sets
// none.
func TestReconciled(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.observer.Reconciled(t.Context(), idempotent.Report{Listed: true, Pending: 3, Oldest: time.UnixMilli(10_000), PendingReleased: 2, OldestReleased: time.UnixMilli(40_000)})
	want := map[string]float64{telemetry.UnknownRecords: 3, telemetry.UnknownOldestAge: 90, telemetry.ReleasedRecords: 2, telemetry.ReleasedOldestAge: 60}
	if got := l.gauges(); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	scanned := idempotent.Report{Listed: true}
	scanned.Scan.Ended = time.UnixMilli(70_000)
	l.observer.Reconciled(t.Context(), scanned)
	if got := l.gauges()[telemetry.ScanAge]; got != 30 {
		t.Errorf("the age of the scan is %v, want 30", got)
	}
	l = newLab(t)
	l.observer.Reconciled(t.Context(), idempotent.Report{Pending: 3, Oldest: time.UnixMilli(10_000)})
	if got := l.gauges(); len(got) != 0 {
		t.Errorf("got %v of a list that failed", got)
	}
}

// The durations of requests are histograms in seconds, by operation. A duration of
// zero is not a value.
func TestDurations(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, d := range []event.Durations{{Claim: 4 * time.Millisecond, Handler: 2 * time.Second, Settle: 30 * time.Millisecond}, {Claim: 6 * time.Millisecond}} {
		l.observer.Observe(t.Context(), event.Event{Kind: event.RequestEnded, Operation: "charge", Durations: d})
	}
	got := map[string]string{}
	for _, m := range l.collect() {
		if h, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Unit == "s" {
			p := h.DataPoints[0]
			operation, _ := p.Attributes.Value("once.operation")
			got[m.Name] = fmt.Sprintf("%s %d %.3f, the last boundary is %v", operation.AsString(), p.Count, p.Sum, p.Bounds[len(p.Bounds)-1])
		}
	}
	want := map[string]string{
		telemetry.ClaimDuration:   "charge 2 0.010, the last boundary is 900",
		telemetry.HandlerDuration: "charge 1 2.000, the last boundary is 900",
		telemetry.SettleDuration:  "charge 1 0.030, the last boundary is 900",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// refusing is a meter that refuses one instrument.
type refusing struct {
	noop.Meter
	name string
}

func (r refusing) check(name string) error {
	if name == r.name {
		return errors.New("refused " + name)
	}
	return nil
}

func (r refusing) Int64Counter(name string, _ ...api.Int64CounterOption) (api.Int64Counter, error) {
	return noop.Int64Counter{}, r.check(name)
}

func (r refusing) Float64Histogram(name string, _ ...api.Float64HistogramOption) (api.Float64Histogram, error) {
	return noop.Float64Histogram{}, r.check(name)
}

func (r refusing) Int64Gauge(name string, _ ...api.Int64GaugeOption) (api.Int64Gauge, error) {
	return noop.Int64Gauge{}, r.check(name)
}

func (r refusing) Float64Gauge(name string, _ ...api.Float64GaugeOption) (api.Float64Gauge, error) {
	return noop.Float64Gauge{}, r.check(name)
}

type provider struct {
	noop.MeterProvider
	meter api.Meter
}

func (p provider) Meter(string, ...api.MeterOption) api.Meter { return p.meter }

// The error for each instrument is New's error.
func TestRefusedInstruments(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"once.reserved", telemetry.ClaimDuration, telemetry.UnknownRecords, telemetry.ReleasedOldestAge} {
		_, err := otelonce.New(func(o *otelonce.Options) { o.MeterProvider = provider{meter: refusing{name: name}} })
		if err == nil || !strings.Contains(err.Error(), "otelonce: New: refused "+name) {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}

// Without a provider everything works and nothing is recorded.
func TestWithoutAProvider(t *testing.T) {
	t.Parallel()
	o, err := otelonce.New()
	if err != nil {
		t.Fatal(err)
	}
	o.Reconciled(t.Context(), idempotent.Report{Listed: true})
	h := otelonce.Handler(o, "charge", func(ctx context.Context, id int) (int, error) {
		o.Observe(ctx, event.Event{Kind: event.Reserved})
		return id, nil
	})
	if got, err := h(t.Context(), 7); got != 7 || err != nil {
		t.Errorf("got %d %v", got, err)
	}
}

func ExampleHandler() {
	charge := func(_ context.Context, order string) (string, error) { return "ch_1", nil }
	facts, err := otelonce.New() // with the global providers
	if err != nil {
		panic(err)
	}
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) {
		o.Observer, o.TraceParent = facts, otelonce.TraceParent
	})
	if err != nil {
		panic(err)
	}
	byOrder := idempotent.KeyFrom("charge", func(order string) (scope, id string) { return idempotent.Global, order })
	handler := otelonce.Handler(facts, "charge", idempotent.Wrap(guard, byOrder, charge)) // for lambda.Start
	fmt.Println(handler(context.Background(), "o-1"))
	// Output: ch_1 <nil>
}

func ExampleMessage() {
	ship := func(_ context.Context, order string) error {
		fmt.Println("shipping", order)
		return nil
	}
	facts, err := otelonce.New()
	if err != nil {
		panic(err)
	}
	work := otelonce.Message(facts, "orders", ship) // for lambdabatch.SQS
	fmt.Println(work(context.Background(), "o-1"))
	// Output:
	// shipping o-1
	// <nil>
}
