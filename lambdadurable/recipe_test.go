// SPDX-License-Identifier: Apache-2.0

package lambdadurable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdadurable/internal/durable"
)

// The recipe of docs/durable.md.

type charge struct {
	ID string `json:"id"`
}

type payments interface {
	Charge(ctx context.Context, key string, o order) (charge, error)
}

// chargeOnce is a step of a durable handler. Another execution with the same order
// does not charge again.
func chargeOnce(ctx durable.Context, guard *idempotent.Guard, provider payments, o order) (charge, error) {
	return durable.Step(ctx, "charge", func(sc durable.StepContext) (charge, error) {
		fingerprint, err := idempotent.FingerprintOf(o)
		if err != nil {
			return charge{}, err
		}
		key := idempotent.Key{Operation: "charge", Scope: "shop", ID: o.ID, Fingerprint: fingerprint}
		return idempotent.Do(sc, guard, key, func(ctx context.Context) (charge, error) {
			return idempotent.Step(ctx, "provider", func(ctx context.Context) (charge, error) {
				return provider.Charge(ctx, idempotent.DownstreamKey(ctx), o)
			})
		}, func(options *idempotent.Options) {
			options.Recovery, options.Steps = idempotent.Resume, []string{"provider"}
		})
	}, durable.WithRetry(whenFree))
}

// whenFree retries a step when its key is free again, and other errors as usual.
func whenFree(a durable.RetryAttempt) durable.RetryDecision {
	if running, ok := errors.AsType[*idempotent.InProgressError](a.Err); ok && a.Attempt < 20 {
		return durable.RetryDecision{Retry: true, Delay: max(running.RetryAfter, 30*time.Second)}
	}
	return durable.ExponentialBackoff()(a)
}

// bank is a provider without HTTP. It can end the process that calls it.
type bank struct {
	kit.Provider
	kill func() // after the charge, before the reply
}

func (b *bank) Charge(_ context.Context, key string, _ order) (charge, error) {
	c := charge{ID: b.Provider.Charge(key)}
	if kill := b.kill; kill != nil {
		b.kill = nil
		kill()
		return charge{}, errKilled
	}
	return c, nil
}

// play runs an execution of the recipe until it ends, and returns its result and
// the log of invocations. The first invocation is killed during the charge if
// killed is set.
func (w *fixture) play(b *bank, killed bool) (c charge, log []string) {
	w.t.Helper()
	execution := &durable.Execution{Now: w.clock.Now}
	for range 30 {
		p := &process{left: -1}
		ctx, cancel := context.WithCancel(w.clock.Invocation(w.t.Context(), time.Minute))
		if killed {
			b.kill = func() { p.dead = true; cancel() }
			killed = false
		}
		before := b.Asked()
		status, next, err := execution.Invoke(ctx, func(ctx durable.Context) (err error) {
			c, err = chargeOnce(ctx, w.guard(p.store(w.store)), b, book)
			return err
		})
		cancel()
		if p.dead {
			status, next = "killed", w.clock.Now()
		}
		log = append(log, fmt.Sprint(status, " ", b.Asked()-before))
		switch {
		case status == durable.Succeeded:
			return c, log
		case status == durable.Failed:
			w.t.Fatalf("the execution failed: %v after %v", err, log)
		}
		w.clock.Advance(next.Sub(w.clock.Now()))
	}
	w.t.Fatalf("the execution does not end: %v", log)
	return c, log
}

// The order of retries: the invocation that is killed leaves a live lease, so the
// step is retried until it ends; then the provider is asked again with the same
// key. There is one charge, also for another execution with the same order.
func TestDoInsideADurableStep(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	b := &bank{}
	c, log := w.play(b, true)
	if want := []string{"killed 1", "PENDING 0", "PENDING 0", "PENDING 0", "SUCCEEDED 1"}; !slices.Equal(log, want) {
		t.Errorf("invocations, with their calls of the provider: %v, want %v", log, want)
	}
	again, log := w.play(b, false)
	if want := []string{"SUCCEEDED 0"}; !slices.Equal(log, want) || again != c || c.ID != "ch_1" {
		t.Errorf("another execution: %v, %v after %v", log, again, c)
	}
	b.Once(t, 1)
}

// A durable operation inside Do is a mistake: if it suspends, Do gets an error. Its
// record is not completed, under any promise.
func TestSuspensionInsideDo(t *testing.T) {
	t.Parallel()
	for recovery, want := range map[idempotent.Recovery]driver.State{
		idempotent.Reconcile: driver.StateUnknown, idempotent.Rerun: driver.StateRetryable, idempotent.Resume: driver.StateRetryable,
	} {
		w := newFixture(t)
		key, _ := byID(t.Context(), book)
		key.Fingerprint = idempotent.FingerprintBytes(nil)
		store := memstore.New()
		execution := &durable.Execution{Now: w.clock.Now}
		status, _, _ := execution.Invoke(w.clock.Invocation(t.Context(), time.Minute), func(ctx durable.Context) error {
			_, err := idempotent.Do(ctx, w.guard(store), key, func(context.Context) (string, error) {
				return "waited", durable.Wait(ctx, "an hour", time.Hour)
			}, func(o *idempotent.Options) { o.Recovery, o.Steps = recovery, []string{"a"} })
			return err
		})
		r, err := store.Get(t.Context(), key.RecordID())
		if err != nil || status != durable.Pending || r.State != want {
			t.Errorf("%v: the invocation is %s and the record %+v, %v", recovery, status, r, err)
		}
	}
}
