// SPDX-License-Identifier: Apache-2.0

package lambdabatch

import (
	"context"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
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
