// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/internal/tabledef"
)

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
