// SPDX-License-Identifier: Apache-2.0

// Command lambda is the order queue as a Lambda function: the bootstrap of the
// runtime provided.al2023 behind an SQS queue. Its event source mapping must
// have ReportBatchItemFailures switched on.
//
// Environment: ONCE_TABLE is the DynamoDB table of the records, SHOP_TABLE the
// table of the shop, PROVIDER_URL the payment provider's address.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/examples/order-queue/orders"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/telemetry/audit"
	"github.com/once-lambda/once/telemetry/emf"
)

func main() {
	h, err := newHandler(context.Background(), os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "order-queue:", err)
		os.Exit(1)
	}
	lambda.StartHandlerFunc(h)
}

// newHandler returns the function's handler. Metrics and the audit go to
// stdout, which Lambda sends to CloudWatch Logs. It calls no service.
func newHandler(ctx context.Context, stdout io.Writer) (orders.HandlerFunc, error) {
	store, err := dynamostore.Open(ctx)
	if err != nil {
		return nil, err
	}
	shop := os.Getenv("SHOP_TABLE")
	if shop == "" {
		return nil, errors.New("SHOP_TABLE is not set; set it to the name of the shop's table")
	}
	payments, err := orders.NewProvider(os.Getenv("PROVIDER_URL"))
	if err != nil {
		return nil, fmt.Errorf("PROVIDER_URL: %w", err)
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot read the AWS configuration: %w", err)
	}
	metrics, err := emf.New(stdout, "OrderQueue")
	if err != nil {
		return nil, err
	}
	logger := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	guard, err := idempotent.New(store, func(o *idempotent.Options) {
		o.Logger = logger
		o.Observer = event.Observers(metrics, audit.New(stdout), event.LogObserver(logger))
		o.RequestID = requestID
	})
	if err != nil {
		return nil, err
	}
	return emf.Flushed(metrics, orders.New(guard, orders.Shop(shop), payments, sqs.NewFromConfig(cfg))), nil
}

// requestID returns the id of the invocation, for events and records.
func requestID(ctx context.Context) string {
	if c, ok := lambdacontext.FromContext(ctx); ok {
		return c.AwsRequestID
	}
	return ""
}
