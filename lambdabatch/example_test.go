// SPDX-License-Identifier: Apache-2.0

package lambdabatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdabatch"
)

// newGuard returns a guard for the examples; a real function uses a
// dynamostore.Store.
func newGuard() *idempotent.Guard {
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Logger = slog.New(slog.DiscardHandler) })
	if err != nil {
		panic(err)
	}
	return guard
}

// The second message is a copy of the first. The message of the second batch
// fails. When it is redelivered nothing runs, because with Reconcile it waits
// for evidence.
func ExampleSQS() {
	guard := newGuard()
	ship := func(_ context.Context, o order) error {
		fmt.Println("shipping", o.ID)
		if o.ID == "o-2" {
			return errors.New("no reply from the warehouse")
		}
		return nil
	}
	handler := lambdabatch.SQS(guard, ship, func(o *lambdabatch.Options) {
		o.Operation = "ship"
		o.ID = lambdabatch.Field("/order_id")
		o.Concurrency = 10
		o.Guard = func(g *idempotent.Operation) { g.Recovery = idempotent.Reconcile }
	})
	// lambda.StartHandlerFunc(handler)

	batch := messages("o-1", "o-1")
	again := messages("o-2")
	fmt.Println(handler(context.Background(), batch))
	fmt.Println(handler(context.Background(), again))
	fmt.Println(handler(context.Background(), again))
	// Output:
	// shipping o-1
	// {[]} <nil>
	// shipping o-2
	// {[{m1}]} <nil>
	// {[{m1}]} <nil>
}

// EventBridge delivers one event at a time; the returned error reports a
// failure.
func ExampleEventBridge() {
	guard := newGuard()
	onOrderPlaced := func(_ context.Context, e events.EventBridgeEvent) (struct{}, error) {
		fmt.Println("shipping", string(e.Detail))
		return struct{}{}, nil
	}
	handler := idempotent.Wrap(guard, lambdabatch.EventBridge("ship"), onOrderPlaced, func(o *idempotent.Operation) {
		o.Retention = lambdabatch.EventBridgeRedelivery
	})

	event := events.EventBridgeEvent{ID: "e-1", AccountID: "123456789012", Source: "shop", Detail: []byte(`"o-1"`)}
	for range 2 {
		if _, err := handler(context.Background(), event); err != nil {
			panic(err)
		}
	}
	// Output:
	// shipping "o-1"
}

// people is a queue for operators.
type people struct{}

func (people) Send(_ context.Context, message, reason string) error {
	fmt.Println("to people:", message)
	return nil
}

func ExampleOptions_handOver() {
	guard, desk := newGuard(), people{}
	ship := func(context.Context, order) error { return errors.New("no reply from the warehouse") }
	handler := lambdabatch.SQS(guard, ship, func(o *lambdabatch.Options) {
		o.Operation, o.ID = "ship", lambdabatch.Field("/order_id")
		o.HandOver = func(ctx context.Context, m *lambdabatch.Message, reason error) error {
			return desk.Send(ctx, string(m.Body), reason.Error())
		}
	})
	for range 2 {
		fmt.Println(handler(context.Background(), messages("o-1")))
	}
	// Output:
	// {[{m1}]} <nil>
	// to people: {"order_id":"o-1"}
	// {[]} <nil>
}

// S3 notifies a topic, and the topic sends to a queue.
func ExampleFromS3() {
	guard := newGuard()
	onUpload := func(_ context.Context, e events.S3Event) error {
		fmt.Println("indexing", e.Records[0].S3.Object.Key)
		return nil
	}
	handler := lambdabatch.SQS(guard, onUpload, lambdabatch.FromSNS, lambdabatch.FromS3, func(o *lambdabatch.Options) {
		o.Operation = "index-upload"
	})

	event := `{"Records":[{"eventName":"ObjectCreated:Put","s3":{"bucket":{"name":"uploads"},"object":{"key":"a.pdf","sequencer":"1"}}}]}`
	body, err := json.Marshal(map[string]string{"Type": "Notification", "Message": event})
	if err != nil {
		panic(err)
	}
	for range 2 {
		fmt.Println(handler(context.Background(), events.SQSEvent{Records: []events.SQSMessage{{MessageId: "m1", Body: string(body)}}}))
	}
	// Output:
	// indexing a.pdf
	// {[]} <nil>
	// {[]} <nil>
}

// A pipe of EventBridge sends the records of a stream as an array.
func ExamplePipe() {
	guard := newGuard()
	take := func(_ context.Context, o order) error {
		fmt.Println("taking", o.ID)
		return nil
	}
	options := func(o *lambdabatch.Options) { o.Operation = "take-order" }
	handler := lambdabatch.Pipe(lambdabatch.Kinesis(guard, take, options))

	array := `[{"sequenceNumber":"1","eventID":"shardId-000000000000:1","partitionKey":"c-1","data":"eyJvcmRlcl9pZCI6Im8tMSJ9","eventSource":"aws:kinesis","eventSourceARN":"arn:aws:kinesis:eu-central-1:123456789012:stream/orders"}]`
	for range 2 {
		fmt.Println(handler(context.Background(), json.RawMessage(array)))
	}
	// Output:
	// taking o-1
	// {[]} <nil>
	// {[]} <nil>
}
