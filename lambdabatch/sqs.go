// SPDX-License-Identifier: Apache-2.0

package lambdabatch

import (
	"context"
	"encoding/json"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/logs"
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

var errNotSNS error = &DecodeError{logs.Error("lambdabatch: the body is not a notification of SNS; switch raw message delivery of the subscription off, or do not use FromSNS")}

// FromSNS sets [Options.Unwrap] for a queue that subscribes to an SNS topic without
// raw message delivery. ID, Fingerprint and Decode then get what the publisher sent,
// and [Message.Attributes] are the publisher's of the types String and Number. Pass it
// to a constructor.
func FromSNS(o *Options) {
	o.Unwrap = func(_ context.Context, m *Message) error {
		var notification struct {
			Type              string
			Message           *string
			MessageAttributes map[string]struct{ Type, Value string }
		}
		if err := json.Unmarshal(m.Body, &notification); err != nil || notification.Type != "Notification" || notification.Message == nil {
			return errNotSNS
		}
		m.Body, m.Attributes = []byte(*notification.Message), make(map[string]string, len(notification.MessageAttributes))
		for name, a := range notification.MessageAttributes {
			if a.Type != "Binary" {
				m.Attributes[name] = a.Value
			}
		}
		return nil
	}
}

// FromS3 sets [Options.ID], [Options.Scope] and [Options.Fingerprint] for a queue to
// which S3 sends its events, directly or through EventBridge, as [S3] and [EventBridge] do
// for a function: the id is made of the object, and the scope is the bucket. If the events
// come through an SNS topic, pass [FromSNS] too. The handler gets an [events.S3Event] with
// one record, or an [events.EventBridgeEvent]; FromS3 sets [Options.Decode], which refuses
// the other form. S3's test event has no record, and fails.
func FromS3(o *Options) {
	key := func(m *Message) (idempotent.Key, error) {
		var e struct { // has the members of both forms
			events.S3Event
			events.EventBridgeEvent
		}
		switch err := json.Unmarshal(m.Body, &e); {
		case err != nil:
			return idempotent.Key{}, &DecodeError{errOneRecord}
		case e.Source == s3Source:
			return s3Detail(&e.EventBridgeEvent)
		case len(e.Records) != 1:
			return idempotent.Key{}, &DecodeError{errOneRecord}
		}
		return s3Key(&e.S3Event)
	}
	o.Decode = func(ctx context.Context, body []byte, v any) error {
		err := decodeJSON(ctx, body, v)
		s3, ok := v.(*events.S3Event)
		bridge, through := v.(*events.EventBridgeEvent)
		if err == nil && (ok && len(s3.Records) == 0 || through && bridge.Source == "") {
			return errOtherForm
		}
		return err
	}
	o.ID = func(_ context.Context, m *Message) (string, error) {
		k, err := key(m)
		return k.ID, err
	}
	o.Scope = func(_ context.Context, m *Message) (string, error) {
		k, err := key(m)
		return k.Scope, err
	}
	o.Fingerprint = func(_ context.Context, m *Message) (idempotent.Fingerprint, error) {
		k, err := key(m)
		return k.Fingerprint, err
	}
}

var errOtherForm error = logs.Error("lambdabatch: FromS3: the event has another form than the handler takes: an events.S3Event comes from S3 directly, and an events.EventBridgeEvent through EventBridge")
