// SPDX-License-Identifier: Apache-2.0

package infra_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/assertions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/infra"
)

// G12: the table as declared, with its index, protected and retained.
func TestTable(t *testing.T) {
	stack := newStack()
	infra.NewIdempotencyTable(stack, jsii.String("Records"), nil)
	tables := resources(t, stack, "AWS::DynamoDB::GlobalTable")
	if len(tables) != 1 {
		t.Fatalf("got %d tables, want 1", len(tables))
	}
	if tables[0].DeletionPolicy != "Retain" {
		t.Errorf("its deletion policy is %q", tables[0].DeletionPolicy)
	}
	wantProperties(t, tables[0], `{
		"BillingMode": "PAY_PER_REQUEST",
		"KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
		"TimeToLiveSpecification": {"AttributeName": "ttl", "Enabled": true},
		"AttributeDefinitions": [
			{"AttributeName": "pk", "AttributeType": "S"},
			{"AttributeName": "rk", "AttributeType": "S"},
			{"AttributeName": "rat", "AttributeType": "N"}],
		"GlobalSecondaryIndexes": [{
			"IndexName": "recovery",
			"KeySchema": [{"AttributeName": "rk", "KeyType": "HASH"}, {"AttributeName": "rat", "KeyType": "RANGE"}],
			"Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["st", "dt", "lease"]}}],
		"Replicas": [{
			"Region": {"Ref": "AWS::Region"},
			"DeletionProtectionEnabled": true,
			"PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": true},
			"GlobalSecondaryIndexes": [{"IndexName": "recovery"}]}]
	}`)
	wantRefusals(t, stack)
}

func TestTableProps(t *testing.T) {
	stack := newStackIn("eu-central-1")
	infra.NewIdempotencyTable(stack, jsii.String("Records"), &infra.IdempotencyTableProps{
		TableName:           jsii.String("records"),
		EncryptionKey:       awskms.NewKey(stack, jsii.String("Key"), nil),
		PointInTimeRecovery: jsii.Bool(false),
		DeletionProtection:  jsii.Bool(false),
		RemovalPolicy:       awscdk.RemovalPolicy_DESTROY,
	})
	table := resources(t, stack, "AWS::DynamoDB::GlobalTable")[0]
	if table.DeletionPolicy != "Delete" {
		t.Errorf("its deletion policy is %q", table.DeletionPolicy)
	}
	wantProperties(t, table, `{"TableName": "records", "SSESpecification": {"SSEEnabled": true, "SSEType": "KMS"}}`)
	replica := table.Properties["Replicas"].([]any)[0].(map[string]any)
	if replica["DeletionProtectionEnabled"] != false || replica["SSESpecification"] == nil {
		t.Errorf("the table of this region is %v", replica)
	}
}

func TestTableInOtherRegions(t *testing.T) {
	stack := newStackIn("eu-central-1")
	replicas := &[]*awsdynamodb.ReplicaTableProps{{Region: jsii.String("eu-west-1")}}
	infra.NewIdempotencyTable(stack, jsii.String("Records"), &infra.IdempotencyTableProps{Replicas: replicas})
	if got := resources(t, stack, "AWS::DynamoDB::GlobalTable")[0].Properties["Replicas"].([]any); len(got) != 2 {
		t.Errorf("got %d regions, want 2: %v", len(got), got)
	}
	wantRefusals(t, stack)
	said := *assertions.Annotations_FromStack(stack).FindWarning(jsii.String("*"), assertions.Match_StringLikeRegexp(jsii.String("send the requests of a key to one region")))
	if len(said) != 1 {
		t.Errorf("got %d warnings about two regions, want 1", len(said))
	}
}

// Configurations that CloudFormation or the CDK would refuse later, or with
// which the store could not work.
func TestTablesThatAreRefused(t *testing.T) {
	replicas := &[]*awsdynamodb.ReplicaTableProps{{Region: jsii.String("eu-west-1")}}
	key := func(s awscdk.Stack) awskms.IKey { return awskms.NewKey(s, jsii.String("Key"), nil) }
	for _, row := range []struct {
		name, region string
		props        func(awscdk.Stack) *infra.IdempotencyTableProps
		want         string
	}{
		{"replicas without a region", "", func(awscdk.Stack) *infra.IdempotencyTableProps {
			return &infra.IdempotencyTableProps{Replicas: replicas}
		}, "Replicas are set and the stack names no region"},
		{"a key without a region", "", func(s awscdk.Stack) *infra.IdempotencyTableProps {
			return &infra.IdempotencyTableProps{EncryptionKey: key(s)}
		}, "EncryptionKey is set and the stack names no region"},
		{"a key and replicas", "eu-central-1", func(s awscdk.Stack) *infra.IdempotencyTableProps {
			return &infra.IdempotencyTableProps{EncryptionKey: key(s), Replicas: replicas}
		}, "EncryptionKey and Replicas are set"},
	} {
		t.Run(row.name, func(t *testing.T) {
			stack := newStack()
			if row.region != "" {
				stack = newStackIn(row.region)
			}
			infra.NewIdempotencyTable(stack, jsii.String("Records"), row.props(stack))
			wantRefusals(t, stack, row.want)
		})
	}
}

// G12: the roles are allowed the actions of the store, on this table, and
// nothing else.
func TestGrants(t *testing.T) {
	const handler = `{"Action": ["dynamodb:PutItem", "dynamodb:GetItem", "dynamodb:BatchWriteItem", "dynamodb:BatchGetItem"],
		"Effect": "Allow", "Resource": {"Fn::GetAtt": ["RecordsTableC9B7A30B", "Arn"]}}`
	for _, row := range []struct {
		name  string
		grant func(*infra.IdempotencyTable, awslambda.Function)
		want  string
	}{
		{"handler", (*infra.IdempotencyTable).GrantHandler, `{"Statement": [` + handler + `], "Version": "2012-10-17"}`},
		{"reconciler", (*infra.IdempotencyTable).GrantReconciler, `{"Statement": [` + handler + `,
			{"Action": "dynamodb:Scan", "Effect": "Allow", "Resource": {"Fn::GetAtt": ["RecordsTableC9B7A30B", "Arn"]}},
			{"Action": "dynamodb:Query", "Effect": "Allow",
			"Resource": {"Fn::Join": ["", [{"Fn::GetAtt": ["RecordsTableC9B7A30B", "Arn"]}, "/index/recovery"]]}}], "Version": "2012-10-17"}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			stack := newStack()
			row.grant(infra.NewIdempotencyTable(stack, jsii.String("Records"), nil), newFunction(stack, "Function", 3))
			policies := resources(t, stack, "AWS::IAM::Policy")
			if len(policies) != 1 {
				t.Fatalf("got %d policies, want 1", len(policies))
			}
			wantProperties(t, policies[0], `{"PolicyDocument": `+row.want+`}`)
			wantProperties(t, resources(t, stack, "AWS::Lambda::Function")[0],
				`{"Environment": {"Variables": {"ONCE_TABLE": {"Ref": "RecordsTableC9B7A30B"}}}}`)
		})
	}
}

// With a customer managed key the roles may use that key.
func TestGrantsOfAKey(t *testing.T) {
	stack := newStackIn("eu-central-1")
	table := infra.NewIdempotencyTable(stack, jsii.String("Records"), &infra.IdempotencyTableProps{
		EncryptionKey: awskms.NewKey(stack, jsii.String("Key"), nil),
	})
	table.GrantHandler(newFunction(stack, "Function", 3))
	if policy := asJSON(t, resources(t, stack, "AWS::IAM::Policy")[0]); !strings.Contains(policy, "kms:Decrypt") || !strings.Contains(policy, "kms:GenerateDataKey") {
		t.Errorf("the policy is %s", policy)
	}
}
