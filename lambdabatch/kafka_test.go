// SPDX-License-Identifier: Apache-2.0

package lambdabatch_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdabatch"
)

type kafkaHandler = func(context.Context, events.KafkaEvent) (lambdabatch.KafkaEventResponse, error)

func (w *fixture) kafka(optFns ...func(*lambdabatch.Options)) kafkaHandler {
	return lambdabatch.Kafka(w.guard, w.handle, w.options(func(o *lambdabatch.Options) { o.ID = nil }, options(optFns)))
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
		event := load[events.KafkaEvent](t, "kafka.json")
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

// Offsets count within a partition of a topic: the same offset elsewhere is another
// record.
func TestKafka_Keys(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	h := w.kafka()
	one := func(topic string, partition, offset int64) events.KafkaEvent {
		r := events.KafkaRecord{Topic: topic, Partition: partition, Offset: offset, Value: base64.StdEncoding.EncodeToString([]byte(`{"order_id":"o-1"}`))}
		return events.KafkaEvent{EventSourceARN: "arn:cluster", Records: map[string][]events.KafkaRecord{"any": {r}}}
	}
	for i, e := range []events.KafkaEvent{one("a", 0, 1), one("a", 1, 1), one("a", 0, 2), one("b", 0, 1)} {
		wantKafka(t, w, h, e, allDone)
		wantKafka(t, w, h, e, allDone)
		if len(w.runs) != i+1 {
			t.Fatalf("%d runs after %d records", len(w.runs), i+1)
		}
	}
	other := one("a", 0, 1)
	other.EventSourceARN = "arn:other"
	wantKafka(t, w, h, other, allDone)
	if len(w.runs) != 5 {
		t.Errorf("a record of another cluster is taken for a redelivery")
	}
}

// The rules get the decoded value and the headers; a handler of the record's type
// gets it as Lambda sends it.
func TestKafka_View(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	event := load[events.KafkaEvent](t, "kafka.json")
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

// A record that cannot be read fails, and blocks only its partition. A self-managed
// cluster needs a scope.
func TestKafka_Unreadable(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	event := load[events.KafkaEvent](t, "kafka.json")
	event.Records["orders-1"][0].Value = "*"
	unwrap := func(o *lambdabatch.Options) { o.Unwrap = func(*lambdabatch.Message) error { return nil } }
	wantKafka(t, w, w.kafka(unwrap), event, `{"batchItemFailures":[{"itemIdentifier":{"partition":"orders-1","offset":15}}]}`)
	if !strings.Contains(w.log(), "not base64") {
		t.Errorf("the log: %s", w.log())
	}
	event = load[events.KafkaEvent](t, "kafka.json")
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
	event := load[events.KafkaEvent](t, "kafka.json")
	event.Records["orders-1"][0].Value = ""
	byOffset := func(o *lambdabatch.Options) { o.ID = nil }
	deleted := 0
	h := lambdabatch.Kafka(w.guard, func(ctx context.Context, o *order) error {
		if o == nil {
			deleted++
		}
		return nil
	}, w.options(byOffset, func(o *lambdabatch.Options) { o.Operation = "pointers" }))
	wantKafka(t, w, h, event, allDone)
	handed := 0
	h = lambdabatch.Kafka(w.guard, w.handle, w.options(byOffset, func(o *lambdabatch.Options) {
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

// Outcomes are stored for 168 hours, the default retention of a topic.
func TestKafka_Retention(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	event := load[events.KafkaEvent](t, "kafka.json")
	h := w.kafka(guarded(func(o *idempotent.Options) { o.Retention = time.Hour }))
	wantKafka(t, w, h, event, allDone)
	w.clock.Advance(168*time.Hour - time.Second)
	wantKafka(t, w, h, event, allDone)
	if len(w.runs) != 4 {
		t.Errorf("within the retention: %d runs", len(w.runs))
	}
	w.clock.Advance(2 * time.Second)
	wantKafka(t, w, h, event, allDone)
	if len(w.runs) != 8 {
		t.Errorf("after the retention: %d runs", len(w.runs))
	}
}

// The options of queues are refused.
func TestKafka_Refuses(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	for _, f := range []func(*lambdabatch.Options){
		func(o *lambdabatch.Options) { o.NoRedrive = true }, func(o *lambdabatch.Options) { o.PerGroup = true },
		func(o *lambdabatch.Options) {
			o.ChangeVisibility = func(context.Context, string, string, int32) error { return nil }
		},
	} {
		func() {
			defer func() {
				if p := recover(); p == nil || !strings.Contains(p.(error).Error(), "Kafka") {
					t.Errorf("got %v", p)
				}
			}()
			w.kafka(f)
		}()
	}
}
