// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// The retries of NewClient: at most six attempts with pauses of 20, 40, 80, 160
// and 320 ms, each shortened at random by up to a half. So a call that fails has
// paused for 310 to 620 ms, or half of that if AWS_NEW_RETRIES_2026 makes the SDK
// count its attempts from zero.
const (
	retryAttempts = 6
	retryBase     = 10 * time.Millisecond
	retryMax      = 400 * time.Millisecond
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

// Open returns a store in the table that the environment names: its name or ARN
// is in ONCE_TABLE, and region, credentials and endpoint are those of the SDK's
// default configuration. The client is that of [NewClient], and [FromEnvironment]
// sets options before optFns do. [Named] selects another table. Open returns an error
// if ONCE_TABLE is not set, if a variable is invalid, or if the SDK cannot read its
// configuration. It does not call AWS.
func Open(ctx context.Context, optFns ...func(*Options)) (*Store, error) {
	own := Options{}
	for _, f := range optFns {
		f(&own) // for the name, which decides what FromEnvironment reads
	}
	fromEnvironment := func(o *Options) {
		o.name = own.name
		FromEnvironment(os.Getenv)(o)
	}
	variable := Variable("ONCE_TABLE", own.name)
	table := os.Getenv(variable)
	if table == "" {
		return nil, fmt.Errorf("dynamostore: Open: %s is not set: set it to the name or ARN of the table", variable)
	}
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("dynamostore: Open: the SDK cannot read its configuration: %w", err)
	}
	return New(NewClient(cfg), table, append([]func(*Options){fromEnvironment}, optFns...)...)
}

// Named returns an option for a process that uses several tables. The variables of
// the table then end with its name: [Open] with Named("orders") reads
// ONCE_TABLE_ORDERS, ONCE_CHUNK_TABLE_ORDERS and so on, see [Variable]. A variable
// without the name has no effect on this table. A name consists of lower-case letters,
// digits and hyphens. With [New], pass Named before [FromEnvironment].
//
//	orders, err := dynamostore.Open(ctx, dynamostore.Named("orders"))
func Named(name string) func(*Options) {
	return func(o *Options) {
		switch {
		case name == "" || strings.Trim(name, nameChars) != "":
			o.invalid = errors.Join(o.invalid, fmt.Errorf("dynamostore: Named: invalid name %q: want a-z, 0-9 and -", name))
		case o.read && o.name != name:
			o.invalid = errors.Join(o.invalid, fmt.Errorf("dynamostore: Named(%q) comes after the variables of another table were read: pass it once, and before FromEnvironment", name))
		}
		o.name = name
	}
}

const nameChars = "abcdefghijklmnopqrstuvwxyz0123456789-"

// Variable returns the environment variable of a table with a name: ONCE_TABLE_ORDERS
// for ONCE_TABLE and orders. Letters of the name become upper case, and a hyphen
// becomes an underscore. Without a name it returns variable.
func Variable(variable, name string) string {
	if name == "" {
		return variable
	}
	return variable + "_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// FromEnvironment returns an option that sets those options whose variables getenv
// returns, usually [os.Getenv]. Infrastructure code sets the variables for all
// functions of a table. Use it with [New]; [Open] does.
//
//	store, err := dynamostore.New(client, os.Getenv("ONCE_TABLE"), dynamostore.FromEnvironment(os.Getenv))
//
//	ONCE_CHUNK_TABLE    ChunkTable
//	ONCE_CONSISTENCY    Consistency: strong
//	ONCE_SCAN_EVERY     ScanEvery: a duration like 12h, or off
//	ONCE_SCAN_SEGMENTS  ScanSegments
//	ONCE_PARTITION_KEY  PartitionKey
//	ONCE_SORT_KEY       SortKey
//	ONCE_PREFIX         Prefix
//	ONCE_TTL_ATTRIBUTE  TTLAttribute
//
// After [Named], the variables end with the name. New returns an error if a value is
// invalid.
func FromEnvironment(getenv func(name string) string) func(*Options) {
	return func(o *Options) {
		o.read = true
		read := func(name, want string, parse func(string) error) {
			name = Variable(name, o.name)
			if value := getenv(name); value != "" && parse(value) != nil {
				o.invalid = errors.Join(o.invalid, fmt.Errorf("dynamostore: %s is %q: want %s", name, value, want))
			}
		}
		text := func(name string, option *string) { *option = cmp.Or(getenv(Variable(name, o.name)), *option) }
		text("ONCE_CHUNK_TABLE", &o.ChunkTable)
		text("ONCE_PARTITION_KEY", &o.PartitionKey)
		text("ONCE_SORT_KEY", &o.SortKey)
		text("ONCE_PREFIX", &o.Prefix)
		text("ONCE_TTL_ATTRIBUTE", &o.TTLAttribute)
		read("ONCE_CONSISTENCY", string(Strong), func(v string) error {
			if o.Consistency = Consistency(v); o.Consistency != Strong {
				return errors.New("unknown")
			}
			return nil
		})
		read("ONCE_SCAN_EVERY", "a duration like 12h, or off", func(v string) (err error) {
			if v == "off" {
				v = "-1ns"
			}
			o.ScanEvery, err = time.ParseDuration(v)
			return err
		})
		read("ONCE_SCAN_SEGMENTS", "a number", func(v string) (err error) {
			o.ScanSegments, err = strconv.Atoi(v)
			return err
		})
	}
}

// NewClient returns a DynamoDB client from cfg whose retries fit into a request:
// up to six attempts with about half a second of pauses. The SDK's default pauses
// for up to 2 s before the second attempt and 4 s before the third: in a
// measurement one lost reply cost 1.25 s, although DynamoDB answers in a few
// milliseconds. The SDK still decides which errors are retried.
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
		o.Backoff = retry.BackoffDelayerFunc(func(attempt int, _ error) (time.Duration, error) {
			return backoff(retryBase, retryMax, attempt), nil
		})
	})
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
	if request, ok := in.Request.(*smithyhttp.Request); ok && request.ContentLength <= bulkSize {
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
