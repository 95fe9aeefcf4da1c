// SPDX-License-Identifier: Apache-2.0

// Command lambda is the charge example as a Lambda function: the bootstrap of the
// runtime provided.al2023 behind an API Gateway or a function URL.
//
// Environment:
//
//	ONCE_TABLE              the DynamoDB table of the records; other variables of
//	                        dynamostore.Open describe it
//	ONCE_METRICS_NAMESPACE  the namespace of the metrics in CloudWatch
//	PROVIDER_URL            the payment provider's address
//	PROFILE                 the profile of the Idempotency-Key header: ietf, stripe or uuid
//	EVENTS                  the event source: http, for an HTTP API or a function URL, or rest
//	CALLER                  the scope of a key: single or api-key
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/telemetry/emf"
)

func main() {
	h, err := newHandler(context.Background(), os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "charge-lambda:", err)
		os.Exit(1)
	}
	lambda.Start(h)
}

// newHandler returns the function's handler. Metrics go to stdout, which Lambda
// sends to CloudWatch Logs. It calls no service: the table is checked at deploy
// time, not at every cold start.
func newHandler(ctx context.Context, stdout io.Writer) (lambda.Handler, error) {
	store, err := dynamostore.Open(ctx)
	if err != nil {
		return nil, err
	}
	profile, err := charge.Profile(os.Getenv("PROFILE"))
	if err != nil {
		return nil, err
	}
	callers, err := charge.Callers(os.Getenv("CALLER"))
	if err != nil {
		return nil, err
	}
	client, err := charge.NewClient(os.Getenv("PROVIDER_URL"))
	if err != nil {
		return nil, fmt.Errorf("PROVIDER_URL: %w", err)
	}
	metrics, err := emf.New(stdout, os.Getenv("ONCE_METRICS_NAMESPACE"))
	if err != nil {
		return nil, fmt.Errorf("ONCE_METRICS_NAMESPACE: %w", err)
	}
	logger := lambdacontext.NewLogger() // as the function's logging is configured, with the id of the invocation
	guard, err := idempotent.New(store, func(o *idempotent.Options) {
		o.Logger = logger
		o.Observer = event.Observers(metrics, event.LogObserver(logger))
	})
	if err != nil {
		return nil, err
	}
	switch events := os.Getenv("EVENTS"); events {
	case "", "http":
		return lambda.NewHandler(emf.Flushed(metrics, charge.New(guard, client, profile, callers))), nil
	case "rest":
		return lambda.NewHandler(emf.Flushed(metrics, charge.NewREST(guard, client, profile, callers))), nil
	default:
		return nil, fmt.Errorf("invalid EVENTS %q: want http, for an HTTP API or a function URL, or rest, for a REST API", events)
	}
}
