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
//	EVENTS                  the event source: http, for an HTTP API or a function URL, or
//	                        rest, for a REST API, whose API keys are the callers
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
	"github.com/once-lambda/once/lambdahttp"
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
	provider, err := charge.NewClient(os.Getenv("PROVIDER_URL"))
	if err != nil {
		return nil, fmt.Errorf("PROVIDER_URL: %w", err)
	}
	metrics, err := emf.New(stdout, os.Getenv("ONCE_METRICS_NAMESPACE"))
	if err != nil {
		return nil, fmt.Errorf("ONCE_METRICS_NAMESPACE: %w", err)
	}
	guard, err := idempotent.New(store, func(o *idempotent.Options) {
		o.Logger = lambdacontext.NewLogger() // as the function's logging is configured, with the id of the invocation
		o.Observer = event.Observers(metrics, event.LogObserver(o.Logger))
	})
	if err != nil {
		return nil, err
	}
	switch events := os.Getenv("EVENTS"); events {
	case "", "http":
		return lambda.NewHandler(emf.Flushed(metrics, charge.New(guard, provider))), nil
	case "rest":
		byAPIKey := func(o *lambdahttp.Options) { o.Scope = lambdahttp.APIKeyID }
		return lambda.NewHandler(emf.Flushed(metrics, charge.NewREST(guard, provider, byAPIKey))), nil
	default:
		return nil, fmt.Errorf("invalid EVENTS %q: want http, for an HTTP API or a function URL, or rest, for a REST API", events)
	}
}
