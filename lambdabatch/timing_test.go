// SPDX-License-Identifier: Apache-2.0

package lambdabatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdabatch"
)

// Each function of the user has half of the time that is left until the batch is answered,
// 100 ms before the deadline. One that does not return fails its message only, which is
// redelivered and not handed over, whatever it returns then; the others are done.
func TestFunctionsHaveHalfOfTheTime(t *testing.T) {
	t.Parallel()
	const half = (10*time.Second - 100*time.Millisecond) / 2
	errOwn := errors.New("no such object")
	type called = func(context.Context, []byte) error
	for name, option := range map[string]func(*lambdabatch.Options, called){
		"Unwrap": func(o *lambdabatch.Options, called called) {
			o.Unwrap = func(ctx context.Context, m *lambdabatch.Message) error { return called(ctx, m.Body) }
		},
		"ID": func(o *lambdabatch.Options, called called) {
			o.ID = func(ctx context.Context, m *lambdabatch.Message) (string, error) {
				id, _ := lambdabatch.Field("/order_id")(ctx, m)
				return id, called(ctx, m.Body)
			}
		},
		"Scope": func(o *lambdabatch.Options, called called) {
			o.Scope = func(ctx context.Context, m *lambdabatch.Message) (string, error) { return "all", called(ctx, m.Body) }
		},
		"Fingerprint": func(o *lambdabatch.Options, called called) {
			o.Fingerprint = func(ctx context.Context, m *lambdabatch.Message) (idempotent.Fingerprint, error) {
				return idempotent.FingerprintBytes(m.Body), called(ctx, m.Body)
			}
		},
		"Decode": func(o *lambdabatch.Options, called called) {
			o.Decode = func(ctx context.Context, body []byte, v any) error {
				_ = json.Unmarshal(body, v)
				return called(ctx, body)
			}
		},
		"HandOver": func(o *lambdabatch.Options, called called) {
			o.ID = func(ctx context.Context, m *lambdabatch.Message) (string, error) {
				id, err := lambdabatch.Field("/order_id")(ctx, m)
				if id == "o-2" {
					err = &lambdabatch.DecodeError{Err: errOwn} // it is handed over
				}
				return id, err
			}
			o.HandOver = func(ctx context.Context, m *lambdabatch.Message, _ error) error { return called(ctx, m.Body) }
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			ran, handed := 0, 0
			g, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Logger = slog.New(slog.DiscardHandler) })
			if err != nil {
				t.Fatal(err)
			}
			h := lambdabatch.SQS(g, func(context.Context, order) error { ran++; return nil }, func(o *lambdabatch.Options) {
				o.Operation, o.ID = "fulfil", lambdabatch.Field("/order_id")
				o.HandOver = func(context.Context, *lambdabatch.Message, error) error { handed++; return nil }
				option(o, func(ctx context.Context, body []byte) error {
					if string(body) != `{"order_id":"o-2"}` {
						return nil
					}
					<-ctx.Done()
					return errOwn
				})
			})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			start := time.Now()
			response, err := h(ctx, messages("o-1", "o-2", "o-3"))
			wantIDs(t, failed(t, response, err), "m2")
			if took := time.Since(start); took != half || ran != 2 || handed != 0 {
				t.Errorf("%s: answered after %s, want %s; %d runs, %d handed over", name, took, half, ran, handed)
			}
		})
	}
}

// Messages that run at the same time wait for the store at the same time: ten take as long
// as one.
func TestMessagesWaitTogether(t *testing.T) {
	t.Parallel()
	const away = 20 * time.Millisecond // of the store
	for _, n := range []int{1, 10} {
		synctest.Test(t, func(t *testing.T) {
			g, err := idempotent.New(idempotenttest.Intercept(memstore.New(), func(ctx context.Context, c *idempotenttest.StoreCall) {
				time.Sleep(away)
				c.Do(ctx)
			}))
			if err != nil {
				t.Fatal(err)
			}
			h := lambdabatch.SQS(g, func(context.Context, order) error { return nil }, func(o *lambdabatch.Options) {
				o.Operation, o.ID, o.Concurrency = "fulfil", lambdabatch.Field("/order_id"), 10
			})
			ids := make([]string, n)
			for i := range ids {
				ids[i] = fmt.Sprintf("o-%d", i)
			}
			start := time.Now()
			response, err := h(t.Context(), messages(ids...))
			wantIDs(t, failed(t, response, err))
			if took := time.Since(start); took != 2*away {
				t.Errorf("%d messages took %s, want %s", n, took, 2*away)
			}
		})
	}
}

// A batch is answered in time, however many of its messages find a store that does not
// answer: the time of each is that of the batch.
func TestBatchIsAnsweredInTime(t *testing.T) {
	t.Parallel()
	for _, reserve := range []time.Duration{0, time.Millisecond} { // to begin another message
		for limit, by := range map[time.Duration]time.Duration{400 * time.Millisecond: 360 * time.Millisecond, 3 * time.Second: 2900 * time.Millisecond, time.Minute: time.Minute - 100*time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				g, err := idempotent.New(idempotenttest.Intercept(memstore.New(), func(ctx context.Context, c *idempotenttest.StoreCall) {
					<-ctx.Done()
					c.Err = ctx.Err()
				}), func(o *idempotent.Options) { o.Logger = slog.New(slog.DiscardHandler) })
				if err != nil {
					t.Fatal(err)
				}
				h := lambdabatch.SQS(g, func(context.Context, order) error { t.Error("ran"); return nil }, func(o *lambdabatch.Options) {
					o.Operation, o.ID, o.Reserve = "fulfil", lambdabatch.Field("/order_id"), reserve
				})
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				start := time.Now()
				response, err := h(ctx, messages("o-1", "o-2", "o-3", "o-4", "o-5", "o-6"))
				wantIDs(t, failed(t, response, err), "m1", "m2", "m3", "m4", "m5", "m6")
				if took := time.Since(start); took > by {
					t.Errorf("of %s, with a reserve of %s: answered after %s, want %s at the latest", limit, reserve, took, by)
				}
				time.Sleep(time.Minute) // a release can continue beside the answer
			})
		}
	}
}
