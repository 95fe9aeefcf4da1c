// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/once-lambda/once/tests/deployed/verify/wire"
)

// world is an account in a region, with what a run has created there.
type world struct {
	shape
	outputs map[string]string // of the stack
	log     io.Writer
	began   time.Time

	cfg            aws.Config
	cloudformation *cloudformation.Client
	cloudwatch     *cloudwatch.Client
	dynamodb       *dynamodb.Client
	lambda         *lambda.Client
	s3             *s3.Client
	sqs            *sqs.Client
}

// localAccount is the account of LocalStack.
const localAccount = "000000000000"

// configure changes the configuration of all clients, for tests.
var configure = func(*aws.Config) {}

// newWorld finds the account with the credentials of the SDK's chain.
func newWorld(ctx context.Context, s shape, log io.Writer) (*world, error) {
	cfg, err := awsconfig.LoadDefaultConfig(ctx, func(o *awsconfig.LoadOptions) error {
		if s.Region != "" {
			o.Region = s.Region
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
	s.Account, s.Region, s.Arch, s.Local = *who.Account, cfg.Region, "arm64", *who.Account == localAccount
	if s.Local {
		s.Arch = runtime.GOARCH
	}
	return &world{
		shape: s, log: log, began: time.Now(),
		cfg: cfg, cloudformation: cloudformation.NewFromConfig(cfg), cloudwatch: cloudwatch.NewFromConfig(cfg), dynamodb: dynamodb.NewFromConfig(cfg),
		// A low quota of concurrent executions delays invocations, and does not refuse them.
		lambda: lambda.NewFromConfig(cfg, func(o *lambda.Options) { o.RetryMaxAttempts = 8 }),
		s3:     s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = s.Local }), sqs: sqs.NewFromConfig(cfg),
	}, nil
}

// note reports progress, with the seconds since the start.
func (w *world) note(format string, args ...any) {
	fmt.Fprintf(w.log, "%5.0f s  %s\n", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
}

// functionError reports that a function failed, timed out or crashed.
type functionError struct{ payload string }

func (e *functionError) Error() string { return "the function failed: " + e.payload }

// ask invokes the function that an output of the stack names.
func (w *world) ask(ctx context.Context, function string, request wire.Request) (answer wire.Answer, err error) {
	payload, _ := json.Marshal(request) // texts and numbers alone
	out, err := w.lambda.Invoke(ctx, &lambda.InvokeInput{FunctionName: aws.String(w.outputs[function]), Payload: payload})
	if err != nil {
		return answer, err
	}
	if out.FunctionError != nil {
		return answer, &functionError{string(out.Payload)}
	}
	return answer, json.Unmarshal(out.Payload, &answer)
}

func itemKey(pk string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: pk}}
}

// pause waits, and returns an error if the context ends before.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
