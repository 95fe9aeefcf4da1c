// SPDX-License-Identifier: Apache-2.0

package infra

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/internal/tabledef"
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

	name      string                   // of Named
	layout    TableLayout              // every name is set
	own       awsdynamodb.TablePropsV2 // of a table that NewIdempotencyTable created
	strong    bool                     // it has strong consistency across regions
	swept     bool                     // a reconciler deletes its expired items
	granted   bool                     // a grantee has the settings
	functions []awslambda.Function     // that have them
}

// TableLayout describes an existing table that has other items than records, other
// names, or strong consistency across regions. The properties have the meaning of those
// options of dynamostore.Options.
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
	// Consistency is STRONG if the imported table is a global table with strong
	// consistency across regions (MRSC). The construct knows that of a table of this
	// app and of its Replica. Default: EVENTUAL, or a table in one region.
	Consistency awsdynamodb.MultiRegionConsistency
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
// A customer managed key and Replicas need a stack that names its region. With
// eventual consistency each region evaluates conditions on its own copy, so a key is
// protected from running twice only while all its requests reach one region.
//
// With MultiRegionConsistency STRONG all regions agree on a key. Such a table has three
// replicas, or two and a WitnessRegion; the table of the stack's own region is one of
// them. It has no time to live, so the reconciler's scan deletes expired items, and no
// transactions: see docs/regions.md.
func NewIdempotencyTable(scope constructs.Construct, id *string, props *awsdynamodb.TablePropsV2) *IdempotencyTable {
	t := &IdempotencyTable{Construct: constructs.NewConstruct(scope, id)}
	t.setLayout(nil)
	own := awsdynamodb.TablePropsV2{}
	if props != nil {
		own = *props
	}
	t.strong = own.MultiRegionConsistency == awsdynamodb.MultiRegionConsistency_STRONG
	t.refuseOtherKeys(&own)
	asked := len(or(own.Replicas, nil))
	own.Replicas = t.replicas(&own)
	own.Encryption = t.encryption(&own)
	t.judgeRegions(&own, asked)
	t.own = own
	own.GlobalSecondaryIndexes = withRecovery(own.GlobalSecondaryIndexes)
	t.Table = t.create("Table", own)
	t.mustBeSwept()
	return t
}

// create creates a table with the keys and the time to live of the layout. Replicas,
// encryption and consistency were judged before.
func (t *IdempotencyTable) create(id string, own awsdynamodb.TablePropsV2) awsdynamodb.TableV2 {
	own.PartitionKey = attribute(*t.layout.PartitionKey, awsdynamodb.AttributeType_STRING)
	own.TimeToLiveAttribute = t.layout.TimeToLiveAttribute
	if t.strong { // DynamoDB has none in such a table
		own.TimeToLiveAttribute = nil
	}
	own.SortKey, own.LocalSecondaryIndexes = nil, nil
	if *t.layout.SortKey != "" {
		own.SortKey = attribute(*t.layout.SortKey, awsdynamodb.AttributeType_STRING)
	}
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
// index of [NewIdempotencyTable]. Synthesis refuses a table of the app that has others;
// `once table check` compares those of an imported one. If the table has other items,
// other names, or strong consistency across regions, layout describes it; otherwise
// layout is nil.
//
// For the functions of another region, table is the replica there: Replica of a TableV2,
// or an imported table. Each region has its own reconciler and alarms.
//
// The CDK cannot change the key policy and the resource policy of an imported
// table, so grants to another account are warned about. Import a table with a
// customer managed key by its attributes, so that grants allow the use of the key.
func IdempotencyTableFrom(scope constructs.Construct, id *string, table awsdynamodb.ITable, layout *TableLayout) *IdempotencyTable {
	t := &IdempotencyTable{Construct: constructs.NewConstruct(scope, id), Table: table}
	t.setLayout(layout)
	t.strong = t.layout.Consistency == awsdynamodb.MultiRegionConsistency_STRONG
	if table == nil {
		refuse(t.Construct, "the table is not set: import one with awsdynamodb.TableV2_FromTableName")
		t.Table = awsdynamodb.TableV2_FromTableName(t.Construct, jsii.String("Table"), jsii.String("not-set")) // so that this is the only error
	}
	t.strong = t.judgeTable(t.Table, t.strong)
	t.mustBeSwept()
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
	own.PartitionKey = jsii.String(cmp.Or(or(own.PartitionKey, ""), tabledef.PartitionKey))
	own.TimeToLiveAttribute = jsii.String(cmp.Or(or(own.TimeToLiveAttribute, ""), tabledef.TTLAttribute))
	t.layout = own
}

// Named gives the table a name, for a function that uses several tables: all its
// variables end with it, such as ONCE_TABLE_ORDERS for "orders", and so do those that a
// [Reconciler] and [IdempotencyAlarms] of this table set. The function opens the table
// with dynamostore.Options.Name. A name consists of lower-case letters, digits and hyphens.
// Call Named before the grants. It returns the table. Default: no name.
func (t *IdempotencyTable) Named(name *string) *IdempotencyTable {
	t.mustNotBeGranted("Named")
	if err := tabledef.CheckName(or(name, "")); err != nil {
		refuse(t.Construct, "Named: "+err.Error())
		return t
	}
	t.name = *name
	return t
}

// KeepLargeResultsIn stores results above 4 KB in a separate table, so that the
// scan of a [Reconciler] does not read them. It needs the keys and the time to live
// of the table of records, and no index. If it is nil, it is created with the defaults
// of [NewIdempotencyTable]. If that function created the table of records, the new
// table has its Encryption, Replicas, RemovalPolicy, DeletionProtection, backups and
// Tags. Call KeepLargeResultsIn before the grants.
//
// It is refused with strong consistency across regions: such a table has no time to
// live, and a reconciler may delete items of the table of the records only.
func (t *IdempotencyTable) KeepLargeResultsIn(chunks awsdynamodb.ITable) {
	t.mustNotBeGranted("KeepLargeResultsIn")
	if t.strong {
		refuse(t.Construct, "KeepLargeResultsIn is called, and the table has strong consistency across regions, so it has no time to live, and a reconciler may scan and delete expired items of the table of the records only. Do not call it: results above 4 KB are then in that table")
		return
	}
	if chunks == nil {
		chunks = t.create("Chunks", awsdynamodb.TablePropsV2{
			Encryption: t.own.Encryption, Replicas: withoutIndexes(t.own.Replicas),
			RemovalPolicy: t.own.RemovalPolicy, DeletionProtection: t.own.DeletionProtection,
			PointInTimeRecovery:              t.own.PointInTimeRecovery, //lint:ignore SA1019 it may be set
			PointInTimeRecoverySpecification: t.own.PointInTimeRecoverySpecification,
			Tags:                             t.own.Tags,
		})
	}
	if t.judgeTable(chunks, false) {
		refuse(t.Construct, *chunks.Node().Path()+" has strong consistency across regions, so it has no time to live, and nothing would delete the large results in it: use a table without it")
	}
	t.Chunks = chunks
}

// withoutIndexes returns the replicas for a table that is billed on demand and has no
// index.
func withoutIndexes(replicas *[]*awsdynamodb.ReplicaTableProps) *[]*awsdynamodb.ReplicaTableProps {
	var all []*awsdynamodb.ReplicaTableProps
	for _, replica := range or(replicas, nil) {
		own := *replica
		own.GlobalSecondaryIndexOptions, own.ReadCapacity, own.MaxReadRequestUnits, own.KinesisStream, own.ResourcePolicy = nil, nil, nil, nil, nil
		all = append(all, &own)
	}
	return &all
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
	own.DimensionsMap = &map[string]*string{"TableName": t.Table.TableName(), "GlobalSecondaryIndexName": jsii.String(tabledef.IndexName)}
	return t.Table.Metric(metricName, &own)
}

// shape is what the store needs of a table: its keys, and its time to live, which a
// table with strong consistency across regions cannot have.
type shape struct {
	partitionKey, sortKey key
	ttl                   string
	strong                bool
}

// key is a key of a table. Its kind is S for a string.
type key struct{ name, kind string }

// String returns the key as text, such as "pk" (S).
func (k key) String() string {
	if k.name == "" {
		return "none"
	}
	return fmt.Sprintf("%q (%s)", k.name, k.kind)
}

// refuseOtherKeys refuses properties of a new table with which the store could not
// work.
func (t *IdempotencyTable) refuseOtherKeys(props *awsdynamodb.TablePropsV2) {
	keyOf := func(a *awsdynamodb.Attribute, otherwise string) key {
		if a == nil {
			return key{otherwise, "S"}
		}
		kinds := map[awsdynamodb.AttributeType]string{
			awsdynamodb.AttributeType_STRING: "S", awsdynamodb.AttributeType_NUMBER: "N", awsdynamodb.AttributeType_BINARY: "B",
		}
		return key{or(a.Name, ""), kinds[a.Type]}
	}
	ttl := tabledef.TTLAttribute
	if t.strong {
		ttl = ""
	}
	t.judge("the table", shape{
		partitionKey: keyOf(props.PartitionKey, tabledef.PartitionKey),
		sortKey:      keyOf(props.SortKey, ""),
		ttl:          or(props.TimeToLiveAttribute, ttl),
		strong:       t.strong,
	})
	if props.LocalSecondaryIndexes != nil {
		refuse(t.Construct, "LocalSecondaryIndexes is set, and the table has no sort key: remove it")
	}
}

// resource is the resource of a table of this app.
type resource interface {
	awscdk.CfnResource
	KeySchema() any
	AttributeDefinitions() any
	GlobalSecondaryIndexes() any
}

// resourceOf returns the resource of a table, or nil if the table is imported. That of
// a replica, which is a child of the table, is the table's.
func resourceOf(table awsdynamodb.ITable) resource {
	found, ok := table.Node().DefaultChild().(resource)
	if !ok {
		found, _ = table.Node().Scope().Node().DefaultChild().(resource)
	}
	return found
}

// judgeTable refuses a table of this app with which the store could not work. It
// reports whether the table has strong consistency across regions: strong is what the
// caller knows of an imported table.
func (t *IdempotencyTable) judgeTable(table awsdynamodb.ITable, strong bool) bool {
	of := resourceOf(table)
	if of == nil {
		return strong
	}
	found, kinds := shape{sortKey: key{kind: "S"}}, map[string]string{}
	for _, a := range resolved(of, of.AttributeDefinitions()) {
		kinds[a["attributeName"]] = a["attributeType"]
	}
	for _, k := range resolved(of, of.KeySchema()) {
		if named := (key{k["attributeName"], kinds[k["attributeName"]]}); k["keyType"] == "RANGE" {
			found.sortKey = named
		} else {
			found.partitionKey = named
		}
	}
	if ttl, ok := property(of, "timeToLiveSpecification").(map[string]any); ok {
		found.ttl, _ = ttl["attributeName"].(string)
	}
	if global, ok := of.(awsdynamodb.CfnGlobalTable); ok {
		found.strong = or(global.MultiRegionConsistency(), "") == string(awsdynamodb.MultiRegionConsistency_STRONG)
	}
	t.judge(*table.Node().Path(), found)
	if strong && !found.strong {
		refuse(t.Construct, "TableLayout.Consistency is STRONG, and "+*table.Node().Path()+" has no strong consistency across regions: remove it")
	}
	return found.strong
}

// resolved returns the texts in a list of a resource.
func resolved(of resource, list any) (all []map[string]string) {
	elements, _ := awscdk.Stack_Of(of).Resolve(list).([]any)
	for _, element := range elements {
		texts := map[string]string{}
		fields, _ := element.(map[string]any)
		for name, value := range fields {
			texts[name], _ = value.(string)
		}
		all = append(all, texts)
	}
	return all
}

// judge refuses a table with which the store could not work.
func (t *IdempotencyTable) judge(name string, found shape) {
	want := shape{partitionKey: key{*t.layout.PartitionKey, "S"}, sortKey: key{*t.layout.SortKey, "S"}, ttl: *t.layout.TimeToLiveAttribute}
	for _, k := range []struct {
		what        string
		found, want key
	}{{"partition key", found.partitionKey, want.partitionKey}, {"sort key", found.sortKey, want.sortKey}} {
		if k.found != k.want {
			refuse(t.Construct, fmt.Sprintf("the %s of %s is %v, and the store uses %v: change it, or describe an existing table with a TableLayout", k.what, name, k.found, k.want))
		}
	}
	switch {
	case found.strong && found.ttl != "":
		refuse(t.Construct, name+" has a time to live, which DynamoDB does not support with strong consistency across regions: remove TimeToLiveAttribute; the reconciler's scan deletes expired items")
	case found.strong:
	case found.ttl == "":
		warn(t.Construct, "once:time-to-live", name+" has no time to live, so expired records stay and are billed: set it to "+want.ttl)
	case found.ttl != want.ttl:
		refuse(t.Construct, fmt.Sprintf("the time to live of %s is %q, and the store uses %q: change it, or describe an existing table with a TableLayout", name, found.ttl, want.ttl))
	}
}

// lacksIndex reports whether a table of this app has no index for reconciliation.
func (t *IdempotencyTable) lacksIndex() bool {
	of := resourceOf(t.Table)
	return of != nil && !slices.ContainsFunc(resolved(of, of.GlobalSecondaryIndexes()), func(index map[string]string) bool {
		return index["indexName"] == tabledef.IndexName
	})
}

// withRecovery returns the indexes with the one of package dynamostore, which
// keeps its settings of capacity.
func withRecovery(indexes *[]*awsdynamodb.GlobalSecondaryIndexPropsV2) *[]*awsdynamodb.GlobalSecondaryIndexPropsV2 {
	recovery := awsdynamodb.GlobalSecondaryIndexPropsV2{}
	others := slices.DeleteFunc(slices.Clone(or(indexes, nil)), func(index *awsdynamodb.GlobalSecondaryIndexPropsV2) bool {
		found := or(index.IndexName, "") == tabledef.IndexName
		if found {
			recovery = *index
		}
		return found
	})
	recovery.IndexName = jsii.String(tabledef.IndexName)
	recovery.PartitionKey = attribute(tabledef.IndexPartitionKey, awsdynamodb.AttributeType_STRING)
	recovery.SortKey = attribute(tabledef.IndexSortKey, awsdynamodb.AttributeType_NUMBER)
	recovery.PartitionKeys, recovery.SortKeys = nil, nil
	recovery.ProjectionType, recovery.NonKeyAttributes = awsdynamodb.ProjectionType_INCLUDE, jsii.Strings(tabledef.IndexAttributes()...)
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
	if !t.strong {
		warn(t.Construct, "once:replicas",
			"each region evaluates conditions on its own copy, so two regions that get the same key run it twice: send the requests of a key to one region, or use MultiRegionConsistency")
	}
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

// judgeRegions refuses the regions of a table for which the CDK would stop with its own
// error, and leaves them out. The CDK knows which regions can be together. asked is the
// number of replicas before those that were refused.
func (t *IdempotencyTable) judgeRegions(props *awsdynamodb.TablePropsV2, asked int) {
	if !t.strong {
		if props.WitnessRegion != nil {
			refuse(t.Construct, "WitnessRegion is set, and only a table with strong consistency across regions has a witness: remove it, or set MultiRegionConsistency to STRONG")
		}
		props.WitnessRegion = nil
		return
	}
	regions := []string{*awscdk.Stack_Of(t.Construct).Region()}
	for _, replica := range or(props.Replicas, nil) {
		regions = append(regions, *replica.Region)
	}
	known := len(regions) - 1
	if props.WitnessRegion != nil {
		regions = append(regions, *props.WitnessRegion)
	}
	switch {
	case known < asked: // refused before
	case isToken(or(props.WitnessRegion, "")):
		refuse(t.Construct, "WitnessRegion is not known at synthesis: write the name of the region")
	case len(regions) != 3 || len(slices.Compact(slices.Sorted(slices.Values(regions)))) != 3:
		refuse(t.Construct, fmt.Sprintf("MultiRegionConsistency is STRONG in the regions %s, the stack's own among them, and DynamoDB needs three different regions: set Replicas to two other regions, or to one and WitnessRegion to the third",
			strings.Join(regions, ", ")))
	default:
		return
	}
	props.MultiRegionConsistency, props.WitnessRegion, props.Replicas = "", nil, nil
}

// mustBeSwept warns at the end of synthesis if nothing deletes the expired items of a
// table that has no time to live.
func (t *IdempotencyTable) mustBeSwept() {
	whenComplete(t.Construct, func() {
		if t.strong && !t.swept {
			warn(t.Construct, "once:not-swept",
				"the table has strong consistency across regions, so it has no time to live, and no Reconciler of this construct deletes its expired items: create one in each region")
		}
	})
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
