// SPDX-License-Identifier: Apache-2.0

package lambdabatch_test

import (
	"context"
	"encoding/base64"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdabatch"
)

// stream is a source with a checkpoint: Kinesis or DynamoDB.
type stream struct {
	name string
	// send delivers a batch of the orders o-1 … in partitions of these names,
	// and returns the checkpoints.
	send func(t *testing.T, w *fixture, partitions []string, optFns ...func(*lambdabatch.Options)) []string
}

var streams = []stream{
	{"Kinesis", func(t *testing.T, w *fixture, partitions []string, optFns ...func(*lambdabatch.Options)) []string {
		h := lambdabatch.Kinesis(w.guard, w.handle, w.options(func(o *lambdabatch.Options) { o.ID = nil }, options(optFns)))
		var event events.KinesisEvent
		for i, p := range partitions {
			event.Records = append(event.Records, events.KinesisEventRecord{EventSourceArn: "arn:stream", EventID: "shard-1:" + sequence(i), Kinesis: events.KinesisRecord{
				SequenceNumber: sequence(i), PartitionKey: p, Data: []byte(`{"order_id":"` + orderID(i) + `"}`),
			}})
		}
		response, err := h(w.invocation(), event)
		if err != nil || response.BatchItemFailures == nil {
			t.Fatalf("got %+v %v", response, err)
		}
		ids := []string{}
		for _, f := range response.BatchItemFailures {
			ids = append(ids, f.ItemIdentifier)
		}
		return ids
	}},
	{"DynamoDB", func(t *testing.T, w *fixture, partitions []string, optFns ...func(*lambdabatch.Options)) []string {
		h := lambdabatch.DynamoDB(w.guard, func(ctx context.Context, c lambdabatch.Change[order]) error { return w.handle(ctx, *c.NewImage) },
			w.options(func(o *lambdabatch.Options) { o.ID = nil }, options(optFns)))
		var event events.DynamoDBEvent
		for i, p := range partitions {
			event.Records = append(event.Records, events.DynamoDBEventRecord{EventSourceArn: "arn:stream", EventID: "shard-1:" + sequence(i), EventName: "INSERT", Change: events.DynamoDBStreamRecord{
				SequenceNumber: sequence(i),
				Keys:           map[string]events.DynamoDBAttributeValue{"pk": events.NewStringAttribute(p)},
				NewImage:       map[string]events.DynamoDBAttributeValue{"order_id": events.NewStringAttribute(orderID(i))},
			}})
		}
		response, err := h(w.invocation(), event)
		if err != nil || response.BatchItemFailures == nil {
			t.Fatalf("got %+v %v", response, err)
		}
		ids := []string{}
		for _, f := range response.BatchItemFailures {
			ids = append(ids, f.ItemIdentifier)
		}
		return ids
	}},
}

func options(optFns []func(*lambdabatch.Options)) func(*lambdabatch.Options) {
	return func(o *lambdabatch.Options) {
		for _, f := range optFns {
			f(o)
		}
	}
}

func sequence(i int) string { return string(rune('A' + i)) }
func orderID(i int) string  { return "o-" + string(rune('1'+i)) }

func onEachStream(t *testing.T, f func(*testing.T, stream)) {
	for _, s := range streams {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			f(t, s)
		})
	}
}

// FM43: record 3 of 8 fails and the others succeed. The checkpoint is 3; when
// the shard is redelivered from there, later records that had succeeded are
// replayed.
func TestCheckpoint(t *testing.T) {
	t.Parallel()
	onEachStream(t, func(t *testing.T, s stream) {
		w := newFixture(t)
		partitions := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		w.on("o-3", returns(errBroken))
		w.on("o-6", returns(errBroken)) // a later failure is not the checkpoint
		wantIDs(t, s.send(t, w, partitions), "C")
		w.wantRuns("o-1", "o-2", "o-3", "o-4", "o-5", "o-6", "o-7", "o-8")
		w.on("o-3", nil)
		wantIDs(t, s.send(t, w, partitions), "F")
		w.on("o-6", nil)
		wantIDs(t, s.send(t, w, partitions))
		w.wantRuns("o-1", "o-2", "o-3", "o-4", "o-5", "o-6", "o-7", "o-8", "o-3", "o-6", "o-6")
	})
}

// FM43: a record behind a failed one of its own partition does not run.
func TestPartitionsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 4} {
		onEachStream(t, func(t *testing.T, s stream) {
			w := newFixture(t)
			w.on("o-2", returns(errBroken))
			wantIDs(t, s.send(t, w, []string{"a", "b", "a", "b", "a"}, concurrency(n)), "B")
			slices.Sort(w.runs)
			w.wantRuns("o-1", "o-2", "o-3", "o-5")
		})
	}
}

// H10: outcomes are stored for the retention of a stream by its default, 86,400
// seconds in both developer guides, even if the guard's retention is shorter.
func TestRetentionFollowsTheStream(t *testing.T) {
	t.Parallel()
	onEachStream(t, func(t *testing.T, s stream) {
		w := newFixture(t)
		short := guarded(func(o *idempotent.Options) { o.Retention = time.Hour })
		wantIDs(t, s.send(t, w, []string{"a"}, short))
		w.clock.Advance(86_399 * time.Second)
		wantIDs(t, s.send(t, w, []string{"a"}, short))
		w.wantRuns("o-1")
		w.clock.Advance(2 * time.Second)
		wantIDs(t, s.send(t, w, []string{"a"}, short))
		w.wantRuns("o-1", "o-1")
	})
}

// A record that is not reached is a checkpoint too.
func TestStreams_OutOfTime(t *testing.T) {
	t.Parallel()
	onEachStream(t, func(t *testing.T, s stream) {
		w := newFixture(t)
		w.on("o-2", func(context.Context) error {
			w.clock.Advance(timeout)
			return nil
		})
		wantIDs(t, s.send(t, w, []string{"a", "b", "c", "d"}), "C")
		w.wantRuns("o-1", "o-2")
	})
}

// FM43 with a real event: ten records, of which the third fails.
func TestKinesis_RealEvent(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	event := load[events.KinesisEvent](t, "kinesis.json")
	h := lambdabatch.Kinesis(w.guard, w.handle, w.options(func(o *lambdabatch.Options) { o.ID = nil }))
	w.on("o-3", returns(errBroken))
	for _, want := range []string{event.Records[2].Kinesis.SequenceNumber, ""} {
		response, err := h(w.invocation(), event)
		got := ""
		for _, f := range response.BatchItemFailures {
			got += f.ItemIdentifier
		}
		if err != nil || got != want {
			t.Errorf("the checkpoint is %q (%v), want %q", got, err, want)
		}
		w.on("o-3", nil)
	}
	if len(w.runs) != 11 {
		t.Errorf("the handler ran for %q, want each order once and o-3 twice", w.runs)
	}
}

// Sequence numbers are unique in one shard: the id of a record is its eventID. A record
// without one is refused.
func TestShards(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	option := w.options(func(o *lambdabatch.Options) { o.ID = nil })
	kinesis, dynamodb := lambdabatch.Kinesis(w.guard, w.handle, option), lambdabatch.DynamoDB(w.guard, func(ctx context.Context, c lambdabatch.Change[order]) error { return w.handle(ctx, *c.NewImage) }, option)
	for i, id := range []string{"shard-1:7", "shard-2:7", "shard-1:7", ""} {
		failures := 0
		if id == "" {
			failures = 1
		}
		records, changes := []events.KinesisEventRecord{{EventID: id, EventSourceArn: "arn:kinesis"}}, []events.DynamoDBEventRecord{{EventID: id, EventSourceArn: "arn:dynamodb"}}
		records[0].Kinesis = events.KinesisRecord{SequenceNumber: "7", Data: []byte(`{"order_id":"o-1"}`)}
		changes[0].Change = events.DynamoDBStreamRecord{SequenceNumber: "7", NewImage: map[string]events.DynamoDBAttributeValue{"order_id": events.NewStringAttribute("o-2")}}
		k, errK := kinesis(w.invocation(), events.KinesisEvent{Records: records})
		d, errD := dynamodb(w.invocation(), events.DynamoDBEvent{Records: changes})
		if errK != nil || errD != nil || len(k.BatchItemFailures) != failures || len(d.BatchItemFailures) != failures {
			t.Errorf("event %d: %+v %v, %+v %v", i, k, errK, d, errD)
		}
	}
	w.wantRuns("o-1", "o-2", "o-1", "o-2")
	if strings.Count(w.log(), "eventID of a stream") != 2 {
		t.Errorf("the log: %s", w.log())
	}
}

// item is an item of DynamoDB with an attribute of every type.
type item struct {
	PK      string   `json:"pk"`
	Version int64    `json:"version"`
	Paid    bool     `json:"paid"`
	Note    *string  `json:"note"`
	Seal    []byte   `json:"seal"`
	Tags    []string `json:"tags"`
	Sizes   []float64
	Seals   [][]byte
	Lines   []any
	Address struct{ City string }
}

// The images are decoded to Go values, with exact numbers.
func TestDynamoDB_RealEvent(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	event := load[events.DynamoDBEvent](t, "dynamodb.json")
	var changes []lambdabatch.Change[item]
	h := lambdabatch.DynamoDB(w.guard, func(_ context.Context, c lambdabatch.Change[item]) error {
		changes = append(changes, c)
		return nil
	}, w.options(func(o *lambdabatch.Options) { o.ID = nil }))
	for range 2 {
		if response, err := h(w.invocation(), event); err != nil || len(response.BatchItemFailures) != 0 {
			t.Fatalf("got %+v %v", response, err)
		}
	}
	if len(changes) != 3 {
		t.Fatalf("the handler ran %d times, want once for each record", len(changes))
	}
	full := item{
		PK: "o-1", Version: 9007199254740993, Paid: true, Seal: []byte{0, 1, 2}, Tags: []string{"gift", "new"}, Sizes: []float64{1, 2.5},
		Seals: [][]byte{{0, 1, 2}}, Lines: []any{map[string]any{"sku": "a", "count": 2.0}, "end"}, Address: struct{ City string }{"Köln"},
	}
	insert, modify, remove := changes[0], changes[1], changes[2]
	if insert.EventName != "INSERT" || insert.OldImage != nil || !reflect.DeepEqual(*insert.NewImage, full) || insert.Keys.PK != "o-1" {
		t.Errorf("got the new item %+v", insert.NewImage)
	}
	if modify.EventName != "MODIFY" || modify.OldImage.Version != 1 || modify.NewImage.Version != 2 {
		t.Errorf("got the change %+v", modify)
	}
	if remove.EventName != "REMOVE" || remove.NewImage != nil || remove.OldImage.PK != "o-2" {
		t.Errorf("got the removal %+v", remove)
	}
}

// An invalid attribute fails only its own record.
func TestDynamoDB_BrokenAttributes(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]events.DynamoDBAttributeValue{
		"no value":         {},
		"nested":           events.NewListAttribute([]events.DynamoDBAttributeValue{{}}),
		"in a map":         events.NewMapAttribute(map[string]events.DynamoDBAttributeValue{"a": {}}),
		"a number of text": events.NewNumberAttribute("many"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			ran := 0
			h := lambdabatch.DynamoDB(w.guard, func(context.Context, events.DynamoDBEventRecord) error { ran++; return nil }, w.options(func(o *lambdabatch.Options) { o.ID = nil }))
			event := load[events.DynamoDBEvent](t, "dynamodb.json")
			event.Records[1].Change.NewImage["broken"] = broken
			response, err := h(w.invocation(), event)
			if err != nil || len(response.BatchItemFailures) != 1 || response.BatchItemFailures[0].ItemIdentifier != event.Records[1].Change.SequenceNumber || ran != 2 {
				t.Errorf("got %+v %v after %d runs", response, err, ran)
			}
			if panics := name != "a number of text"; panics != strings.Contains(w.log(), "panic_type=") {
				t.Errorf("the log reports a panic: %t\n%s", !panics, w.log())
			}
		})
	}
}

// A body that is not JSON is compared by its bytes, and is passed on unchanged.
func TestKinesis_Bytes(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	var got []string
	event := load[events.KinesisEvent](t, "kinesis.json")
	event.Records = event.Records[:1]
	event.Records[0].Kinesis.Data = []byte{0xff, 0x00}
	for range 2 {
		for _, h := range []func(context.Context, events.KinesisEvent) (events.KinesisEventResponse, error){
			lambdabatch.Kinesis(w.guard, func(_ context.Context, b []byte) error {
				got = append(got, base64.StdEncoding.EncodeToString(b))
				return nil
			}, w.options(func(o *lambdabatch.Options) { o.ID = nil; o.Operation = "bytes" })),
			lambdabatch.Kinesis(w.guard, func(_ context.Context, s string) error { got = append(got, s); return nil },
				w.options(func(o *lambdabatch.Options) { o.ID = nil; o.Operation = "text" })),
		} {
			if response, err := h(w.invocation(), event); err != nil || len(response.BatchItemFailures) != 0 {
				t.Errorf("got %+v %v", response, err)
			}
		}
	}
	if !slices.Equal(got, []string{"/wA=", "\xff\x00"}) {
		t.Errorf("the handlers got %q", got)
	}
	event.Records[0].Kinesis.Data = []byte{0xff, 0x01}
	h := lambdabatch.Kinesis(w.guard, func(context.Context, []byte) error { return nil }, w.options(func(o *lambdabatch.Options) { o.ID = nil; o.Operation = "bytes" }))
	if response, _ := h(w.invocation(), event); len(response.BatchItemFailures) != 1 {
		t.Error("other bytes with the same sequence number are not a mismatch")
	}
}
