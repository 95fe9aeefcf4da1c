// SPDX-License-Identifier: Apache-2.0

package lambdabatch

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/logs"
)

// Kinesis guards h, a handler for one record of a Kinesis stream, so that each
// record runs once. It returns the earliest record that failed: Lambda sends
// the shard again from there, and later records that had succeeded are
// replayed. Records of one partition key run in their order. If one fails,
// those behind it do not run, but records of other keys do.
//
// See [SQS] for how to start it. Configure a retry limit and a failure
// destination in the event source mapping: a record that always fails blocks
// its shard.
func Kinesis[T any](
	g *idempotent.Guard, h func(context.Context, T) error, optFns ...func(*Options),
) func(context.Context, events.KinesisEvent) (events.KinesisEventResponse, error) {
	b := newBatch(g, source{name: "Kinesis", sentBy: []string{"aws:kinesis"}, ids: "kinesis.sequenceNumber and eventID", redelivery: StreamRedelivery, streams: true}, h, kinesisRecord, optFns)
	return func(ctx context.Context, event events.KinesisEvent) (events.KinesisEventResponse, error) {
		ids, err := b.run(ctx, event.Records)
		response := events.KinesisEventResponse{BatchItemFailures: make([]events.KinesisBatchItemFailure, len(ids))}
		for i, id := range ids {
			response.BatchItemFailures[i].ItemIdentifier = id
		}
		return response, err
	}
}

func kinesisRecord(r *events.KinesisEventRecord, view *Message) error {
	*view = Message{
		ItemID: r.Kinesis.SequenceNumber, EventID: r.EventID, Source: r.EventSourceArn,
		Body: r.Kinesis.Data, Lane: r.Kinesis.PartitionKey, Event: r, sentBy: r.EventSource,
	}
	return nil
}

// DynamoDB guards h, a handler for one record of a DynamoDB stream, so that
// each record runs once. It behaves like [Kinesis], with the keys of the item
// as partition key. A handler takes an events.DynamoDBEventRecord, or a
// [Change].
func DynamoDB[T any](
	g *idempotent.Guard, h func(context.Context, T) error, optFns ...func(*Options),
) func(context.Context, events.DynamoDBEvent) (events.DynamoDBEventResponse, error) {
	b := newBatch(g, source{name: "DynamoDB", sentBy: []string{"aws:dynamodb"}, ids: "dynamodb.SequenceNumber and eventID", redelivery: StreamRedelivery, streams: true}, h, dynamoDBRecord, optFns)
	return func(ctx context.Context, event events.DynamoDBEvent) (events.DynamoDBEventResponse, error) {
		ids, err := b.run(ctx, event.Records)
		response := events.DynamoDBEventResponse{BatchItemFailures: make([]events.DynamoDBBatchItemFailure, len(ids))}
		for i, id := range ids {
			response.BatchItemFailures[i].ItemIdentifier = id
		}
		return response, err
	}
}

// Change describes the change of an item, with its images as JSON values:
// numbers as numbers, sets as arrays, binaries in base64. Images that the
// stream's view type leaves out are nil.
type Change[Item any] struct {
	EventName string `json:"eventName"` // INSERT, MODIFY or REMOVE
	Keys      *Item  `json:"keys,omitempty"`
	OldImage  *Item  `json:"oldImage,omitempty"`
	NewImage  *Item  `json:"newImage,omitempty"`
}

func dynamoDBRecord(r *events.DynamoDBEventRecord, view *Message) error {
	*view = Message{ItemID: r.Change.SequenceNumber, EventID: r.EventID, Source: r.EventSourceArn, Event: r, sentBy: r.EventSource}
	change := Change[map[string]any]{EventName: r.EventName}
	for _, image := range []struct {
		from map[string]events.DynamoDBAttributeValue
		to   **map[string]any
	}{{r.Change.Keys, &change.Keys}, {r.Change.OldImage, &change.OldImage}, {r.Change.NewImage, &change.NewImage}} {
		if image.from == nil {
			continue
		}
		item := map[string]any{}
		for name, v := range image.from {
			item[name] = plain(v)
		}
		*image.to = &item
	}
	lane, _ := json.Marshal(change.Keys) // an error of the keys is one of the change, too
	body, err := json.Marshal(change)
	view.Lane, view.Body = string(lane), body
	return err
}

// plain converts an attribute to a value that encoding/json can encode. It panics if the
// attribute has no value, or one of an unknown type, so the record fails.
func plain(v events.DynamoDBAttributeValue) any {
	switch v.DataType() {
	case events.DataTypeNull:
		return nil
	case events.DataTypeBoolean:
		return v.Boolean()
	case events.DataTypeString:
		return v.String()
	case events.DataTypeNumber:
		return json.Number(v.Number())
	case events.DataTypeBinary:
		return v.Binary()
	case events.DataTypeStringSet:
		return v.StringSet()
	case events.DataTypeBinarySet:
		return v.BinarySet()
	case events.DataTypeNumberSet:
		numbers := []json.Number{}
		for _, n := range v.NumberSet() {
			numbers = append(numbers, json.Number(n))
		}
		return numbers
	case events.DataTypeList:
		list := []any{}
		for _, e := range v.List() {
			list = append(list, plain(e))
		}
		return list
	case events.DataTypeMap:
		object := map[string]any{}
		for name, e := range v.Map() {
			object[name] = plain(e)
		}
		return object
	}
	panic("lambdabatch: unknown DynamoDB type of an attribute in the record")
}

// Kafka guards h, a handler for one record of a topic of Amazon MSK or of a
// self-managed Apache Kafka cluster, so that each record runs once. Records of one
// partition run in the order of their offsets. If one fails, those behind it in its
// partition do not run, but other partitions do. The answer names all of them.
//
// See [SQS] for how to start it. The event source mapping needs provisioned mode for
// ReportBatchItemFailures. Set a retry limit or a maximum record age, and a
// destination for failures: a record that always fails blocks its partition.
//
// A handler of its own type gets the decoded value, and a handler of
// [events.KafkaRecord] the record as Lambda sends it, with key and value in base64. A
// tombstone, whose value is empty, is nil for a handler of a pointer type, and cannot
// be decoded into another type.
// [Message.Attributes] has the headers.
//
// A self-managed cluster has no ARN, so [Options.Scope] is required for it. The
// default [Options.ID] is made of topic, partition and offset. If records can come
// from a copy of the topic in another cluster, or if the topic can be deleted and
// created again, identify the work by a field of the value.
func Kafka[T any](
	g *idempotent.Guard, h func(context.Context, T) error, optFns ...func(*Options),
) func(context.Context, events.KafkaEvent) (KafkaEventResponse, error) {
	b := newBatch[events.KafkaRecord, T](g, kafkaSource, h, nil, optFns)
	return func(ctx context.Context, event events.KafkaEvent) (KafkaEventResponse, error) {
		var records []events.KafkaRecord
		if event.Records != nil {
			records = []events.KafkaRecord{}
		}
		for _, partition := range slices.Sorted(maps.Keys(event.Records)) {
			records = append(records, event.Records[partition]...)
		}
		items := make(map[string]KafkaItemIdentifier, len(records))
		for i := range records {
			items[kafkaID(&records[i])] = KafkaItemIdentifier{kafkaPartition(&records[i]), records[i].Offset}
		}
		batch := *b
		batch.view = kafkaRecord(event.EventSource, event.EventSourceARN)
		ids, err := batch.run(ctx, records)
		response := KafkaEventResponse{BatchItemFailures: make([]KafkaBatchItemFailure, len(ids))}
		for i, id := range ids {
			response.BatchItemFailures[i].ItemIdentifier = items[id]
		}
		return response, err
	}
}

// kafkaSource has the names of both kinds of cluster; documents of AWS have two for a
// self-managed one.
var kafkaSource = source{
	name: "Kafka", sentBy: []string{"aws:kafka", "SelfManagedKafka", "aws:SelfManagedKafka"}, ids: "topic",
	redelivery: KafkaRedelivery, streams: true, kafka: true,
}

// KafkaEventResponse names the records that Lambda must deliver again. Package
// events of aws-lambda-go has no such type yet.
type KafkaEventResponse struct {
	BatchItemFailures []KafkaBatchItemFailure `json:"batchItemFailures"`
}

// KafkaBatchItemFailure names one record.
type KafkaBatchItemFailure struct {
	ItemIdentifier KafkaItemIdentifier `json:"itemIdentifier"`
}

// KafkaItemIdentifier is where a record is.
type KafkaItemIdentifier struct {
	Partition string `json:"partition"` // topic and number, for example "orders-0"
	Offset    int64  `json:"offset"`
}

func kafkaPartition(r *events.KafkaRecord) string { return fmt.Sprintf("%s-%d", r.Topic, r.Partition) }

// kafkaID returns the place of r, and an empty id if r has none.
func kafkaID(r *events.KafkaRecord) string {
	if r.Topic == "" {
		return ""
	}
	return fmt.Sprintf("%s-%d", kafkaPartition(r), r.Offset)
}

var errNoBase64 error = logs.Error("lambdabatch: the value of the record is not base64")

// kafkaRecord returns the view of a record of a cluster.
func kafkaRecord(sentBy, cluster string) func(*events.KafkaRecord, *Message) error {
	return func(r *events.KafkaRecord, view *Message) error {
		*view = Message{ItemID: kafkaID(r), EventID: kafkaID(r), Source: cluster, Lane: kafkaPartition(r), Event: r, sentBy: sentBy}
		for _, headers := range r.Headers {
			for name, value := range headers {
				if view.Attributes == nil {
					view.Attributes = make(map[string]string, len(r.Headers))
				}
				view.Attributes[name] = string(value)
			}
		}
		var err error
		if view.Body, err = base64.StdEncoding.DecodeString(r.Value); err != nil {
			return errNoBase64
		}
		return nil
	}
}
