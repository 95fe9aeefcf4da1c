package dynamostore

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// The retries of NewClient: at most six attempts with pauses of 20, 40, 80, 160
// and 320 ms, of each of which up to a half is taken off at random. A call that
// fails for good has waited for 310 to 620 ms, or half of that where
// AWS_NEW_RETRIES_2026 makes the SDK count its attempts from zero.
const (
	retryAttempts = 6
	retryBase     = 10 * time.Millisecond
	retryMax      = 400 * time.Millisecond
)

// NewClient returns a DynamoDB client from cfg whose retries fit into a
// request. The SDK's default pauses for up to 2 s before the second attempt and
// 4 s before the third: measured, one lost reply cost 1.25 s, where DynamoDB
// answers in a few milliseconds. Here a request gets up to six attempts within
// about half a second of pauses. Which errors are retried is the SDK's choice.
// Attempts and pauses end with the context, and so does an attempt that hangs:
// give contexts a deadline.
//
// Retry settings of cfg and its environment (AWS_MAX_ATTEMPTS, AWS_RETRY_MODE)
// do not apply; optFns come last and may change everything.
func NewClient(cfg aws.Config, optFns ...func(*dynamodb.Options)) *dynamodb.Client {
	return dynamodb.NewFromConfig(cfg, append([]func(*dynamodb.Options){boundRetries}, optFns...)...)
}

// boundRetries replaces the retryer, and takes back the number of attempts that
// the SDK would wrap around it.
func boundRetries(o *dynamodb.Options) {
	o.RetryMaxAttempts = 0
	o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = retryAttempts
		o.Backoff = retry.BackoffDelayerFunc(func(attempt int, _ error) (time.Duration, error) {
			return backoff(retryBase, retryMax, attempt), nil
		})
	})
}
