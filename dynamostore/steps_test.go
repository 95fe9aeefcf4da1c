// SPDX-License-Identifier: Apache-2.0

package dynamostore_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit"
)

var update = flag.Bool("update", false, "write the generated parts of the documents")

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
		idempotent.ResolvedStep(strings.Repeat("n", 58)+"/00000", incompressible(47<<10)),
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

// The table of docs/reports/cost.md: each write of a record includes the results of all steps
// before it.
func TestCostOfSteps(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	table.WriteString("| steps of a request | calls | write units | $ per million | durable functions, $ per million |\n| --: | --: | --: | --: | --: |\n")
	for _, steps := range []int{1, 5, 20, 100, 400} {
		// A write costs a unit for each KB of the item before or after it, whichever is
		// larger (developer guide, "DynamoDB read and write operations").
		calls, units, before := 0, 0, 0
		client := dynamotest.Intercept(dynamotest.New("once"), func(ctx context.Context, c *dynamotest.Call) {
			if in, ok := c.In.(*dynamodb.PutItemInput); ok {
				size := dynamostore.ItemSize(in.Item)
				calls, units, before = calls+1, units+(max(size, before)+1023)/1024, size
			}
			c.Do(ctx)
		})
		clock := &idempotenttest.Clock{}
		g, err := idempotent.New(newStore(t, client), func(o *idempotent.Options) {
			o.Recovery, o.Steps, o.Logger, o.Now = idempotent.Resume, []string{"step"}, slog.New(slog.DiscardHandler), clock.Now
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := idempotent.Do(clock.Invocation(t.Context(), 15*time.Minute), g, aKey(), func(ctx context.Context) (string, error) {
			for i := range steps {
				if _, err := idempotent.Step(ctx, fmt.Sprint("step/", i), func(context.Context) (string, error) { return strings.Repeat("r", 500-len(`""`)), nil }); err != nil {
					return "", err
				}
			}
			return "done", nil
		}); err != nil {
			t.Fatal(err)
		}
		const unit, operation = 0.625, 8.00 // dollars for a million: list prices, with their sources in docs/reports/cost.md and docs/comparison.md
		fmt.Fprintf(&table, "| %d | %d | %d | %.2f | %.2f |\n", steps, calls, units, float64(units)*unit, float64(steps)*operation)
	}
	kit.Part(t, "../docs/reports/cost.md", "steps", table.String(), *update)
}

// incompressible returns n random bytes, the same ones each time.
func incompressible(n int) []byte {
	data := make([]byte, n)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(data)
	return data
}
