// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/faults"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdabatch"
)

// In shadow mode a batch has the answer of the handler without a guard, whatever the store
// does, at most 250 ms later for each of its messages: nothing is handed over, hidden or
// redelivered, a message whose key cannot be read runs, and one whose content cannot be read
// fails. Without a guard is here: behind one that is disabled, and has no rule that fails.
func TestShadow(t *testing.T) {
	t.Parallel()
	for _, s := range sources {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			seen := &kit.Tally{}
			for seed := range uint64(*stories / 4) {
				synctest.Test(t, func(t *testing.T) { shadowStory(t, s, seed, seen) })
			}
			t.Log(seen)
			seen.Least(t, *stories/100, "failed", "succeeded", "no key", "event shadow_run", "event shadow_failed", "event shadow_no_key", "event shadow_replayed")
		})
	}
}

func shadowStory(t *testing.T, s source, seed uint64, seen *kit.Tally) {
	w := &fixture{source: s, seed: seed, seen: seen, random: rand.New(rand.NewPCG(seed, 1)), handsOver: true, byOrder: !s.stream || seed%2 == 0}
	w.queue = &queue{clock: &w.clock, fifo: s.ordered}
	for i := range 1 + w.random.IntN(8) {
		w.send(i, 2)
	}
	concurrency, failAny := 1+w.random.IntN(4), w.random.IntN(8) == 0
	options := func(id func(lambdabatch.IDFunc) lambdabatch.IDFunc, more func(*lambdabatch.Options)) func(*lambdabatch.Options) {
		return func(o *lambdabatch.Options) {
			o.ID = lambdabatch.Field("/order_id")
			s.option(o)
			if !w.byOrder {
				o.ID = lambdabatch.ItemID
			}
			o.ID = id(o.ID)
			o.Operation, o.Concurrency = "fulfil", concurrency
			if failAny {
				o.Fail = lambdabatch.FailIfAny
			}
			more(o)
		}
	}
	var ran []string
	work := func(declares bool) func(context.Context, order) error {
		return func(ctx context.Context, _ order) error {
			view, _ := lambdabatch.FromContext(ctx)
			m := w.message(view.ItemID)
			w.mu.Lock()
			ran = append(ran, m.id)
			w.mu.Unlock()
			switch do := w.plans[m].ending; do {
			case succeeds, diesBefore, diesAfter:
				return nil
			case panics:
				panic("broken")
			case exits:
				runtime.Goexit()
			case final:
				if declares {
					return idempotent.Final("sold_out", "Sold out.")
				}
			case notExecuted:
				return idempotent.NotExecuted(errBroken)
			case unknown:
				return idempotent.Unknown(errBroken)
			}
			return errBroken
		}
	}
	quiet := func(o *idempotent.Options) { o.Logger = slog.New(slog.DiscardHandler) }
	disabled, err := idempotent.New(memstore.New(), quiet, func(o *idempotent.Options) { o.Disabled = true })
	if err != nil {
		t.Fatal(err)
	}
	var store faults.Injector
	store.Plan = faults.Seeded(seed, faults.Odds{Fault: faults.LostRequest, P: 0.1}, faults.Odds{Fault: faults.LostReply, P: 0.1})
	hangs, calls := seed%5 == 0, atomic.Int32{}
	shadow, err := idempotent.New(idempotenttest.Intercept(memstore.New(), func(ctx context.Context, c *idempotenttest.StoreCall) {
		if calls.Add(1)%7 == 0 && hangs {
			<-ctx.Done()
			c.Err = ctx.Err()
			return
		}
		c.Err = store.Do(ctx, c.Op, func() error {
			c.Do(ctx)
			return c.Err
		})
	}), quiet, func(o *idempotent.Options) {
		o.Shadow = true
		o.Observer = event.ObserverFunc(func(_ context.Context, e event.Event) { seen.Add("event "+string(e.Kind), 1) })
	})
	if err != nil {
		t.Fatal(err)
	}
	always := func(lambdabatch.IDFunc) lambdabatch.IDFunc {
		return func(_ context.Context, m *lambdabatch.Message) (string, error) { return "of " + m.ItemID, nil }
	}
	bare := s.build(disabled, work(false), options(always, func(o *lambdabatch.Options) {
		o.Fingerprint = func(context.Context, *lambdabatch.Message) (idempotent.Fingerprint, error) {
			return idempotent.Fingerprint{1}, nil
		}
	}))
	watched := s.build(shadow, work(true), options(w.id, func(o *lambdabatch.Options) {
		o.HandOver = func(context.Context, *lambdabatch.Message, error) error { panic("handed over") }
		if s.sqs {
			o.Visibility = lambdabatch.Visibility{Backoff: time.Minute, Change: func(context.Context, string, string, int32) error { panic("hidden") }}
		}
	}))
	for range 4 {
		batch := s.deliver(w.random, w.all)
		w.plans = map[*sent]plan{}
		for _, m := range batch {
			p := plan{ending: endings[w.random.IntN(len(endings))]}
			if w.random.IntN(6) == 0 {
				p.unreadable = errBroken
				seen.Add("no key", 1)
			}
			w.plans[m] = p
		}
		answer := func(h handler) string {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			ran = nil
			ids, err := h(ctx, batch)
			if concurrency > 1 {
				slices.Sort(ran)
			}
			seen.Add("failed", len(ids))
			seen.Add("succeeded", len(batch)-len(ids))
			return fmt.Sprintf("%q failed, %t, after runs of %q", ids, err != nil, ran)
		}
		want, began := answer(bare), time.Now()
		if got := answer(watched); got != want {
			t.Fatalf("story %d: got %s, want %s: %s", seed, got, want, planned(w, batch))
		}
		if took, most := time.Since(began), time.Duration(len(batch))*250*time.Millisecond; took > most {
			t.Fatalf("story %d: a batch of %d took %s longer, want %s at most", seed, len(batch), took, most)
		}
	}
}

func planned(w *fixture, batch []*sent) string {
	var b strings.Builder
	for _, m := range batch {
		fmt.Fprintf(&b, "%s (%s in %s%s) %s %v; ", m.id, m.about, m.group, m.kind, w.plans[m].ending, w.plans[m].unreadable)
	}
	return b.String()
}
