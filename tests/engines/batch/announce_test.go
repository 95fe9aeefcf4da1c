// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/lambdabatch"
)

// A batch of 100 messages whose handlers hang announces together. Each announcement
// has half of the 400 ms before the deadline. The client keeps 10 idle connections and
// opens another one for each further call.
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
				for r, err := range table.Due(t.Context()) {
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
