package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent/driver"
)

const (
	// callTimeout limits one request to AWS, so that the operator does not wait
	// for ever.
	callTimeout = 30 * time.Second
	// askTimeout limits requests for optional information.
	askTimeout = 3 * time.Second
)

// openTable returns the store in a table. It checks region and credentials, but
// not the table.
func (e *env) openTable(ctx context.Context, table string) (*opened, error) {
	cfg, err := e.awsConfig(ctx)
	if err != nil {
		return nil, err
	}
	client := dynamostore.NewClient(cfg)
	s, err := dynamostore.New(client, table)
	if err != nil {
		return nil, usage("%v", err)
	}
	meter := e.meter("reading the table for a list", 0)
	o := &opened{
		records: s,
		name:    fmt.Sprintf("table %s in %s", table, cfg.Region),
		all: func(ctx context.Context, progress func(dynamostore.ScanProgress)) iter.Seq2[driver.Record, error] {
			return s.Scan(ctx, func(o *dynamostore.ScanOptions) { o.Progress = progress })
		},
		items: func(ctx context.Context) int { return itemCount(ctx, client, table) },
		who:   func(ctx context.Context) string { return callerOf(ctx, cfg) },
		check: s.Check,
		close: func() error { return nil },
		purgeChunks: func(ctx context.Context, before time.Time, operations []string, countOnly bool) (int, error) {
			return s.PurgeChunks(ctx, before, func(o *dynamostore.PurgeOptions) { o.Operations, o.CountOnly = operations, countOnly })
		},
	}
	if e.store.NoIndex {
		o.records = s.WithoutIndex(func(o *dynamostore.ScanOptions) { o.Progress = meter.read })
		o.close = func() error { meter.end(); return nil }
	}
	return o, nil
}

// awsConfig reads the AWS configuration like the AWS command line, and reports
// what is missing.
func (e *env) awsConfig(ctx context.Context) (aws.Config, error) {
	f := e.store
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithRegion(f.Region), config.WithSharedConfigProfile(f.Profile), config.WithBaseEndpoint(f.Endpoint),
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTimeout(callTimeout)))
	if err != nil {
		return cfg, fmt.Errorf("cannot read the AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		return cfg, errors.New("missing AWS region: use --region, for example --region eu-central-1, or set AWS_REGION")
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		advice := "log in, use --profile, or set AWS_PROFILE"
		if isLocal(aws.ToString(cfg.BaseEndpoint)) {
			advice = "LocalStack and DynamoDB Local accept any: set AWS_ACCESS_KEY_ID=test and AWS_SECRET_ACCESS_KEY=test"
		}
		return cfg, fmt.Errorf("no AWS credentials were found; %s: %w", advice, err)
	}
	return cfg, nil
}

// isLocal reports whether endpoint is on this machine.
func isLocal(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// itemCount returns the approximate number of items of the table, which DynamoDB
// updates every six hours. It returns 0 without permission.
func itemCount(ctx context.Context, client *dynamodb.Client, table string) int {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
	if err != nil || out.Table == nil {
		return 0
	}
	return int(aws.ToInt64(out.Table.ItemCount))
}

// callerOf returns the ARN of the AWS caller, or "" if it is not available.
func callerOf(ctx context.Context, cfg aws.Config) string {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out, err := sts.NewFromConfig(cfg, func(o *sts.Options) { o.RetryMaxAttempts = 1 }).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return ""
	}
	return aws.ToString(out.Arn)
}
