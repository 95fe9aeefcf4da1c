// SPDX-License-Identifier: Apache-2.0

package dynamostore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

// A record with as many steps as fit can still be settled, taken over, marked unknown
// and released by evidence: steps leave room for these writes in the largest item.
func TestStepsLeaveRoom(t *testing.T) {
	t.Parallel()
	clock := &idempotenttest.Clock{}
	store := newStore(t, dynamotest.New("once"))
	g, err := idempotent.New(store, func(o *idempotent.Options) {
		o.Recovery, o.Steps, o.Now = idempotent.Resume, []string{"result", strings.Repeat("n", 58)}, clock.Now
	})
	if err != nil {
		t.Fatal(err)
	}
	key := aKey()
	is := func(state driver.State, attempt int) {
		t.Helper()
		r, err := store.Get(t.Context(), key.RecordID())
		if err != nil {
			t.Fatal(err)
		}
		if r.State != state || r.Attempt != attempt {
			t.Fatalf("the record is %s (%s) with %d steps after attempt %d, want %s after attempt %d", r.State, r.Reason, len(r.Steps), r.Attempt, state, attempt)
		}
	}
	do := func(fn func(context.Context) (string, error)) (string, error) {
		return idempotent.Do(clock.Invocation(t.Context(), 10*time.Second), g, key, fn)
	}
	errDown := errors.New("the provider is down")

	ran := 0
	if _, err := do(func(ctx context.Context) (string, error) {
		for i := range 3 {
			if _, err := idempotent.Step(ctx, fmt.Sprint("result/", i), func(context.Context) ([]byte, error) { return incompressible(48 << 10), nil }); err != nil {
				return "", err
			}
		}
		for i := range 5000 { // steps that begin, and may have had their effect
			_, err := idempotent.Step(ctx, fmt.Sprintf("%s/%05d", strings.Repeat("n", 58), i), func(context.Context) (int, error) {
				ran++
				return 0, errDown
			})
			if errors.As(err, new(*idempotent.StepError)) {
				break
			}
		}
		return "", errDown
	}); !errors.Is(err, errDown) {
		t.Fatal(err)
	}
	is(driver.StateRetryable, 1)
	if ran < 300 || ran > 1500 {
		t.Errorf("%d steps ran", ran)
	}
	if _, err := do(func(context.Context) (string, error) { return "", idempotent.Unknown(errDown) }); !errors.Is(err, errDown) {
		t.Fatal(err)
	}
	is(driver.StateUnknown, 2)
	clock.Advance(time.Minute)
	r, err := store.Get(t.Context(), key.RecordID())
	if err != nil {
		t.Fatal(err)
	}
	for i, evidence := range []idempotent.Resolution{
		idempotent.CorrectedStep("result/0", "none"),
		idempotent.ResolvedStep(strings.Repeat("n", 58)+"/00000", incompressible(40<<10)),
		idempotent.ProvenNotExecuted(r.Token()),
	} {
		if err := g.Resolve(t.Context(), key.RecordID(), evidence); err != nil {
			t.Errorf("evidence %d: %v", i, err)
		}
	}
	is(driver.StateRetryable, 2)
	if got, err := do(func(context.Context) (string, error) { return "done", nil }); got != "done" || err != nil {
		t.Errorf("the last attempt: %q, %v", got, err)
	}
	is(driver.StateCompleted, 3)
}

// incompressible returns n random bytes, the same ones each time.
func incompressible(n int) []byte {
	data := make([]byte, n)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(data)
	return data
}
