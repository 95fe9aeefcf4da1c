// SPDX-License-Identifier: Apache-2.0

package lambdabatch_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdabatch"
)

const fifoQueue = queue + ".fifo"

// grouped returns an event of a FIFO queue: groups[i] is the group of order
// o-(i+1) in message m(i+1).
func grouped(groups ...string) (event events.SQSEvent) {
	for i, group := range groups {
		event.Records = append(event.Records, events.SQSMessage{
			MessageId: fmt.Sprintf("m%d", i+1), Body: fmt.Sprintf(`{"order_id":"o-%d"}`, i+1), EventSourceARN: fifoQueue,
			Attributes: map[string]string{"MessageGroupId": group},
		})
	}
	return event
}

func perGroup(o *lambdabatch.Options) { o.PerGroup = true }

// G10, FM41: m1 succeeds, m2 fails, m3 is of the same group and m4 of another
// group.
func TestFIFO(t *testing.T) {
	t.Parallel()
	batch := grouped("a", "a", "a", "b")
	for name, c := range map[string]struct {
		options func(*lambdabatch.Options)
		again   []string
		runs    []string
	}{
		"the whole batch stops": {concurrency(1), []string{"m2", "m3", "m4"}, []string{"o-1", "o-2"}},
		"the group stops":       {perGroup, []string{"m2", "m3"}, []string{"o-1", "o-2", "o-4"}},
	} {
		for kind, failure := range map[string]func(context.Context) error{
			"an error": returns(errBroken),
			"a panic":  func(context.Context) error { panic("no") },
		} {
			t.Run(name+" at "+kind, func(t *testing.T) {
				t.Parallel()
				w := newFixture(t)
				h := lambdabatch.SQSFIFO(w.guard, w.handle, w.options(c.options))
				w.on("o-2", failure)
				wantIDs(t, w.send(h, batch), c.again...)
				w.wantRuns(c.runs...)
				if got := w.state(fifoQueue, "o-3"); got != "none" {
					t.Errorf("m3 overtook m2: its record is %s", got)
				}
				w.on("o-2", nil)
				rest := events.SQSEvent{Records: slices.DeleteFunc(slices.Clone(batch.Records), func(m events.SQSMessage) bool { return !slices.Contains(c.again, m.MessageId) })}
				wantIDs(t, w.send(h, rest))
				if n := len(w.runs); n != 5 {
					t.Errorf("the handler ran %d times, want each order once and o-2 twice: %q", n, w.runs)
				}
			})
		}
	}
}

// FM41: no message overtakes one that fails before the handler because it is
// invalid or has no key.
func TestUnreadableMessagesHoldTheirGroup(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"no key":      `{"amount":1}`,
		"not JSON":    `order o-1`,
		"not decoded": `{"order_id":"o-1","amount":"many"}`,
	} {
		w := newFixture(t)
		h := lambdabatch.SQSFIFO(w.guard, w.handle, w.options(perGroup))
		batch := grouped("a", "a", "b")
		batch.Records[0].Body = body
		if got := w.send(h, batch); !slices.Equal(got, []string{"m1", "m2"}) {
			t.Errorf("%s: %q are redelivered, want m1 and m2", name, got)
		}
		w.wantRuns("o-3")
	}
}

// Messages without a group are one group: an invalid event must not break the
// order.
func TestFIFO_WithoutAGroup(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	h := lambdabatch.SQSFIFO(w.guard, w.handle, w.options(perGroup, concurrency(4)))
	batch := grouped("", "", "")
	batch.Records[1].Attributes = nil
	w.on("o-1", returns(errBroken))
	wantIDs(t, w.send(h, batch), "m1", "m2", "m3")
	w.wantRuns("o-1")
}

// With concurrency, groups run at the same time, each in its order.
func TestFIFO_GroupsSideBySide(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		h := lambdabatch.SQSFIFO(w.guard, w.handle, w.options(perGroup, concurrency(3)))
		var together sync.WaitGroup
		together.Add(3)
		for _, first := range []string{"o-1", "o-2", "o-4"} {
			w.on(first, func(context.Context) error {
				together.Done()
				together.Wait() // blocks until all three are running
				return nil
			})
		}
		wantIDs(t, w.send(h, grouped("a", "b", "a", "c", "b", "a")))
		at := func(id string) int { return slices.Index(w.runs, id) }
		if len(w.runs) != 6 || at("o-1") > at("o-3") || at("o-3") > at("o-6") || at("o-2") > at("o-5") {
			t.Errorf("the handler ran for %q", w.runs)
		}
	})
}

func TestSQSFIFO_RealEvent(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	event := load[events.SQSEvent](t, "sqs-fifo.json")
	h := lambdabatch.SQSFIFO(w.guard, w.handle, w.options(perGroup))
	w.on("o-2", returns(idempotent.NotExecuted(errBroken)))
	wantIDs(t, w.send(h, event), event.Records[1].MessageId, event.Records[2].MessageId)
	w.wantRuns("o-1", "o-2", "o-4")
}
