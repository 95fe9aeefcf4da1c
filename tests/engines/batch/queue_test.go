// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdabatch"
)

// queue is a stand-in for an SQS queue. Its rules are those of the SQS developer
// guide, in "Amazon SQS visibility timeout", "FIFO queue delivery logic", "Setting
// up dead-letter queue retention" and "Learn how to configure a dead-letter queue
// redrive":
//
//   - A message that is received is hidden for the visibility timeout. The timeout
//     can be changed, to at most 12 hours after the receipt.
//   - A FIFO queue returns no message of a group while one of that group is hidden.
//   - A message that was received maxReceives times moves to the dead-letter queue
//     instead of being received again. Only in FIFO queues its age begins again.
//   - A message is deleted when its age is the retention.
//   - A redriven message has another id, and its age and its receipts begin again.
type queue struct {
	clock       *idempotenttest.Clock
	fifo        bool
	visibility  time.Duration
	retention   time.Duration
	dead        *queue
	maxReceives int     // with a dead-letter queue
	messages    []*sent // in their order
	issued      int     // receipt handles
	waited      int     // messages that were not returned because of their group
}

// receipts is what a queue stores about a message.
type receipts struct {
	entered  time.Time // its age begins
	receives int
	received time.Time
	receipt  string
	visible  time.Time // end of the visibility timeout
}

func (q *queue) send(m *sent) {
	m.receipts = receipts{entered: q.clock.Now()}
	q.messages = append(q.messages, m)
}

// available returns the messages that can be received now.
func (q *queue) available() (batch []*sent) {
	now := q.clock.Now()
	q.messages = slices.DeleteFunc(q.messages, func(m *sent) bool {
		return m.acknowledged || now.Sub(m.entered) >= q.retention
	})
	hidden := map[string]bool{} // groups
	for _, m := range q.messages {
		if m.visible.After(now) {
			hidden[m.group] = true
		}
	}
	for _, m := range slices.Clone(q.messages) {
		switch {
		case m.visible.After(now):
		case q.fifo && hidden[m.group]:
			q.waited++
		case q.dead != nil && m.receives == q.maxReceives:
			q.messages = slices.DeleteFunc(q.messages, func(o *sent) bool { return o == m })
			if q.fifo {
				m.entered = now
			}
			q.dead.messages = append(q.dead.messages, m)
		default:
			batch = append(batch, m)
		}
	}
	return batch
}

// wait moves the clock to the moment when another message can be received, but not
// past the limit.
func (q *queue) wait(limit time.Time) {
	ends := map[string]time.Time{} // by group, or by message
	for _, m := range q.messages {
		held := m.id
		if q.fifo {
			held = m.group
		}
		if m.visible.After(ends[held]) {
			ends[held] = m.visible
		}
	}
	for _, end := range ends {
		if end.Before(limit) {
			limit = end
		}
	}
	if d := limit.Sub(q.clock.Now()); d > 0 {
		q.clock.Advance(d)
	}
}

func (q *queue) receive(batch []*sent) {
	now := q.clock.Now()
	for _, m := range batch {
		q.issued++
		m.receives++
		m.received, m.receipt = now, fmt.Sprintf("receipt-%d", q.issued)
		m.visible = now.Add(q.visibility)
	}
}

var errExpired = errors.New("the receipt handle has expired")

// changeVisibility is ChangeMessageVisibility.
func (q *queue) changeVisibility(queueURL, receipt string, seconds int32) (*sent, error) {
	i := slices.IndexFunc(q.messages, func(m *sent) bool { return m.receipt == receipt })
	if queueURL != url || i < 0 || q.messages[i].acknowledged {
		return nil, fmt.Errorf("%s has no message with the receipt handle %s", queueURL, receipt)
	}
	m, now := q.messages[i], q.clock.Now()
	if q.fifo && !m.visible.After(now) {
		return nil, errExpired
	}
	until := now.Add(time.Duration(seconds) * time.Second)
	if seconds < 1 || until.Sub(m.received) > 12*time.Hour {
		return nil, fmt.Errorf("%d seconds are beyond the limits", seconds)
	}
	m.visible = until
	return m, nil
}

// redrive moves the messages of the dead-letter queue back.
func (q *queue) redrive() {
	moved := q.dead.available()
	q.dead.messages = nil
	for _, m := range moved {
		q.send(&sent{id: m.id + " redriven", about: m.about, group: m.group})
	}
}

// function is a Lambda function behind a queue. Its time-out is that of this
// package.
type function struct {
	t     *testing.T
	queue *queue
	guard *idempotent.Guard
	serve handler
	runs  []string // the orders that ran
	err   error    // what a run returns
	lost  bool     // SQS gets no answers
}

const day = 24 * time.Hour

// newFunction returns a function behind a new queue of the named source, which has
// a dead-letter queue. If it hides, it changes visibility timeouts.
func newFunction(t *testing.T, name string, maxReceives int, hides bool, option func(*lambdabatch.Options)) *function {
	t.Helper()
	s := sources[slices.IndexFunc(sources, func(s source) bool { return s.name == name })]
	clock := &idempotenttest.Clock{}
	f := &function{t: t, queue: &queue{
		clock: clock, fifo: s.ordered, visibility: timeout, retention: 4 * day, maxReceives: maxReceives,
		dead: &queue{clock: clock, fifo: s.ordered, retention: 14 * day},
	}}
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) {
		o.Now, o.Logger = clock.Now, slog.New(slog.DiscardHandler)
	})
	if err != nil {
		t.Fatal(err)
	}
	f.guard = guard
	work := func(_ context.Context, o order) error {
		f.runs = append(f.runs, o.ID)
		return f.err
	}
	f.serve = s.build(guard, work, func(o *lambdabatch.Options) {
		s.option(o)
		o.Operation, o.ID = "fulfil", lambdabatch.Field("/order_id")
		o.Fingerprint = func(context.Context, *lambdabatch.Message) (idempotent.Fingerprint, error) {
			return idempotent.FingerprintBytes(nil), nil
		}
		if hides {
			o.Visibility.Change = func(_ context.Context, queueURL, receipt string, seconds int32) error {
				_, err := f.queue.changeVisibility(queueURL, receipt, seconds)
				if err != nil {
					t.Error(err)
				}
				return err
			}
		}
		option(o)
	})
	return f
}

// poll serves the queue for d.
func (f *function) poll(d time.Duration) {
	f.t.Helper()
	end := f.queue.clock.Now().Add(d)
	for f.queue.clock.Now().Before(end) {
		batch := f.queue.available()
		if len(batch) == 0 {
			f.queue.wait(end)
			continue
		}
		f.queue.receive(batch)
		ids, err := f.serve(f.queue.clock.Invocation(f.t.Context(), timeout), batch)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, m := range batch {
			m.acknowledged = !f.lost && !slices.Contains(ids, m.id)
		}
	}
}

// while polls for d while another function runs an order under a lease of 15
// minutes.
func (f *function) while(order string, d time.Duration) {
	f.t.Helper()
	key := idempotent.Key{Operation: "fulfil", Scope: arn, ID: order, Fingerprint: idempotent.FingerprintBytes(nil)}
	_, err := idempotent.Do(f.queue.clock.Invocation(f.t.Context(), 15*time.Minute), f.guard, key, func(context.Context) (struct{}, error) {
		f.poll(d)
		return struct{}{}, nil
	}, rerun)
	if err != nil && !errors.As(err, new(*idempotent.LeaseLostError)) {
		f.t.Fatal(err)
	}
}

func rerun(o *idempotent.Operation) { o.Recovery = idempotent.Rerun }

// G6: a message whose order is running elsewhere for ten minutes, or without end, is
// received twice if the function changes its visibility timeout, and otherwise it
// is dead-lettered.
func TestAMessageOfARunningOrder(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		lasts    time.Duration
		hides    bool
		dead     int
		receives int
		runs     []string
	}{
		{lasts: 10 * time.Minute, dead: 1, receives: 5},
		{lasts: 10 * time.Minute, hides: true, receives: 2},
		{lasts: time.Hour, dead: 1, receives: 5},
		{lasts: time.Hour, hides: true, receives: 2, runs: []string{"o1"}}, // after the lease
	} {
		for _, name := range []string{"SQS", "SQSFIFO"} {
			f := newFunction(t, name, 5, row.hides, func(o *lambdabatch.Options) { o.Guard = rerun })
			m := &sent{id: "m1", about: "o1", group: "a"}
			f.queue.send(m)
			f.while("o1", row.lasts)
			f.poll(time.Hour)
			if m.receives != row.receives || len(f.queue.dead.messages) != row.dead || m.acknowledged == (row.dead == 1) || !slices.Equal(f.runs, row.runs) {
				t.Errorf("%s, %+v: received %d times, acknowledged %t, %d dead-lettered, the handler ran for %q",
					name, row, m.receives, m.acknowledged, len(f.queue.dead.messages), f.runs)
			}
		}
	}
}

// G6: a message whose outcome is unknown until a resolver settles it after half an
// hour is received a few times, at growing intervals, and then acknowledged.
func TestAMessageOfAnUnknownOrder(t *testing.T) {
	t.Parallel()
	for _, hides := range []bool{false, true} {
		f := newFunction(t, "SQS", 10, hides, none)
		f.err = errBroken
		m := &sent{id: "m1", about: "o1"}
		f.queue.send(m)
		f.poll(30 * time.Minute)
		id := idempotent.Key{Operation: "fulfil", Scope: arn, ID: "o1"}.RecordID()
		if err := f.guard.Resolve(t.Context(), id, idempotent.ResolvedWithoutResult()); err != nil {
			t.Fatal(err)
		}
		f.poll(time.Hour)
		if hides != (len(f.queue.dead.messages) == 0) || hides != m.acknowledged || hides && m.receives > 7 || len(f.runs) != 1 {
			t.Errorf("changes timeouts: %t; received %d times, acknowledged %t, %d dead-lettered, the handler ran for %q",
				hides, m.receives, m.acknowledged, len(f.queue.dead.messages), f.runs)
		}
	}
}

// G6, FM41: a hidden message holds its group, in its order, and no other group.
func TestTheGroupOfAHiddenMessage(t *testing.T) {
	t.Parallel()
	f := newFunction(t, "SQSFIFO", 5, true, func(o *lambdabatch.Options) { o.Guard = rerun })
	all := []*sent{{id: "m1", about: "o1", group: "a"}, {id: "m2", about: "o2", group: "a"}, {id: "m3", about: "o3", group: "b"}, {id: "m4", about: "o4", group: "a"}}
	for _, m := range all[:3] {
		f.queue.send(m)
	}
	f.while("o1", 5*time.Minute)
	f.queue.send(all[3])
	f.poll(time.Hour)
	if !slices.Equal(f.runs, []string{"o3", "o2", "o4"}) { // o1 ran elsewhere
		t.Errorf("the handler ran for %q", f.runs)
	}
	for _, m := range all {
		if most := map[string]int{"a": 2, "b": 1}[m.group]; !m.acknowledged || m.receives > most {
			t.Errorf("%s was received %d times, acknowledged %t", m.id, m.receives, m.acknowledged)
		}
	}
	if f.queue.waited == 0 {
		t.Error("no message waited for its group")
	}
}

// A message that is hidden for less than the queue's visibility timeout does not
// wait for those behind it.
func TestAGroupReturnsTogether(t *testing.T) {
	t.Parallel()
	f := newFunction(t, "SQSFIFO", 5, true, func(o *lambdabatch.Options) { o.Guard = rerun })
	f.queue.visibility = 6 * time.Hour
	f.queue.send(&sent{id: "m1", about: "o1", group: "a"})
	f.queue.send(&sent{id: "m2", about: "o2", group: "a"})
	f.while("o1", 5*time.Minute)
	f.poll(12 * time.Minute) // the lease has ended
	if !slices.Equal(f.runs, []string{"o2"}) || len(f.queue.available()) != 0 || len(f.queue.messages) != 0 {
		t.Errorf("the handler ran for %q, and %d messages are in the queue", f.runs, len(f.queue.messages))
	}
}

// C3: a message is done, but SQS gets no answer, and the message ends in the
// dead-letter queue. It is redriven just before it expires there, and received just
// before it expires again. It does not run again, unless outcomes are stored for
// one life of a message only.
func TestALateRedrive(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		redelivery time.Duration
		runs       int
	}{{0, 1}, {4*day + 12*time.Hour, 2}} {
		for _, name := range []string{"SQS", "SQSFIFO"} {
			f := newFunction(t, name, 2, false, func(o *lambdabatch.Options) { o.Redelivery = row.redelivery })
			q := f.queue
			q.send(&sent{id: "m1", about: "o1", group: "a"})
			f.lost = true
			f.poll(time.Second)
			q.clock.Advance(q.retention - time.Minute)
			f.poll(50 * time.Second) // the second receipt, and the move to the dead-letter queue
			f.lost = false
			if len(q.dead.messages) != 1 {
				t.Fatalf("%s: %d messages are dead-lettered", name, len(q.dead.messages))
			}
			q.clock.Advance(q.dead.messages[0].entered.Add(q.dead.retention - time.Second).Sub(q.clock.Now()))
			q.redrive()
			q.clock.Advance(q.retention - 10*time.Second)
			if len(q.messages) != 1 {
				t.Fatalf("%s: %d messages are redriven", name, len(q.messages))
			}
			m := q.messages[0]
			f.poll(time.Second)
			if !m.acknowledged || len(f.runs) != row.runs {
				t.Errorf("%s, redelivery %s: acknowledged %t, the handler ran for %q", name, row.redelivery, m.acknowledged, f.runs)
			}
		}
	}
}
