// SPDX-License-Identifier: Apache-2.0

package otelonce

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdabatch"
)

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
