package infra

import (
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/dynamostore"
)

// TableVariable is the environment variable that contains the name of a
// function's table.
const TableVariable = "ONCE_TABLE"

// The actions of package dynamostore, as its documentation lists them. A test
// checks that the store makes no other calls.
var (
	// HandlerActions are the actions of a handler on the table. Transactions need
	// no further permission: DynamoDB authorises them by the writes in them
	// (developer guide, "Managing complex workflows with DynamoDB transactions").
	HandlerActions = []string{"dynamodb:PutItem", "dynamodb:GetItem", "dynamodb:BatchWriteItem", "dynamodb:BatchGetItem"}

	// ReconcilerActions are the actions of a reconciler on the table. On the
	// table's index it needs IndexActions.
	ReconcilerActions = HandlerActions
	IndexActions      = []string{"dynamodb:Query"}
)

// GrantHandler allows fn to store its records in the table, and sets ONCE_TABLE
// of fn to the table's name. It allows nothing else: fn cannot list, delete or
// describe.
func (t *IdempotencyTable) GrantHandler(fn awslambda.Function) {
	fn.AddEnvironment(jsii.String(TableVariable), t.Table.TableName(), nil)
	t.grant(fn, HandlerActions, *t.Table.TableArn())
}

// GrantReconciler allows fn to list and settle due records, and sets
// ONCE_TABLE of fn to the table's name.
func (t *IdempotencyTable) GrantReconciler(fn awslambda.Function) {
	fn.AddEnvironment(jsii.String(TableVariable), t.Table.TableName(), nil)
	t.grant(fn, ReconcilerActions, *t.Table.TableArn())
	t.grant(fn, IndexActions, *t.Table.TableArn()+"/index/"+dynamostore.IndexName)
}

// grant names each resource. The Grant method of the CDK's table would add
// every index.
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
