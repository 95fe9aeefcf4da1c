package batch

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-lambda-go/events"
	"pgregory.net/rapid"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdabatch"
)

// sent is one message in a source. Two messages may be about one order.
type sent struct {
	id, about, group string
	acknowledged     bool
}

// source is one kind of event source: how it delivers, and how it interprets an
// answer.
type source struct {
	name     string
	ordered  bool // within a group
	together bool // one failure stops the whole batch
	option   func(*lambdabatch.Options)
	build    func(*idempotent.Guard, func(context.Context, order) error, func(*lambdabatch.Options)) handler
	// deliver picks a batch, by index, of the messages that are still waiting.
	deliver func(*rapid.T, []*sent) []*sent
	// failed returns the messages of the batch that are redelivered.
	failed func(batch []*sent, ids []string) []*sent
}

type handler func(context.Context, []*sent) ([]string, error)

// order is the message's body. Two messages about one order are one request.
type order struct {
	ID      string `json:"order_id"`
	Message string `json:"message"`
}

const arn = "arn:aws:source"

func none(*lambdabatch.Options) {}

var sources = []source{
	{name: "SQS", option: none, build: queue(lambdabatch.SQS[order]), deliver: anyOf, failed: named},
	{name: "SQSFIFO", ordered: true, together: true, option: none, build: queue(lambdabatch.SQSFIFO[order]), deliver: groups, failed: named},
	{name: "SQSFIFO per group", ordered: true, option: func(o *lambdabatch.Options) { o.PerGroup = true }, build: queue(lambdabatch.SQSFIFO[order]), deliver: groups, failed: named},
	{name: "Kinesis", ordered: true, option: func(o *lambdabatch.Options) { o.ID = nil }, build: kinesis, deliver: first, failed: checkpoint},
	{name: "DynamoDB", ordered: true, option: func(o *lambdabatch.Options) { o.ID = nil }, build: dynamodb, deliver: first, failed: checkpoint},
}

func queue(constructor func(*idempotent.Guard, func(context.Context, order) error, ...func(*lambdabatch.Options)) func(context.Context, events.SQSEvent) (events.SQSEventResponse, error)) func(*idempotent.Guard, func(context.Context, order) error, func(*lambdabatch.Options)) handler {
	return func(g *idempotent.Guard, work func(context.Context, order) error, option func(*lambdabatch.Options)) handler {
		h := constructor(g, work, option)
		return func(ctx context.Context, batch []*sent) (ids []string, err error) {
			var e events.SQSEvent
			for _, m := range batch {
				e.Records = append(e.Records, events.SQSMessage{MessageId: m.id, EventSourceARN: arn, Body: body(m), Attributes: map[string]string{"MessageGroupId": m.group}})
			}
			response, err := h(ctx, e)
			for _, f := range response.BatchItemFailures {
				ids = append(ids, f.ItemIdentifier)
			}
			return ids, err
		}
	}
}

func kinesis(g *idempotent.Guard, work func(context.Context, order) error, option func(*lambdabatch.Options)) handler {
	h := lambdabatch.Kinesis(g, work, option)
	return func(ctx context.Context, batch []*sent) (ids []string, err error) {
		var e events.KinesisEvent
		for _, m := range batch {
			e.Records = append(e.Records, events.KinesisEventRecord{EventSourceArn: arn, Kinesis: events.KinesisRecord{SequenceNumber: m.id, PartitionKey: m.group, Data: []byte(body(m))}})
		}
		response, err := h(ctx, e)
		for _, f := range response.BatchItemFailures {
			ids = append(ids, f.ItemIdentifier)
		}
		return ids, err
	}
}

func dynamodb(g *idempotent.Guard, work func(context.Context, order) error, option func(*lambdabatch.Options)) handler {
	h := lambdabatch.DynamoDB(g, func(ctx context.Context, c lambdabatch.Change[order]) error { return work(ctx, *c.NewImage) }, option)
	return func(ctx context.Context, batch []*sent) (ids []string, err error) {
		var e events.DynamoDBEvent
		for _, m := range batch {
			e.Records = append(e.Records, events.DynamoDBEventRecord{EventSourceArn: arn, Change: events.DynamoDBStreamRecord{
				SequenceNumber: m.id,
				Keys:           map[string]events.DynamoDBAttributeValue{"pk": events.NewStringAttribute(m.group)},
				NewImage:       map[string]events.DynamoDBAttributeValue{"order_id": events.NewStringAttribute(m.about), "message": events.NewStringAttribute(m.id)},
			}})
		}
		response, err := h(ctx, e)
		for _, f := range response.BatchItemFailures {
			ids = append(ids, f.ItemIdentifier)
		}
		return ids, err
	}
}

func body(m *sent) string { return fmt.Sprintf(`{"order_id":%q,"message":%q}`, m.about, m.id) }

// anyOf is a standard queue: any messages, in any order, some of them twice.
func anyOf(t *rapid.T, waiting []*sent) []*sent {
	n := rapid.IntRange(1, 10).Draw(t, "messages")
	batch := make([]*sent, 0, n)
	for range n {
		batch = append(batch, waiting[rapid.IntRange(0, len(waiting)-1).Draw(t, "message")])
	}
	return batch
}

// groups is a FIFO queue: the first messages of some groups, in their order.
func groups(t *rapid.T, waiting []*sent) []*sent {
	left := map[string]int{}
	var batch []*sent
	for _, m := range waiting {
		n, known := left[m.group]
		if !known {
			n = rapid.IntRange(0, 6).Draw(t, "of group "+m.group)
		}
		if n > 0 && len(batch) < 10 {
			batch = append(batch, m)
			n--
		} else {
			n = 0
		}
		left[m.group] = n
	}
	return batch
}

// first is a shard: it delivers the next messages.
func first(t *rapid.T, waiting []*sent) []*sent {
	return waiting[:rapid.IntRange(1, min(10, len(waiting))).Draw(t, "records")]
}

// named interprets an answer as a queue does: the named messages are
// redelivered.
func named(batch []*sent, ids []string) (failed []*sent) {
	for _, m := range batch {
		if slices.Contains(ids, m.id) {
			failed = append(failed, m)
		}
	}
	return failed
}

// checkpoint interprets an answer as a stream does: every message from the
// lowest named number on is redelivered.
func checkpoint(batch []*sent, ids []string) []*sent {
	for i, m := range batch {
		if slices.Contains(ids, m.id) {
			return batch[i:]
		}
	}
	return nil
}
