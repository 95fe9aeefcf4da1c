// SPDX-License-Identifier: Apache-2.0

// Package batch tests the batch accounting of package lambdabatch: a source that
// redelivers, a process that dies, a store that loses replies, and a book of the
// real effects.
package batch

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/faults"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdabatch"
)

var (
	stories = flag.Int("stories", 1000, "how many stories of each source to run")
	only    = flag.Uint64("story", 0, "the seed of the only story to run")
)

// G10, INV-13: seeded stories of every source: messages that can and cannot be
// processed, outcomes, dying processes, lost requests and replies, hand-overs that
// fail, and redeliveries. A message is acknowledged only if its record is completed
// for its content, or it was handed over. No message is lost, handed over while it can
// run, or handed over twice in one delivery. No message of a group overtakes an
// earlier one. The number of effects is within the promise. A failure prints the
// shortest story that fails; if its messages run at the same time, repeat it with -count.
func TestBatchAccounting(t *testing.T) {
	t.Parallel()
	first, last := uint64(1), uint64(*stories)
	if *only != 0 {
		first, last = *only, *only
	}
	for _, s := range sources {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			seen := &kit.Tally{}
			var failed []*fixture
			for seed := first; seed <= last; seed++ {
				if w := story(s, seed, seen); w.failure != "" {
					failed = append(failed, w)
				}
			}
			if len(failed) > 0 {
				w := slices.MinFunc(failed, func(a, b *fixture) int { return len(a.lines) - len(b.lines) })
				t.Fatalf("%d of %d stories fail, the first is %d; the shortest: go test ./tests/engines/batch -run '%s$' -story %d\n%s\n%s",
					len(failed), last-first+1, failed[0].seed, strings.ReplaceAll(t.Name(), " ", "_"), w.seed,
					strings.Join(w.lines[max(0, len(w.lines)-20):], "\n"), w.failure)
			}
			t.Log(seen)
			if *only != 0 {
				return
			}
			share := func(n int, facts ...string) { seen.Least(t, *stories*n/1000, facts...) }
			share(500, "stories", "acknowledged", "came again", "entries", "event replayed", "event store_error")
			share(50, "died", "faults", "event retryable", "event marked_unknown", "event in_progress", "resolved", "not executed",
				"refused by HandOver", "failed as a whole", "temporarily unreadable", "fault-free and exact")
			share(20, "older code refused", "not reached", "answered in time although a call hung")
			share(50, "handed over: unknown", "handed over: mismatch")
			for _, k := range s.kinds {
				share(50, "handed over:"+string(k))
			}
			if s.rebalances {
				share(500, "rebalanced")
				share(50, "tombstone ran")
			}
			if s.sqs {
				share(100, "hidden")
				share(30, "not hidden")
			}
			if s.sqs && s.ordered {
				share(100, "waited for its group")
			}
		})
	}
}

// story runs one story: some rounds with faults, then rounds without, until every
// message is acknowledged.
func story(s source, seed uint64, seen *kit.Tally) (w *fixture) {
	w = &fixture{source: s, seed: seed, seen: seen, random: rand.New(rand.NewPCG(seed, 0))}
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(storyEnds); !ok {
				panic(p)
			}
		}
	}()
	w.set()
	w.seen.Add("stories", 1)
	for range 1 + w.random.IntN(8) {
		if len(w.waiting()) == 0 {
			break
		}
		w.round(true)
		switch w.random.IntN(4) {
		case 0:
			w.clock.Advance(2 * timeout)
		case 1:
			w.reconcile()
		}
	}
	for round := 0; len(w.waiting()) > 0; round++ {
		if round > 3*len(w.all) {
			w.fails("%d of %d messages are not acknowledged after %d rounds without faults", len(w.waiting()), len(w.all), round)
		}
		w.round(false)
		w.clock.Advance(2 * timeout)
		w.reconcile()
	}
	w.clock.Advance(2 * timeout)
	w.reconcile()
	for _, m := range w.all {
		w.audit(m)
	}
	return w
}

// audit checks what became of a message whose story has ended.
func (w *fixture) audit(m *sent) {
	id := string(m.key.RecordID())
	switch {
	case !w.done(m):
		w.fails("%s is lost: it is acknowledged, but its record is %s", m.id, w.state(m))
	case w.handedOver[m] == 0 && w.effects[id] == 0 && w.finals[id] == 0:
		w.fails("%s is acknowledged without an effect, an outcome or a hand-over", m.id)
	case w.declared == idempotent.Reconcile && w.effects[id] > 1:
		w.fails("%s had its effect %d times", m.id, w.effects[id])
	case w.declared == idempotent.Reconcile && w.entries[id] > 1+w.retryable[id]:
		w.fails("%s ran %d times and was retryable %d times", m.id, w.entries[id], w.retryable[id])
	case w.declared == idempotent.Resume && len(w.keys[id]) > 1:
		w.fails("the provider got %s under %d keys", m.id, len(w.keys[id]))
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
	w.plans, w.dead, w.took, w.ran = map[*sent]plan{}, false, map[*sent]int{}, map[*sent]bool{}
	w.faults.Plan, w.stops, w.stuck, w.hung = nil, 0, "", false
	handle, faulty := w.handle, false
	if trouble {
		if w.source.rebalances && w.random.IntN(4) == 0 {
			batch = w.all
			w.seen.Add("rebalanced", 1)
		}
		batch = w.source.deliver(w.random, batch)
		faulty = w.trouble(batch)
		if w.random.IntN(6) == 0 {
			handle = w.older
		}
	}
	if w.source.sqs {
		w.queue.receive(batch)
		w.hides, w.hidden = w.random.IntN(4) > 0, map[*sent]bool{}
	}
	w.batch = batch
	before, start := faultsOf(&w.faults), w.clock.Now()
	deadline := start.Add(timeout)
	ids, err := handle(w.clock.Invocation(context.Background(), timeout), batch)
	if !w.clock.Now().Before(deadline) && slices.ContainsFunc(batch, func(m *sent) bool { return w.took[m] == 0 && w.record(m) == nil && !w.unprocessable(m) }) {
		w.seen.Add("not reached", 1)
	}
	w.seen.Add("faults", faultsOf(&w.faults)-before)
	w.inTime(w.clock.Now().Sub(start))
	w.describe(trouble, ids, err)
	for _, what := range w.broken {
		w.fails("%s", what)
	}
	if w.dead { // no caller gets the answer
		w.seen.Add("died", 1)
		return
	}
	if err != nil {
		if done := !slices.ContainsFunc(batch, func(m *sent) bool { return !w.doneNow(m) }); !w.failAny || done && !faulty && !twice(batch) {
			w.fails("the batch failed: %v", err)
		}
		w.seen.Add("failed as a whole", 1)
		return
	}
	w.answer(ids, faulty)
}

// trouble plans what goes wrong in a batch, and reports whether a message whose
// record is completed can fail.
func (w *fixture) trouble(batch []*sent) (faulty bool) {
	for _, m := range batch {
		if _, planned := w.plans[m]; planned {
			continue
		}
		p := plan{ending: endings[w.random.IntN(len(endings))], refusesHandOver: w.random.IntN(4) == 0}
		if w.random.IntN(20) == 0 {
			p.unreadable = unreadable[w.random.IntN(len(unreadable))]
		}
		w.plans[m] = p
		faulty = faulty || p.ending == slow || p.unreadable != nil
	}
	if faulty = faulty || w.random.IntN(3) == 0; faulty {
		w.faults.Plan = faults.Seeded(w.random.Uint64(),
			faults.Odds{Fault: faults.LostRequest, P: 0.1}, faults.Odds{Fault: faults.LostReply, P: 0.1})
	}
	switch w.random.IntN(12) {
	case 0:
		w.stops, faulty = 2+w.random.IntN(3*len(batch)+1), true
	case 1:
		w.stuck, faulty = []string{"ID", "HandOver", "Visibility.Change"}[w.random.IntN(3)], true
	}
	return faulty
}

// inTime checks that a batch was answered before its deadline, although a call hung. Calls
// that hang at the same time move one clock, and a handler that takes all the time is its
// own matter.
func (w *fixture) inTime(took time.Duration) {
	slowly := slices.ContainsFunc(w.batch, func(m *sent) bool { return w.plans[m].ending == slow })
	if !w.hung || !w.alone || slowly || w.dead {
		return
	}
	w.seen.Add("answered in time although a call hung", 1)
	if took > answered {
		w.broken = append(w.broken, fmt.Sprintf("a call hung, and the batch was answered after %s, want %s at the latest", took, answered))
	}
}

// answer checks the answer to the batch, and acknowledges what it does not name.
func (w *fixture) answer(ids []string, faulty bool) {
	for i, id := range ids {
		at := slices.IndexFunc(w.batch, func(m *sent) bool { return m.id == id })
		if at < 0 || slices.Contains(ids[:i], id) {
			w.fails("the answer names %q, which is not in the batch or was named before: %q", id, ids)
		}
		if m := w.batch[at]; w.took[m] > 0 && w.took[m] == copies(w.batch, m) {
			w.fails("%s was handed over, and the answer names it", id)
		}
	}
	failed := w.source.failed(w.batch, ids)
	w.seen.Add("came again", len(failed))
	for _, m := range w.batch {
		if slices.Contains(failed, m) || m.acknowledged {
			continue
		}
		if w.hidden[m] {
			w.fails("%s is acknowledged, and was hidden until later", m.id)
		}
		m.acknowledged = true
		w.seen.Add("acknowledged", 1)
		if !w.doneNow(m) {
			w.fails("%s is acknowledged, but its record is %s", m.id, w.state(m))
		}
	}
	if len(failed) > 0 && w.failAny {
		w.fails("the batch did not fail, although the answer names %q", ids)
	}
	if !faulty && !twice(w.batch) {
		w.exact(failed)
	}
}

// exact checks a delivery without faults, which has one message for each order: each
// message had its turn, and a message that is redelivered from an unordered queue is
// not done.
func (w *fixture) exact(failed []*sent) {
	for at, m := range w.batch {
		stopped := slices.ContainsFunc(w.batch[:at], func(before *sent) bool {
			return w.source.ordered && before.group == m.group && !w.doneNow(before)
		})
		if !stopped && !w.ran[m] && w.record(m) == nil && !w.unprocessable(m) {
			w.fails("%s did not run, although those before it are done", m.id)
		}
	}
	for _, m := range failed {
		if !w.source.ordered && w.doneNow(m) {
			w.fails("%s is redelivered, but it is done", m.id)
		}
	}
	w.seen.Add("fault-free and exact", 1)
}

// visible returns the messages that SQS can deliver, after waiting for one. In times
// of trouble a standard queue may deliver messages that are hidden.
func (w *fixture) visible(trouble bool) []*sent {
	if trouble && !w.source.ordered && w.random.IntN(6) == 0 {
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

func faultsOf(f *faults.Injector) (n int) {
	for _, times := range f.Injected() {
		n += times
	}
	return n
}

func copies(batch []*sent, m *sent) (n int) {
	for _, b := range batch {
		if b == m {
			n++
		}
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
		if err := w.auditor.Resolve(context.Background(), r.ID, evidence); err != nil {
			w.fails("%v", err)
		}
		w.seen.Add("resolved", 1)
	}
}

// describe adds a line to the story: each message with its plan, and the answer.
func (w *fixture) describe(trouble bool, ids []string, err error) {
	var b strings.Builder
	fmt.Fprintf(&b, "trouble %t, store faults %t: ", trouble, w.faults.Plan != nil)
	for _, m := range w.batch {
		fmt.Fprintf(&b, "%s (%s in %s, %s%s)", m.id, m.about, m.group, m.content, m.kind)
		p := w.plans[m]
		if p.ending != "" {
			fmt.Fprintf(&b, " %s", p.ending)
		}
		if p.unreadable != nil {
			b.WriteString(" unreadable for now")
		}
		if w.took[m] > 0 {
			b.WriteString(" handed over")
		}
		b.WriteString("; ")
	}
	fmt.Fprintf(&b, "named %q", ids)
	if err != nil {
		fmt.Fprintf(&b, ", error %v", err)
	}
	if w.dead {
		b.WriteString(", the process died")
	}
	w.lines = append(w.lines, b.String())
}

// A batch of 100 messages whose handlers hang announces together. Each announcement
// has two thirds of the 300 ms until the answer is due. The client keeps 10 idle
// connections and opens another one for each further call.
func TestAnnounceTogether(t *testing.T) {
	t.Parallel()
	const size, idle = 100, 10
	for _, row := range []struct {
		write, open time.Duration // of a write, and of a new connection before it
		want        int
	}{
		{20 * time.Millisecond, 60 * time.Millisecond, size},
		{100 * time.Millisecond, 0, size},
		{100 * time.Millisecond, 90 * time.Millisecond, size},
		{100 * time.Millisecond, 110 * time.Millisecond, idle},
		{210 * time.Millisecond, 0, 0},
	} {
		t.Run(fmt.Sprintf("%s and %s", row.write, row.open), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				ready := 0 // idle connections
				take := func() time.Duration {
					mu.Lock()
					defer mu.Unlock()
					if ready == 0 {
						return row.open + row.write
					}
					ready--
					return row.write
				}
				release := func() {
					mu.Lock()
					defer mu.Unlock()
					ready = min(ready+1, idle)
				}
				db := dynamotest.New("once")
				slow, err := dynamostore.New(dynamotest.Intercept(db, func(ctx context.Context, c *dynamotest.Call) {
					select {
					case <-time.After(take()):
						c.Do(ctx)
						release()
					case <-ctx.Done():
						c.Err = ctx.Err()
					}
				}), "once")
				if err != nil {
					t.Fatal(err)
				}
				table, err := dynamostore.New(db, "once")
				if err != nil {
					t.Fatal(err)
				}
				guard, err := idempotent.New(slow)
				if err != nil {
					t.Fatal(err)
				}
				killed := make(chan struct{})
				h := lambdabatch.SQS(guard, func(context.Context, map[string]string) error {
					<-killed
					return nil
				}, func(o *lambdabatch.Options) {
					o.Operation, o.ID, o.Concurrency = "fulfil", lambdabatch.Field("/order_id"), size
				})
				var e events.SQSEvent
				for i := range size {
					e.Records = append(e.Records, events.SQSMessage{
						MessageId: fmt.Sprint(i), EventSourceARN: "arn:aws:sqs:eu-central-1:123456789012:orders", Body: fmt.Sprintf(`{"order_id":"o-%d"}`, i),
					})
				}
				const timeout = 30 * time.Second
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				var function sync.WaitGroup
				function.Go(func() { _, _ = h(ctx, e) })
				time.Sleep(timeout)
				got := 0
				for r, err := range table.Due(t.Context(), time.Time{}) {
					if err != nil {
						t.Fatal(err)
					}
					if r.State == driver.StateInProgress {
						got++
					}
				}
				if got != row.want {
					t.Errorf("at the deadline %d runs are announced, want %d", got, row.want)
				}
				close(killed)
				function.Wait()
			})
		})
	}
}
