// SPDX-License-Identifier: Apache-2.0

package lambdabatch_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdabatch"
)

// A predecessor reads the message from its context. A message that it has done is
// acknowledged without a run, and one that it is working on comes back.
func TestPredecessor(t *testing.T) {
	t.Parallel()
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) {
		o.Logger = slog.New(slog.DiscardHandler)
		o.Predecessor = func(ctx context.Context, key idempotent.Key) (any, bool, error) {
			m, ok := lambdabatch.FromContext(ctx)
			switch {
			case !ok:
				t.Error("the context has no message")
			case string(m.Body) == `{"id":"running"}`:
				return nil, false, &idempotent.InProgressError{RecordID: key.RecordID()}
			case string(m.Body) == `{"id":"done"}`:
				return struct{}{}, true, nil
			}
			return nil, false, nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	type job struct {
		ID string `json:"id"`
	}
	ran := ""
	handler := lambdabatch.SQS(guard, func(_ context.Context, j job) error { ran += j.ID + " "; return nil }, func(o *lambdabatch.Options) {
		o.Operation, o.ID = "job", lambdabatch.Field("/id")
	})
	var event events.SQSEvent
	for _, id := range []string{"done", "running", "new"} {
		event.Records = append(event.Records, events.SQSMessage{MessageId: "m-" + id, Body: fmt.Sprintf(`{"id":%q}`, id), EventSourceARN: "arn:aws:sqs:us-east-1:123456789012:jobs"})
	}
	out, err := handler(t.Context(), event)
	if err != nil || len(out.BatchItemFailures) != 1 || out.BatchItemFailures[0].ItemIdentifier != "m-running" || ran != "new " {
		t.Errorf("got %+v, %v; the handler ran %q", out, err, ran)
	}
}
