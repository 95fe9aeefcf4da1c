package batch

import (
	"context"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/tests/tally"
)

// G10, INV-13: random batches of every source, outcomes, dying processes, lost
// requests and replies, and redeliveries. A message is acknowledged only if its
// record is completed (or unknown and handed over). No message is lost. No
// message of a group overtakes an earlier one. The number of effects is within
// the promise. rapid prints the seed of a failure and the shortest story that
// fails in the same way; -rapid.checks sets the number of stories.
func TestINV13_BatchAccounting(t *testing.T) {
	t.Parallel()
	for _, s := range sources {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			seen := &tally.Tally{}
			for range 10 {
				rapid.Check(t, func(rt *rapid.T) { account(newWorld(rt, s, seen)) })
			}
			t.Log(seen)
			seen.Least(t, 500, "stories", "acknowledged", "came again", "entries", "event replayed")
			seen.Least(t, 50, "died", "faults", "event retryable", "event marked_unknown", "handed over", "resolved", "not executed")
			if !s.ordered {
				seen.Least(t, 500, "fault-free and exact")
			}
		})
	}
}

// account runs one story: some rounds with faults, then rounds without, until
// every message is acknowledged.
func account(w *world) {
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

func (w *world) waiting() []*sent {
	return slices.DeleteFunc(slices.Clone(w.all), func(m *sent) bool { return m.acknowledged })
}

// round delivers one batch and checks the answer.
func (w *world) round(trouble bool) {
	batch := w.waiting()
	w.script, w.dead = map[string]ending{}, false
	w.faults.Plan = nil
	faulty := false
	if trouble {
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
func (w *world) reconcile() {
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
