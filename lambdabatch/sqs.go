// SPDX-License-Identifier: Apache-2.0

package lambdabatch

import (
	"context"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
)

// SQS guards h, a handler for one message of a standard queue, so that each
// unit of work runs once. Start the result with lambda.StartHandlerFunc, and
// enable ReportBatchItemFailures in the event source mapping. It is safe for
// concurrent use if h is.
//
// A standard queue has no order. Two messages of a batch that stand for the
// same work are processed one after the other. Like all constructors of this
// package SQS panics if an argument is nil or an option is invalid.
func SQS[T any](
	g *idempotent.Guard, h func(context.Context, T) error, optFns ...func(*Options),
) func(context.Context, events.SQSEvent) (events.SQSEventResponse, error) {
	return sqs(g, source{name: "SQS", redelivery: SQSRedelivery}, h, optFns)
}

// SQSFIFO is [SQS] for a FIFO queue. A group stops at its first message that fails, and
// that message and those behind it in its group are redelivered, so that none overtakes
// it. The other groups go on; with [Options.Concurrency] groups run at the same time. A
// message that [Options.Visibility] hides holds its group.
//
// Do not use a content-based deduplication id as [Options.ID]: it means "the
// same body within five minutes", and not "the same order".
func SQSFIFO[T any](
	g *idempotent.Guard, h func(context.Context, T) error, optFns ...func(*Options),
) func(context.Context, events.SQSEvent) (events.SQSEventResponse, error) {
	return sqs(g, source{name: "SQSFIFO", redelivery: SQSRedelivery, fifo: true}, h, optFns)
}

func sqs[T any](
	g *idempotent.Guard, s source, h func(context.Context, T) error, optFns []func(*Options),
) func(context.Context, events.SQSEvent) (events.SQSEventResponse, error) {
	s.sentBy, s.ids = []string{"aws:sqs"}, "messageId"
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

func sqsRecord(m *events.SQSMessage, r *Message) error {
	*r = Message{
		ItemID: m.MessageId, EventID: m.MessageId, Source: m.EventSourceARN, Body: []byte(m.Body),
		Lane: m.Attributes["MessageGroupId"], Event: m, sentBy: m.EventSource,
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
