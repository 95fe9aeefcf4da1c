// SPDX-License-Identifier: Apache-2.0

package lambdabatch_test

import (
	"context"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/lambdabatch"
)

// The context of a handler has the message that it works on, also for a handler
// that gets only the body.
func TestFromContext(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	seen := 0
	h := lambdabatch.SQS(w.guard, func(ctx context.Context, body string) error {
		m, ok := lambdabatch.FromContext(ctx)
		if !ok || m.ItemID != "m1" || string(m.Body) != body || m.Attributes["traceparent"] != "t" || m.Event.(*events.SQSMessage).MessageId != "m1" {
			t.Errorf("the message is %+v, %v", m, ok)
		}
		seen++
		return nil
	}, w.options())
	batch := messages("o-1")
	trace := "t"
	batch.Records[0].MessageAttributes = map[string]events.SQSMessageAttribute{"traceparent": {StringValue: &trace}}
	wantIDs(t, w.send(h, batch))
	if seen != 1 {
		t.Errorf("%d runs", seen)
	}
	if m, ok := lambdabatch.FromContext(t.Context()); ok || m != nil {
		t.Errorf("outside a handler: %+v", m)
	}
}
