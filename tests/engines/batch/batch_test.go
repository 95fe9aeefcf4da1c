// SPDX-License-Identifier: Apache-2.0

// Package batch tests the batch accounting of package lambdabatch: a source that
// redelivers, a process that dies, a store that loses replies, and a book of the
// real effects.
package batch

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"pgregory.net/rapid"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdabatch"
)

// G10, INV-13: random batches of every source, outcomes, dying processes, lost
// requests and replies, and redeliveries. A message is acknowledged only if its
// record is completed (or unknown and handed over). No message is lost. No
// message of a group overtakes an earlier one. The number of effects is within
// the promise. rapid prints the seed of a failure and the shortest story that
// fails in the same way; -rapid.checks sets the number of stories.
func TestBatchAccounting(t *testing.T) {
	t.Parallel()
	for _, s := range sources {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			seen := &kit.Tally{}
			for range 10 {
				rapid.Check(t, func(rt *rapid.T) { account(newFixture(rt, s, seen)) })
			}
			t.Log(seen)
			seen.Least(t, 500, "stories", "acknowledged", "came again", "entries", "event replayed")
			seen.Least(t, 50, "died", "faults", "event retryable", "event marked_unknown", "handed over", "resolved", "not executed")
			if !s.ordered {
				seen.Least(t, 500, "fault-free and exact")
			}
			if s.rebalances {
				seen.Least(t, 500, "rebalanced")
			}
			if s.sqs {
				seen.Least(t, 100, "hidden")
				seen.Least(t, 30, "not hidden")
			}
			if s.sqs && s.ordered {
				seen.Least(t, 100, "waited for its group")
			}
		})
	}
}

// account runs one story: some rounds with faults, then rounds without, until
// every message is acknowledged.
func account(w *fixture) {
	w.seen.Add("stories", 1)
	for range rapid.IntRange(1, 8).Draw(w.t, "rounds of trouble") {
		if len(w.waiting()) == 0 {
			break
		}
		w.round(true)
		switch rapid.IntRange(0, 3).Draw(w.t, "then") {
		case 0:
			w.clock.Advance(2 * timeout)
		case 1:
			w.reconcile()
		}
	}
	for round := 0; len(w.waiting()) > 0; round++ {
		if round > 3*len(w.all) {
			w.t.Fatalf("%d of %d messages are not acknowledged after %d rounds without faults", len(w.waiting()), len(w.all), round)
		}
		w.round(false)
		w.clock.Advance(2 * timeout)
		w.reconcile()
	}
	w.clock.Advance(2 * timeout)
	w.reconcile()
	for _, m := range w.all {
		r := w.record(m)
		if r == nil || r.State != driver.StateCompleted && !w.handedOver[string(r.ID)] {
			w.t.Fatalf("%s is lost: it is acknowledged, but its record is %v", m.id, r)
		}
		id := string(r.ID)
		switch {
		case w.declared == idempotent.Reconcile && w.effects[id] > 1:
			w.t.Fatalf("%s had its effect %d times", m.id, w.effects[id])
		case w.declared == idempotent.Reconcile && w.entries[id] > 1+w.retryable[string(r.ID)]:
			w.t.Fatalf("%s ran %d times and was retryable %d times", m.id, w.entries[id], w.retryable[string(r.ID)])
		case w.declared == idempotent.Resume && len(w.keys[id]) > 1:
			w.t.Fatalf("the provider got %s under %d keys", m.id, len(w.keys[id]))
		}
	}
}

func (w *fixture) waiting() []*sent {
	return slices.DeleteFunc(slices.Clone(w.all), func(m *sent) bool { return m.acknowledged })
}

// round delivers one batch and checks the answer.
func (w *fixture) round(trouble bool) {
	batch := w.waiting()
	if w.source.sqs {
		batch = w.visible(trouble)
	}
	w.script, w.dead = map[string]ending{}, false
	w.faults.Plan = nil
	faulty := false
	if trouble {
		if w.source.rebalances && rapid.IntRange(0, 3).Draw(w.t, "rebalance") == 0 {
			batch = w.all
			w.seen.Add("rebalanced", 1)
		}
		batch = w.source.deliver(w.t, batch)
		for _, m := range batch {
			if w.script[m.about] == "" {
				w.script[m.about] = rapid.SampledFrom(endings).Draw(w.t, "order "+m.about)
			}
			faulty = faulty || w.script[m.about] == slow
		}
		if faulty = faulty || rapid.IntRange(0, 2).Draw(w.t, "faults") == 0; faulty {
			w.faults.Plan = idempotenttest.Seeded(rapid.Uint64().Draw(w.t, "seed"),
				idempotenttest.Odds{Fault: idempotenttest.LostRequest, P: 0.1}, idempotenttest.Odds{Fault: idempotenttest.LostReply, P: 0.1})
		}
	}
	if w.source.sqs {
		w.queue.receive(batch)
		w.hides, w.hidden = rapid.IntRange(0, 3).Draw(w.t, "hides") > 0, map[*sent]bool{}
	}
	w.batch = batch
	before := faultsOf(&w.faults)
	ids, err := w.handle(w.clock.Invocation(context.Background(), timeout), batch)
	w.seen.Add("faults", faultsOf(&w.faults)-before)
	for _, what := range w.broken {
		w.t.Fatal(what)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	if w.dead { // no caller gets the answer
		w.seen.Add("died", 1)
		return
	}
	for i, id := range ids {
		if !slices.ContainsFunc(batch, func(m *sent) bool { return m.id == id }) || slices.Contains(ids[:i], id) {
			w.t.Fatalf("the answer names %q, which is not in the batch or was named before: %q", id, ids)
		}
	}
	failed := w.source.failed(batch, ids)
	w.seen.Add("came again", len(failed))
	for _, m := range batch {
		if slices.Contains(failed, m) || m.acknowledged {
			continue
		}
		if w.hidden[m] {
			w.t.Fatalf("%s is acknowledged, and was hidden until later", m.id)
		}
		m.acknowledged = true
		w.seen.Add("acknowledged", 1)
		if !w.done(m) {
			w.t.Fatalf("%s is acknowledged, but its record is %v", m.id, w.record(m))
		}
		if w.record(m).State == driver.StateUnknown {
			w.seen.Add("handed over", 1)
		}
	}
	// The reverse: without faults, in an unordered queue that delivers each
	// order once, a redelivered message is not completed.
	if faulty || w.source.ordered || twice(batch) {
		return
	}
	for _, m := range failed {
		if r := w.record(m); r != nil && r.State == driver.StateCompleted {
			w.t.Fatalf("%s is redelivered, but its record is completed", m.id)
		}
	}
	w.seen.Add("fault-free and exact", 1)
}

// visible returns the messages that SQS can deliver, after waiting for one. In times
// of trouble a standard queue may deliver messages that are hidden.
func (w *fixture) visible(trouble bool) []*sent {
	if trouble && !w.source.ordered && rapid.IntRange(0, 5).Draw(w.t, "deliver hidden messages") == 0 {
		return w.waiting()
	}
	for {
		before := w.queue.waited
		batch := w.queue.available()
		w.seen.Add("waited for its group", w.queue.waited-before)
		if len(batch) > 0 {
			return batch
		}
		w.queue.wait(w.clock.Now().Add(day))
	}
}

func faultsOf(f *idempotenttest.Faults) (n int) {
	for _, times := range f.Injected() {
		n += times
	}
	return n
}

func twice(batch []*sent) bool {
	about := map[string]bool{}
	for _, m := range batch {
		if about[m.about] {
			return true
		}
		about[m.about] = true
	}
	return false
}

// reconcile resolves every unknown record with the real outcome. (A record with
// an expired lease becomes unknown when its message is redelivered.)
func (w *fixture) reconcile() {
	g := w.guard(w.store)
	for _, m := range w.all {
		r := w.record(m)
		if r == nil || r.State != driver.StateUnknown {
			continue
		}
		evidence := idempotent.Resolved("whatever a resolver returns")
		if w.effects[string(r.ID)] == 0 {
			if w.clock.Now().Before(r.LeaseEnd) {
				continue // the process is dead, but the guard cannot know
			}
			evidence = idempotent.ProvenNotExecuted(r.Token())
			w.retryable[string(r.ID)]++
			w.seen.Add("not executed", 1)
		}
		if err := g.Resolve(context.Background(), r.ID, evidence); err != nil {
			w.t.Fatal(err)
		}
		w.seen.Add("resolved", 1)
	}
}

// sent is one message in a source. Two messages may be about one order.
type sent struct {
	id, about, group string
	acknowledged     bool
	receipts
}

// source is one kind of event source: how it delivers, and how it interprets an
// answer.
type source struct {
	name     string
	sqs      bool // with a visibility timeout
	ordered  bool // within a group
	together bool // one failure stops the whole batch
	// rebalances: a new consumer may start before records that are acknowledged
	rebalances bool
	option     func(*lambdabatch.Options)
	build      func(*idempotent.Guard, func(context.Context, order) error, func(*lambdabatch.Options)) handler
	// deliver picks a batch, by index, of the messages that are waiting and not hidden.
	deliver func(*rapid.T, []*sent) []*sent
	// failed returns the messages of the batch that are redelivered.
	failed func(batch []*sent, ids []string) []*sent
}

type handler func(context.Context, []*sent) ([]string, error)

// order is the message's body. Two messages about one order are one request.
type order struct {
	ID      string `json:"order_id"`
	Message string `json:"message"`
}

const arn, url = "arn:aws:sqs:eu-central-1:123456789012:orders", "https://sqs.eu-central-1.amazonaws.com/123456789012/orders"

func none(*lambdabatch.Options) {}

var sources = []source{
	{name: "SQS", sqs: true, option: none, build: ofSQS(lambdabatch.SQS[order]), deliver: anyOf, failed: named},
	{name: "SQSFIFO", sqs: true, ordered: true, together: true, option: none, build: ofSQS(lambdabatch.SQSFIFO[order]), deliver: groups, failed: named},
	{name: "SQSFIFO per group", sqs: true, ordered: true, option: func(o *lambdabatch.Options) { o.PerGroup = true }, build: ofSQS(lambdabatch.SQSFIFO[order]), deliver: groups, failed: named},
	{name: "Kinesis", ordered: true, option: func(o *lambdabatch.Options) { o.ID = nil }, build: kinesis, deliver: first, failed: checkpoint},
	{name: "Kafka", ordered: true, rebalances: true, option: none, build: kafka, deliver: groups, failed: fromTheFirst},
	{name: "DynamoDB", ordered: true, option: func(o *lambdabatch.Options) { o.ID = nil }, build: dynamodb, deliver: first, failed: checkpoint},
}

func ofSQS(constructor func(*idempotent.Guard, func(context.Context, order) error, ...func(*lambdabatch.Options)) func(context.Context, events.SQSEvent) (events.SQSEventResponse, error)) func(*idempotent.Guard, func(context.Context, order) error, func(*lambdabatch.Options)) handler {
	return func(g *idempotent.Guard, work func(context.Context, order) error, option func(*lambdabatch.Options)) handler {
		h := constructor(g, work, option)
		return func(ctx context.Context, batch []*sent) (ids []string, err error) {
			e := events.SQSEvent{Records: []events.SQSMessage{}}
			for _, m := range batch {
				e.Records = append(e.Records, events.SQSMessage{
					MessageId: m.id, EventSourceARN: arn, Body: body(m), ReceiptHandle: m.receipt,
					Attributes: map[string]string{"MessageGroupId": m.group, "ApproximateReceiveCount": strconv.Itoa(m.receives)},
				})
			}
			response, err := h(ctx, e)
			for _, f := range response.BatchItemFailures {
				ids = append(ids, f.ItemIdentifier)
			}
			return ids, err
		}
	}
}

func kinesis(g *idempotent.Guard, work func(context.Context, order) error, option func(*lambdabatch.Options)) handler {
	h := lambdabatch.Kinesis(g, work, option)
	return func(ctx context.Context, batch []*sent) (ids []string, err error) {
		e := events.KinesisEvent{Records: []events.KinesisEventRecord{}}
		for _, m := range batch {
			e.Records = append(e.Records, events.KinesisEventRecord{EventSourceArn: arn, EventID: m.id, Kinesis: events.KinesisRecord{SequenceNumber: m.id, PartitionKey: m.group, Data: []byte(body(m))}})
		}
		response, err := h(ctx, e)
		for _, f := range response.BatchItemFailures {
			ids = append(ids, f.ItemIdentifier)
		}
		return ids, err
	}
}

// kafka has a partition for each group. The offset of a message is its number.
func kafka(g *idempotent.Guard, work func(context.Context, order) error, option func(*lambdabatch.Options)) handler {
	h := lambdabatch.Kafka(g, work, option)
	return func(ctx context.Context, batch []*sent) (ids []string, err error) {
		e := events.KafkaEvent{EventSourceARN: arn, Records: map[string][]events.KafkaRecord{}}
		names := map[lambdabatch.KafkaItemIdentifier]string{}
		for _, m := range batch {
			partition, offset := int64(m.group[0]-'A'), int64(m.id[1]-'A')
			at := fmt.Sprintf("orders-%d", partition)
			names[lambdabatch.KafkaItemIdentifier{Partition: at, Offset: offset}] = m.id
			e.Records[at] = append(e.Records[at], events.KafkaRecord{Topic: "orders", Partition: partition, Offset: offset, Value: base64.StdEncoding.EncodeToString([]byte(body(m)))})
		}
		response, err := h(ctx, e)
		for _, f := range response.BatchItemFailures {
			ids = append(ids, names[f.ItemIdentifier])
		}
		return ids, err
	}
}

func dynamodb(g *idempotent.Guard, work func(context.Context, order) error, option func(*lambdabatch.Options)) handler {
	h := lambdabatch.DynamoDB(g, func(ctx context.Context, c lambdabatch.Change[order]) error { return work(ctx, *c.NewImage) }, option)
	return func(ctx context.Context, batch []*sent) (ids []string, err error) {
		e := events.DynamoDBEvent{Records: []events.DynamoDBEventRecord{}}
		for _, m := range batch {
			e.Records = append(e.Records, events.DynamoDBEventRecord{EventSourceArn: arn, EventID: m.id, Change: events.DynamoDBStreamRecord{
				SequenceNumber: m.id,
				Keys:           map[string]events.DynamoDBAttributeValue{"pk": events.NewStringAttribute(m.group)},
				NewImage:       map[string]events.DynamoDBAttributeValue{"order_id": events.NewStringAttribute(m.about), "message": events.NewStringAttribute(m.id)},
			}})
		}
		response, err := h(ctx, e)
		for _, f := range response.BatchItemFailures {
			ids = append(ids, f.ItemIdentifier)
		}
		return ids, err
	}
}

func body(m *sent) string { return fmt.Sprintf(`{"order_id":%q,"message":%q}`, m.about, m.id) }

// anyOf is a standard queue: any messages, in any order, some of them twice.
func anyOf(t *rapid.T, waiting []*sent) []*sent {
	n := rapid.IntRange(1, 10).Draw(t, "messages")
	batch := make([]*sent, 0, n)
	for range n {
		batch = append(batch, waiting[rapid.IntRange(0, len(waiting)-1).Draw(t, "message")])
	}
	return batch
}

// groups is a FIFO queue: the first messages of some groups, in their order.
func groups(t *rapid.T, waiting []*sent) []*sent {
	left := map[string]int{}
	var batch []*sent
	for _, m := range waiting {
		n, known := left[m.group]
		if !known {
			n = rapid.IntRange(0, 6).Draw(t, "of group "+m.group)
		}
		if n > 0 && len(batch) < 10 {
			batch = append(batch, m)
			n--
		} else {
			n = 0
		}
		left[m.group] = n
	}
	return batch
}

// first is a shard: it delivers the next messages.
func first(t *rapid.T, waiting []*sent) []*sent {
	return waiting[:rapid.IntRange(1, min(10, len(waiting))).Draw(t, "records")]
}

// named interprets an answer as a queue does: the named messages are
// redelivered.
func named(batch []*sent, ids []string) (failed []*sent) {
	for _, m := range batch {
		if slices.Contains(ids, m.id) {
			failed = append(failed, m)
		}
	}
	return failed
}

// fromTheFirst interprets an answer in both ways that are possible for Kafka: the
// named messages are redelivered, or in each partition all from the first named one
// on. If the two differ, it returns nil: the messages would be lost in one of them.
func fromTheFirst(batch []*sent, ids []string) (failed []*sent) {
	stopped := map[string]bool{}
	for _, m := range batch {
		if slices.Contains(ids, m.id) {
			stopped[m.group] = true
		}
		if stopped[m.group] {
			failed = append(failed, m)
		}
	}
	if len(failed) != len(named(batch, ids)) {
		return nil
	}
	return failed
}

// checkpoint interprets an answer as a stream does: every message from the
// lowest named number on is redelivered.
func checkpoint(batch []*sent, ids []string) []*sent {
	for i, m := range batch {
		if slices.Contains(ids, m.id) {
			return batch[i:]
		}
	}
	return nil
}
