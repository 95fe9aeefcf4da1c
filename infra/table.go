package infra

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/dynamostore"
)

// IdempotencyTableProps are given to [NewIdempotencyTable].
type IdempotencyTableProps struct {
	// TableName is the table's name. Default: one that CloudFormation makes up,
	// which lets a table be replaced.
	TableName *string

	// EncryptionKey is a customer managed key; the stack has to name its region
	// then. Default: a key that DynamoDB owns, which costs nothing.
	EncryptionKey awskms.IKey

	// PointInTimeRecovery keeps backups of the last 35 days. Default: true.
	PointInTimeRecovery *bool

	// DeletionProtection refuses to delete the table. Default: true.
	DeletionProtection *bool

	// RemovalPolicy is what becomes of the table when it leaves the stack.
	// Default: RETAIN.
	RemovalPolicy awscdk.RemovalPolicy

	// Replicas are copies in other regions. Conditions are judged on the copy of
	// one region, so a key is only safe from running twice while its requests
	// reach one region: see docs/deploy.md. Default: none.
	Replicas *[]*awsdynamodb.ReplicaTableProps

	// MultiRegionConsistency is that of the replicas. STRONG is refused: such a
	// table has neither time to live nor transactions. Default: EVENTUAL.
	MultiRegionConsistency awsdynamodb.MultiRegionConsistency
}

// IdempotencyTable is the table of package dynamostore: billed per request, with
// time to live and the index of the records that reconciliation has to find.
type IdempotencyTable struct {
	constructs.Construct
	Table awsdynamodb.TableV2

	key awskms.IKey // nil: not a customer's
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
		refuse(t.Construct, "a global table with strong consistency has neither time to live nor transactions, so records would stay for ever"+
			" and Commit would fail; leave MultiRegionConsistency out, and send the requests of a key to one region")
		consistency = "" // so that this is the one thing said of it
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

// replicas returns the copies in other regions, or none where the CDK would
// stop with an error of its own.
func (t *IdempotencyTable) replicas(props *IdempotencyTableProps) *[]*awsdynamodb.ReplicaTableProps {
	if props.Replicas == nil || len(*props.Replicas) == 0 {
		return nil
	}
	if t.knowsNoRegion() {
		refuse(t.Construct, "Replicas are set and the stack names no region, so nobody knows which one the table itself is in; set Env of the stack")
		return nil
	}
	awscdk.Annotations_Of(t.Construct).AddWarningV2(jsii.String("once:replicas"), jsii.String(
		"each region judges conditions on its own copy, so two regions that get the same key run it twice; send the requests of a key to one region"))
	return props.Replicas
}

// encrypts reports whether the customer's key can be used.
func (t *IdempotencyTable) encrypts(props *IdempotencyTableProps) bool {
	switch {
	case props.EncryptionKey == nil:
		return false
	case t.knowsNoRegion():
		refuse(t.Construct, "EncryptionKey is set and the stack names no region, which the table's replica of it needs; set Env of the stack")
		return false
	case props.Replicas != nil && len(*props.Replicas) > 0:
		refuse(t.Construct, "EncryptionKey and Replicas are set, and a key is of one region; leave EncryptionKey out, or make a table for each region")
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

// refuse makes the synthesis fail with a message that says what to change.
func refuse(c constructs.IConstruct, message string) {
	awscdk.Annotations_Of(c).AddError(jsii.String(message))
}
