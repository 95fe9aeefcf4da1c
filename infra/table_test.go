// SPDX-License-Identifier: Apache-2.0

package infra_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/assertions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/infra"
)

// The properties of a TableV2 are passed through, and the index keeps its own
// capacity.
func TestTableProps(t *testing.T) {
	stack := newStackIn("eu-central-1")
	infra.NewIdempotencyTable(stack, jsii.String("Records"), &awsdynamodb.TablePropsV2{
		TableName:  jsii.String("records"),
		Encryption: with(newKey(stack, "Key")),
		PointInTimeRecoverySpecification: &awsdynamodb.PointInTimeRecoverySpecification{
			PointInTimeRecoveryEnabled: jsii.Bool(true), RecoveryPeriodInDays: jsii.Number(7),
		},
		DeletionProtection: jsii.Bool(false),
		RemovalPolicy:      awscdk.RemovalPolicy_DESTROY,
		Billing: awsdynamodb.Billing_Provisioned(&awsdynamodb.ThroughputProps{
			ReadCapacity: awsdynamodb.Capacity_Fixed(jsii.Number(5)), WriteCapacity: awsdynamodb.Capacity_Autoscaled(&awsdynamodb.AutoscaledCapacityOptions{MaxCapacity: jsii.Number(100)}),
		}),
		DynamoStream:                     awsdynamodb.StreamViewType_KEYS_ONLY,
		ContributorInsightsSpecification: &awsdynamodb.ContributorInsightsSpecification{Enabled: jsii.Bool(true)},
		WarmThroughput:                   &awsdynamodb.WarmThroughput{WriteUnitsPerSecond: jsii.Number(20000)},
		TableClass:                       awsdynamodb.TableClass_STANDARD_INFREQUENT_ACCESS,
		Tags:                             &[]*awscdk.CfnTag{{Key: jsii.String("team"), Value: jsii.String("payments")}},
		GlobalSecondaryIndexes: &[]*awsdynamodb.GlobalSecondaryIndexPropsV2{{
			IndexName: jsii.String("recovery"), ProjectionType: awsdynamodb.ProjectionType_ALL,
			WarmThroughput: &awsdynamodb.WarmThroughput{WriteUnitsPerSecond: jsii.Number(5000)},
		}},
	})
	wantNoMessages(t, stack)
	table := resources(t, stack, "AWS::DynamoDB::GlobalTable")[0]
	if table.DeletionPolicy != "Delete" {
		t.Errorf("its deletion policy is %q", table.DeletionPolicy)
	}
	wantProperties(t, table, `{
		"TableName": "records", "BillingMode": "PROVISIONED", "SSESpecification": {"SSEEnabled": true, "SSEType": "KMS"},
		"KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}], "TimeToLiveSpecification": {"AttributeName": "ttl", "Enabled": true},
		"StreamSpecification": {"StreamViewType": "KEYS_ONLY"}, "WarmThroughput": {"WriteUnitsPerSecond": 20000}
	}`)
	index := table.Properties["GlobalSecondaryIndexes"].([]any)[0].(map[string]any)
	if got := asJSON(t, index["WarmThroughput"]) + asJSON(t, index["Projection"]) + asJSON(t, index["KeySchema"]); got !=
		`{"WriteUnitsPerSecond":5000}{"NonKeyAttributes":["st","dt","lease"],"ProjectionType":"INCLUDE"}[{"AttributeName":"rk","KeyType":"HASH"},{"AttributeName":"rat","KeyType":"RANGE"}]` {
		t.Errorf("the index is %s", got)
	}
	replica := table.Properties["Replicas"].([]any)[0].(map[string]any)
	for name, want := range map[string]string{
		"DeletionProtectionEnabled": "false", "TableClass": `"STANDARD_INFREQUENT_ACCESS"`, "Tags": `[{"Key":"team","Value":"payments"}]`,
		"PointInTimeRecoverySpecification": `{"PointInTimeRecoveryEnabled":true,"RecoveryPeriodInDays":7}`,
		"ContributorInsightsSpecification": `{"Enabled":true}`,
	} {
		if got := asJSON(t, replica[name]); got != want {
			t.Errorf("in this region, %s is %s, want %s", name, got, want)
		}
	}
	if replica["SSESpecification"] == nil {
		t.Error("the table of this region has no key")
	}
}

// Replicas have keys of their own regions. The table of large results has the same
// regions, keys, tags and removal.
func TestTableInOtherRegions(t *testing.T) {
	stack := newStackIn("eu-central-1")
	const theirs = "arn:aws:kms:eu-west-1:123456789012:key/4b5ff7a6-1f7b-4c53-9d7d-0a6d2f6f2a11"
	tags := &[]*awscdk.CfnTag{{Key: jsii.String("team"), Value: jsii.String("payments")}}
	infra.NewIdempotencyTable(stack, jsii.String("Records"), &awsdynamodb.TablePropsV2{
		Replicas: &[]*awsdynamodb.ReplicaTableProps{{
			Tags: tags, Region: jsii.String("eu-west-1"), GlobalSecondaryIndexOptions: &map[string]*awsdynamodb.ReplicaGlobalSecondaryIndexOptions{
				"recovery": {ContributorInsightsSpecification: &awsdynamodb.ContributorInsightsSpecification{Enabled: jsii.Bool(true)}},
			},
		}},
		Encryption: awsdynamodb.TableEncryptionV2_CustomerManagedKey(newKey(stack, "Key"),
			&map[string]*string{"eu-west-1": jsii.String(theirs)}),
		RemovalPolicy: awscdk.RemovalPolicy_DESTROY, DeletionProtection: jsii.Bool(false), Tags: tags,
	}).KeepLargeResultsIn(nil)
	for _, table := range resources(t, stack, "AWS::DynamoDB::GlobalTable") {
		got := table.Properties["Replicas"].([]any)
		if len(got) != 2 || asJSON(t, got[0].(map[string]any)["SSESpecification"]) != `{"KMSMasterKeyId":"`+theirs+`"}` {
			t.Errorf("%s has %d regions, want 2, each with its key: %v", table.id, len(got), got)
		}
		for _, of := range got {
			if tags := asJSON(t, of.(map[string]any)["Tags"]); tags != `[{"Key":"team","Value":"payments"}]` {
				t.Errorf("%s has the tags %s", table.id, tags)
			}
			if of.(map[string]any)["DeletionProtectionEnabled"] != false {
				t.Errorf("a replica of %s is protected", table.id)
			}
		}
		if table.DeletionPolicy != "Delete" {
			t.Errorf("the deletion policy of %s is %q", table.id, table.DeletionPolicy)
		}
	}
	wantRefusals(t, stack)
	wantWarnings(t, stack, "send the requests of a key to one region")
}

// A table that this app creates in another way is judged like a new one, and so is a
// table for large results.
func TestExistingTablesThatAreRefused(t *testing.T) {
	id := &awsdynamodb.Attribute{Name: jsii.String("id"), Type: awsdynamodb.AttributeType_NUMBER}
	created := func(props awsdynamodb.TablePropsV2) func(awscdk.Stack) awsdynamodb.ITable {
		return func(s awscdk.Stack) awsdynamodb.ITable { return newTable(s, "T", props) }
	}
	ttl := awsdynamodb.TablePropsV2{TimeToLiveAttribute: jsii.String("ttl")}
	strong, both := *strong("eu-west-1", "eu-west-3"), *strong("eu-west-1", "eu-west-3")
	both.TimeToLiveAttribute = ttl.TimeToLiveAttribute
	for _, row := range []struct {
		name   string
		table  func(awscdk.Stack) awsdynamodb.ITable
		layout *infra.TableLayout
		want   []string
		chunks []string // further refusals, as a table of large results
	}{
		{"keys", created(awsdynamodb.TablePropsV2{PartitionKey: id, SortKey: id, TimeToLiveAttribute: jsii.String("expires")}), nil,
			[]string{`the partition key of Test/T is "id" (N), and the store uses "pk" (S)`, `the sort key of Test/T is "id" (N), and the store uses none`, `the time to live of Test/T is "expires"`}, nil},
		{"a table of the first version of the CDK", func(s awscdk.Stack) awsdynamodb.ITable {
			return awsdynamodb.NewTable(s, jsii.String("T"), &awsdynamodb.TableProps{PartitionKey: id, TimeToLiveAttribute: jsii.String("ttl")})
		}, nil, []string{`the partition key of Test/T is "id" (N)`}, nil},
		{"another layout", created(ttl), &infra.TableLayout{SortKey: jsii.String("SK"), Prefix: jsii.String("ONCE#")},
			[]string{`the sort key of Test/T is none, and the store uses "SK" (S)`}, nil},
		{"strong consistency and a time to live", created(both), nil,
			[]string{"Test/T has a time to live, which DynamoDB does not support"}, []string{"Test/T has strong consistency across regions"}},
		{"strong consistency", created(strong), nil, nil, []string{"Test/T has strong consistency across regions"}},
		{"as it should be", created(ttl), nil, nil, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			stack := newStackIn("eu-central-1")
			infra.IdempotencyTableFrom(stack, jsii.String("Records"), row.table(stack), row.layout).GrantReconciler(newRole(stack, "Role"))
			wantRefusals(t, stack, row.want...)
			wantWarnings(t, stack)

			stack = newStackIn("eu-central-1")
			imported := awsdynamodb.TableV2_FromTableName(stack, jsii.String("Table"), jsii.String("records"))
			infra.IdempotencyTableFrom(stack, jsii.String("Records"), imported, row.layout).KeepLargeResultsIn(row.table(stack))
			wantRefusals(t, stack, slices.Concat(row.want, row.chunks)...)
		})
	}
}

// Configurations that CloudFormation or the CDK would refuse later, or with
// which the store could not work.
func TestTablesThatAreRefused(t *testing.T) {
	const here = "eu-central-1"
	replicas := &[]*awsdynamodb.ReplicaTableProps{{Region: jsii.String("eu-west-1")}}
	keyed := func(replicas *[]*awsdynamodb.ReplicaTableProps) func(awscdk.Stack) *awsdynamodb.TablePropsV2 {
		return func(s awscdk.Stack) *awsdynamodb.TablePropsV2 {
			return &awsdynamodb.TablePropsV2{Encryption: with(newKey(s, "Key")), Replicas: replicas}
		}
	}
	fixed := func(props *awsdynamodb.TablePropsV2) func(awscdk.Stack) *awsdynamodb.TablePropsV2 {
		return func(awscdk.Stack) *awsdynamodb.TablePropsV2 { return props }
	}
	other := &awsdynamodb.Attribute{Name: jsii.String("id"), Type: awsdynamodb.AttributeType_STRING}
	live := strong("", "eu-west-1", "eu-west-3")
	live.TimeToLiveAttribute = jsii.String("ttl")
	for _, row := range []struct {
		name, region string
		props        func(awscdk.Stack) *awsdynamodb.TablePropsV2
		want         []string
	}{
		{"replicas without a region", "", fixed(&awsdynamodb.TablePropsV2{Replicas: replicas}), []string{"Replicas are set and the stack names no region"}},
		{"a key without a region", "", keyed(nil), []string{"Encryption has a customer managed key and the stack names no region"}},
		{"a replica without a key", here, keyed(replicas), []string{"Encryption has no key for the replica in eu-west-1"}},
		{"a replica in a region that is a parameter", here, func(s awscdk.Stack) *awsdynamodb.TablePropsV2 {
			return &awsdynamodb.TablePropsV2{Replicas: &[]*awsdynamodb.ReplicaTableProps{{Region: awscdk.NewCfnParameter(s, jsii.String("Region"), nil).ValueAsString()}}}
		}, []string{"the region of a replica is not known at synthesis"}},
		{"other keys", "", fixed(&awsdynamodb.TablePropsV2{
			PartitionKey: other, SortKey: other, TimeToLiveAttribute: jsii.String("expires"),
			LocalSecondaryIndexes: &[]*awsdynamodb.LocalSecondaryIndexProps{{IndexName: jsii.String("local"), SortKey: other}},
		}), []string{
			`the partition key of the table is "id" (S), and the store uses "pk" (S)`, `the sort key of the table is "id" (S), and the store uses none`,
			`the time to live of the table is "expires", and the store uses "ttl"`, "LocalSecondaryIndexes is set",
		}},
		{"a witness of eventual consistency", here, fixed(&awsdynamodb.TablePropsV2{WitnessRegion: jsii.String("eu-west-1")}),
			[]string{"WitnessRegion is set, and only a table with strong consistency across regions has a witness"}},
		{"strong consistency and a time to live", here, fixed(live),
			[]string{"the table has a time to live, which DynamoDB does not support with strong consistency across regions: remove TimeToLiveAttribute"}},
		{"strong consistency in no region", "", fixed(strong("", "eu-west-1", "eu-west-3")), []string{"Replicas are set and the stack names no region"}},
		{"strong consistency in a region that is a parameter", here, func(s awscdk.Stack) *awsdynamodb.TablePropsV2 {
			return strong(*awscdk.NewCfnParameter(s, jsii.String("Region"), nil).ValueAsString(), "eu-west-1")
		}, []string{"WitnessRegion is not known at synthesis"}},
		{"strong consistency in one region", here, fixed(strong("")),
			[]string{"MultiRegionConsistency is STRONG in the regions eu-central-1, the stack's own among them, and DynamoDB needs three different regions"}},
		{"strong consistency in two regions", here, fixed(strong("", "eu-west-1")), []string{"in the regions eu-central-1, eu-west-1,"}},
		{"strong consistency with four regions", here, fixed(strong("eu-west-2", "eu-west-1", "eu-west-3")), []string{"in the regions eu-central-1, eu-west-1, eu-west-3, eu-west-2,"}},
		{"strong consistency with the region of the stack", here, fixed(strong("", "eu-central-1", "eu-west-1")), []string{"DynamoDB needs three different regions"}},
		{"strong consistency with a witness beside a replica", here, fixed(strong("eu-west-1", "eu-west-1")),
			[]string{"in the regions eu-central-1, eu-west-1, eu-west-1, the stack's own among them, and DynamoDB needs three different regions"}},
		{"strong consistency with a witness beside one of two replicas", here, fixed(strong("eu-west-1", "eu-west-1", "eu-west-3")), []string{"DynamoDB needs three different regions"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			stack := newStack()
			if row.region != "" {
				stack = newStackIn(row.region)
			}
			infra.NewIdempotencyTable(stack, jsii.String("Records"), row.props(stack))
			wantRefusals(t, stack, row.want...)
			// The template is still one of the table.
			wantProperties(t, resources(t, stack, "AWS::DynamoDB::GlobalTable")[0], `{"KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}]}`)
		})
	}
}

// strong returns the properties of a table with strong consistency across regions.
func strong(witness string, replicas ...string) *awsdynamodb.TablePropsV2 {
	props := &awsdynamodb.TablePropsV2{TableName: jsii.String("records"), MultiRegionConsistency: awsdynamodb.MultiRegionConsistency_STRONG}
	var all []*awsdynamodb.ReplicaTableProps
	for _, region := range replicas {
		all = append(all, &awsdynamodb.ReplicaTableProps{Region: jsii.String(region)})
	}
	if all != nil {
		props.Replicas = &all
	}
	if witness != "" {
		props.WitnessRegion = jsii.String(witness)
	}
	return props
}

// A table with strong consistency across regions has its regions and no time to live.
// Every function knows of it, whether it uses the table, a replica of it or an imported
// one, and a reconciler may delete what nothing else deletes.
func TestStrongConsistency(t *testing.T) {
	for _, row := range []struct {
		name, want string
		props      *awsdynamodb.TablePropsV2
	}{
		{"three replicas", `{"MultiRegionConsistency": "STRONG", "GlobalTableWitnesses": null, "TimeToLiveSpecification": null}`, strong("", "eu-west-1", "eu-west-3")},
		{"a witness", `{"MultiRegionConsistency": "STRONG", "GlobalTableWitnesses": [{"Region": "eu-west-3"}], "TimeToLiveSpecification": null}`, strong("eu-west-3", "eu-west-1")},
	} {
		t.Run(row.name, func(t *testing.T) {
			stack := newStackIn("eu-central-1")
			records := infra.NewIdempotencyTable(stack, jsii.String("Records"), row.props)
			there := awscdk.NewStack(stack.Node().Root().(awscdk.App), jsii.String("There"), &awscdk.StackProps{
				Env: &awscdk.Environment{Region: jsii.String("eu-west-1"), Account: jsii.String("123456789012")},
			})
			imported := awsdynamodb.TableV2_FromTableName(there, jsii.String("Imported"), jsii.String("records"))
			large := &infra.ScanProps{RecordBytes: jsii.Number(5000)} // no advice to keep them in another table
			tables := map[awscdk.Stack][]*infra.IdempotencyTable{
				stack: {records},
				there: {
					infra.IdempotencyTableFrom(there, jsii.String("Records"), records.Table.(awsdynamodb.TableV2).Replica(jsii.String("eu-west-1")), nil),
					infra.IdempotencyTableFrom(there, jsii.String("Same"), imported, &infra.TableLayout{Consistency: awsdynamodb.MultiRegionConsistency_STRONG}),
				},
			}
			for in, tables := range tables { // before the first synthesis
				for _, table := range tables {
					table.GrantHandler(newFunction(in, "Handler"+*table.Node().Id(), 10), jsii.String("charge"))
					infra.NewReconciler(in, jsii.String("Reconciler"+*table.Node().Id()), &infra.ReconcilerProps{Table: table, Function: newFunction(in, "Reconcile"+*table.Node().Id(), 60), Scan: large})
				}
			}
			for in := range tables {
				wantRefusals(t, in)
				wantWarnings(t, in)
				functions, deletes := resources(t, in, "AWS::Lambda::Function"), 0
				for _, fn := range functions {
					if got := fn.Properties["Environment"].(map[string]any)["Variables"].(map[string]any)["ONCE_CONSISTENCY"]; got != "strong" {
						t.Errorf("ONCE_CONSISTENCY of %s is %v", fn.id, got)
					}
				}
				for _, policy := range resources(t, in, "AWS::IAM::Policy") {
					if may := strings.Contains(asJSON(t, policy.Properties), "dynamodb:DeleteItem"); may && strings.HasPrefix(policy.id, "Reconcile") {
						deletes++
					} else if may {
						t.Errorf("%s allows deletions", policy.id)
					}
				}
				if len(functions) == 0 || 2*deletes != len(functions) {
					t.Errorf("%d of %d functions may delete, want the reconcilers", deletes, len(functions))
				}
			}
			wantProperties(t, resources(t, stack, "AWS::DynamoDB::GlobalTable")[0], row.want)
			// Expired items stay for up to a day, until the next scan.
			price := *assertions.Annotations_FromStack(stack).FindInfo(jsii.String("*"), assertions.Match_StringLikeRegexp(jsii.String("outcomes of 2 days.")))
			if len(price) != 1 {
				t.Errorf("%d prices are those of two days", len(price))
			}
		})
	}
}

// What would leave expired items in a table with strong consistency is refused, or
// warned about if another stack may delete them.
func TestStrongConsistency_Refusals(t *testing.T) {
	stack := newStackIn("eu-central-1")
	records := infra.NewIdempotencyTable(stack, jsii.String("Records"), strong("", "eu-west-1", "eu-west-3"))
	unswept := newStackIn("eu-central-1")
	infra.NewIdempotencyTable(unswept, jsii.String("Records"), strong("", "eu-west-1", "eu-west-3"))
	imported := awsdynamodb.TableV2_FromTableName(unswept, jsii.String("Imported"), jsii.String("records"))
	infra.IdempotencyTableFrom(unswept, jsii.String("From"), imported, &infra.TableLayout{Consistency: awsdynamodb.MultiRegionConsistency_STRONG})
	const warning = "no Reconciler of this construct deletes its expired items"
	wantWarnings(t, unswept, warning, warning)
	records.KeepLargeResultsIn(nil)
	infra.NewReconciler(stack, jsii.String("Reconciler"), &infra.ReconcilerProps{
		Table: records, Function: newFunction(stack, "Reconcile", 60), Scan: &infra.ScanProps{Every: awscdk.Duration_Minutes(jsii.Number(0))},
	})
	weak := newTable(stack, "Weak", awsdynamodb.TablePropsV2{TimeToLiveAttribute: jsii.String("ttl")})
	infra.IdempotencyTableFrom(stack, jsii.String("From"), weak, &infra.TableLayout{Consistency: awsdynamodb.MultiRegionConsistency_STRONG})
	wantRefusals(t, stack, "KeepLargeResultsIn is called, and the table has strong consistency across regions",
		"Scan.Every is zero, and the table has strong consistency across regions", "TableLayout.Consistency is STRONG, and Test/Weak has no strong consistency")
}

// The function of a table with other items gets the layout, and so does the table of
// its large results. An imported function cannot get it, so the warning names it.
func TestLayout(t *testing.T) {
	stack := newStackIn("eu-central-1")
	table := awsdynamodb.TableV2_FromTableName(stack, jsii.String("Table"), jsii.String("shop"))
	records := infra.IdempotencyTableFrom(stack, jsii.String("Records"), table, sharedLayout())
	records.KeepLargeResultsIn(nil)
	fn := newFunction(stack, "Function", 60)
	infra.NewReconciler(stack, jsii.String("Reconciler"), &infra.ReconcilerProps{Function: fn, Table: records, Scan: &infra.ScanProps{OtherBytes: jsii.Number(1 << 30)}})
	wantNoMessages(t, stack)
	variables := variablesOf(t, stack)
	for name, want := range map[string]any{
		"ONCE_TABLE": "shop", "ONCE_PARTITION_KEY": "PK", "ONCE_SORT_KEY": "SK", "ONCE_PREFIX": "ONCE#", "ONCE_TTL_ATTRIBUTE": "expires_at",
	} {
		if variables[name] != want {
			t.Errorf("%s is %v, want %v", name, variables[name], want)
		}
	}
	wantProperties(t, resources(t, stack, "AWS::DynamoDB::GlobalTable")[0], `{
		"KeySchema": [{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}],
		"TimeToLiveSpecification": {"AttributeName": "expires_at", "Enabled": true},
		"AttributeDefinitions": [{"AttributeName": "PK", "AttributeType": "S"}, {"AttributeName": "SK", "AttributeType": "S"}],
		"GlobalSecondaryIndexes": null}`)

	infra.NewReconciler(stack, jsii.String("Other"), &infra.ReconcilerProps{
		Table:    infra.IdempotencyTableFrom(stack, jsii.String("Same"), table, &infra.TableLayout{SortKey: jsii.String("SK"), Prefix: jsii.String("ONCE#")}),
		Function: anImportedFunction(stack),
	})
	wantRefusals(t, stack)
	wantWarnings(t, stack, "ONCE_SORT_KEY to SK, ONCE_PREFIX to ONCE#, and ONCE_EXHAUSTED_QUEUE_URL",
		"the table has other items, and each scan reads them: set Scan.OtherBytes to their size, or Scan.Every to zero")
}

// A layout that the store refuses is refused at synthesis, and one that is known only
// at the deployment.
func TestLayout_Refusals(t *testing.T) {
	for want, layout := range map[string]*infra.TableLayout{
		"TableLayout: dynamostore: Options.SortKey is set without a Prefix":            {SortKey: jsii.String("SK")},
		`TableLayout: dynamostore: invalid Options.Prefix "ONCE"`:                      {Prefix: jsii.String("ONCE")},
		`TableLayout: dynamostore: invalid Options.TTLAttribute "exp"`:                 {TimeToLiveAttribute: jsii.String("exp")},
		"a property of TableLayout is known only at the deployment: set it to a value": {Prefix: awscdk.Aws_ACCOUNT_ID()},
	} {
		stack := newStack()
		table := awsdynamodb.TableV2_FromTableName(stack, jsii.String("Table"), jsii.String("shop"))
		infra.IdempotencyTableFrom(stack, jsii.String("Records"), table, layout).GrantHandler(newFunction(stack, "Function", 3), jsii.String("charge"))
		wantRefusals(t, stack, want)
	}
}
