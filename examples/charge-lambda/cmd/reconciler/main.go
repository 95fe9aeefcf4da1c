// SPDX-License-Identifier: Apache-2.0

// Command reconciler is a Lambda function on a schedule. It settles charges with
// an unknown outcome by asking the payment provider.
//
// Environment: ONCE_TABLE is the DynamoDB table of the records, and other variables
// of dynamostore.Open describe it. ONCE_METRICS_NAMESPACE is the
// namespace of the metrics in CloudWatch, PROVIDER_URL the payment provider's
// address, and ONCE_EXHAUSTED_QUEUE_URL the queue for the exhausted records.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/telemetry/emf"
)

func main() {
	h, err := newHandler(context.Background(), os.Getenv, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "reconciler:", err)
		os.Exit(1)
	}
	lambda.Start(h)
}

type handlerFunc = func(context.Context) (idempotent.Report, error)

// newHandler returns the function's handler. It calls no service.
func newHandler(ctx context.Context, getenv func(string) string, stdout io.Writer) (handlerFunc, error) {
	for _, name := range []string{"ONCE_TABLE", "ONCE_METRICS_NAMESPACE", "PROVIDER_URL", "ONCE_EXHAUSTED_QUEUE_URL"} {
		if getenv(name) == "" {
			return nil, fmt.Errorf("%s is not set", name)
		}
	}
	provider, err := charge.NewClient(getenv("PROVIDER_URL"))
	if err != nil {
		return nil, fmt.Errorf("PROVIDER_URL: %w", err)
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot read the AWS configuration: %w", err)
	}
	store, err := dynamostore.Open(ctx, func(o *dynamostore.Options) { o.Client = dynamostore.NewClient(cfg) })
	if err != nil {
		return nil, err
	}
	metrics, err := emf.New(stdout, getenv("ONCE_METRICS_NAMESPACE"))
	if err != nil {
		return nil, err
	}
	logger := lambdacontext.NewLogger()
	guard, err := idempotent.New(store, func(o *idempotent.Options) {
		o.Logger = logger
		o.Observer = event.Observers(metrics, event.LogObserver(logger))
	})
	if err != nil {
		return nil, err
	}
	queue := exhausted{sqs.NewFromConfig(cfg), getenv("ONCE_EXHAUSTED_QUEUE_URL")}
	return idempotent.Reconciler(guard, map[string]idempotent.ResolveFunc{charge.Operation: charge.Reconcile(provider, time.Now)},
		func(o *idempotent.ReconcileOptions) { o.OnExhausted = queue.put }), nil
}

// exhausted is the queue of the exhausted records.
type exhausted struct {
	client *sqs.Client
	url    string
}

// put sends what a person needs to find the record, without data of the request
// or its result.
func (q exhausted) put(ctx context.Context, r idempotent.PendingRecord) error {
	body, err := json.Marshal(map[string]any{
		"record_id": r.ID, "operation": r.ID.Operation(), "created": r.Created, "attempts": r.Asked, "ref": r.Ref,
		"downstream_key": r.ID.DownstreamKey(),
	})
	if err != nil {
		return err
	}
	_, err = q.client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: aws.String(q.url), MessageBody: aws.String(string(body))})
	if err != nil {
		return errors.Join(errors.New("reconciler: an exhausted record was not sent to the queue"), err)
	}
	return nil
}
