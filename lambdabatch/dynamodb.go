// SPDX-License-Identifier: Apache-2.0

package lambdabatch

import (
	"context"
	"encoding/json"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
)

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
