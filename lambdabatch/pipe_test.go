// SPDX-License-Identifier: Apache-2.0

package lambdabatch_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/once-lambda/once/lambdabatch"
)

// A pipe redelivers the records that the answer names, and no other: those of a stream by
// their eventID (EventBridge user guide, "Amazon EventBridge Pipes batching and
// concurrency"). A batch of Kafka it redelivers as a whole, after an error. Order o-2 fails,
// and o-3 of its partition or group does not run.
func TestPipe(t *testing.T) {
	t.Parallel()
	body := func(id string) string { return `{"order_id":"` + id + `"}` }
	type record = map[string]any
	for source, row := range map[string]struct {
		handler func(*fixture) any
		number  func(r record, id, lane string)
		failed  []string // the answer; nil: an error
	}{
		"SQS": {func(w *fixture) any { return lambdabatch.Pipe(lambdabatch.SQSFIFO(w.guard, w.handle, w.options())) }, func(r record, id, lane string) {
			r["messageId"], r["body"] = "m:"+id, body(id)
			r["attributes"].(record)["MessageGroupId"] = lane
		}, []string{"m:o-2", "m:o-3"}},
		"Kinesis": {func(w *fixture) any {
			return lambdabatch.Pipe(lambdabatch.Kinesis(w.guard, w.handle, w.options(withoutID)))
		}, func(r record, id, lane string) {
			r["sequenceNumber"], r["eventID"], r["partitionKey"], r["data"] = id, "shard:"+id, lane, []byte(body(id))
		}, []string{"shard:o-2", "shard:o-3"}},
		"DynamoDB": {func(w *fixture) any {
			return lambdabatch.Pipe(lambdabatch.DynamoDB(w.guard, w.handleImage, w.options(withoutID)))
		}, func(r record, id, lane string) {
			r["eventID"] = "shard:" + id
			r["dynamodb"] = record{"SequenceNumber": id, "Keys": record{"pk": record{"S": lane}}, "NewImage": record{"order_id": record{"S": id}}}
		}, []string{"shard:o-2", "shard:o-3"}},
		"Kafka": {func(w *fixture) any { return lambdabatch.Pipe(w.kafka()) }, func(r record, id, lane string) {
			r["partition"], r["offset"], r["value"] = lane, int(id[2]), base64.StdEncoding.EncodeToString([]byte(body(id)))
		}, nil},
	} {
		w := newFixture(t)
		invoke := lambda.NewHandler(row.handler(w)).Invoke
		send := func(ids ...string) ([]string, error) {
			var array []record
			for _, id := range ids {
				var one []record
				if err := json.Unmarshal(forms(t)["pipe of "+source], &one); err != nil {
					t.Fatal(err)
				}
				row.number(one[0], id, map[string]string{"o-1": "1", "o-2": "2", "o-3": "2", "o-4": "3"}[id])
				array = append(array, one[0])
			}
			event, err := json.Marshal(array)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := invoke(w.invocation(), event)
			var response events.SQSEventResponse
			if err == nil {
				err = json.Unmarshal(answer, &response)
			}
			failed := []string{}
			for _, f := range response.BatchItemFailures {
				failed = append(failed, f.ItemIdentifier)
			}
			return failed, err
		}
		w.on("o-2", returns(errBroken))
		failed, err := send("o-1", "o-2", "o-3", "o-4")
		if row.failed == nil != (err != nil && strings.Contains(err.Error(), "2 of 4 messages")) || len(row.failed) > 0 && !slices.Equal(failed, row.failed) {
			t.Errorf("%s: the answer names %q, %v; want %q", source, failed, err, row.failed)
		}
		w.wantRuns("o-1", "o-2", "o-4")
		w.on("o-2", nil)
		if failed, err = send("o-2", "o-3"); err != nil || len(failed) > 0 {
			t.Errorf("%s: afterwards: %q, %v", source, failed, err)
		}
		w.wantRuns("o-1", "o-2", "o-4", "o-2", "o-3")
	}
}

// A handler gets the records of a pipe as it gets those of a mapping. A cluster without an
// ARN needs a scope.
func TestPipe_View(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	kinesis, kafka := "", ""
	all := forms(t)
	for source, h := range map[string]any{
		"Kinesis": lambdabatch.Pipe(lambdabatch.Kinesis(w.guard, func(ctx context.Context, r events.KinesisEventRecord) error {
			m, _ := lambdabatch.FromContext(ctx)
			kinesis = fmt.Sprint(r.Kinesis.SequenceNumber, " ", r.Kinesis.ApproximateArrivalTimestamp.UTC().Year(), " ", m.ItemID == r.EventID, " ", m.Source, " ", m.Lane, " ", string(m.Body))
			return nil
		}, w.options(withoutID))),
		"Kafka": lambdabatch.Pipe(lambdabatch.Kafka(w.guard, func(ctx context.Context, r events.KafkaRecord) error {
			m, _ := lambdabatch.FromContext(ctx)
			kafka = fmt.Sprint(m.ItemID, " ", r.Timestamp.UTC().Year(), " ", m.Source, " ", m.Lane, " ", m.Attributes, " ", string(m.Body))
			return nil
		}, w.options(withoutID))),
	} {
		if answer, err := lambda.NewHandler(h).Invoke(w.invocation(), all["pipe of "+source]); err != nil || string(answer) != allDone {
			t.Errorf("%s: %s, %v", source, answer, err)
		}
	}
	if want := `49545136521847365278364819537645190000001 2026 true arn:aws:kinesis:eu-central-1:123456789012:stream/orders p-1 {"order_id":"o-1"}`; kinesis != want {
		t.Errorf("Kinesis: got %s, want %s", kinesis, want)
	}
	if want := `orders-0-15 2025 arn:aws:kafka:eu-central-1:123456789012:cluster/orders/751d2973-a626-431c-9d4e-d7975eb44dd7-2 orders-0 map[tenant:acme] {"order_id":"o-1"}`; kafka != want {
		t.Errorf("Kafka: got %s, want %s", kafka, want)
	}
	if _, err := lambdabatch.Pipe(w.kafka())(w.invocation(), all["pipe of Kafka, self-managed"]); err == nil || !strings.Contains(w.log(), "set Options.Scope") {
		t.Errorf("without an ARN: %v, the log: %s", err, w.log())
	}
}

// What is no array of the source's records is refused. An empty array is done.
func TestPipe_Refuses(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	kinesis, kafka := lambdabatch.Pipe(lambdabatch.Kinesis(w.guard, w.handle, w.options(withoutID))), lambdabatch.Pipe(w.kafka())
	for _, event := range []string{`null`, `{}`, ``, `{"Records":[]}`, `[1]`, `[{"topic":"orders","offset":1}]`, `[{"topic":"orders","partition":"x"}]`, `[{"partition":1}]`, `[null]`,
		`[{"eventSource":"aws:kinesis","eventID":"e","sequenceNumber":"1","data":5}]`, `[{"eventSource":"aws:kafka","topic":"orders","partition":0,"offset":"1"}]`,
		`[{"eventSource":"aws:sqs","topic":"orders","partition":0,"offset":1}]`} {
		k, errK := kinesis(w.invocation(), json.RawMessage(event))
		f, errF := kafka(w.invocation(), json.RawMessage(event))
		for _, err := range []error{errK, errF} {
			if err == nil || !strings.Contains(err.Error(), "check what invokes the function") {
				t.Errorf("%s: %v; %+v, %+v", event, err, k, f)
			}
		}
	}
	if _, err := lambdabatch.Pipe(lambdabatch.SQS(w.guard, w.handle, w.options()))(w.invocation(), json.RawMessage(`[{"eventSource":"aws:sqs","messageId":"m1","body":5}]`)); err == nil {
		t.Error("a message whose body is a number was taken")
	}
	if _, err := lambdabatch.Pipe(lambdabatch.DynamoDB(w.guard, w.handle, w.options(withoutID)))(w.invocation(), json.RawMessage(`[{"eventSource":"aws:dynamodb","eventID":"e","dynamodb":{"SequenceNumber":"1","SizeBytes":"many"}}]`)); err == nil {
		t.Error("a record whose size is a text was taken")
	}
	for _, event := range []string{`[]`, " \n[ ]"} {
		_, errK := kinesis(w.invocation(), json.RawMessage(event))
		_, errF := kafka(w.invocation(), json.RawMessage(event))
		if errK != nil || errF != nil {
			t.Errorf("%q: %v, %v", event, errK, errF)
		}
	}
	w.wantRuns()
}
