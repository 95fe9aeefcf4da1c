// SPDX-License-Identifier: Apache-2.0

package lambdabatch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdabatch"
)

// FuzzBatch builds a batch and the behaviour of its handler from bytes. There
// are four for each message: its id, its order, its lane, and what the handler
// does. The batch is repeated, up to 10,000 messages. The response must name
// only messages of the batch, each once, or the whole batch must be
// redelivered; and messages that can never succeed must be named.
func FuzzBatch(f *testing.F) {
	kit.Inputs(f)
	f.Add([]byte{}, uint8(0), uint8(1), uint16(1))                                     // empty batch
	f.Add([]byte{1, 1, 1, 0}, uint8(0), uint8(1), uint16(1))                           // one message
	f.Add([]byte{1, 1, 1, 1, 1, 1, 1, 0, 1, 2, 1, 1}, uint8(0), uint8(2), uint16(1))   // one id, thrice
	f.Add([]byte{0, 1, 1, 1, 2, 2, 1, 0}, uint8(1), uint8(1), uint16(1))               // an empty id that fails
	f.Add([]byte{1, 0, 0, 0, 2, 255, 0, 0, 3, 3, 3, 2}, uint8(2), uint8(3), uint16(1)) // no key, no JSON, a panic
	f.Add([]byte{1, 1, 1, 3, 2, 2, 2, 4, 3, 3, 3, 5}, uint8(3), uint8(4), uint16(1))   // Final, unknown, not executed
	f.Add([]byte{7, 7, 7, 0}, uint8(1), uint8(4), uint16(10_000))                      // 10,000 of one id
	f.Add([]byte{9, 0, 1, 1, 8, 4, 2, 0}, uint8(4), uint8(2), uint16(10_000))
	f.Fuzz(func(t *testing.T, data []byte, source, concurrency uint8, times uint16) {
		guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Logger = slog.New(slog.DiscardHandler) })
		if err != nil {
			t.Fatal(err)
		}
		h := sourceOf(guard, source, int(concurrency%5))
		batch := batchOf(data)
		if times != 10_000 {
			times %= 4 // long batches are slow: only one size is tested
		}
		batch = slices.Repeat(batch, min(int(times), 10_000/max(len(batch), 1)))
		for range 2 { // also when the batch is redelivered
			ids, err := h(t.Context(), batch)
			var unnamed *lambdabatch.UnnamedError
			if err != nil {
				if !errors.As(err, &unnamed) || unnamed.Index >= len(batch) || batch[unnamed.Index].id != "" || ids != nil {
					t.Fatalf("got %q and the error %v", ids, err)
				}
				continue
			}
			for i, id := range ids {
				came := slices.ContainsFunc(batch, func(m fuzzed) bool { return m.id == id })
				if id == "" || !came || slices.Contains(ids[:i], id) {
					t.Fatalf("the response names %q, which was not in the batch or is named twice: %q", id, ids)
				}
			}
			for i, m := range batch {
				if !m.never() {
					continue
				}
				named := slices.Contains(ids, m.id)
				if source%5 >= 3 { // a checkpoint includes all later records
					named = len(ids) == 1 && slices.IndexFunc(batch, func(b fuzzed) bool { return b.id == ids[0] }) <= i
				}
				if !named {
					t.Fatalf("message %d (%q) can never succeed and was acknowledged: %q", i, m.id, ids)
				}
			}
		}
	})
}

// fuzzed is one message.
type fuzzed struct {
	id, body, lane string
	do             byte
}

// never reports whether a message can never be read.
func (m fuzzed) never() bool { return m.body == "" || m.body == "{}" }

func batchOf(data []byte) (batch []fuzzed) {
	for m := range slices.Chunk(data, 4) {
		if len(m) < 4 {
			break
		}
		b := fuzzed{lane: string(rune('a' + m[2]%4)), do: m[3] % 6}
		if m[0] != 0 {
			b.id = fmt.Sprintf("m%d", m[0])
		}
		switch m[1] {
		case 0:
			b.body = "{}"
		case 255:
		default:
			b.body = fmt.Sprintf(`{"order_id":"o-%d","amount":%d}`, m[1], b.do)
		}
		batch = append(batch, b)
	}
	return batch
}

// handleFuzzed does what the order's amount selects.
func handleFuzzed(_ context.Context, o order) error {
	switch o.Amount {
	case 1:
		return errBroken
	case 2:
		panic("no")
	case 3:
		return idempotent.Final("a", "b")
	case 4:
		return idempotent.Unknown(errBroken)
	case 5:
		return idempotent.NotExecuted(errBroken)
	}
	return nil
}

// sourceOf returns one of the five handlers, over batches of one shape.
func sourceOf(g *idempotent.Guard, source uint8, concurrency int) func(context.Context, []fuzzed) ([]string, error) {
	option := func(o *lambdabatch.Options) {
		o.Operation, o.ID, o.Concurrency = "fulfil", lambdabatch.Field("/order_id"), concurrency
		o.Guard = func(g *idempotent.Options) { g.Recovery = idempotent.Rerun }
		o.PerGroup = source%5 == 2
		if source%5 == 1 {
			o.Concurrency = 1
		}
	}
	switch source % 5 {
	case 3:
		h := lambdabatch.Kinesis(g, handleFuzzed, option)
		return func(ctx context.Context, batch []fuzzed) (ids []string, err error) {
			e := events.KinesisEvent{Records: []events.KinesisEventRecord{}}
			for _, m := range batch {
				e.Records = append(e.Records, events.KinesisEventRecord{EventSourceArn: "arn", EventID: m.id, Kinesis: events.KinesisRecord{SequenceNumber: m.id, PartitionKey: m.lane, Data: []byte(m.body)}})
			}
			response, err := h(ctx, e)
			for _, f := range response.BatchItemFailures {
				ids = append(ids, f.ItemIdentifier)
			}
			return ids, err
		}
	case 4:
		h := lambdabatch.DynamoDB(g, func(ctx context.Context, c lambdabatch.Change[order]) error { return handleFuzzed(ctx, *c.NewImage) }, option,
			func(o *lambdabatch.Options) { o.ID = lambdabatch.Field("/newImage/order_id") })
		return func(ctx context.Context, batch []fuzzed) (ids []string, err error) {
			e := events.DynamoDBEvent{Records: []events.DynamoDBEventRecord{}}
			for _, m := range batch {
				image := map[string]events.DynamoDBAttributeValue{}
				if !m.never() {
					image["order_id"], image["amount"] = events.NewStringAttribute(m.body), events.NewNumberAttribute(fmt.Sprint(m.do))
				}
				e.Records = append(e.Records, events.DynamoDBEventRecord{EventSourceArn: "arn", Change: events.DynamoDBStreamRecord{
					SequenceNumber: m.id, NewImage: image, Keys: map[string]events.DynamoDBAttributeValue{"pk": events.NewStringAttribute(m.lane)},
				}})
			}
			response, err := h(ctx, e)
			for _, f := range response.BatchItemFailures {
				ids = append(ids, f.ItemIdentifier)
			}
			return ids, err
		}
	}
	queue := lambdabatch.SQS[order]
	if source%5 != 0 {
		queue = lambdabatch.SQSFIFO[order]
	}
	h := queue(g, handleFuzzed, option)
	return func(ctx context.Context, batch []fuzzed) (ids []string, err error) {
		e := events.SQSEvent{Records: []events.SQSMessage{}}
		for _, m := range batch {
			e.Records = append(e.Records, events.SQSMessage{MessageId: m.id, Body: m.body, EventSourceARN: "arn", Attributes: map[string]string{"MessageGroupId": m.lane}})
		}
		response, err := h(ctx, e)
		for _, f := range response.BatchItemFailures {
			ids = append(ids, f.ItemIdentifier)
		}
		return ids, err
	}
}

// FuzzField checks that no body makes Field panic, and that an id is not empty.
func FuzzField(f *testing.F) {
	f.Add("/order/id", `{"order":{"id":"o-1"}}`)
	f.Add("/a~b/0", `{"a~b":[1e400]}`)
	f.Add("/", `{"":""}`)
	f.Add("/n", `{"n":`)
	f.Fuzz(func(t *testing.T, pointer, body string) {
		if len(pointer) == 0 || pointer[0] != '/' {
			pointer = "/" + pointer
		}
		pointer = strings.ReplaceAll(pointer, "~", "~0") // an invalid pointer is a programming error
		id, err := lambdabatch.Field(pointer)(t.Context(), &lambdabatch.Message{Body: []byte(body)})
		if (err == nil) != (id != "") {
			t.Errorf("%q of %q is %q, %v", pointer, body, id, err)
		}
	})
}
