// SPDX-License-Identifier: Apache-2.0

package infra

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/dynamostore"
)

// IdempotencyTable is the table of package dynamostore, with time to live and the
// index that reconciliation uses to find records. [NewIdempotencyTable] creates
// one; [IdempotencyTableFrom] uses one that exists.
type IdempotencyTable struct {
	constructs.Construct
	// Table is the table, with its own metrics.
	Table awsdynamodb.ITable
	// Chunks is the table for results above 4 KB; nil without KeepLargeResultsIn.
	Chunks awsdynamodb.ITable

	layout    TableLayout                   // every name is set
	encrypted awsdynamodb.TableEncryptionV2 // of a table that NewIdempotencyTable created; nil: the default
	granted   bool                          // a grantee has the settings
	functions []awslambda.Function          // that have them
}

// TableLayout describes a table that has other items than records. The properties
// have the meaning of those options of dynamostore.Options.
type TableLayout struct {
	// PartitionKey is the name of the table's partition key, a string. Default: pk.
	PartitionKey *string
	// SortKey is the name of the table's sort key, a string. Default: no sort key.
	SortKey *string
	// Prefix begins the partition keys of all records, such as ONCE#. No other item
	// may have a key that begins with it. Required with SortKey. Default: no prefix.
	Prefix *string
	// TimeToLiveAttribute is the name of the attribute for time to live. Default: ttl.
	TimeToLiveAttribute *string
}

// NewIdempotencyTable creates the table. It accepts the properties of a TableV2,
// all of them optional, and these are its defaults:
//
//	Billing                           on demand
//	Encryption                        a key that DynamoDB owns, without cost
//	PointInTimeRecoverySpecification  backups of the last 35 days
//	DeletionProtection                true
//	RemovalPolicy                     RETAIN
//
// The construct sets the keys, the attribute of the time to live and the index
// "recovery", and refuses another setting of them. An element of
// GlobalSecondaryIndexes with the name "recovery" may set the index's capacity and
// warm throughput.
//
// A customer managed key and Replicas need a stack that names its region. Each
// region evaluates conditions on its own copy, so a key is protected from running
// twice only while all its requests reach one region: see docs/deploy.md.
func NewIdempotencyTable(scope constructs.Construct, id *string, props *awsdynamodb.TablePropsV2) *IdempotencyTable {
	t := &IdempotencyTable{Construct: constructs.NewConstruct(scope, id)}
	t.setLayout(nil)
	own := awsdynamodb.TablePropsV2{}
	if props != nil {
		own = *props
	}
	t.refuseOtherKeys(&own)
	t.encrypted = own.Encryption
	own.GlobalSecondaryIndexes = withRecovery(own.GlobalSecondaryIndexes)
	t.Table = t.create("Table", own)
	return t
}

// create creates a table with the keys and the time to live of the layout.
func (t *IdempotencyTable) create(id string, own awsdynamodb.TablePropsV2) awsdynamodb.TableV2 {
	own.PartitionKey = attribute(*t.layout.PartitionKey, awsdynamodb.AttributeType_STRING)
	own.TimeToLiveAttribute = t.layout.TimeToLiveAttribute
	own.SortKey, own.LocalSecondaryIndexes, own.MultiRegionConsistency, own.WitnessRegion = nil, nil, "", nil
	if *t.layout.SortKey != "" {
		own.SortKey = attribute(*t.layout.SortKey, awsdynamodb.AttributeType_STRING)
	}
	own.Replicas = t.replicas(&own)
	own.Encryption = t.encryption(&own)
	own.DeletionProtection = jsii.Bool(or(own.DeletionProtection, true))
	if own.RemovalPolicy == "" {
		own.RemovalPolicy = awscdk.RemovalPolicy_RETAIN
	}
	if own.PointInTimeRecoverySpecification == nil && own.PointInTimeRecovery == nil { //lint:ignore SA1019 the CDK refuses both together
		own.PointInTimeRecoverySpecification = &awsdynamodb.PointInTimeRecoverySpecification{PointInTimeRecoveryEnabled: jsii.Bool(true)}
	}
	return awsdynamodb.NewTableV2(t.Construct, jsii.String(id), &own)
}

// IdempotencyTableFrom uses a table that exists: one that this app creates in
// another way, or one that it imports by name, ARN or attributes with the
// functions of awsdynamodb. The table needs the keys, the time to live and the
// index of [NewIdempotencyTable]; `once table check` compares them. If it has other
// items, or other names, layout describes it; otherwise layout is nil.
//
// The CDK cannot change the key policy and the resource policy of an imported
// table, so grants to another account are warned about. Import a table with a
// customer managed key by its attributes, so that grants allow the use of the key.
func IdempotencyTableFrom(scope constructs.Construct, id *string, table awsdynamodb.ITable, layout *TableLayout) *IdempotencyTable {
	t := &IdempotencyTable{Construct: constructs.NewConstruct(scope, id), Table: table}
	t.setLayout(layout)
	if table == nil {
		refuse(t.Construct, "the table is not set: import one with awsdynamodb.TableV2_FromTableName")
		t.Table = awsdynamodb.TableV2_FromTableName(t.Construct, jsii.String("Table"), jsii.String("not-set")) // so that this is the only error
	}
	return t
}

// setLayout sets the layout with its defaults, and refuses one that the store
// refuses.
func (t *IdempotencyTable) setLayout(layout *TableLayout) {
	own := or(layout, TableLayout{})
	for _, name := range []**string{&own.PartitionKey, &own.SortKey, &own.Prefix, &own.TimeToLiveAttribute} {
		if *name = jsii.String(or(*name, "")); isToken(**name) {
			refuse(t.Construct, "a property of TableLayout is known only at the deployment: set it to a value that synthesis can check")
			*name = jsii.String("")
		}
	}
	_, err := dynamostore.New(struct{ dynamostore.Client }{}, "not-called", func(o *dynamostore.Options) {
		o.PartitionKey, o.SortKey, o.Prefix, o.TTLAttribute = *own.PartitionKey, *own.SortKey, *own.Prefix, *own.TimeToLiveAttribute
	})
	if err != nil {
		refuse(t.Construct, "TableLayout: "+err.Error())
		own = TableLayout{SortKey: jsii.String(""), Prefix: jsii.String("")}
	}
	own.PartitionKey = jsii.String(cmp.Or(or(own.PartitionKey, ""), dynamostore.PartitionKey))
	own.TimeToLiveAttribute = jsii.String(cmp.Or(or(own.TimeToLiveAttribute, ""), dynamostore.TTLAttribute))
	t.layout = own
}

// KeepLargeResultsIn stores results above 4 KB in a separate table, so that the
// scan of a [Reconciler] does not read them. It needs the keys and the time to live
// of the table of records, and no index. If it is nil, it is created with the defaults
// of [NewIdempotencyTable], and with the Encryption of the table of records if that
// function created it. Call it before the grants.
func (t *IdempotencyTable) KeepLargeResultsIn(chunks awsdynamodb.ITable) {
	t.mustNotBeGranted("KeepLargeResultsIn")
	if chunks == nil {
		chunks = t.create("Chunks", awsdynamodb.TablePropsV2{Encryption: t.encrypted})
	}
	t.Chunks = chunks
}

func (t *IdempotencyTable) mustNotBeGranted(method string) {
	if t.granted {
		refuse(t.Construct, method+" is called after a grant, so that function would not know of it: call it first")
	}
}

// MetricForIndex returns a metric of the index, such as WriteThrottleEvents.
// Table has the metrics of the table.
func (t *IdempotencyTable) MetricForIndex(metricName *string, options *awscloudwatch.MetricOptions) awscloudwatch.Metric {
	own := awscloudwatch.MetricOptions{}
	if options != nil {
		own = *options
	}
	own.DimensionsMap = &map[string]*string{"TableName": t.Table.TableName(), "GlobalSecondaryIndexName": jsii.String(dynamostore.IndexName)}
	return t.Table.Metric(metricName, &own)
}

// refuseOtherKeys refuses settings with which the store could not work.
func (t *IdempotencyTable) refuseOtherKeys(props *awsdynamodb.TablePropsV2) {
	for _, property := range []struct {
		name string
		set  bool
	}{
		{"PartitionKey", props.PartitionKey != nil},
		{"SortKey", props.SortKey != nil},
		{"LocalSecondaryIndexes", props.LocalSecondaryIndexes != nil},
		{"TimeToLiveAttribute", props.TimeToLiveAttribute != nil},
	} {
		if property.set {
			refuse(t.Construct, property.name+" is set, and package dynamostore has its own: remove it")
		}
	}
	if props.MultiRegionConsistency == awsdynamodb.MultiRegionConsistency_STRONG || props.WitnessRegion != nil {
		refuse(t.Construct, "MultiRegionConsistency is STRONG, and such a table has neither time to live nor transactions: remove it and WitnessRegion")
	}
}

// withRecovery returns the indexes with the one of package dynamostore, which
// keeps its settings of capacity.
func withRecovery(indexes *[]*awsdynamodb.GlobalSecondaryIndexPropsV2) *[]*awsdynamodb.GlobalSecondaryIndexPropsV2 {
	recovery := awsdynamodb.GlobalSecondaryIndexPropsV2{}
	others := slices.DeleteFunc(slices.Clone(or(indexes, nil)), func(index *awsdynamodb.GlobalSecondaryIndexPropsV2) bool {
		found := or(index.IndexName, "") == dynamostore.IndexName
		if found {
			recovery = *index
		}
		return found
	})
	recovery.IndexName = jsii.String(dynamostore.IndexName)
	recovery.PartitionKey = attribute(dynamostore.IndexPartitionKey, awsdynamodb.AttributeType_STRING)
	recovery.SortKey = attribute(dynamostore.IndexSortKey, awsdynamodb.AttributeType_NUMBER)
	recovery.PartitionKeys, recovery.SortKeys = nil, nil
	recovery.ProjectionType, recovery.NonKeyAttributes = awsdynamodb.ProjectionType_INCLUDE, jsii.Strings(dynamostore.IndexAttributes()...)
	all := append([]*awsdynamodb.GlobalSecondaryIndexPropsV2{&recovery}, others...)
	return &all
}

// replicas returns the copies in other regions, without those for which the CDK
// would stop with its own error.
func (t *IdempotencyTable) replicas(props *awsdynamodb.TablePropsV2) *[]*awsdynamodb.ReplicaTableProps {
	if props.Replicas == nil || len(*props.Replicas) == 0 {
		return nil
	}
	if t.knowsNoRegion() {
		refuse(t.Construct, "Replicas are set and the stack names no region, so the region of the table itself is not known: set Env of the stack")
		return nil
	}
	warn(t.Construct, "once:replicas",
		"each region evaluates conditions on its own copy, so two regions that get the same key run it twice: send the requests of a key to one region")
	var all []*awsdynamodb.ReplicaTableProps
	for _, replica := range *props.Replicas {
		switch region := or(replica.Region, ""); {
		case isToken(region):
			refuse(t.Construct, "the region of a replica is not known at synthesis: write its name")
		case t.keyIsMissing(props.Encryption, region):
			refuse(t.Construct, fmt.Sprintf("Encryption has no key for the replica in %s, and a key belongs to one region: add the key's ARN to the second argument of CustomerManagedKey", region))
		default:
			all = append(all, replica)
		}
	}
	return &all
}

// keyIsMissing reports whether a replica has no key of its own region.
func (t *IdempotencyTable) keyIsMissing(encryption awsdynamodb.TableEncryptionV2, region string) bool {
	if encryption == nil || encryption.TableKey() == nil {
		return false
	}
	keys := encryption.ReplicaKeyArns()
	return keys == nil || (*keys)[region] == nil
}

// encryption returns the encryption, or the default if the CDK would stop with
// its own error.
func (t *IdempotencyTable) encryption(props *awsdynamodb.TablePropsV2) awsdynamodb.TableEncryptionV2 {
	switch {
	case props.Encryption == nil:
	case props.Encryption.TableKey() != nil && t.knowsNoRegion():
		refuse(t.Construct, "Encryption has a customer managed key and the stack names no region, which the table's replica needs: set Env of the stack")
	default:
		return props.Encryption
	}
	return awsdynamodb.TableEncryptionV2_DynamoOwnedKey()
}

func (t *IdempotencyTable) knowsNoRegion() bool {
	return isToken(awscdk.Stack_Of(t.Construct).Region())
}

func attribute(name string, kind awsdynamodb.AttributeType) *awsdynamodb.Attribute {
	return &awsdynamodb.Attribute{Name: jsii.String(name), Type: kind}
}
