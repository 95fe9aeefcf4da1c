// SPDX-License-Identifier: Apache-2.0

package infra

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/dynamostore"
)

// IdempotencyTableProps are the properties of [NewIdempotencyTable].
type IdempotencyTableProps struct {
	// TableName is the table's name. Default: a name that CloudFormation
	// generates, which allows it to replace the table.
	TableName *string

	// EncryptionKey is a customer managed key, which requires that the stack
	// names its region. Default: a key that DynamoDB owns, without cost.
	EncryptionKey awskms.IKey

	// PointInTimeRecovery enables backups of the last 35 days. Default: true.
	PointInTimeRecovery *bool

	// DeletionProtection protects the table from deletion. Default: true.
	DeletionProtection *bool

	// RemovalPolicy applies to the table when it is removed from the stack.
	// Default: RETAIN.
	RemovalPolicy awscdk.RemovalPolicy

	// Replicas are copies in other regions. Each region evaluates conditions on
	// its own copy, so a key is protected from running twice only while all its
	// requests reach one region: see docs/deploy.md. A table with strong
	// consistency (MRSC) has neither time to live nor transactions, so there is no
	// property for it. Default: none.
	Replicas *[]*awsdynamodb.ReplicaTableProps

	// LargeResults creates a second table for results above 4 KB, so that the scan of
	// a [Reconciler] does not read them. Default: false.
	LargeResults *bool

	// IndexRunning puts records in progress into the index, so that a [Reconciler]
	// needs no scan. A first request then costs two write units more, except under
	// Rerun. Default: false.
	IndexRunning *bool
}

// IdempotencyTable is the table of package dynamostore: billed per request, with
// time to live and the index that reconciliation uses to find records.
type IdempotencyTable struct {
	constructs.Construct
	Table awsdynamodb.TableV2
	// Chunks is the table for results above 4 KB; nil without LargeResults.
	Chunks awsdynamodb.TableV2

	key          awskms.IKey // nil unless customer managed
	indexRunning bool
}

// NewIdempotencyTable creates the table.
func NewIdempotencyTable(scope constructs.Construct, id *string, props *IdempotencyTableProps) *IdempotencyTable {
	if props == nil {
		props = &IdempotencyTableProps{}
	}
	t := &IdempotencyTable{Construct: constructs.NewConstruct(scope, id), key: props.EncryptionKey, indexRunning: or(props.IndexRunning, false)}
	replicas := t.replicas(props)
	encryption := awsdynamodb.TableEncryptionV2_DynamoOwnedKey()
	if t.encrypts(props) {
		encryption = awsdynamodb.TableEncryptionV2_CustomerManagedKey(props.EncryptionKey, nil)
	}
	removal := props.RemovalPolicy
	if removal == "" {
		removal = awscdk.RemovalPolicy_RETAIN
	}
	table := awsdynamodb.TablePropsV2{
		TableName:           props.TableName,
		PartitionKey:        attribute(dynamostore.PartitionKey, awsdynamodb.AttributeType_STRING),
		TimeToLiveAttribute: jsii.String(dynamostore.TTLAttribute),
		Billing:             awsdynamodb.Billing_OnDemand(nil),
		Encryption:          encryption,
		DeletionProtection:  jsii.Bool(or(props.DeletionProtection, true)),
		RemovalPolicy:       removal,
		Replicas:            replicas,
		PointInTimeRecoverySpecification: &awsdynamodb.PointInTimeRecoverySpecification{
			PointInTimeRecoveryEnabled: jsii.Bool(or(props.PointInTimeRecovery, true)),
		},
		GlobalSecondaryIndexes: &[]*awsdynamodb.GlobalSecondaryIndexPropsV2{{
			IndexName:        jsii.String(dynamostore.IndexName),
			PartitionKey:     attribute(dynamostore.IndexPartitionKey, awsdynamodb.AttributeType_STRING),
			SortKey:          attribute(dynamostore.IndexSortKey, awsdynamodb.AttributeType_NUMBER),
			ProjectionType:   awsdynamodb.ProjectionType_INCLUDE,
			NonKeyAttributes: jsii.Strings(dynamostore.IndexAttributes()...),
		}},
	}
	t.Table = awsdynamodb.NewTableV2(t.Construct, jsii.String("Table"), &table)
	if or(props.LargeResults, false) {
		table.GlobalSecondaryIndexes = nil
		if table.TableName != nil {
			table.TableName = jsii.String(*table.TableName + "-chunks")
		}
		t.Chunks = awsdynamodb.NewTableV2(t.Construct, jsii.String("Chunks"), &table)
	}
	return t
}

// replicas returns the copies in other regions. It returns none if the CDK
// would stop with its own error.
func (t *IdempotencyTable) replicas(props *IdempotencyTableProps) *[]*awsdynamodb.ReplicaTableProps {
	if props.Replicas == nil || len(*props.Replicas) == 0 {
		return nil
	}
	if t.knowsNoRegion() {
		refuse(t.Construct, "Replicas are set and the stack names no region, so the region of the table itself is not known: set Env of the stack")
		return nil
	}
	awscdk.Annotations_Of(t.Construct).AddWarningV2(jsii.String("once:replicas"), jsii.String(
		"each region evaluates conditions on its own copy, so two regions that get the same key run it twice: send the requests of a key to one region"))
	return props.Replicas
}

// encrypts reports whether the customer managed key can be used.
func (t *IdempotencyTable) encrypts(props *IdempotencyTableProps) bool {
	switch {
	case props.EncryptionKey == nil:
		return false
	case t.knowsNoRegion():
		refuse(t.Construct, "EncryptionKey is set and the stack names no region, which the table's replica needs: set Env of the stack")
		return false
	case props.Replicas != nil && len(*props.Replicas) > 0:
		refuse(t.Construct, "EncryptionKey and Replicas are set, and a key belongs to one region: remove EncryptionKey, or create a table for each region")
		return false
	}
	return true
}

func (t *IdempotencyTable) knowsNoRegion() bool {
	return *awscdk.Token_IsUnresolved(awscdk.Stack_Of(t.Construct).Region())
}

func attribute(name string, kind awsdynamodb.AttributeType) *awsdynamodb.Attribute {
	return &awsdynamodb.Attribute{Name: jsii.String(name), Type: kind}
}

// GrantHandler allows fn to store its records in the table, and sets ONCE_TABLE
// of fn to the table's name, ONCE_CHUNK_TABLE to that of [IdempotencyTable.Chunks],
// and ONCE_INDEX_RUNNING if IndexRunning is set; dynamostore.Open reads them. It allows nothing else: fn cannot list, delete or
// describe. Transactions need no further permission: DynamoDB authorises them by
// the writes in them (developer guide, "Managing complex workflows with DynamoDB
// transactions").
func (t *IdempotencyTable) GrantHandler(fn awslambda.Function) {
	fn.AddEnvironment(jsii.String("ONCE_TABLE"), t.Table.TableName(), nil)
	t.grant(fn, *t.Table.TableArn(), "dynamodb:PutItem", "dynamodb:GetItem", "dynamodb:BatchWriteItem", "dynamodb:BatchGetItem")
	t.grantScale(fn)
}

// GrantReconciler allows fn to list and settle due records, and sets ONCE_TABLE
// of fn to the table's name. [NewReconciler] calls it for its function.
func (t *IdempotencyTable) GrantReconciler(fn awslambda.Function) {
	t.GrantHandler(fn)
	t.grantScan(fn)
	t.grant(fn, *t.Table.TableArn()+"/index/"+dynamostore.IndexName, "dynamodb:Query")
}

// grantScale allows fn to use the table for large results, and passes to it how the
// table is used.
func (t *IdempotencyTable) grantScale(fn awslambda.Function) {
	if t.indexRunning {
		fn.AddEnvironment(jsii.String("ONCE_INDEX_RUNNING"), jsii.String("true"), nil)
	}
	if t.Chunks != nil {
		fn.AddEnvironment(jsii.String("ONCE_CHUNK_TABLE"), t.Chunks.TableName(), nil)
		t.grant(fn, *t.Chunks.TableArn(), "dynamodb:BatchWriteItem", "dynamodb:BatchGetItem")
	}
}

// grantScan allows fn to scan the table.
func (t *IdempotencyTable) grantScan(fn awslambda.Function) {
	if !t.indexRunning {
		t.grant(fn, *t.Table.TableArn(), "dynamodb:Scan")
	}
}

// grant allows the actions on one resource. The Grant method of the CDK's table
// would add every index.
func (t *IdempotencyTable) grant(to awsiam.IGrantable, resource string, actions ...string) {
	awsiam.Grant_AddToPrincipal(&awsiam.GrantOnPrincipalOptions{
		Grantee:      to,
		Actions:      jsii.Strings(actions...),
		ResourceArns: jsii.Strings(resource),
	})
	if t.key != nil {
		t.key.GrantEncryptDecrypt(to)
	}
}
