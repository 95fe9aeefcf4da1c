// SPDX-License-Identifier: Apache-2.0

package lambdabatch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdabatch"
)

// timeout is that of the function in these tests.
const timeout = 30 * time.Second

// order is the message.
type order struct {
	ID     string `json:"order_id"`
	Amount int    `json:"amount,omitempty"`
}

// fixture is a guard over a store that can fail, with a clock, and a handler that
// runs a planned function for each order.
type fixture struct {
	t     *testing.T
	clock idempotenttest.Clock
	seen  idempotenttest.Recorder
	store driver.Store
	guard *idempotent.Guard

	mu    sync.Mutex
	runs  []string                               // the orders that ran, in turn
	plan  map[string]func(context.Context) error // by order; nil: it succeeds
	lines bytes.Buffer                           // the log
	fails func(driver.Op) bool                   // calls of the store; nil: no call
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	w := &fixture{t: t, plan: map[string]func(context.Context) error{}}
	w.store = memstore.New()
	unreliable := idempotenttest.Intercept(w.store, func(ctx context.Context, c *idempotenttest.StoreCall) {
		if w.fails != nil && w.fails(c.Op) {
			c.Err = errors.New("the store does not answer")
			return
		}
		c.Do(ctx)
	})
	guard, err := idempotent.New(unreliable, func(o *idempotent.Options) {
		o.Now, o.Observer, o.Logger = w.clock.Now, &w.seen, slog.New(slog.NewTextHandler(lockedWriter{w}, nil))
	})
	if err != nil {
		t.Fatal(err)
	}
	w.guard = guard
	return w
}

// handle is the handler.
func (w *fixture) handle(ctx context.Context, o order) error {
	w.mu.Lock()
	w.runs = append(w.runs, o.ID)
	do := w.plan[o.ID]
	w.mu.Unlock()
	if do == nil {
		return nil
	}
	return do(ctx)
}

// on sets what the handler does with an order from now on.
func (w *fixture) on(id string, do func(context.Context) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.plan[id] = do
}

func returns(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

// options returns the options that all tests share, changed by optFns.
func (w *fixture) options(optFns ...func(*lambdabatch.Options)) func(*lambdabatch.Options) {
	return func(o *lambdabatch.Options) {
		o.Operation, o.ID = "fulfil", lambdabatch.Field("/order_id")
		o.Guard = func(g *idempotent.Operation) {
			g.Recovery = idempotent.Rerun
		}
		for _, f := range optFns {
			if f != nil {
				f(o)
			}
		}
	}
}

type lockedWriter struct{ w *fixture }

func (l lockedWriter) Write(p []byte) (int, error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.w.lines.Write(p)
}

func (w *fixture) log() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines.String()
}

// guarded changes the guard's options, after the changes before it.
func guarded(f func(*idempotent.Operation)) func(*lambdabatch.Options) {
	return func(o *lambdabatch.Options) {
		before := o.Guard
		o.Guard = func(g *idempotent.Operation) {
			before(g)
			f(g)
		}
	}
}

func recovery(r idempotent.Recovery) func(*lambdabatch.Options) {
	return guarded(func(o *idempotent.Operation) { o.Recovery = r })
}

func concurrency(n int) func(*lambdabatch.Options) {
	return func(o *lambdabatch.Options) { o.Concurrency = n }
}

// invocation returns a context with the function's timeout.
func (w *fixture) invocation() context.Context { return w.clock.Invocation(w.t.Context(), timeout) }

// wantRuns fails the test unless these orders ran, in this order.
func (w *fixture) wantRuns(want ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.runs, want) {
		w.t.Errorf("the handler ran for %q, want %q", w.runs, want)
	}
}

// state returns the state of an order's record.
func (w *fixture) state(source, id string) string {
	w.t.Helper()
	r, err := w.store.Get(w.t.Context(), idempotent.Key{Operation: "fulfil", Scope: source, ID: id}.RecordID())
	switch {
	case errors.Is(err, idempotent.ErrNoRecord):
		return "none"
	case err != nil:
		w.t.Fatal(err)
	}
	return r.State.String()
}

func (w *fixture) wantState(id, want string) {
	w.t.Helper()
	if got := w.state(queue, id); got != want {
		w.t.Errorf("the record of %s is %s, want %s", id, got, want)
	}
}

// load returns the real event of a source.
func load[T any](t testing.TB, source string) (event T) {
	t.Helper()
	data, err := os.ReadFile("testdata/events.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(all[source], &event); err != nil {
		t.Fatal(err)
	}
	return event
}

const queue = "arn:aws:sqs:eu-central-1:123456789012:orders"

// messages returns an event of a queue with a message for each order, named m1,
// m2 and so on.
func messages(orders ...string) events.SQSEvent {
	var list []string
	for _, id := range orders {
		list = append(list, `{"order_id":"`+id+`"}`)
	}
	return bodies(list...)
}

func bodies(list ...string) (event events.SQSEvent) {
	for i, body := range list {
		event.Records = append(event.Records, events.SQSMessage{MessageId: fmt.Sprintf("m%d", i+1), Body: body, EventSourceARN: queue})
	}
	return event
}

// failed returns the ids that a response of a queue names.
func failed(t testing.TB, response events.SQSEventResponse, err error) []string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if response.BatchItemFailures == nil {
		t.Error("the response has no list of failures; it must be empty and not null")
	}
	ids := []string{}
	for _, f := range response.BatchItemFailures {
		ids = append(ids, f.ItemIdentifier)
	}
	return ids
}

// send delivers event once.
func (w *fixture) send(h func(context.Context, events.SQSEvent) (events.SQSEventResponse, error), event events.SQSEvent) []string {
	w.t.Helper()
	response, err := h(w.invocation(), event)
	return failed(w.t, response, err)
}

func wantIDs(t testing.TB, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%q are redelivered, want %q", got, want)
	}
}
