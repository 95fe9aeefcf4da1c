// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/tests/deployed/verify/wire"
)

// world is an account in a region, with what a run has created there.
type world struct {
	shape
	outputs map[string]string // of the stack
	regions []string          // of the subcommand regions
	budget  *budget
	store   *dynamostore.Store
	log     io.Writer
	began   time.Time

	cfg            aws.Config
	cloudformation *cloudformation.Client
	cloudwatch     *cloudwatch.Client
	dynamodb       *dynamodb.Client // without the limits of dynamostore's, which would send a slow CreateTable twice
	lambda         *lambda.Client
	logs           *cloudwatchlogs.Client
	s3             *s3.Client
	sqs            *sqs.Client
}

// localAccount is the account of LocalStack.
const localAccount = "000000000000"

// configure changes the configuration of all clients, for tests.
var configure = func(*aws.Config) {}

// newWorld finds the account with the credentials of the SDK's chain.
func newWorld(ctx context.Context, id, region string, log io.Writer) (*world, error) {
	cfg, err := awsconfig.LoadDefaultConfig(ctx, func(o *awsconfig.LoadOptions) error {
		if region != "" {
			o.Region = region
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	configure(&cfg)
	if cfg.Region == "" {
		return nil, errors.New("no region: set AWS_REGION, or --region")
	}
	who, err := sts.NewFromConfig(cfg).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return nil, fmt.Errorf("no usable AWS credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: %w", err)
	}
	w := &world{
		shape:  shape{ID: id, Account: *who.Account, Region: cfg.Region, Arch: "arm64", Local: *who.Account == localAccount},
		budget: &budget{limit: writeUnits}, log: log, began: time.Now(),
		cfg: cfg, cloudformation: cloudformation.NewFromConfig(cfg), cloudwatch: cloudwatch.NewFromConfig(cfg), dynamodb: dynamodb.NewFromConfig(cfg),
		logs: cloudwatchlogs.NewFromConfig(cfg), sqs: sqs.NewFromConfig(cfg),
	}
	// A low quota of concurrent executions delays invocations, and does not refuse them.
	w.lambda = lambda.NewFromConfig(cfg, func(o *lambda.Options) { o.RetryMaxAttempts = 8 })
	w.s3 = s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = w.Local })
	return w, nil
}

// alias returns the alias of the account, for people.
func (w *world) alias(ctx context.Context) string {
	out, err := iam.NewFromConfig(w.cfg).ListAccountAliases(ctx, &iam.ListAccountAliasesInput{})
	switch {
	case err != nil:
		return "alias not readable"
	case len(out.AccountAliases) == 0:
		return "no alias"
	}
	return out.AccountAliases[0]
}

// note reports progress, with the seconds since the start.
func (w *world) note(format string, args ...any) {
	fmt.Fprintf(w.log, "%5.0f s  %s\n", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
}

// functionError reports that a function failed, timed out or crashed.
type functionError struct{ kind, payload string }

func (e *functionError) Error() string { return "the function failed: " + e.kind + " " + e.payload }

// ask invokes the function that an output of the stack names.
func (w *world) ask(ctx context.Context, function string, request any, answer *wire.Answer) error {
	payload, err := json.Marshal(request)
	if err != nil {
		return err
	}
	out, err := w.lambda.Invoke(ctx, &lambda.InvokeInput{FunctionName: aws.String(w.outputs[function]), Payload: payload})
	if err != nil {
		return err
	}
	if out.FunctionError != nil {
		return &functionError{*out.FunctionError, string(out.Payload)}
	}
	if answer == nil {
		answer = new(wire.Answer)
	}
	if err := json.Unmarshal(out.Payload, answer); err != nil {
		return err
	}
	for end := range answer.Ends {
		if byOtherPolicy(end) {
			return fmt.Errorf("denied by a policy: %s", end)
		}
	}
	return nil
}

// recordID returns the id of a record of the function.
func recordID(operation, id string) idempotent.RecordID {
	return idempotent.Key{Operation: operation, Scope: idempotent.Global, ID: id}.RecordID()
}

func itemKey(pk string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: pk}}
}

// number returns a number of an item; zero if it is missing.
func number(v types.AttributeValue) int64 {
	n, ok := v.(*types.AttributeValueMemberN)
	if !ok {
		return 0
	}
	value, _ := strconv.ParseInt(n.Value, 10, 64)
	return value
}
