// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
)

func TestFailureModes(t *testing.T) {
	idempotenttest.RunFailureModes(t, idempotenttest.Fixture{
		Open: func(testing.TB) driver.Store { return memstore.New() },
	})
}

// The same over a store that stores large results beside their records.
func TestFailureModesWithChunks(t *testing.T) {
	idempotenttest.RunFailureModes(t, idempotenttest.Fixture{
		Open: func(testing.TB) driver.Store { return newChunked() },
	})
}

// The number of interleavings forced of each kind, and in how many of them the
// events that the kind is about must happen.
const (
	forced = 1000
	often  = 25
)

// A worker outlives its lease and then finishes, while reconcilers judge its
// record and, in some cases, a client sends the request again. A seeded scheduler
// decides the order of all store calls. In every interleaving, all callers that
// get a result, including a later retry, get the same one. INV-14: the events
// that each kind is about happen often.
func TestInterleavings(t *testing.T) {
	t.Parallel()
	later, found := idempotent.Later(0), idempotent.Resolved("by the resolver")
	for _, k := range []struct {
		name    string
		answers []idempotent.Resolution // one reconciler for each
		client  bool                    // whether a client sends the request again
		cut     bool                    // whether replies are lost and the SDK sends the write again
		wants   []string                // events that must happen often
	}{
		{"FM14_LateOwnerOfAnUnknown", []idempotent.Resolution{later, later}, false, false, []string{"marked_unknown", "late_completion"}},
		{"FM44_OwnerAgainstSweepers", []idempotent.Resolution{later, found}, false, false, []string{"marked_unknown", "owner first", "completed", "resolved"}},
		{"FM61_NotExecutedAndItWas", []idempotent.Resolution{notExecuted}, true, false, []string{"contradicted", "late_completion", "lease_lost", "taken_over"}},
		{"FM62_SweptOnTheWire", []idempotent.Resolution{later, found}, false, true, []string{"marked_unknown", "late_completion", "cut"}},
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				seen, ways := map[string]int{}, map[string]bool{}
				for seed := range uint64(forced) {
					c := &crossing{dice: rand.New(rand.NewPCG(seed, 0)), cut: k.cut}
					meet(t, c, k.answers, k.client)
					if t.Failed() {
						t.Fatalf("seed %d: %s", seed, c.way.String())
					}
					for what := range c.seen {
						seen[what]++
					}
					ways[c.way.String()] = true
				}
				t.Logf("%d interleavings, %d of them different; in how many: %v", forced, len(ways), seen)
				for _, what := range k.wants {
					if seen[what] < often {
						t.Errorf("%s in %d interleavings of %d", what, seen[what], forced)
					}
				}
			})
		})
	}
}

// meet runs a late owner, reconcilers and a client concurrently at c.
func meet(t *testing.T, c *crossing, answers []idempotent.Resolution, client bool) {
	t.Helper()
	s := newStranded(t)
	key := newKey()
	guard := func(name string) *idempotent.Guard {
		g, err := idempotent.New(idempotenttest.Intercept(s.Store, c.call(name)), func(o *idempotent.Options) {
			o.Now, o.Logger, o.Observer = s.clock.Now, quiet, event.ObserverFunc(func(_ context.Context, e event.Event) { c.note(string(e.Kind)) })
		})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	var told []string // results that callers got
	tell := func(value string, err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if err == nil {
			told = append(told, value)
		}
	}
	var ownErr error
	go func() {
		value, err := idempotent.Do(s.clock.Invocation(t.Context(), 10*time.Second), guard("owner"), key, func(context.Context) (string, error) {
			s.clock.Advance(time.Minute) // the lease has ended
			for i, resolution := range answers {
				go func() {
					_, _ = idempotent.ReconcileDue(t.Context(), guard(fmt.Sprint("reconciler ", i)), answer(resolution))
				}()
			}
			if client {
				go func() {
					tell(idempotent.Do(s.clock.Invocation(t.Context(), 10*time.Second), guard("retry"), key, func(context.Context) (string, error) { return "by the retry", nil }))
				}()
			}
			return "by the owner", nil
		})
		ownErr = err
		tell(value, err)
	}()
	c.direct()

	if ownErr != nil && !(client && errors.As(ownErr, new(*idempotent.LeaseLostError))) {
		t.Errorf("the owner got %v", ownErr)
	}
	r := record(t, s, key)
	if r.State != driver.StateCompleted {
		t.Errorf("the record is %s; an outcome was lost", r.State)
		return
	}
	truth, err := idempotent.Do(s.clock.Invocation(t.Context(), 10*time.Second), s.guard, key, never[string])
	if err != nil || len(told) == 0 || slices.ContainsFunc(told, func(v string) bool { return v != truth }) {
		t.Errorf("callers got %q, and a last retry %q, %v", told, truth, err)
	}
	if !c.seen[string(event.MarkedUnknown)] {
		c.note("owner first")
	}
}

// crossing schedules the store calls. Between two turns, every party waits at the
// crossing or is done.
type crossing struct {
	dice *rand.Rand
	cut  bool

	mu      sync.Mutex
	waiting []car
	way     strings.Builder // the parties in the order in which they went
	seen    map[string]bool
}

type car struct {
	name string
	goes chan struct{}
}

func (c *crossing) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string]bool{}
	}
	c.seen[what] = true
}

// stop waits at the crossing for the party's turn.
func (c *crossing) stop(name string) {
	goes := make(chan struct{})
	c.mu.Lock()
	c.waiting = append(c.waiting, car{name, goes})
	c.mu.Unlock()
	<-goes
}

// direct lets one party after the other go until all are done.
func (c *crossing) direct() {
	for {
		synctest.Wait()
		c.mu.Lock()
		if len(c.waiting) == 0 {
			c.mu.Unlock()
			return
		}
		slices.SortFunc(c.waiting, func(a, b car) int { return strings.Compare(a.name, b.name) })
		i := c.dice.IntN(len(c.waiting))
		next := c.waiting[i]
		c.waiting = slices.Delete(c.waiting, i, i+1)
		fmt.Fprintf(&c.way, "%s; ", next.name)
		c.mu.Unlock()
		close(next.goes)
	}
}

// call is a call of one party to the store. A write is sent a second time if its reply
// is lost. A list takes no turn, because it is only a hint.
func (c *crossing) call(name string) func(context.Context, *idempotenttest.StoreCall) {
	return func(ctx context.Context, call *idempotenttest.StoreCall) {
		if call.Op == driver.OpListDue {
			call.Do(ctx)
			return
		}
		c.stop(name)
		if call.Do(ctx); call.Op == driver.OpGet {
			return
		}
		c.mu.Lock()
		lost := c.cut && c.dice.IntN(2) == 0
		c.mu.Unlock()
		if lost {
			c.note("cut")
			c.stop(name)
			call.Do(ctx)
		}
	}
}
