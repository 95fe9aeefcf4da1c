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
	encryption := awsdynamodb.TableEncryptionV2_DynamoOwnedKey()
	if props.EncryptionKey != nil {
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
		Replicas:               props.Replicas,
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
