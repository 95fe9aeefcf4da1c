package infra

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
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
	// requests reach one region: see docs/deploy.md. Default: none.
	Replicas *[]*awsdynamodb.ReplicaTableProps

	// MultiRegionConsistency is the consistency of the replicas. STRONG is
	// refused: such a table has neither time to live nor transactions. Default:
	// EVENTUAL.
	MultiRegionConsistency awsdynamodb.MultiRegionConsistency
}

// IdempotencyTable is the table of package dynamostore: billed per request, with
// time to live and the index that reconciliation uses to find records.
type IdempotencyTable struct {
	constructs.Construct
	Table awsdynamodb.TableV2

	key awskms.IKey // nil unless customer managed
}

// NewIdempotencyTable creates the table.
func NewIdempotencyTable(scope constructs.Construct, id *string, props *IdempotencyTableProps) *IdempotencyTable {
	if props == nil {
		props = &IdempotencyTableProps{}
	}
	t := &IdempotencyTable{Construct: constructs.NewConstruct(scope, id), key: props.EncryptionKey}
	replicas := t.replicas(props)
	encryption := awsdynamodb.TableEncryptionV2_DynamoOwnedKey()
	if t.encrypts(props) {
		encryption = awsdynamodb.TableEncryptionV2_CustomerManagedKey(props.EncryptionKey, nil)
	}
	removal := props.RemovalPolicy
	if removal == "" {
		removal = awscdk.RemovalPolicy_RETAIN
	}
	consistency := props.MultiRegionConsistency
	if consistency == awsdynamodb.MultiRegionConsistency_STRONG {
		refuse(t.Construct, "a global table with strong consistency has neither time to live nor transactions, so records would never expire"+
			" and Commit would fail: remove MultiRegionConsistency, and send the requests of a key to one region")
		consistency = "" // so that this is the only error
	}
	t.Table = awsdynamodb.NewTableV2(t.Construct, jsii.String("Table"), &awsdynamodb.TablePropsV2{
		TableName:              props.TableName,
		PartitionKey:           attribute(dynamostore.PartitionKey, awsdynamodb.AttributeType_STRING),
		TimeToLiveAttribute:    jsii.String(dynamostore.TTLAttribute),
		Billing:                awsdynamodb.Billing_OnDemand(nil),
		Encryption:             encryption,
		DeletionProtection:     orTrue(props.DeletionProtection),
		RemovalPolicy:          removal,
		Replicas:               replicas,
		MultiRegionConsistency: consistency,
		PointInTimeRecoverySpecification: &awsdynamodb.PointInTimeRecoverySpecification{
			PointInTimeRecoveryEnabled: orTrue(props.PointInTimeRecovery),
		},
		GlobalSecondaryIndexes: &[]*awsdynamodb.GlobalSecondaryIndexPropsV2{{
			IndexName:      jsii.String(dynamostore.IndexName),
			PartitionKey:   attribute(dynamostore.IndexPartitionKey, awsdynamodb.AttributeType_STRING),
			SortKey:        attribute(dynamostore.IndexSortKey, awsdynamodb.AttributeType_NUMBER),
			ProjectionType: awsdynamodb.ProjectionType_KEYS_ONLY,
		}},
	})
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

func orTrue(b *bool) *bool {
	if b == nil {
		return jsii.Bool(true)
	}
	return b
}

// refuse makes synthesis fail with a message that says what to change.
func refuse(c constructs.IConstruct, message string) {
	awscdk.Annotations_Of(c).AddError(jsii.String(message))
}
