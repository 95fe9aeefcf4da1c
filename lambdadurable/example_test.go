// SPDX-License-Identifier: Apache-2.0

package lambdadurable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdabatch"
	"github.com/once-lambda/once/lambdadurable"
	"github.com/once-lambda/once/lambdadurable/internal/durable"
	"github.com/once-lambda/once/lambdahttp"
)

// The snippets of docs/durable.md. TestAPI, TestQueue and TestReconciler run them.

// newOrders returns the durable function "orders", of which the alias live is
// started.
func newOrders(cfg aws.Config) (*lambdadurable.Function, error) {
	return lambdadurable.New(lambda.NewFromConfig(cfg), "orders:live")
}

// newAPI returns the handler of POST /orders. An order is a durable execution of
// the function "orders", which can take days.
func newAPI(guard *idempotent.Guard, orders *lambdadurable.Function) func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	place := lambdahttp.JSON[order, receipt]{
		Handle: func(ctx context.Context, o order) (receipt, error) {
			return lambdadurable.Run[receipt](ctx, orders, o)
		},
	}
	return place.APIGatewayV2(guard, func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.Claim("sub")
		o.Accepted = func(context.Context, *lambdahttp.Request, idempotent.RecordID) string { return "" } // 202 instead of 409
		o.Guard = func(o *idempotent.Operation) {
			o.Recovery, o.Steps = idempotent.Resume, []string{lambdadurable.Step}
		}
	})
}

// newReconciler stores the outcomes of orders whose clients did not come back.
func newReconciler(guard *idempotent.Guard, orders *lambdadurable.Function) func(context.Context) (idempotent.Report, error) {
	return idempotent.Reconciler(guard, map[string]idempotent.ResolveFunc{
		"POST /orders": lambdadurable.Resolver(orders, func(r receipt) idempotent.Resolution {
			body, err := json.Marshal(r)
			if err != nil {
				return idempotent.ResolvedWithoutResult()
			}
			return lambdahttp.Resolved(lambdahttp.Response{
				Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body,
			})
		}),
	})
}

// newQueue starts an execution for each message of an SQS queue. A message is done
// once Lambda has accepted the start.
func newQueue(guard *idempotent.Guard, orders *lambdadurable.Function) func(context.Context, events.SQSEvent) (events.SQSEventResponse, error) {
	begin := func(ctx context.Context, o order) error {
		_, err := lambdadurable.Start(ctx, orders, o)
		return err
	}
	return lambdabatch.SQS(guard, begin, func(o *lambdabatch.Options) {
		o.Operation, o.ID = "place-order", lambdabatch.Field("/id")
		o.Guard = func(o *idempotent.Operation) {
			o.Recovery, o.Steps = idempotent.Resume, []string{lambdadurable.Step}
		}
	})
}

// placeOrder returns the event of an order.
func placeOrder() events.APIGatewayV2HTTPRequest {
	event := events.APIGatewayV2HTTPRequest{
		RouteKey: "POST /orders", RawPath: "/orders", Body: books,
		Headers: map[string]string{"idempotency-key": `"8e03978e-40d5-43e8-bc93-6894a57f9324"`, "content-type": "application/json"},
	}
	event.RequestContext.HTTP.Method, event.RequestContext.HTTP.Path, event.RequestContext.RouteKey = "POST", "/orders", "POST /orders"
	event.RequestContext.Authorizer = &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{
		JWT: &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: map[string]string{"sub": "user-1"}},
	}
	return event
}

// The client of the SDK is a Client.
func TestNewOrders(t *testing.T) {
	t.Parallel()
	if f, err := newOrders(aws.Config{Region: "eu-west-1"}); err != nil || f == nil {
		t.Errorf("got %v, %v", f, err)
	}
}

// A client that repeats its request gets 202 while the order is processed, and then
// its receipt.
func TestAPI(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	handle := newAPI(w.guard(w.store), w.orders)
	send := func() events.APIGatewayV2HTTPResponse {
		a, err := handle(w.clock.Invocation(t.Context(), 10*time.Second), placeOrder())
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for range 2 {
		if a := send(); a.StatusCode != 202 || a.Headers["Retry-After"] != "5" || strings.Contains(a.Body, "arn:") {
			t.Errorf("while the execution runs: %d %v %s", a.StatusCode, a.Headers, a.Body)
		}
	}
	w.clock.Advance(time.Minute)
	want := `{"receipt":` + books + `}`
	for _, replayed := range []string{"", "true"} {
		if a := send(); a.StatusCode != 200 || a.Body != want || a.Headers["Idempotent-Replayed"] != replayed {
			t.Errorf("after its end: %d %v %s", a.StatusCode, a.Headers, a.Body)
		}
	}
	if len(w.lambda.executions) != 1 {
		t.Errorf("%d executions", len(w.lambda.executions))
	}
}

// The reconciler stores the response that the client would have got.
func TestReconciler(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	guard := w.guard(w.store)
	api, reconcile := newAPI(guard, w.orders), newReconciler(guard, w.orders)
	if a, err := api(w.clock.Invocation(t.Context(), 10*time.Second), placeOrder()); err != nil || a.StatusCode != 202 {
		t.Fatalf("the first request: %d, %v", a.StatusCode, err)
	}
	w.clock.Advance(time.Hour)
	if report, err := reconcile(w.clock.Invocation(t.Context(), time.Minute)); err != nil || report.Completed != 1 {
		t.Errorf("the reconciler: %+v, %v", report, err)
	}
	a, err := api(w.clock.Invocation(t.Context(), 10*time.Second), placeOrder())
	if err != nil || a.StatusCode != 200 || a.Headers["Idempotent-Replayed"] != "true" || a.Body != `{"receipt":`+books+`}` {
		t.Errorf("a retry: %d %v %s, %v", a.StatusCode, a.Headers, a.Body, err)
	}
}

// A message that is delivered twice, once after a lost reply, starts one execution.
func TestQueue(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	handle := newQueue(w.guard(w.store), w.orders)
	deliver := func() int {
		out, err := handle(w.clock.Invocation(t.Context(), 10*time.Second), events.SQSEvent{Records: []events.SQSMessage{
			{MessageId: "m-1", Body: books, EventSourceARN: "arn:aws:sqs:eu-west-1:123456789012:orders", EventSource: "aws:sqs"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return len(out.BatchItemFailures)
	}
	w.lambda.fault = func(string) fault { return lost }
	if failed := deliver(); failed != 1 {
		t.Errorf("a lost reply: %d failures", failed)
	}
	w.lambda.fault = nil
	for range 2 {
		if failed := deliver(); failed != 0 {
			t.Errorf("the next delivery: %d failures", failed)
		}
	}
	if w.lambda.starts(books) != 1 || w.lambda.calls["Invoke"] != 2 {
		t.Errorf("%d executions after %v", w.lambda.starts(books), w.lambda.calls)
	}
}

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
		}, func(options *idempotent.Operation) {
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
			}, func(o *idempotent.Operation) { o.Recovery, o.Steps = recovery, []string{"a"} })
			return err
		})
		r, err := store.Get(t.Context(), key.RecordID())
		if err != nil || status != durable.Pending || r.State != want {
			t.Errorf("%v: the invocation is %s and the record %+v, %v", recovery, status, r, err)
		}
	}
}
