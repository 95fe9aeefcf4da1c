// SPDX-License-Identifier: Apache-2.0

package lambdabatch_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdabatch"
)

// stream is a source with partitions.
type stream struct {
	name string
	// send delivers a batch of the orders o-1 … in these partitions, and returns which
	// records the answer names.
	send      func(w *fixture, partitions []int, optFns ...func(*lambdabatch.Options)) (ids []string, err error)
	retention time.Duration // by the source's default
	all       bool          // the answer names all failed records, and not only the first
}

var streams = []stream{
	{"Kinesis", func(w *fixture, partitions []int, optFns ...func(*lambdabatch.Options)) (ids []string, err error) {
		h := lambdabatch.Kinesis(w.guard, w.handle, w.options(append(optFns, withoutID)...))
		var event events.KinesisEvent
		for i, p := range partitions {
			event.Records = append(event.Records, events.KinesisEventRecord{EventSourceArn: "arn:stream", EventID: "shard-1:" + orderID(i), Kinesis: events.KinesisRecord{
				SequenceNumber: orderID(i), PartitionKey: fmt.Sprint(p), Data: []byte(`{"order_id":"` + orderID(i) + `"}`),
			}})
		}
		response, err := h(w.invocation(), event)
		for _, f := range response.BatchItemFailures {
			ids = append(ids, f.ItemIdentifier)
		}
		return ids, err
	}, 86_400 * time.Second, false},
	{"DynamoDB", func(w *fixture, partitions []int, optFns ...func(*lambdabatch.Options)) (ids []string, err error) {
		h := lambdabatch.DynamoDB(w.guard, w.handleImage, w.options(append(optFns, withoutID)...))
		var event events.DynamoDBEvent
		for i, p := range partitions {
			event.Records = append(event.Records, events.DynamoDBEventRecord{EventSourceArn: "arn:stream", EventID: "shard-1:" + orderID(i), EventName: "INSERT", Change: events.DynamoDBStreamRecord{
				SequenceNumber: orderID(i),
				Keys:           map[string]events.DynamoDBAttributeValue{"pk": events.NewStringAttribute(fmt.Sprint(p))},
				NewImage:       map[string]events.DynamoDBAttributeValue{"order_id": events.NewStringAttribute(orderID(i))},
			}})
		}
		response, err := h(w.invocation(), event)
		for _, f := range response.BatchItemFailures {
			ids = append(ids, f.ItemIdentifier)
		}
		return ids, err
	}, 86_400 * time.Second, false},
	{"Kafka", func(w *fixture, partitions []int, optFns ...func(*lambdabatch.Options)) (ids []string, err error) {
		event := events.KafkaEvent{EventSourceARN: "arn:cluster", Records: map[string][]events.KafkaRecord{}}
		for i, p := range partitions {
			name := fmt.Sprintf("orders-%d", p)
			event.Records[name] = append(event.Records[name], kafkaRecord("orders", int64(p), int64(i), orderID(i)))
		}
		response, err := w.kafka(optFns...)(w.invocation(), event)
		for _, f := range response.BatchItemFailures {
			ids = append(ids, orderID(int(f.ItemIdentifier.Offset)))
		}
		return ids, err
	}, 168 * time.Hour, true},
}

func orderID(i int) string { return "o-" + string(rune('1'+i)) }

func withoutID(o *lambdabatch.Options) { o.ID = nil }

// handleImage is the handler of a stream of DynamoDB.
func (w *fixture) handleImage(ctx context.Context, c lambdabatch.Change[order]) error {
	return w.handle(ctx, *c.NewImage)
}

// want delivers a batch and checks its answer: these records failed, or did not run.
func (s stream) want(t *testing.T, w *fixture, partitions []int, optFns []func(*lambdabatch.Options), failed ...string) {
	t.Helper()
	if !s.all && len(failed) > 1 {
		failed = failed[:1] // the checkpoint
	}
	ids, err := s.send(w, partitions, optFns...)
	if err != nil {
		t.Fatal(err)
	}
	wantIDs(t, ids, failed...)
}

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
		partitions := []int{0, 1, 2, 3, 4, 5, 6, 7}
		w.on("o-3", returns(errBroken))
		w.on("o-6", returns(errBroken)) // a later failure is not the checkpoint
		s.want(t, w, partitions, nil, "o-3", "o-6")
		w.wantRuns("o-1", "o-2", "o-3", "o-4", "o-5", "o-6", "o-7", "o-8")
		w.on("o-3", nil)
		s.want(t, w, partitions, nil, "o-6")
		w.on("o-6", nil)
		s.want(t, w, partitions, nil)
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
			s.want(t, w, []int{0, 1, 0, 1, 0}, []func(*lambdabatch.Options){concurrency(n)}, "o-2", "o-4")
			slices.Sort(w.runs)
			w.wantRuns("o-1", "o-2", "o-3", "o-5")
		})
	}
}

// H10: outcomes are stored for the retention of a stream by its default in the
// developer guides, even if the guard's retention is shorter.
func TestRetentionFollowsTheStream(t *testing.T) {
	t.Parallel()
	onEachStream(t, func(t *testing.T, s stream) {
		w := newFixture(t)
		short := []func(*lambdabatch.Options){guarded(func(o *idempotent.Operation) { o.Retention = time.Hour })}
		s.want(t, w, []int{0}, short)
		w.clock.Advance(s.retention - time.Second)
		s.want(t, w, []int{0}, short)
		w.wantRuns("o-1")
		w.clock.Advance(2 * time.Second)
		s.want(t, w, []int{0}, short)
		w.wantRuns("o-1", "o-1")
	})
}

// Sequence numbers are unique in one shard: the id of a record is its eventID. Offsets of Kafka count within a partition of a topic.
func TestShards(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	kinesis, dynamodb := lambdabatch.Kinesis(w.guard, w.handle, w.options(withoutID)), lambdabatch.DynamoDB(w.guard, w.handleImage, w.options(withoutID))
	for i, id := range []string{"shard-1:7", "shard-2:7", "shard-1:7"} {
		records, changes := []events.KinesisEventRecord{{EventID: id, EventSourceArn: "arn:kinesis"}}, []events.DynamoDBEventRecord{{EventID: id, EventSourceArn: "arn:dynamodb"}}
		records[0].Kinesis = events.KinesisRecord{SequenceNumber: "7", Data: []byte(`{"order_id":"o-1"}`)}
		changes[0].Change = events.DynamoDBStreamRecord{SequenceNumber: "7", NewImage: map[string]events.DynamoDBAttributeValue{"order_id": events.NewStringAttribute("o-2")}}
		k, errK := kinesis(w.invocation(), events.KinesisEvent{Records: records})
		d, errD := dynamodb(w.invocation(), events.DynamoDBEvent{Records: changes})
		if errK != nil || errD != nil || len(k.BatchItemFailures)+len(d.BatchItemFailures) > 0 {
			t.Errorf("event %d: %+v %v, %+v %v", i, k, errK, d, errD)
		}
	}
	w.wantRuns("o-1", "o-2", "o-1", "o-2")

	w = newFixture(t)
	for i, row := range []struct {
		topic, cluster    string
		partition, offset int64
	}{{"a", "c", 0, 1}, {"a", "c", 1, 1}, {"a", "c", 0, 2}, {"b", "c", 0, 1}, {"a", "other", 0, 1}} {
		records := []events.KafkaRecord{kafkaRecord(row.topic, row.partition, row.offset, "o-1")}
		event := events.KafkaEvent{EventSourceARN: row.cluster, Records: map[string][]events.KafkaRecord{"any": records}}
		for range 2 {
			wantKafka(t, w, w.kafka(), event, allDone)
		}
		if len(w.runs) != i+1 {
			t.Fatalf("%d runs after %d records", len(w.runs), i+1)
		}
	}
}

func kafkaRecord(topic string, partition, offset int64, order string) events.KafkaRecord {
	value := base64.StdEncoding.EncodeToString([]byte(`{"order_id":"` + order + `"}`))
	return events.KafkaRecord{Topic: topic, Partition: partition, Offset: offset, Value: value}
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
	event := load[events.DynamoDBEvent](t, "dynamodb")
	var changes []lambdabatch.Change[item]
	h := lambdabatch.DynamoDB(w.guard, func(_ context.Context, c lambdabatch.Change[item]) error {
		changes = append(changes, c)
		return nil
	}, w.options(withoutID))
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
		w := newFixture(t)
		ran := 0
		h := lambdabatch.DynamoDB(w.guard, func(context.Context, events.DynamoDBEventRecord) error { ran++; return nil }, w.options(withoutID))
		event := load[events.DynamoDBEvent](t, "dynamodb")
		event.Records[1].Change.NewImage["broken"] = broken
		response, err := h(w.invocation(), event)
		if err != nil || len(response.BatchItemFailures) != 1 || response.BatchItemFailures[0].ItemIdentifier != event.Records[1].Change.SequenceNumber || ran != 2 {
			t.Errorf("%s: got %+v %v after %d runs", name, response, err, ran)
		}
		if panics := name != "a number of text"; panics != strings.Contains(w.log(), "panic_type=") {
			t.Errorf("%s: the log reports a panic: %t\n%s", name, !panics, w.log())
		}
	}
}

// A body that is not JSON is compared by its bytes, and is passed on unchanged.
func TestKinesis_Bytes(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	var got []string
	named := func(operation string) func(*lambdabatch.Options) {
		return func(o *lambdabatch.Options) { o.ID, o.Operation = nil, operation }
	}
	bytes := lambdabatch.Kinesis(w.guard, func(_ context.Context, b []byte) error { got = append(got, string(b)+" bytes"); return nil }, w.options(named("bytes")))
	text := lambdabatch.Kinesis(w.guard, func(_ context.Context, s string) error { got = append(got, s+" text"); return nil }, w.options(named("text")))
	event := load[events.KinesisEvent](t, "kinesis")
	event.Records = event.Records[:1]
	deliver := func(data string, failures int) {
		event.Records[0].Kinesis.Data = []byte(data)
		for _, h := range []func(context.Context, events.KinesisEvent) (events.KinesisEventResponse, error){bytes, text} {
			if response, err := h(w.invocation(), event); err != nil || len(response.BatchItemFailures) != failures {
				t.Errorf("%q: got %+v %v, want %d failures", data, response, err, failures)
			}
		}
	}
	deliver("\xff\x00", 0)
	deliver("\xff\x00", 0)
	deliver("\xff\x01", 1) // other bytes with the same sequence number
	if !slices.Equal(got, []string{"\xff\x00 bytes", "\xff\x00 text"}) {
		t.Errorf("the handlers got %q", got)
	}
}

type kafkaHandler = func(context.Context, events.KafkaEvent) (lambdabatch.KafkaEventResponse, error)

func (w *fixture) kafka(optFns ...func(*lambdabatch.Options)) kafkaHandler {
	return lambdabatch.Kafka(w.guard, w.handle, w.options(append(optFns, withoutID)...))
}

// wantKafka checks the answer, in the form in which Lambda reads it.
func wantKafka(t *testing.T, w *fixture, h kafkaHandler, event events.KafkaEvent, want string) {
	t.Helper()
	response, err := h(w.invocation(), event)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := json.Marshal(response); err != nil || string(got) != want {
		t.Errorf("got %s %v, want %s", got, err, want)
	}
}

const allDone = `{"batchItemFailures":[]}`

// The third record of partition 0 does not run behind the second, which fails. The
// other partition runs. The answer names both, so that it does not matter whether
// Lambda redelivers the named records or all from the first one on.
func TestKafka_RealEvent(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 4} {
		w := newFixture(t)
		event := load[events.KafkaEvent](t, "kafka")
		h := w.kafka(concurrency(n))
		w.on("o-2", returns(errBroken))
		wantKafka(t, w, h, event, `{"batchItemFailures":[`+
			`{"itemIdentifier":{"partition":"orders-0","offset":16}},{"itemIdentifier":{"partition":"orders-0","offset":17}}]}`)
		slices.Sort(w.runs)
		w.wantRuns("o-1", "o-2", "o-4")
		w.on("o-2", nil)
		wantKafka(t, w, h, event, allDone) // a rebalance redelivers all of them
		slices.Sort(w.runs)
		w.wantRuns("o-1", "o-2", "o-2", "o-3", "o-4")
	}
}

// The rules get the decoded value and the headers; a handler of the record's type
// gets it as Lambda sends it.
func TestKafka_View(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	event := load[events.KafkaEvent](t, "kafka")
	event.EventSourceARN = "" // self-managed
	tenants := ""
	h := lambdabatch.Kafka(w.guard, func(ctx context.Context, r events.KafkaRecord) error {
		m, ok := lambdabatch.FromContext(ctx)
		value, err := base64.StdEncoding.DecodeString(r.Value)
		if !ok || err != nil || string(m.Body) != string(value) || m.Event.(*events.KafkaRecord).Offset != r.Offset {
			t.Errorf("got %+v for %+v (%v)", m, r, err)
		}
		tenants += m.Attributes["tenant"] + ";"
		return nil
	}, w.options(func(o *lambdabatch.Options) {
		o.ID = lambdabatch.Field("/order_id")
		o.Scope = func(_ context.Context, m *lambdabatch.Message) (string, error) { return "cluster" + m.Source, nil }
	}))
	wantKafka(t, w, h, event, allDone)
	wantKafka(t, w, h, event, allDone)
	if tenants != "acme;;;b;" { // the last header of a name counts
		t.Errorf("got the headers %q", tenants)
	}
	key := idempotent.Key{Operation: "fulfil", Scope: "cluster", ID: "o-4"}
	if _, err := w.store.Get(t.Context(), key.RecordID()); err != nil {
		t.Errorf("the key of a field: %v", err)
	}
}

// A record that cannot be read fails, blocks only its partition, and is handed over. A
// self-managed cluster needs a scope.
func TestKafka_Unreadable(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	event := load[events.KafkaEvent](t, "kafka")
	event.Records["orders-1"][0].Value = "*"
	unwrap := func(o *lambdabatch.Options) {
		o.Unwrap = func(context.Context, *lambdabatch.Message) error { return nil }
	}
	wantKafka(t, w, w.kafka(unwrap), event, `{"batchItemFailures":[{"itemIdentifier":{"partition":"orders-1","offset":15}}]}`)
	if !strings.Contains(w.log(), "not base64") {
		t.Errorf("the log: %s", w.log())
	}
	wantKafka(t, w, w.kafka(func(o *lambdabatch.Options) {
		o.HandOver = func(_ context.Context, _ *lambdabatch.Message, reason error) error {
			if !errors.As(reason, new(*lambdabatch.DecodeError)) {
				t.Errorf("handed over because of %v", reason)
			}
			return nil
		}
	}), event, allDone)
	event = load[events.KafkaEvent](t, "kafka")
	event.EventSourceARN, event.Records["orders-0"] = "", nil
	wantKafka(t, w, w.kafka(), event, `{"batchItemFailures":[{"itemIdentifier":{"partition":"orders-1","offset":15}}]}`)
	if !strings.Contains(w.log(), "(eventSourceARN): add it to a test event; a self-managed Kafka cluster has no ARN, so set Options.Scope") {
		t.Errorf("the log: %s", w.log())
	}
}

// A tombstone is nil for a handler of a pointer type. For another one it cannot be
// decoded: it is handed over, and the next record of its partition runs.
func TestKafka_Tombstone(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	event := load[events.KafkaEvent](t, "kafka")
	event.Records["orders-1"][0].Value = ""
	deleted := 0
	h := lambdabatch.Kafka(w.guard, func(ctx context.Context, o *order) error {
		if o == nil {
			deleted++
		}
		return nil
	}, w.options(withoutID, func(o *lambdabatch.Options) { o.Operation = "pointers" }))
	wantKafka(t, w, h, event, allDone)
	handed := 0
	h = lambdabatch.Kafka(w.guard, w.handle, w.options(withoutID, func(o *lambdabatch.Options) {
		o.HandOver = func(_ context.Context, m *lambdabatch.Message, reason error) error {
			if handed++; m.Lane != "orders-1" || !errors.As(reason, new(*lambdabatch.DecodeError)) {
				t.Errorf("handed over: %s, because of %v", m.ItemID, reason)
			}
			return nil
		}
	}))
	wantKafka(t, w, h, event, allDone)
	if deleted != 1 || handed != 1 {
		t.Errorf("%d records were nil, %d handed over, want 1 and 1", deleted, handed)
	}
}
