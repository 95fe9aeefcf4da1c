// SPDX-License-Identifier: Apache-2.0

package lambdabatch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/internal/logs"
)

// Pipe returns h, a handler of a constructor of this package, for the target of a pipe of
// EventBridge, which sends an array of records: those of Kinesis and Kafka without the
// objects around them. The answer names each record that failed, for a stream by its
// eventID. A pipe from Kafka redelivers a whole batch only, so h returns an error if any of
// its records failed.
func Pipe[E events.SQSEvent | events.KinesisEvent | events.DynamoDBEvent | events.KafkaEvent, R any](
	h func(context.Context, E) (R, error),
) func(context.Context, json.RawMessage) (R, error) {
	return func(ctx context.Context, array json.RawMessage) (answer R, err error) {
		var event E
		if !bytes.HasPrefix(bytes.TrimSpace(array), []byte("[")) || flat(array, &event) != nil {
			return answer, errNoArray
		}
		return h(context.WithValue(ctx, pipeKey{}, true), event)
	}
}

var errNoArray error = logs.Error("lambdabatch: Pipe: the event is no array of records of the source; check what invokes the function, and which input transformer the pipe has")

// flat reads the records of a pipe into an event. EventBridge's user guide has an example
// of each source ("Amazon EventBridge Pipes sources").
func flat(array []byte, to any) (err error) {
	switch event := to.(type) {
	case *events.SQSEvent:
		err = json.Unmarshal(array, &event.Records)
	case *events.DynamoDBEvent:
		err = json.Unmarshal(array, &event.Records)
	case *events.KinesisEvent:
		var records []struct {
			events.KinesisEventRecord
			events.KinesisRecord
		}
		err = json.Unmarshal(array, &records)
		event.Records = make([]events.KinesisEventRecord, len(records))
		for i, r := range records {
			event.Records[i] = r.KinesisEventRecord
			event.Records[i].Kinesis = r.KinesisRecord
		}
	case *events.KafkaEvent:
		var records []struct {
			events.KafkaRecord
			EventSource, EventSourceARN string
			Partition                   json.Number `json:"partition"` // in quotes in some examples
		}
		err = json.Unmarshal(array, &records)
		event.Records = map[string][]events.KafkaRecord{}
		for _, r := range records {
			number, invalid := r.Partition.Int64()
			err = cmp.Or(err, invalid)
			r.KafkaRecord.Partition = number
			event.EventSource, event.EventSourceARN = r.EventSource, r.EventSourceARN
			name := kafkaPartition(&r.KafkaRecord)
			event.Records[name] = append(event.Records[name], r.KafkaRecord)
		}
	}
	return err
}
