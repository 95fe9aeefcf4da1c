// SPDX-License-Identifier: Apache-2.0

// Command once is the contestant of this repository. RECOVERY is rerun or
// reconcile.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdabatch"
	"github.com/once-lambda/once/tests/measured/bench/peers/contestant"
)

func main() {
	cfg, err := contestant.Config()
	if err != nil {
		log.Fatal(err)
	}
	store, err := dynamostore.New(dynamostore.NewClient(cfg), os.Getenv("TABLE"))
	if err != nil {
		log.Fatal(err)
	}
	recovery := map[string]idempotent.Recovery{"rerun": idempotent.Rerun, "reconcile": idempotent.Reconcile}[os.Getenv("RECOVERY")]
	guard, err := idempotent.New(store, func(o *idempotent.Options) { o.Recovery = recovery })
	if err != nil {
		log.Fatal(err)
	}
	key := idempotent.KeyFrom("charge", func(r contestant.Request) (scope, id string) { return idempotent.Global, r.ID })
	contestant.Main(once{
		do:      idempotent.Wrap(guard, key, contestant.Handle),
		stepped: idempotent.Wrap(guard, key, steps, func(o *idempotent.Operation) { o.Recovery, o.Steps = idempotent.Resume, names[:] }),
		batch: lambdabatch.SQS(guard, func(ctx context.Context, r contestant.Request) error {
			_, err := contestant.Handle(ctx, r)
			return err
		}, func(o *lambdabatch.Options) {
			o.Operation, o.ID, o.Concurrency = "charge", lambdabatch.Field("/id"), 10
			o.Guard = func(o *idempotent.Operation) { o.Recovery = recovery }
		}),
	})
}

// names are those of the steps.
var names = func() (n [20]string) {
	for i := range n {
		n[i] = fmt.Sprint("step-", i)
	}
	return n
}()

// steps records steps before the work.
func steps(ctx context.Context, r contestant.Request) (contestant.Result, error) {
	for _, name := range names[:r.Steps] {
		if _, err := idempotent.Step(ctx, name, func(context.Context) (string, error) { return "done", nil }); err != nil {
			return contestant.Result{}, err
		}
	}
	return contestant.Handle(ctx, r)
}

type once struct {
	do, stepped func(context.Context, contestant.Request) (contestant.Result, error)
	batch       func(context.Context, events.SQSEvent) (events.SQSEventResponse, error)
}

func (o once) Do(ctx context.Context, r contestant.Request) (contestant.Result, error) {
	do := o.do
	if r.Steps > 0 {
		do = o.stepped
	}
	result, err := do(ctx, r)
	if errors.As(err, new(*idempotent.InProgressError)) {
		err = fmt.Errorf("%w: %w", contestant.ErrInProgress, err)
	}
	return result, err
}

func (o once) Batch(ctx context.Context, batch []contestant.Request) (int, error) {
	var event events.SQSEvent
	for i, r := range batch {
		body, err := json.Marshal(r)
		if err != nil {
			return 0, err
		}
		event.Records = append(event.Records, events.SQSMessage{
			MessageId: fmt.Sprint(i), EventSource: "aws:sqs", EventSourceARN: "arn:aws:sqs:us-east-1:123456789012:charges", Body: string(body),
		})
	}
	response, err := o.batch(ctx, event)
	return len(response.BatchItemFailures), err
}
