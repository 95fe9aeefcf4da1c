// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdabatch"
)

// sent is one message in a source. Two messages may be about one order.
type sent struct {
	number           int // in the source
	id, about, group string
	content          string // of the order
	key              idempotent.Key
	kind             kind
	acknowledged     bool
	receipts
}

// kind is what is wrong with a message.
type kind string

const (
	undecodable kind = " cannot be decoded"
	keyless     kind = " without a key"
	foreign     kind = " from elsewhere" // no notification of SNS, a test event of S3, no base64
	tombstone   kind = " tombstone"
)

// source is one kind of event source: how it delivers, and how it interprets an
// answer.
type source struct {
	name    string
	sqs     bool // with a visibility timeout
	ordered bool // within a group
	// rebalances: a new consumer may start before records that are acknowledged
	rebalances bool
	stream     bool // the default key is the id of the message
	kinds      []kind
	option     func(*lambdabatch.Options)
	build      func(*idempotent.Guard, func(context.Context, order) error, func(*lambdabatch.Options)) handler
	// deliver picks a batch, by index, of the messages that are waiting and not hidden.
	deliver func(*rand.Rand, []*sent) []*sent
	// failed returns the messages of the batch that are redelivered.
	failed func(batch []*sent, ids []string) []*sent
}

type handler func(context.Context, []*sent) ([]string, error)

// order is the message's body. Two messages about one order are one request if their
// contents are equal.
type order struct {
	ID      string `json:"order_id"`
	Content string `json:"content"`
}

const arn, url = "arn:aws:sqs:eu-central-1:123456789012:orders", "https://sqs.eu-central-1.amazonaws.com/123456789012/orders"

func none(*lambdabatch.Options) {}

func fromSNS(o *lambdabatch.Options) {
	lambdabatch.FromSNS(o)
	o.ID = lambdabatch.Attribute("order")
}

func image(o *lambdabatch.Options) { o.ID = lambdabatch.Field("/newImage/order_id") }

var sources = []source{
	{name: "SQS", sqs: true, kinds: []kind{undecodable, keyless}, option: none, build: ofSQS(lambdabatch.SQS[order], body), deliver: anyOf, failed: named},
	{name: "SQS from SNS", sqs: true, kinds: []kind{undecodable, keyless, foreign}, option: fromSNS, build: ofSQS(lambdabatch.SQS[order], notification), deliver: anyOf, failed: named},
	{name: "SQS from S3", sqs: true, kinds: []kind{undecodable, keyless, foreign}, option: lambdabatch.FromS3, build: ofSQS(s3, stored), deliver: anyOf, failed: named},
	{name: "SQSFIFO", sqs: true, ordered: true, kinds: []kind{undecodable, keyless}, option: none, build: ofSQS(lambdabatch.SQSFIFO[order], body), deliver: groups, failed: named},
	{name: "Kinesis", ordered: true, stream: true, kinds: []kind{undecodable, keyless}, option: none, build: kinesis, deliver: first, failed: checkpoint},
	{name: "Kinesis through a pipe", ordered: true, stream: true, kinds: []kind{undecodable, keyless}, option: none, build: pipe, deliver: first, failed: named},
	{name: "Kafka", ordered: true, stream: true, rebalances: true, kinds: []kind{undecodable, keyless, foreign, tombstone}, option: none, build: kafka, deliver: groups, failed: fromTheFirst},
	{name: "DynamoDB", ordered: true, stream: true, kinds: []kind{undecodable, keyless}, option: image, build: dynamodb, deliver: first, failed: checkpoint},
}

// queueHandler is a handler of a queue.
type queueHandler = func(context.Context, events.SQSEvent) (events.SQSEventResponse, error)

// ofSQS builds handlers of a queue; body returns that of a message.
func ofSQS(constructor func(*idempotent.Guard, func(context.Context, order) error, ...func(*lambdabatch.Options)) queueHandler, body func(*sent) string) func(*idempotent.Guard, func(context.Context, order) error, func(*lambdabatch.Options)) handler {
	return func(g *idempotent.Guard, work func(context.Context, order) error, option func(*lambdabatch.Options)) handler {
		h := constructor(g, work, option)
		return func(ctx context.Context, batch []*sent) (ids []string, err error) {
			e := events.SQSEvent{Records: []events.SQSMessage{}}
			for _, m := range batch {
				e.Records = append(e.Records, events.SQSMessage{
					MessageId: m.id, EventSourceARN: arn, Body: body(m), ReceiptHandle: m.receipt,
					Attributes: map[string]string{"MessageGroupId": m.group, "ApproximateReceiveCount": strconv.Itoa(m.receives)},
				})
			}
			response, err := h(ctx, e)
			for _, f := range response.BatchItemFailures {
				ids = append(ids, f.ItemIdentifier)
			}
			return ids, err
		}
	}
}

func body(m *sent) string {
	switch m.kind {
	case undecodable:
		return fmt.Sprintf(`{"order_id":%q,"content":[]}`, m.about)
	case keyless:
		return fmt.Sprintf(`{"content":%q}`, m.content)
	}
	return fmt.Sprintf(`{"order_id":%q,"content":%q}`, m.about, m.content)
}

// notification is the body of a message that came through SNS. The order is an
// attribute of it.
func notification(m *sent) string {
	if m.kind == foreign {
		return body(m)
	}
	attributes := fmt.Sprintf(`{"order":{"Type":"String","Value":%q}}`, m.about)
	if m.kind == keyless {
		attributes = "{}"
	}
	return fmt.Sprintf(`{"Type":"Notification","MessageId":%q,"Message":%q,"MessageAttributes":%s}`, m.id, body(m), attributes)
}

func s3(g *idempotent.Guard, work func(context.Context, order) error, optFns ...func(*lambdabatch.Options)) queueHandler {
	return lambdabatch.SQS(g, func(ctx context.Context, _ events.S3Event) error { return work(ctx, order{}) }, optFns...)
}

// stored is the body of a message about an object. Every second object has a sequencer.
func stored(m *sent) string {
	different := `"responseElements":{"x-amz-request-id":"r"},`
	sequencer := ""
	if m.about[len(m.about)-1]%2 == 0 {
		different, sequencer = "", `,"sequencer":"s"`
	}
	switch m.kind {
	case undecodable:
		return "{"
	case foreign:
		return `{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"orders"}`
	case keyless:
		different, sequencer = "", ""
	}
	return fmt.Sprintf(`{"Records":[{%s"eventTime":"2026-11-24T17:00:00Z","eventName":"ObjectCreated:Put","s3":{"bucket":{"name":"orders"},"object":{"key":%q,"eTag":%q%s}}}]}`,
		different, m.about, m.content, sequencer)
}

func kinesis(g *idempotent.Guard, work func(context.Context, order) error, option func(*lambdabatch.Options)) handler {
	h := lambdabatch.Kinesis(g, work, option)
	return func(ctx context.Context, batch []*sent) (ids []string, err error) {
		e := events.KinesisEvent{Records: []events.KinesisEventRecord{}}
		for _, m := range batch {
			e.Records = append(e.Records, events.KinesisEventRecord{EventSourceArn: arn, EventID: eventID(m), Kinesis: events.KinesisRecord{SequenceNumber: m.id, PartitionKey: m.group, Data: []byte(body(m))}})
		}
		response, err := h(ctx, e)
		for _, f := range response.BatchItemFailures {
			ids = append(ids, f.ItemIdentifier)
		}
		return ids, err
	}
}

// pipe is a pipe of EventBridge from a stream. It names records by their eventID.
func pipe(g *idempotent.Guard, work func(context.Context, order) error, option func(*lambdabatch.Options)) handler {
	h := lambdabatch.Pipe(lambdabatch.Kinesis(g, work, option))
	return func(ctx context.Context, batch []*sent) (ids []string, err error) {
		array := []map[string]any{}
		for _, m := range batch {
			array = append(array, map[string]any{"eventSource": "aws:kinesis", "eventSourceARN": arn, "eventID": eventID(m), "sequenceNumber": m.id, "partitionKey": m.group, "data": []byte(body(m))})
		}
		event, err := json.Marshal(array)
		if err != nil {
			return nil, err
		}
		response, err := h(ctx, event)
		for _, f := range response.BatchItemFailures {
			ids = append(ids, strings.TrimPrefix(f.ItemIdentifier, "shard:"))
		}
		return ids, err
	}
}

// eventID is that of a stream's record.
func eventID(m *sent) string { return "shard:" + m.id }

// kafka has a partition for each group. The offset of a message is its number.
func kafka(g *idempotent.Guard, work func(context.Context, order) error, option func(*lambdabatch.Options)) handler {
	h := lambdabatch.Kafka(g, func(ctx context.Context, o *order) error {
		if o == nil {
			o = &order{}
		}
		return work(ctx, *o)
	}, option)
	return func(ctx context.Context, batch []*sent) (ids []string, err error) {
		e := events.KafkaEvent{EventSourceARN: arn, Records: map[string][]events.KafkaRecord{}}
		for _, m := range batch {
			partition := int64(m.group[0] - 'A')
			at := fmt.Sprintf("orders-%d", partition)
			value := base64.StdEncoding.EncodeToString([]byte(body(m)))
			switch m.kind {
			case tombstone:
				value = ""
			case foreign:
				value = "!"
			}
			e.Records[at] = append(e.Records[at], events.KafkaRecord{Topic: "orders", Partition: partition, Offset: int64(m.number), Value: value})
		}
		response, err := h(ctx, e)
		for _, f := range response.BatchItemFailures {
			ids = append(ids, fmt.Sprintf("%s-%d", f.ItemIdentifier.Partition, f.ItemIdentifier.Offset))
		}
		return ids, err
	}
}

func dynamodb(g *idempotent.Guard, work func(context.Context, order) error, option func(*lambdabatch.Options)) handler {
	h := lambdabatch.DynamoDB(g, func(ctx context.Context, c lambdabatch.Change[order]) error { return work(ctx, *c.NewImage) }, option)
	return func(ctx context.Context, batch []*sent) (ids []string, err error) {
		e := events.DynamoDBEvent{Records: []events.DynamoDBEventRecord{}}
		for _, m := range batch {
			image := map[string]events.DynamoDBAttributeValue{"order_id": events.NewStringAttribute(m.about), "content": events.NewStringAttribute(m.content)}
			switch m.kind {
			case undecodable:
				image["content"] = events.NewNumberAttribute("1")
			case keyless:
				delete(image, "order_id")
			}
			e.Records = append(e.Records, events.DynamoDBEventRecord{EventSourceArn: arn, EventID: eventID(m), Change: events.DynamoDBStreamRecord{
				SequenceNumber: m.id, Keys: map[string]events.DynamoDBAttributeValue{"pk": events.NewStringAttribute(m.group)}, NewImage: image,
			}})
		}
		response, err := h(ctx, e)
		for _, f := range response.BatchItemFailures {
			ids = append(ids, f.ItemIdentifier)
		}
		return ids, err
	}
}

// anyOf is a standard queue: any messages, in any order, some of them twice.
func anyOf(random *rand.Rand, waiting []*sent) []*sent {
	n := 1 + random.IntN(10)
	batch := make([]*sent, 0, n)
	for range n {
		batch = append(batch, waiting[random.IntN(len(waiting))])
	}
	return batch
}

// groups is a FIFO queue: the first messages of some groups, in their order.
func groups(random *rand.Rand, waiting []*sent) []*sent {
	left := map[string]int{}
	var batch []*sent
	for _, m := range waiting {
		n, known := left[m.group]
		if !known {
			n = random.IntN(7)
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
func first(random *rand.Rand, waiting []*sent) []*sent {
	return waiting[:1+random.IntN(min(10, len(waiting)))]
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

// fromTheFirst interprets an answer in both ways that are possible for Kafka: the
// named messages are redelivered, or in each partition all from the first named one
// on. If the two differ, it returns nil: the messages would be lost in one of them.
func fromTheFirst(batch []*sent, ids []string) (failed []*sent) {
	stopped := map[string]bool{}
	for _, m := range batch {
		if slices.Contains(ids, m.id) {
			stopped[m.group] = true
		}
		if stopped[m.group] {
			failed = append(failed, m)
		}
	}
	if len(failed) != len(named(batch, ids)) {
		return nil
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
