// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/once-lambda/once/internal/tabledef"
)

// The retries of NewClient: at most six attempts with pauses of 20, 40, 80, 160
// and 320 ms, each shortened at random by up to a half. So a call that fails has
// paused for 310 to 620 ms, or half of that if AWS_NEW_RETRIES_2026 makes an SDK
// before 1.48 count its attempts from zero.
const (
	retryAttempts = 6
	retryBase     = 10 * time.Millisecond
	retryMax      = 400 * time.Millisecond
	// retryTokens is how many tokens a client has, and retryCost how many of them a
	// retry takes, whatever failed. A retry that succeeds gives them back, and each
	// call that succeeds adds retryGain. So an outage costs at most 100 retries, and
	// every other call makes one attempt.
	retryTokens = 500
	retryCost   = 5
	retryGain   = 1
)

// The time-outs of NewClient for one attempt of a call.
const (
	// itemTry applies to calls about one item and to transactions. DynamoDB
	// answers them within milliseconds, or within some hundred milliseconds if a
	// small function opens its first connection. A local DynamoDB on a busy
	// machine can pause for seconds, and then a retry only adds to its load. A
	// near deadline shortens the time-out anyway.
	itemTry = 5 * time.Second
	// bulkTry applies to all other calls: a batch moves up to 16 MB, and changes
	// to a table take time.
	bulkTry = 20 * time.Second
	// bulkSize is the size of a request, in bytes, from which bulkTry applies.
	bulkSize = 1 << 20
	// shortestTry is the least time that an attempt gets, if that much is left. A
	// first connection may need that long.
	shortestTry = 250 * time.Millisecond
)

// Open returns a store in the table that the environment describes, as infrastructure code
// sets it for all functions of a table:
//
//	ONCE_TABLE          the table's name or ARN; required
//	ONCE_CHUNK_TABLE    Options.ChunkTable
//	ONCE_CONSISTENCY    Options.Consistency: strong
//	ONCE_SCAN_EVERY     Options.ScanEvery: a duration like 12h, or off
//	ONCE_SCAN_SEGMENTS  Options.ScanSegments
//	ONCE_PARTITION_KEY  Options.PartitionKey
//	ONCE_SORT_KEY       Options.SortKey
//	ONCE_PREFIX         Options.Prefix
//	ONCE_TTL_ATTRIBUTE  Options.TTLAttribute
//
// With Options.Name the variables end with the name. optFns change what the environment
// sets. Open returns an error if ONCE_TABLE is not set, if a variable is invalid, or if the
// SDK cannot read its configuration.
//
// On Lambda, Open reads one key of the table, which no record has: for a small function that
// is the longest part of its first request. It waits for a second at most. If the call fails,
// Open logs what to do with [slog.Default] and returns the store. It costs half a read unit
// for each new environment. Options.NoWarmUp switches it off.
func Open(ctx context.Context, optFns ...func(*Options)) (*Store, error) {
	own := Options{}
	for _, f := range optFns {
		f(&own)
	}
	set, err := tabledef.Read(os.Getenv, own.Name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("dynamostore: Open: %w", err)
	case set.Table == "":
		return nil, fmt.Errorf("dynamostore: Open: %s is not set: set it to the name or ARN of the table", tabledef.Variable("ONCE_TABLE", own.Name))
	case own.Client == nil:
		cfg, err := config.LoadDefaultConfig(ctx)
		if err != nil {
			return nil, fmt.Errorf("dynamostore: Open: the SDK cannot read its configuration: %w", err)
		}
		own.Client = NewClient(cfg)
	}
	environment := func(o *Options) { set.Fill(o) }
	s, err := newStore(own.Client, set.Table, append([]func(*Options){environment}, optFns...))
	if err == nil && os.Getenv(lambdaVariable) != "" && !s.opts.NoWarmUp {
		s.warmUp(ctx)
	}
	return s, err
}

// NewClient returns a DynamoDB client from cfg whose retries fit into a request:
// up to six attempts with about half a second of pauses, also if DynamoDB asks for
// longer ones. In an outage a client makes at most 100 retries, and calls after them
// get one attempt each. These numbers are the same with each version of the SDK,
// which still decides which errors are retried. The SDK's own retries change: up to
// version 1.47 they paused for up to 2 s before the second attempt and 4 s before the
// third; from 1.48 on (2026-11-10, its changelog) for up to 25, 50 and 100 ms, after
// throttling for up to 1, 2 and 4 s, and for up to 5 s more if a response asks for it.
//
// Each attempt has a time-out, so that one missing reply does not use up the time
// of the others: 5 s for calls about one item and for transactions, 20 s for
// batches, lists, calls about tables and requests above 1 MB. No attempt gets more
// than half of the time that the context has left, unless that is less than
// 250 ms. Retrying a write is safe: a store recognises its own writes by their
// ids. Attempts and pauses end with the context.
//
// The SDK's check of response checksums is off, because TLS does the same.
//
// Retry settings of cfg and of the environment (AWS_MAX_ATTEMPTS, AWS_RETRY_MODE)
// do not apply. optFns come last and can change everything.
func NewClient(cfg aws.Config, optFns ...func(*dynamodb.Options)) *dynamodb.Client {
	return dynamodb.NewFromConfig(cfg, append([]func(*dynamodb.Options){boundRetries, boundTries, skipChecksums, useProtocol}, optFns...)...)
}

// boundRetries sets the retryer and undoes the limit on attempts that the SDK
// would wrap around it.
func boundRetries(o *dynamodb.Options) {
	o.RetryMaxAttempts = 0
	o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = retryAttempts
		o.Backoff = retry.BackoffDelayerFunc(pause)
		o.RateLimiter = ratelimit.NewTokenRateLimit(retryTokens)
		o.RetryCost, o.RetryTimeoutCost, o.ThrottlingRetryCost, o.NoRetryIncrement = retryCost, retryCost, retryCost, retryGain
	})
}

// pause returns how long to wait after an attempt. It removes the header with which
// DynamoDB can ask for a longer pause, of up to 5 s: the SDK, from 1.48 on, reads it
// afterwards.
func pause(attempt int, err error) (time.Duration, error) {
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) {
		answer.Response.Header.Del("X-Amz-Retry-After")
	}
	return backoff(retryBase, retryMax, attempt), nil
}

// skipChecksums switches off the SDK's check of the CRC-32 of responses. TLS checks
// the bytes already, and the SDK only logs a difference. It also logs one for each
// refused write of DynamoDB Local, which sends no checksum with an error.
func skipChecksums(o *dynamodb.Options) { o.DisableValidateResponseChecksum = true }

// boundTries gives each attempt a time-out, inside the SDK's retries.
func boundTries(o *dynamodb.Options) {
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("dynamostore.TryTimeout", boundTry), "Retry", middleware.After)
	})
}

func boundTry(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
	limit := bulkTry
	if in.Request.(*smithyhttp.Request).ContentLength <= bulkSize {
		switch awsmiddleware.GetOperationName(ctx) {
		case "PutItem", "GetItem", "UpdateItem", "DeleteItem", "TransactWriteItems":
			limit = itemTry
		}
	}
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, max(time.Until(deadline)/2, shortestTry))
	}
	try, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out, metadata, err := next.HandleFinalize(try, in)
	if _, answered := errors.AsType[smithy.APIError](err); err != nil && !answered && try.Err() != nil && ctx.Err() == nil {
		err = tryTimeoutError(limit)
	}
	return out, metadata, err
}

// tryTimeoutError replaces the SDK's error for a cancelled request, which the SDK
// does not retry.
type tryTimeoutError time.Duration

func (e tryTimeoutError) Error() string {
	return fmt.Sprintf("no reply within %s", time.Duration(e).Round(time.Millisecond))
}

// RetryableError makes the SDK retry it.
func (tryTimeoutError) RetryableError() bool { return true }

// Timeout reports that it is a time-out.
func (tryTimeoutError) Timeout() bool { return true }

// lambdaVariable is set in every environment of Lambda: the address of the runtime's
// interface (Lambda developer guide, "Building a custom runtime").
const lambdaVariable = "AWS_LAMBDA_RUNTIME_API"

// warmUpTime is how long the start of a function waits for DynamoDB at most. Lambda gives
// it ten seconds.
const warmUpTime = time.Second

// warmUp reads a key that no record has, so that the first request finds credentials, a
// connection and code that has run. An environment has a whole core while it starts, and
// afterwards a part of one, by its memory. If the call fails, warmUp logs what to do.
func (s *Store) warmUp(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, warmUpTime)
	defer cancel()
	_, err := s.client.GetItem(limited, &dynamodb.GetItemInput{TableName: aws.String(s.table), Key: s.layout.keyOf(tabledef.OpenKey)})
	if err == nil {
		return
	}
	problem := s.explain("GetItem", err).Error()
	switch {
	case isDenied(err):
		problem += fmt.Sprintf("; a condition on dynamodb:LeadingKeys must name %q, which only this call reads, or set Options.NoWarmUp", s.layout.prefix+tabledef.OpenKey)
	case limited.Err() != nil:
		problem += fmt.Sprintf("; DynamoDB did not answer within %s: a function in a VPC needs its gateway endpoint or a NAT gateway, and a security group that allows HTTPS to it", warmUpTime)
	}
	slog.WarnContext(ctx, "dynamostore: Open: the first call failed; the function starts all the same, and each request tries again", slog.String("problem", problem))
}
