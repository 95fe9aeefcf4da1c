// SPDX-License-Identifier: Apache-2.0

package otelonce

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/once-lambda/once/idempotent"
)

// Handler returns h wrapped so that each call is a span with that name. Its events
// are the facts of the request. Use it if nothing else creates a span. Wrap the
// guarded handler, so that the span includes the claim and the outcome.
func Handler[Req, Resp any](
	o *Observer, name string, h func(context.Context, Req) (Resp, error), attrs ...attribute.KeyValue,
) func(context.Context, Req) (Resp, error) {
	return func(ctx context.Context, req Req) (resp Resp, err error) {
		err = o.span(ctx, name, trace.SpanKindInternal, attrs, func(ctx context.Context) error {
			resp, err = h(ctx, req)
			return err
		})
		return resp, err
	}
}

// Message returns h wrapped for package lambdabatch: each attempt for a message is
// a consumer span with the message's record and attempt. Pass the event source as
// an attribute such as semconv.MessagingSystemAWSSQS. A message that is replayed
// or refused has no attempt and no span; its facts are on the span of the batch.
func Message[T any](o *Observer, name string, h func(context.Context, T) error, attrs ...attribute.KeyValue) func(context.Context, T) error {
	attrs = append([]attribute.KeyValue{semconv.MessagingOperationTypeProcess, semconv.MessagingOperationName("process")}, attrs...)
	return func(ctx context.Context, message T) error {
		return o.span(ctx, "process "+name, trace.SpanKindConsumer, attrs, func(ctx context.Context) error { return h(ctx, message) })
	}
}

// span runs f in a span. It records only the type of an error; a panic continues.
func (o *Observer) span(ctx context.Context, name string, kind trace.SpanKind, attrs []attribute.KeyValue, f func(context.Context) error) error {
	ctx, span := o.tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attrs...))
	failed := "panic" // unless f returns
	defer func() {
		if failed != "" {
			span.SetStatus(codes.Error, "")
			span.SetAttributes(semconv.ErrorTypeKey.String(failed))
		}
		span.End()
	}()
	if e, ok := idempotent.FromContext(ctx); ok && span.IsRecording() {
		id := e.RecordID()
		span.SetAttributes(OperationKey.String(id.Operation()), KeyHashKey.String(id.KeyHash()), AttemptKey.Int(e.Attempt()))
	}
	err := f(ctx)
	failed = ""
	if err != nil {
		failed = fmt.Sprintf("%T", err)
	}
	return err
}
