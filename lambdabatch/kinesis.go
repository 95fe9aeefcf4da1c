package lambdabatch

import (
	"context"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
)

// Kinesis returns h for every record of a Kinesis stream, once. It returns the
// earliest record that failed: Lambda sends the shard again from there, and what
// had succeeded behind it is replayed. Records of one partition key come in
// their order; when one fails those behind it are not run, and records of other
// keys are.
//
// See [SQS] for how to start it. Give the event source mapping a bound for its
// retries and a destination for failures: a record that always fails holds up
// its shard.
func Kinesis[T any](g *idempotent.Guard, h func(context.Context, T) error, optFns ...func(*Options)) func(context.Context, events.KinesisEvent) (events.KinesisEventResponse, error) {
	b := newBatch(g, source{name: "Kinesis", redelivery: StreamRedelivery, streams: true}, h, kinesisRecord, optFns)
	return func(ctx context.Context, event events.KinesisEvent) (events.KinesisEventResponse, error) {
		ids, err := b.run(ctx, event.Records)
		response := events.KinesisEventResponse{BatchItemFailures: []events.KinesisBatchItemFailure{}}
		if len(ids) > 0 { // they are in the order of the shard
			response.BatchItemFailures = append(response.BatchItemFailures, events.KinesisBatchItemFailure{ItemIdentifier: ids[0]})
		}
		return response, err
	}
}

func kinesisRecord(r *events.KinesisEventRecord, view *Record) error {
	*view = Record{
		ItemID: r.Kinesis.SequenceNumber, Source: r.EventSourceArn, Body: r.Kinesis.Data,
		Lane: r.Kinesis.PartitionKey, Event: r,
	}
	return nil
}
