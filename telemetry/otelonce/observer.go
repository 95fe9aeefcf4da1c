// SPDX-License-Identifier: Apache-2.0

package otelonce

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/telemetry"
)

// scope is the name of the instrumentation.
const scope = "github.com/once-lambda/once/telemetry/otelonce"

// Attributes without a name in OpenTelemetry.
const (
	OperationKey = attribute.Key("once.operation")
	KeyHashKey   = attribute.Key("once.key_hash")
	AttemptKey   = attribute.Key("once.attempt")
	RecoveryKey  = attribute.Key("once.recovery")
	ReasonKey    = attribute.Key("once.reason")
	StepKey      = attribute.Key("once.step")
)

// maxOperations limits how many operations are counted separately, because each is
// a separate series of every counter. Further operations are counted as "other".
const maxOperations = 100

// Observer counts facts, and adds them as events to the span of their context.
// Make one with [New]; it is safe for concurrent use.
type Observer struct {
	tracer   trace.Tracer
	counters []metric.Int64Counter // in the order of telemetry.Metrics
	unknown  metric.Float64Gauge   // telemetry.OldestUnresolved
	released metric.Float64Gauge   // telemetry.OldestReleased
	now      func() time.Time

	mu         sync.RWMutex
	operations map[string]metric.MeasurementOption
}

// Options are the options of [New]. The zero value of each field is its documented
// default.
type Options struct {
	// MeterProvider and TracerProvider receive the metrics and the spans. Default:
	// the global providers at the time of the call.
	MeterProvider  metric.MeterProvider
	TracerProvider trace.TracerProvider

	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// New returns an observer. An error is the meter provider's error for an
// instrument.
func New(optFns ...func(*Options)) (*Observer, error) {
	var opts Options
	for _, f := range optFns {
		f(&opts)
	}
	if opts.MeterProvider == nil {
		opts.MeterProvider = otel.GetMeterProvider()
	}
	if opts.TracerProvider == nil {
		opts.TracerProvider = otel.GetTracerProvider()
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	o := &Observer{
		tracer: opts.TracerProvider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL)),
		now:    opts.Now, operations: map[string]metric.MeasurementOption{},
	}
	meter := opts.MeterProvider.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))
	for _, m := range telemetry.Metrics() {
		c, err := meter.Int64Counter(m.Name, metric.WithUnit("{fact}"), metric.WithDescription("Facts of the kind "+string(m.Kind)+"."))
		if err != nil {
			return nil, fmt.Errorf("otel: %w", err)
		}
		o.counters = append(o.counters, c)
	}
	for _, g := range []struct {
		gauge             *metric.Float64Gauge
		name, description string
	}{
		{&o.unknown, telemetry.OldestUnresolved, "Age of the oldest record whose outcome is unknown."},
		{&o.released, telemetry.OldestReleased, "Age of the oldest record that was released and waits to be continued."},
	} {
		var err error
		if *g.gauge, err = meter.Float64Gauge(g.name, metric.WithUnit("s"), metric.WithDescription(g.description)); err != nil {
			return nil, fmt.Errorf("otel: %w", err)
		}
	}
	return o, nil
}

// Observe counts e, and adds it to the span of ctx if that span is recorded.
func (o *Observer) Observe(ctx context.Context, e event.Event) {
	i := telemetry.Index(e.Kind)
	if i < 0 {
		return // of a later version
	}
	o.counters[i].Add(ctx, 1, o.of(e.Operation))
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent("idempotent."+string(e.Kind), trace.WithTimestamp(e.Time), trace.WithAttributes(attributes(e)...))
	}
}

// Reconciled sets the gauges: the ages of the oldest records that r counts as
// unknown, and as released. Call it with every report.
func (o *Observer) Reconciled(ctx context.Context, r idempotent.Report) {
	now := o.now()
	o.unknown.Record(ctx, telemetry.Age(r.Oldest, now).Seconds())
	o.released.Record(ctx, telemetry.Age(r.OldestReleased, now).Seconds())
}

// of returns an operation as the attribute of a counter.
func (o *Observer) of(operation string) metric.MeasurementOption {
	o.mu.RLock()
	known, ok := o.operations[operation]
	o.mu.RUnlock()
	if ok {
		return known
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if known, ok := o.operations[operation]; ok { // added while this goroutine waited
		return known
	}
	if len(o.operations) >= maxOperations {
		return metric.WithAttributeSet(attribute.NewSet(OperationKey.String("other")))
	}
	known = metric.WithAttributeSet(attribute.NewSet(OperationKey.String(operation)))
	o.operations[operation] = known
	return known
}

// attributes returns the attributes of e on a span. Of an error it includes only
// the type.
func attributes(e event.Event) []attribute.KeyValue {
	all := []attribute.KeyValue{OperationKey.String(e.Operation)}
	for _, a := range []attribute.KeyValue{
		KeyHashKey.String(e.KeyHash), ReasonKey.String(string(e.Reason)), StepKey.String(e.Step), semconv.FaaSInvocationID(e.RequestID),
	} {
		if a.Value.AsString() != "" {
			all = append(all, a)
		}
	}
	if e.Attempt > 0 {
		all = append(all, AttemptKey.Int(e.Attempt), RecoveryKey.String(e.Recovery.String()))
	}
	if e.Err != nil {
		all = append(all, semconv.ErrorTypeKey.String(fmt.Sprintf("%T", e.Err)))
	}
	return all
}

var _ event.Observer = (*Observer)(nil)
