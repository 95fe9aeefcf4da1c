package otel

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/once-lambda/once/idempotent"
)

// Handler returns h, each call of which is a span of that name: the place for
// the facts of a request, if nothing else has made one. Wrap the guarded
// handler, so that the claim and the outcome are inside.
func Handler[Req, Resp any](o *Observer, name string, h func(context.Context, Req) (Resp, error), attrs ...attribute.KeyValue) func(context.Context, Req) (Resp, error) {
	return func(ctx context.Context, req Req) (resp Resp, err error) {
		err = o.span(ctx, name, trace.SpanKindInternal, attrs, func(ctx context.Context) error {
			resp, err = h(ctx, req)
			return err
		})
		return resp, err
	}
}

// Message returns h for package lambdabatch: each run for a message is a span of
// a consumer, with the message's record and attempt. Say where messages come
// from with an attribute such as semconv.MessagingSystemAWSSQS. A message that
// is replayed or refused has no run and no span; its facts are on the span of
// the batch.
func Message[T any](o *Observer, name string, h func(context.Context, T) error, attrs ...attribute.KeyValue) func(context.Context, T) error {
	attrs = append([]attribute.KeyValue{semconv.MessagingOperationTypeProcess, semconv.MessagingOperationName("process")}, attrs...)
	return func(ctx context.Context, message T) error {
		return o.span(ctx, "process "+name, trace.SpanKindConsumer, attrs, func(ctx context.Context) error { return h(ctx, message) })
	}
}

// span runs f in a span. Of an error it tells the type; a panic goes on.
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
