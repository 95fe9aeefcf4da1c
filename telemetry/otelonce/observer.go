// SPDX-License-Identifier: Apache-2.0

package otelonce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/lambdabatch"
	"github.com/once-lambda/once/telemetry"
)

// scope is the name of the instrumentation.
const scope = "github.com/once-lambda/once/telemetry/otelonce"

// Attributes without a name in OpenTelemetry's semantic conventions.
const (
	operationKey = attribute.Key(telemetry.Prefix + "operation")
	keyHashKey   = attribute.Key(telemetry.Prefix + "key_hash")
	attemptKey   = attribute.Key(telemetry.Prefix + "attempt")
	recoveryKey  = attribute.Key(telemetry.Prefix + "recovery")
	reasonKey    = attribute.Key(telemetry.Prefix + "reason")
	stepKey      = attribute.Key(telemetry.Prefix + "step")
	requestIDKey = attribute.Key(telemetry.Prefix + "request_id") // of idempotent.Options.RequestID; not always the invocation's
)

// maxOperations limits how many operations are counted separately, because each is
// a separate series of every instrument. Further operations are counted as "other".
const maxOperations = 100

// buckets are the boundaries of the histograms, in seconds. A handler runs for up
// to 15 minutes.
var buckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900}

// Observer counts events and adds them to the span of their context. Make one with
// [New]; it is safe for concurrent use.
type Observer struct {
	tracer   trace.Tracer
	counters []metric.Int64Counter // in the order of telemetry.Metrics
	now      func() time.Time

	claim, handler, settle metric.Float64Histogram
	unknown, released      backlog
	scan                   metric.Float64Gauge

	mu         sync.RWMutex
	operations map[string]metric.MeasurementOption
}

// backlog are the gauges of the records that wait in one state.
type backlog struct {
	records metric.Int64Gauge
	oldest  metric.Float64Gauge
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
	i := instruments{meter: opts.MeterProvider.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))}
	for _, m := range telemetry.Metrics() {
		o.counters = append(o.counters, i.counter(m.Name, "Events of the kind "+string(m.Kind)+"."))
	}
	o.claim = i.histogram(telemetry.ClaimDuration, "Duration of claims: of the key, or of its stored outcome.")
	o.handler = i.histogram(telemetry.HandlerDuration, "Duration of handlers.")
	o.settle = i.histogram(telemetry.SettleDuration, "Duration of storing outcomes.")
	o.unknown = i.backlog(telemetry.UnknownRecords, telemetry.UnknownOldestAge, "whose outcome is unknown")
	o.released = i.backlog(telemetry.ReleasedRecords, telemetry.ReleasedOldestAge, "that were released and wait for a request")
	o.scan = i.age(telemetry.ScanAge, "How long ago the last scan for abandoned runs ended.")
	if err := errors.Join(i.errs...); err != nil {
		return nil, fmt.Errorf("otelonce: New: %w", err)
	}
	return o, nil
}

// instruments makes instruments and collects the errors.
type instruments struct {
	meter metric.Meter
	errs  []error
}

func (i *instruments) counter(name, description string) metric.Int64Counter {
	c, err := i.meter.Int64Counter(name, metric.WithUnit("{event}"), metric.WithDescription(description))
	i.errs = append(i.errs, err)
	return c
}

func (i *instruments) histogram(name, description string) metric.Float64Histogram {
	h, err := i.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description), metric.WithExplicitBucketBoundaries(buckets...))
	i.errs = append(i.errs, err)
	return h
}

func (i *instruments) backlog(records, oldest, which string) backlog {
	r, err := i.meter.Int64Gauge(records, metric.WithUnit("{record}"), metric.WithDescription("Records "+which+"."))
	i.errs = append(i.errs, err)
	return backlog{r, i.age(oldest, "How long the oldest record has waited, of those "+which+".")}
}

func (i *instruments) age(name, description string) metric.Float64Gauge {
	g, err := i.meter.Float64Gauge(name, metric.WithUnit("s"), metric.WithDescription(description))
	i.errs = append(i.errs, err)
	return g
}

// Observe counts e, and adds it to the span of ctx if that span is recorded. A
// replay or a refusal adds a link to the span of the request that ran, if
// idempotent.Options.TraceParent is set.
func (o *Observer) Observe(ctx context.Context, e event.Event) {
	i := telemetry.Index(e.Kind)
	if i < 0 {
		return // of a later version
	}
	operation := o.of(e.Operation)
	o.counters[i].Add(ctx, 1, operation)
	for _, phase := range [...]struct {
		histogram metric.Float64Histogram
		took      time.Duration
	}{{o.claim, e.Durations.Claim}, {o.handler, e.Durations.Handler}, {o.settle, e.Durations.Settle}} {
		if phase.took > 0 {
			phase.histogram.Record(ctx, phase.took.Seconds(), operation)
		}
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent(telemetry.Prefix+string(e.Kind), trace.WithTimestamp(e.Time), trace.WithAttributes(attributes(e)...))
		if slices.Contains(ofAnother, e.Kind) {
			if ran := spanContext(propagation.MapCarrier{traceParent: e.TraceParent}); ran.IsValid() {
				span.AddLink(trace.Link{SpanContext: ran})
			}
		}
	}
}

// ofAnother are the events about the record of another request. Their span is
// linked to that request's, if the record stores it.
var ofAnother = []event.Kind{event.Replayed, event.ReplayFailed, event.InProgress, event.Unresolved, event.Resolved}

// Reconciled sets the gauges: how many records wait, and for how long. The guard calls
// it with every report. It does nothing if the report does not cover all records
// ([idempotent.Report.Listed]).
func (o *Observer) Reconciled(ctx context.Context, r idempotent.Report) {
	if !r.Listed {
		return
	}
	now := o.now()
	o.unknown.record(ctx, r.Pending, telemetry.Age(r.Oldest, now))
	o.released.record(ctx, r.PendingReleased, telemetry.Age(r.OldestReleased, now))
	if since := cmp.Or(r.Scan.Ended, r.Scan.Began); !since.IsZero() {
		o.scan.Record(ctx, telemetry.Age(since, now).Seconds())
	}
}

func (b *backlog) record(ctx context.Context, records int, oldest time.Duration) {
	b.records.Record(ctx, int64(records))
	b.oldest.Record(ctx, oldest.Seconds())
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
		return metric.WithAttributeSet(attribute.NewSet(operationKey.String("other")))
	}
	known = metric.WithAttributeSet(attribute.NewSet(operationKey.String(operation)))
	o.operations[operation] = known
	return known
}

// attributes returns the attributes of e on a span. It includes of an error only
// the type.
func attributes(e event.Event) []attribute.KeyValue {
	all := []attribute.KeyValue{operationKey.String(e.Operation)}
	for _, a := range []attribute.KeyValue{
		keyHashKey.String(e.KeyHash), reasonKey.String(string(e.Reason)), stepKey.String(e.Step), requestIDKey.String(e.RequestID),
	} {
		if a.Value.AsString() != "" {
			all = append(all, a)
		}
	}
	if e.Attempt > 0 {
		all = append(all, attemptKey.Int(e.Attempt), recoveryKey.String(e.Recovery.String()))
	}
	if e.Err != nil {
		all = append(all, semconv.ErrorTypeKey.String(fmt.Sprintf("%T", e.Err)))
	}
	return all
}

var _ event.Observer = (*Observer)(nil)

// Handler returns h wrapped so that each call is a span with that name and the id
// of the invocation. Its events are those of the request. Use it if nothing else
// creates a span. Wrap the guarded handler, so that the span includes the claim and
// the outcome.
func Handler[Req, Resp any](
	o *Observer, name string, h func(context.Context, Req) (Resp, error), attrs ...attribute.KeyValue,
) func(context.Context, Req) (Resp, error) {
	return func(ctx context.Context, req Req) (resp Resp, err error) {
		options := []trace.SpanStartOption{trace.WithAttributes(attrs...)}
		if invocation, ok := lambdacontext.FromContext(ctx); ok {
			options = append(options, trace.WithAttributes(semconv.FaaSInvocationID(invocation.AwsRequestID)))
		}
		err = o.span(ctx, name, options, func(ctx context.Context) (failed error) {
			resp, failed = h(ctx, req)
			return failed
		})
		return resp, err
	}
}

// Message returns h wrapped for package lambdabatch: each attempt for a message is
// a consumer span with the message's record, attempt, id and queue. It has a link
// to the span of the sender, from the message attribute traceparent (W3C Trace
// Context) or from the X-Ray header of SQS. A message that is replayed or refused
// has no attempt and no span; its events are on the span of the batch.
func Message[T any](o *Observer, name string, h func(context.Context, T) error, attrs ...attribute.KeyValue) func(context.Context, T) error {
	attrs = append([]attribute.KeyValue{semconv.MessagingOperationTypeProcess, semconv.MessagingOperationName("process")}, attrs...)
	return func(ctx context.Context, message T) error {
		options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attrs...)}
		if m, ok := lambdabatch.FromContext(ctx); ok {
			options = append(options, received(m)...)
		}
		return o.span(ctx, "process "+name, options, func(ctx context.Context) error { return h(ctx, message) })
	}
}

// received returns what a span has of the message that it is about.
func received(m *lambdabatch.Message) []trace.SpanStartOption {
	queue := m.Source[strings.LastIndexAny(m.Source, ":/")+1:]
	all := []trace.SpanStartOption{trace.WithAttributes(semconv.MessagingDestinationName(queue), semconv.MessagingMessageID(m.ItemID))}
	sqs, ok := m.Event.(*events.SQSMessage)
	if !ok {
		return all
	}
	all = append(all, trace.WithAttributes(semconv.MessagingSystemAWSSQS))
	sender := spanContext(propagation.MapCarrier(m.Attributes))
	if !sender.IsValid() {
		sender = xray(sqs.Attributes["AWSTraceHeader"])
	}
	if sender.IsValid() {
		all = append(all, trace.WithLinks(trace.Link{SpanContext: sender}))
	}
	return all
}

// TraceParent returns the W3C trace parent of the span of ctx, or "" without one.
// Set idempotent.Options.TraceParent to it to link replays and refused requests to
// the span of the request that ran.
func TraceParent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceParent]
}

const traceParent = "traceparent"

// spanContext returns the span that a carrier names in W3C Trace Context.
func spanContext(carrier propagation.MapCarrier) trace.SpanContext {
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// xray returns the span that an X-Ray header names: Root=1-TIME-ID;Parent=ID;…
// (AWS X-Ray developer guide, "Tracing header").
func xray(header string) trace.SpanContext {
	var root, parent, sampled string
	for field := range strings.SplitSeq(header, ";") {
		switch name, v, _ := strings.Cut(strings.TrimSpace(field), "="); name {
		case "Root":
			root = strings.ReplaceAll(strings.TrimPrefix(v, "1-"), "-", "")
		case "Parent":
			parent = v
		case "Sampled":
			sampled = v
		}
	}
	flags := "00"
	if sampled == "1" {
		flags = "01"
	}
	return spanContext(propagation.MapCarrier{traceParent: "00-" + root + "-" + parent + "-" + flags})
}

// span runs f in a span. It records only the type of an error; a panic continues.
func (o *Observer) span(ctx context.Context, name string, options []trace.SpanStartOption, f func(context.Context) error) error {
	ctx, span := o.tracer.Start(ctx, name, options...)
	failed := "panic" // unless f returns
	defer func() {
		if failed != "" {
			span.SetStatus(codes.Error, "")
			span.SetAttributes(semconv.ErrorTypeKey.String(failed))
		}
		span.End()
	}()
	if e, ok := idempotent.FromContext(ctx); ok {
		id := e.RecordID()
		span.SetAttributes(operationKey.String(id.Operation()), keyHashKey.String(id.KeyHash()), attemptKey.Int(e.Attempt()))
	}
	err := f(ctx)
	failed = ""
	if err != nil {
		failed = fmt.Sprintf("%T", err)
	}
	return err
}
