// SPDX-License-Identifier: Apache-2.0

// Command reconciler is a Lambda function on a schedule. It settles charges with
// an unknown outcome by asking the payment provider.
//
// Environment: ONCE_TABLE is the DynamoDB table of the records, and other variables
// of dynamostore.Open describe it. ONCE_METRICS_NAMESPACE is the namespace of the
// metrics in CloudWatch, PROVIDER_URL the payment provider's address, and
// ONCE_EXHAUSTED_QUEUE_URL the queue for the exhausted records.
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
	h, err := newHandler(context.Background(), os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "reconciler:", err)
		os.Exit(1)
	}
	lambda.Start(h)
}

// newHandler returns the function's handler. It calls no service.
func newHandler(ctx context.Context, stdout io.Writer) (func(context.Context) (idempotent.Report, error), error) {
	store, err := dynamostore.Open(ctx)
	if err != nil {
		return nil, err
	}
	provider, err := charge.NewClient(os.Getenv("PROVIDER_URL"))
	if err != nil {
		return nil, fmt.Errorf("PROVIDER_URL: %w", err)
	}
	metrics, err := emf.New(stdout, os.Getenv("ONCE_METRICS_NAMESPACE"))
	if err != nil {
		return nil, fmt.Errorf("ONCE_METRICS_NAMESPACE: %w", err)
	}
	guard, err := idempotent.New(store, func(o *idempotent.Options) {
		o.Logger = lambdacontext.NewLogger()
		o.Observer = event.Observers(metrics, event.LogObserver(o.Logger))
	})
	if err != nil {
		return nil, err
	}
	hand, err := handOver(ctx)
	if err != nil {
		return nil, err
	}
	return idempotent.Reconciler(guard, map[string]idempotent.ResolveFunc{charge.Operation: charge.Reconcile(provider, time.Now)},
		func(o *idempotent.ReconcileOptions) { o.OnExhausted = hand }), nil
}

// handOver returns a function that sends a record which was given up to a queue: what
// a person needs to find it, without data of the request or its result.
func handOver(ctx context.Context) (func(context.Context, idempotent.PendingRecord) error, error) {
	queue := os.Getenv("ONCE_EXHAUSTED_QUEUE_URL")
	if queue == "" {
		return nil, errors.New("ONCE_EXHAUSTED_QUEUE_URL is not set")
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot read the AWS configuration: %w", err)
	}
	client := sqs.NewFromConfig(cfg)
	return func(ctx context.Context, r idempotent.PendingRecord) error {
		body, _ := json.Marshal(map[string]any{ // texts, a number and a time always encode
			"record_id": r.ID, "operation": r.ID.Operation(), "created": r.Created, "attempts": r.Asked, "ref": r.Ref,
			"downstream_key": r.ID.DownstreamKey(),
		})
		_, err := client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &queue, MessageBody: aws.String(string(body))})
		return err
	}, nil
}
