// SPDX-License-Identifier: Apache-2.0

package lambdabatch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdabatch"
)

// In shadow mode a message fails if its handler does, or if the handler cannot get it.
// Nothing is handed over or hidden, and rules that fail or panic are findings.
func TestShadow(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, row := range map[string]struct {
		options func(*lambdabatch.Options)
		body    string
		err     error  // of the handler
		fails   bool   // the message
		runs    int    // of two deliveries
		want    string // the events
	}{
		"it succeeds":            {runs: 2, want: "[shadow_run shadow_replayed]"},
		"it fails":               {err: broken, fails: true, runs: 2, want: "[shadow_run shadow_taken_over]"},
		"its outcome is final":   {err: idempotent.Final("sold_out", "Sold out."), fails: true, runs: 2, want: "[shadow_run shadow_replayed]"},
		"it cannot be decoded":   {body: "{", fails: true, want: "[]"},
		"it has no key":          {body: `{"order_id":""}`, runs: 2, want: "[shadow_no_key shadow_no_key]"},
		"its key fails":          {options: func(o *lambdabatch.Options) { o.ID = fails(broken) }, runs: 2, want: "[shadow_no_key shadow_no_key]"},
		"its scope fails":        {options: func(o *lambdabatch.Options) { o.Scope = fails(broken) }, runs: 2, want: "[shadow_no_key shadow_no_key]"},
		"its fingerprint panics": {options: func(o *lambdabatch.Options) { o.Fingerprint = panics }, runs: 2, want: "[shadow_no_key shadow_no_key]"},
		"it cannot be unwrapped": {options: func(o *lambdabatch.Options) {
			o.Unwrap = func(context.Context, *lambdabatch.Message) error { return broken }
		}, fails: true, want: "[]"},
		"it is unwrapped": {options: func(o *lambdabatch.Options) {
			o.Unwrap = func(context.Context, *lambdabatch.Message) error { return nil }
		}, runs: 2, want: "[shadow_run shadow_replayed]"},
		"the function panics": {options: func(o *lambdabatch.Options) {
			o.Unwrap = func(context.Context, *lambdabatch.Message) error { panic("broken") }
		}, fails: true, want: "[]"},
		"its attribute is missing": {options: func(o *lambdabatch.Options) { o.ID = lambdabatch.Attribute("none") }, runs: 2, want: "[shadow_no_key shadow_no_key]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen idempotenttest.Recorder
			guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) {
				o.Shadow, o.Observer, o.Logger = true, &seen, slog.New(slog.DiscardHandler)
			})
			if err != nil {
				t.Fatal(err)
			}
			runs := 0
			h := lambdabatch.SQS(guard, func(ctx context.Context, in struct {
				OrderID string `json:"order_id"`
			}) error {
				if _, ok := lambdabatch.FromContext(ctx); !ok {
					t.Error("the handler cannot see its message")
				}
				runs++
				return row.err
			}, func(o *lambdabatch.Options) {
				o.Operation, o.ID = "fulfil", lambdabatch.Field("/order_id")
				o.HandOver = func(context.Context, *lambdabatch.Message, error) error { panic("handed over") }
				o.Visibility.Change = func(context.Context, string, string, int32) error { t.Error("hidden"); return nil }
				o.Visibility.Backoff = 1
				if row.options != nil {
					row.options(o)
				}
			})
			body := row.body
			if body == "" {
				body = `{"order_id":"o-1"}`
			}
			for range 2 {
				response, err := h(t.Context(), events.SQSEvent{Records: []events.SQSMessage{{MessageId: "m-1", EventSourceARN: "arn:aws:sqs:eu-central-1:123456789012:orders", Body: body}}})
				if err != nil || len(response.BatchItemFailures) == 1 != row.fails {
					t.Errorf("got %+v, %v; want that it fails: %t", response, err, row.fails)
				}
			}
			if got := fmt.Sprint(seen.Kinds()); got != row.want || runs != row.runs {
				t.Errorf("got the events %s after %d runs, want %s after %d", got, runs, row.want, row.runs)
			}
		})
	}
}

func fails(err error) func(context.Context, *lambdabatch.Message) (string, error) {
	return func(context.Context, *lambdabatch.Message) (string, error) { return "o-1", err }
}

func panics(context.Context, *lambdabatch.Message) (idempotent.Fingerprint, error) { panic("broken") }

// A handler that takes the record itself gets it, although the record cannot be read.
func TestShadow_UnreadableRecord(t *testing.T) {
	t.Parallel()
	var seen idempotenttest.Recorder
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) {
		o.Shadow, o.Observer, o.Logger = true, &seen, slog.New(slog.DiscardHandler)
	})
	if err != nil {
		t.Fatal(err)
	}
	named := func(o *lambdabatch.Options) { o.Operation = "fulfil" }
	event := events.KafkaEvent{Records: map[string][]events.KafkaRecord{"orders-0": {{Topic: "orders", Value: "no base64!"}}}}
	ran := false
	whole := lambdabatch.Kafka(guard, func(context.Context, events.KafkaRecord) error { ran = true; return nil }, named)
	if a, err := whole(t.Context(), event); err != nil || len(a.BatchItemFailures) > 0 || !ran {
		t.Errorf("got %+v, %v; ran %t", a, err, ran)
	}
	decoded := lambdabatch.Kafka(guard, func(context.Context, string) error { t.Error("it ran"); return nil }, named)
	if a, err := decoded(t.Context(), event); err != nil || len(a.BatchItemFailures) != 1 {
		t.Errorf("got %+v, %v", a, err)
	}
	if got := fmt.Sprint(seen.Kinds()); got != "[shadow_no_key]" {
		t.Errorf("got the events %s", got)
	}
}
