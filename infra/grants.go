package infra

import (
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/dynamostore"
)

// TableVariable is the environment variable that tells a function the name of
// its table.
const TableVariable = "ONCE_TABLE"

// The actions of package dynamostore, as its documentation names them. None is
// more than the calls that a test sees the store make.
var (
	// HandlerActions are what a handler does with the table. Transactions need no
	// more: DynamoDB judges them by the writes in them (developer guide, "Managing
	// complex workflows with DynamoDB transactions").
	HandlerActions = []string{"dynamodb:PutItem", "dynamodb:GetItem", "dynamodb:BatchWriteItem", "dynamodb:BatchGetItem"}

	// ReconcilerActions are what a reconciler does with the table, besides
	// IndexActions on its index.
	ReconcilerActions = HandlerActions
	IndexActions      = []string{"dynamodb:Query"}
)

// GrantHandler lets fn keep its records in the table, and tells it the table's
// name in ONCE_TABLE. It may do nothing else with it: it cannot list, delete or
// describe.
func (t *IdempotencyTable) GrantHandler(fn awslambda.Function) {
	fn.AddEnvironment(jsii.String(TableVariable), t.Table.TableName(), nil)
	t.grant(fn, HandlerActions, *t.Table.TableArn())
}

// GrantReconciler lets fn list what is due and settle it, and tells it the
// table's name in ONCE_TABLE.
func (t *IdempotencyTable) GrantReconciler(fn awslambda.Function) {
	fn.AddEnvironment(jsii.String(TableVariable), t.Table.TableName(), nil)
	t.grant(fn, ReconcilerActions, *t.Table.TableArn())
	t.grant(fn, IndexActions, *t.Table.TableArn()+"/index/"+dynamostore.IndexName)
}

// grant names resources one by one: what the table's own Grant adds is every
// index.
func (t *IdempotencyTable) grant(to awsiam.IGrantable, actions []string, resource string) {
	awsiam.Grant_AddToPrincipal(&awsiam.GrantOnPrincipalOptions{
		Grantee:      to,
		Actions:      jsii.Strings(actions...),
		ResourceArns: jsii.Strings(resource),
	})
	if t.key != nil {
		t.key.GrantEncryptDecrypt(to)
	}
}
