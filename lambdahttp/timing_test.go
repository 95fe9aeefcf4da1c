// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdahttp"
)

// Each function of the API has half of the time that is left until the request is answered,
// 100 ms before the deadline. If it does not return, whatever it returns then, the client
// gets 503, and the log says which function it was. An error in time is the function's own.
func TestFunctionsHaveHalfOfTheTime(t *testing.T) {
	t.Parallel()
	const half = (10*time.Second - 100*time.Millisecond) / 2
	errOwn := errors.New("no such table")
	for name, option := range map[string]func(*lambdahttp.Options, func(context.Context) error){
		"Options.Scope": func(o *lambdahttp.Options, called func(context.Context) error) {
			o.Scope.Of = func(ctx context.Context, _ *lambdahttp.Request) (string, error) { return "acme", called(ctx) }
		},
		"Options.Fingerprint": func(o *lambdahttp.Options, called func(context.Context) error) {
			o.Fingerprint.Of = func(ctx context.Context, _ *lambdahttp.Request) ([][]byte, error) { return nil, called(ctx) }
		},
		"Options.BeforeReplay": func(o *lambdahttp.Options, called func(context.Context) error) {
			o.BeforeReplay = func(ctx context.Context, _ *lambdahttp.Request, _ lambdahttp.Response) error { return called(ctx) }
		},
		"Options.Accepted": func(o *lambdahttp.Options, called func(context.Context) error) {
			o.Accepted = func(ctx context.Context, _ *lambdahttp.Request, _ idempotent.RecordID) string {
				_ = called(ctx)
				return "/charges/1"
			}
		},
	} {
		for _, hangs := range []bool{true, false} {
			for _, on := range wires {
				synctest.Test(t, func(t *testing.T) {
					var log bytes.Buffer
					begun := false
					w := newFixtureWith(t, on, func(o *idempotent.Options) {
						logsTo(&log)(o)
						o.Now = time.Now
					}, func(o *lambdahttp.Options) {
						option(o, func(ctx context.Context) error {
							switch {
							case !begun:
								return nil
							case hangs:
								<-ctx.Done()
							}
							return errOwn
						})
					})
					again := func() {
						begun = true
						ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
						defer cancel()
						start := time.Now()
						a, err := w.send(ctx, charge())
						took, named := time.Since(start), strings.Contains(log.String(), "function="+name)
						switch {
						case hangs && (err != nil || a.status != 503 || !strings.Contains(a.body, "no-time-left") || took != half || !named):
							t.Errorf("%s on %s: got %d %s, %v after %s, want 503 after %s\n%s", name, on.name, a.status, a.body, err, took, half, log.String())
						case !hangs && (a.status == 503 || took != 0 || named):
							t.Errorf("%s on %s: got %d %s, %v after %s, want its own error\n%s", name, on.name, a.status, a.body, err, took, log.String())
						}
					}
					if name == "Options.Accepted" {
						w.becomes(duringRun(again))
					}
					w.post(charge())
					if name != "Options.Accepted" {
						again()
					}
				})
			}
		}
	}
}

// The time is that of the guard's clock, which Options.Guard can replace.
func TestFunctionsHaveHalfOfTheTimeOfTheGuard(t *testing.T) {
	t.Parallel()
	const half = (10*time.Second - 100*time.Millisecond) / 2
	day := &idempotenttest.Clock{}
	day.Advance(24 * time.Hour)
	for name, row := range map[string]struct {
		now   func() time.Time // of the guard
		start time.Time
	}{
		"a clock of a day later": {day.Now, day.Now()},
		"none":                   {nil, time.Now()},
	} {
		for _, on := range wires {
			got := time.Duration(math.MaxInt64)
			w := newFixtureWith(t, on, func(o *idempotent.Options) { o.Now = row.now }, func(o *lambdahttp.Options) {
				o.Scope.Of = func(ctx context.Context, _ *lambdahttp.Request) (string, error) {
					if ends, ok := ctx.Deadline(); ok {
						got = time.Until(ends)
					}
					return "acme", nil
				}
			})
			ctx, cancel := context.WithDeadline(t.Context(), row.start.Add(10*time.Second))
			defer cancel()
			w.send(ctx, charge())
			if got > half {
				t.Errorf("%s on %s: the function has %s, want at most %s", name, on.name, got, half)
			}
		}
	}
}

// With a GatewayTimeout, a request is answered before it. The lease is that of the function,
// which goes on behind the gateway.
func TestGatewayTimeout(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ function, gateway, handler, by, lease time.Duration }{ // 0: none
		{40 * time.Second, 29 * time.Second, 28500 * time.Millisecond, 28900 * time.Millisecond, 43 * time.Second},
		{10 * time.Second, 29 * time.Second, 9500 * time.Millisecond, 9900 * time.Millisecond, 13 * time.Second},
		{40 * time.Second, 0, 39500 * time.Millisecond, 39900 * time.Millisecond, 43 * time.Second},
		{0, 20 * time.Second, 19500 * time.Millisecond, 19900 * time.Millisecond, 15 * time.Minute},
	} {
		for _, on := range wires {
			synctest.Test(t, func(t *testing.T) {
				shelf := memstore.New()
				var lease time.Time
				g, err := idempotent.New(idempotenttest.Intercept(shelf, func(ctx context.Context, c *idempotenttest.StoreCall) {
					if lease.IsZero() {
						lease = c.Record.LeaseEnd
						c.Do(ctx)
						return
					}
					<-ctx.Done()
					c.Err = ctx.Err()
				}), func(o *idempotent.Options) { o.Logger = slog.New(slog.DiscardHandler) })
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				h := on.build(g, func(ctx context.Context, r request) (reply, error) {
					<-ctx.Done()
					if took := time.Since(start); took != row.handler {
						t.Errorf("%s, %+v: the handler's context ended after %s", on.name, row, took)
					}
					return created(context.Background(), r)
				}, func(o *lambdahttp.Options) { o.Scope, o.GatewayTimeout = on.scope, row.gateway })
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if row.function > 0 {
					ctx, cancel = context.WithTimeout(ctx, row.function)
				}
				defer cancel()
				a, err := h(ctx, charge())
				if took := time.Since(start); took != row.by || a.status != 201 || err != nil || lease.Sub(start) != row.lease {
					t.Errorf("%s, %+v: got %d %v after %s, and the lease ends after %s", on.name, row, a.status, err, took, lease.Sub(start))
				}
			})
		}
	}
}

// Check has it too, also for a request that runs without a key.
func TestCheckHasHalfOfTheTime(t *testing.T) {
	t.Parallel()
	const half = (10*time.Second - 100*time.Millisecond) / 2
	for name, front := range jsonFronts {
		for _, r := range []request{charge(), charge(without("idempotency-key"))} {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				g, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
				if err != nil {
					t.Fatal(err)
				}
				send := front(lambdahttp.JSON[refund, refunded]{
					Handle: func(context.Context, refund) (refunded, error) { t.Error("ran"); return refunded{}, nil },
					Check: func(ctx context.Context, _ *lambdahttp.Request, _ *refund) error {
						<-ctx.Done()
						return &lambdahttp.Problem{Status: 422}
					},
				}, g, func(o *lambdahttp.Options) {
					o.Scope, o.Guard = lambdahttp.SingleTenant, func(o *idempotent.Operation) { o.AllowMissingKey = true }
				})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				start := time.Now()
				a, err := send(ctx, r)
				if took := time.Since(start); err != nil || a.status != 503 || took != half || !strings.Contains(log.String(), "function=JSON.Check") {
					t.Errorf("%s: got %d %s, %v after %s, want 503 after %s\n%s", name, a.status, a.body, err, took, half, log.String())
				}
			})
		}
	}
}
