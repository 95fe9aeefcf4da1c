// SPDX-License-Identifier: Apache-2.0

package kmsseal_test

import (
	"os"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/examples/kmsseal"
	"github.com/once-lambda/once/idempotent"
)

// newGuard returns a guard over table that seals its results.
func newGuard(cfg aws.Config, table string) (*idempotent.Guard, error) {
	store, err := dynamostore.New(dynamostore.NewClient(cfg), table, dynamostore.FromEnvironment(os.Getenv))
	if err != nil {
		return nil, err
	}
	sealer, err := kmsseal.New(kms.NewFromConfig(cfg), "alias/once-results")
	if err != nil {
		return nil, err
	}
	return idempotent.New(store, func(o *idempotent.Options) { o.Seal = sealer })
}

// A guard is made without a call to AWS.
func TestNewGuard(t *testing.T) {
	t.Parallel()
	if g, err := newGuard(aws.Config{Region: "us-east-1"}, "once"); g == nil || err != nil {
		t.Errorf("got %v, %v", g, err)
	}
}
