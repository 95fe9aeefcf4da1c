package lambdabatch

import (
	"context"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
)

// SQS returns h for every message of a standard queue, once per unit of work.
// Start it with lambda.StartHandlerFunc, and switch ReportBatchItemFailures on
// in the event source mapping. The function is safe for concurrent use if h is.
//
// Messages come in no order; two that stand for the same work come one after
// the other. Like all constructors of this package it panics if an argument is
// nil or an option is wrong.
func SQS[T any](g *idempotent.Guard, h func(context.Context, T) error, optFns ...func(*Options)) func(context.Context, events.SQSEvent) (events.SQSEventResponse, error) {
	return sqs(g, source{name: "SQS", redelivery: SQSRedelivery}, h, optFns)
}

// SQSFIFO is [SQS] for a FIFO queue: at the first failure it stops, and returns
// that message and all that were not reached, so that none overtakes it. With
// [Options.PerGroup] only the failed message's group stops, and with
// [Options.Concurrency] groups go on side by side.
//
// A content-based deduplication id is no [Options.ID]: it means "the same body
// within five minutes", and not "the same order".
func SQSFIFO[T any](g *idempotent.Guard, h func(context.Context, T) error, optFns ...func(*Options)) func(context.Context, events.SQSEvent) (events.SQSEventResponse, error) {
	return sqs(g, source{name: "SQSFIFO", redelivery: SQSRedelivery, fifo: true}, h, optFns)
}

func sqs[T any](g *idempotent.Guard, s source, h func(context.Context, T) error, optFns []func(*Options)) func(context.Context, events.SQSEvent) (events.SQSEventResponse, error) {
	b := newBatch(g, s, h, sqsRecord, optFns)
	return func(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
		ids, err := b.run(ctx, event.Records)
		response := events.SQSEventResponse{BatchItemFailures: make([]events.SQSBatchItemFailure, len(ids))}
		for i, id := range ids {
			response.BatchItemFailures[i].ItemIdentifier = id
		}
		return response, err
	}
}

func sqsRecord(m *events.SQSMessage, r *Record) error {
	*r = Record{
		ItemID: m.MessageId, Source: m.EventSourceARN, Body: []byte(m.Body),
		Lane: m.Attributes["MessageGroupId"], Event: m,
	}
	for name, a := range m.MessageAttributes {
		if a.StringValue != nil {
			if r.Attributes == nil {
				r.Attributes = make(map[string]string, len(m.MessageAttributes))
			}
			r.Attributes[name] = *a.StringValue
		}
	}
	return nil
}
