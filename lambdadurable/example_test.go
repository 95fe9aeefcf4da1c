// SPDX-License-Identifier: Apache-2.0

package lambdadurable_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdabatch"
	"github.com/once-lambda/once/lambdadurable"
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
		o.Accepted = func(*lambdahttp.Request, idempotent.RecordID) string { return "" } // 202 instead of 409
		o.Guard = func(o *idempotent.Options) {
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
		o.Guard = func(o *idempotent.Options) {
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
