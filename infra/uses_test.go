// SPDX-License-Identifier: Apache-2.0

package infra_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsecs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskinesis"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambdaeventsources"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/infra"
	"github.com/once-lambda/once/internal/tabledef"
)

const (
	importedFunction = "arn:aws:lambda:eu-central-1:123456789012:function:charge"
	importedTable    = "arn:aws:dynamodb:eu-central-1:123456789012:table/records"
	tableThere       = "arn:aws:dynamodb:eu-west-1:123456789012:table/records"
	theirTable       = "arn:aws:dynamodb:eu-central-1:210987654321:table/records" // of another account
	importedQueue    = "arn:aws:sqs:eu-central-1:123456789012:orders"
)

// Each kind of principal gets the permissions. Only a function that this app
// creates gets the name of the table.
func TestGrantees(t *testing.T) {
	for _, row := range []struct {
		name      string
		grantee   func(awscdk.Stack) awsiam.IGrantable
		variables int // functions with ONCE_TABLE
	}{
		{"function", func(s awscdk.Stack) awsiam.IGrantable { return newFunction(s, "Function", 3) }, 1},
		{"alias", func(s awscdk.Stack) awsiam.IGrantable {
			return newFunction(s, "Function", 3).AddAlias(jsii.String("live"), nil)
		}, 1},
		{"version", func(s awscdk.Stack) awsiam.IGrantable { return newFunction(s, "Function", 3).CurrentVersion() }, 1},
		{"imported function", func(s awscdk.Stack) awsiam.IGrantable { return anImportedFunction(s) }, 0},
		{"role", func(s awscdk.Stack) awsiam.IGrantable { return newRole(s, "Role") }, 0},
		{"imported role", func(s awscdk.Stack) awsiam.IGrantable {
			return awsiam.Role_FromRoleName(s, jsii.String("Role"), jsii.String("charge"), nil)
		}, 0},
		{"role of an ECS task", func(s awscdk.Stack) awsiam.IGrantable {
			task := awsecs.NewFargateTaskDefinition(s, jsii.String("Task"), nil)
			task.AddContainer(jsii.String("Main"), &awsecs.ContainerDefinitionOptions{Image: awsecs.ContainerImage_FromRegistry(jsii.String("charge"), nil)})
			return task.TaskRole()
		}, 0},
		{"user", func(s awscdk.Stack) awsiam.IGrantable { return awsiam.NewUser(s, jsii.String("User"), nil) }, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			stack := newStackIn("eu-central-1")
			grantee := row.grantee(stack)
			granted := infra.NewIdempotencyTable(stack, jsii.String("Records"), nil).GrantHandler(grantee, jsii.String("charge"))
			granted.AssertSuccess()
			// A resource that uses the table waits for the permissions.
			granted.ApplyBefore(awssqs.NewQueue(stack, jsii.String("Later"), nil))
			wantNoMessages(t, stack)
			wantAllowed(t, policyOf(t, stack), request{"dynamodb:PutItem", "<RecordsTableC9B7A30B.Arn>",
				map[string][]string{"dynamodb:LeadingKeys": {string(aKey("charge").RecordID())}}}, true)
			named := 0
			for _, fn := range resources(t, stack, "AWS::Lambda::Function") {
				variables := asJSON(t, fn.Properties)
				named += strings.Count(variables, `"ONCE_TABLE"`)
				if strings.Contains(variables, "ONCE_CHUNK_TABLE") {
					t.Error("a function has the name of a table of large results")
				}
			}
			if table := asJSON(t, resources(t, stack, "AWS::DynamoDB::GlobalTable")); strings.Contains(table, "ResourcePolicy") {
				t.Errorf("the grantee is of this account, and also the policy of the table allows it: %s", table)
			}
			if named != row.variables {
				t.Errorf("%d functions have the name of the table, want %d", named, row.variables)
			}
			if waiting := asJSON(t, resources(t, stack, "AWS::SQS::Queue")[0].DependsOn); !strings.Contains(waiting, "Policy") {
				t.Errorf("the queue waits for %s, want the policy", waiting)
			}
		})
	}
}

func anImportedFunction(stack awscdk.Stack) awslambda.IFunction {
	return awslambda.Function_FromFunctionAttributes(stack, jsii.String("Imported"), &awslambda.FunctionAttributes{
		FunctionArn: jsii.String(importedFunction), SameEnvironment: jsii.Bool(true),
		Role: awsiam.Role_FromRoleName(stack, jsii.String("ImportedRole"), jsii.String("charge"), nil),
	})
}

// A table that exists is used like one that the construct creates.
func TestTablesThatExist(t *testing.T) {
	const key = "arn:aws:kms:eu-central-1:123456789012:key/4b5ff7a6-1f7b-4c53-9d7d-0a6d2f6f2a11"
	for _, row := range []struct {
		name     string
		table    func(awscdk.Stack) awsdynamodb.ITable
		arn      string
		variable string
		warning  []string
	}{
		{"by name", func(s awscdk.Stack) awsdynamodb.ITable {
			return awsdynamodb.TableV2_FromTableName(s, jsii.String("Table"), jsii.String("records"))
		}, "arn:<AWS::Partition>:dynamodb:eu-central-1:123456789012:table/records", `"records"`, nil},
		{"by ARN", func(s awscdk.Stack) awsdynamodb.ITable {
			return awsdynamodb.TableV2_FromTableArn(s, jsii.String("Table"), jsii.String(importedTable))
		}, importedTable, `"records"`, nil},
		{"by attributes, with a key", func(s awscdk.Stack) awsdynamodb.ITable {
			return awsdynamodb.TableV2_FromTableAttributes(s, jsii.String("Table"), &awsdynamodb.TableAttributesV2{
				TableArn: jsii.String(importedTable), EncryptionKey: awskms.Key_FromKeyArn(s, jsii.String("Key"), jsii.String(key)),
			})
		}, importedTable, `"records"`, nil},
		{"of another account", func(s awscdk.Stack) awsdynamodb.ITable {
			return awsdynamodb.TableV2_FromTableArn(s, jsii.String("Table"), jsii.String(theirTable))
		}, theirTable, `"` + theirTable + `"`,
			[]string{"the policy of the imported table Test/Table cannot be changed here"}},
		{"a table of the first version of the CDK", func(s awscdk.Stack) awsdynamodb.ITable {
			table := awsdynamodb.NewTable(s, jsii.String("Table"), &awsdynamodb.TableProps{
				PartitionKey: &awsdynamodb.Attribute{Name: jsii.String("pk"), Type: awsdynamodb.AttributeType_STRING}, TimeToLiveAttribute: jsii.String("ttl"),
			})
			table.AddGlobalSecondaryIndex(&awsdynamodb.GlobalSecondaryIndexProps{
				IndexName:    jsii.String(tabledef.IndexName),
				PartitionKey: &awsdynamodb.Attribute{Name: jsii.String(tabledef.IndexPartitionKey), Type: awsdynamodb.AttributeType_STRING},
			})
			return table
		}, "<TableCD117FA1.Arn>", `{"Ref":"TableCD117FA1"}`, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			stack := newStackIn("eu-central-1")
			records := infra.IdempotencyTableFrom(stack, jsii.String("Records"), row.table(stack), nil)
			fn := newFunction(stack, "Function", 60)
			infra.NewReconciler(stack, jsii.String("Reconciler"), &infra.ReconcilerProps{Function: fn, Table: records})
			infra.NewIdempotencyAlarms(stack, jsii.String("Alarms"), &infra.IdempotencyAlarmsProps{
				Namespace: jsii.String("Charges"), Operations: jsii.Strings("charge"), Functions: &[]awslambda.IFunction{fn}, Table: records,
			})
			wantRefusals(t, stack)
			wantWarnings(t, stack, append(slices.Clone(row.warning), "Page is not set", "Ticket is not set")...)
			policy := policyOf(t, stack)
			keys := map[string][]string{"dynamodb:LeadingKeys": {string(aKey("charge").RecordID())}}
			wantAllowed(t, policy, request{"dynamodb:PutItem", row.arn, keys}, true)
			wantAllowed(t, policy, request{"dynamodb:Query", row.arn + "/index/" + tabledef.IndexName, nil}, true)
			via := map[string][]string{"kms:ViaService": {"dynamodb.eu-central-1.amazonaws.com"}}
			wantAllowed(t, policy, request{"kms:Decrypt", key, via}, strings.Contains(row.name, "key"))
			variables := variablesOf(t, stack)
			if got := asJSON(t, variables["ONCE_TABLE"]); got != row.variable {
				t.Errorf("ONCE_TABLE is %s, want %s", got, row.variable)
			}
		})
	}
}

// Imported functions and queues are accepted by every construct. What cannot be
// checked or set is warned about.
func TestImportedFunctionsAndQueues(t *testing.T) {
	stack := newStackIn("eu-central-1")
	records := infra.NewIdempotencyTable(stack, jsii.String("Records"), nil)
	fn := anImportedFunction(stack)
	queue := awssqs.Queue_FromQueueArn(stack, jsii.String("Queue"), jsii.String(importedQueue))
	infra.NewQueueSource(stack, jsii.String("Source"), &infra.QueueSourceProps{Function: fn, Queue: queue, Retention: days(23)})
	reconciler := infra.NewReconciler(stack, jsii.String("Reconciler"), &infra.ReconcilerProps{Function: fn, Table: records})
	list := []awslambda.IFunction{fn, nil} // the alarms do not write behind the end of the list that they get
	functions := list[:1]
	infra.NewIdempotencyAlarms(stack, jsii.String("Alarms"), &infra.IdempotencyAlarmsProps{
		Namespace: jsii.String("Charges"), Operations: jsii.Strings("charge"), Table: records, Functions: &functions,
		Reconciler: reconciler, DeadLetterQueues: &[]awssqs.IQueue{queue},
	})
	if list[1] != nil {
		t.Error("the alarms changed the list of functions")
	}
	wantRefusals(t, stack)
	wantWarnings(t, stack, "the queue is imported, so its settings are not known here",
		"set ONCE_TABLE to the table's name, and ONCE_EXHAUSTED_QUEUE_URL", "set ONCE_METRICS_NAMESPACE to Charges",
		"Page is not set", "Ticket is not set")
	wantProperties(t, resources(t, stack, "AWS::Lambda::EventSourceMapping")[0],
		`{"EventSourceArn": "`+importedQueue+`", "FunctionName": "charge", "FunctionResponseTypes": ["ReportBatchItemFailures"]}`)
}

// A queue of this app is compared with what is known of an imported function: its
// own time-outs and its dead-letter queue, however that is set.
func TestQueuesOfImportedFunctions(t *testing.T) {
	stack := newStackIn("eu-central-1")
	queue := awssqs.NewQueue(stack, jsii.String("Orders"), nil)
	queue.Node().DefaultChild().(awssqs.CfnQueue).SetRedrivePolicy(map[string]any{"deadLetterTargetArn": importedQueue, "maxReceiveCount": 5})
	infra.NewQueueSource(stack, jsii.String("Source"), &infra.QueueSourceProps{Function: anImportedFunction(stack), Queue: queue, Retention: days(22)})
	wantRefusals(t, stack, "outcomes are stored for 22 days and a message may be delivered again for 22 days and 1m0s")
	wantWarnings(t, stack, "the function is imported, so its time-out is not known here")
}

// An alias can process a queue and reconcile: the mapping, the rule and the alarms
// are on the alias, and the time-out is that of the function.
func TestAliases(t *testing.T) {
	stack := newStack()
	records := infra.NewIdempotencyTable(stack, jsii.String("Records"), nil)
	live := newFunction(stack, "Function", 30).AddAlias(jsii.String("live"), nil)
	infra.NewQueueSource(stack, jsii.String("Source"), &infra.QueueSourceProps{
		Function: live, Queue: newQueue(stack, awssqs.QueueProps{}), Retention: days(23),
	})
	infra.NewReconciler(stack, jsii.String("Reconciler"), &infra.ReconcilerProps{Function: live, Table: records})
	wantRefusals(t, stack, "visibility time-out is 30s and must be at least 3m0s")
	wantWarnings(t, stack)
	rule := asJSON(t, resources(t, stack, "AWS::Events::Rule")[0].Properties["Targets"])
	if !strings.Contains(rule, "FunctionAliaslive") {
		t.Errorf("the target of the rule is %s, want the alias", rule)
	}
	wantProperties(t, resources(t, stack, "AWS::Lambda::EventInvokeConfig")[0], `{"Qualifier": {"Fn::Select": [7, {"Fn::Split": [":", {"Ref": "FunctionAliasliveD531BB47"}]}]}}`)
	if permission := asJSON(t, resources(t, stack, "AWS::Lambda::Permission")[0].Properties["FunctionName"]); !strings.Contains(permission, "FunctionAliaslive") {
		t.Errorf("the permission is on %s, want the alias", permission)
	}
	if variables := variablesOf(t, stack); variables["ONCE_EXHAUSTED_QUEUE_URL"] == nil || variables["ONCE_TABLE"] == nil {
		t.Errorf("the function's environment is %v", variables)
	}
}

// Values that are known only at the deployment are passed on, and are not judged.
func TestTokens(t *testing.T) {
	stack := newStack()
	some := awscdk.Duration_Seconds(parameter(stack, "Seconds"))
	records := infra.NewIdempotencyTable(stack, jsii.String("Records"), &awsdynamodb.TablePropsV2{
		TableName:          awscdk.NewCfnParameter(stack, jsii.String("Name"), nil).ValueAsString(),
		DeletionProtection: jsii.Bool(false),
	})
	fn := newFunctionOf(stack, "Function", awslambda.FunctionProps{Timeout: some})
	infra.NewQueueSource(stack, jsii.String("Source"), &infra.QueueSourceProps{
		Function: fn, Retention: some, Source: &awslambdaeventsources.SqsEventSourceProps{MaxBatchingWindow: some},
		Queue: newQueue(stack, awssqs.QueueProps{VisibilityTimeout: some, RetentionPeriod: some}),
	})
	infra.CheckRetention(stack, some, seconds(time.Second))
	infra.CheckRetention(stack, seconds(time.Second), some)
	reconciler := infra.NewReconciler(stack, jsii.String("Reconciler"), &infra.ReconcilerProps{
		Function: fn, Table: records, Every: awscdk.Duration_Minutes(parameter(stack, "Minutes")),
	})
	wantNoMessages(t, stack)
	wantProperties(t, resources(t, stack, "AWS::Events::Rule")[0], `{"ScheduleExpression": {"Fn::Join": ["", ["rate(", {"Ref": "Minutes"}, " minutes)"]]}}`)

	infra.NewIdempotencyAlarms(stack, jsii.String("Alarms"), &infra.IdempotencyAlarmsProps{
		Namespace: awscdk.NewCfnParameter(stack, jsii.String("Namespace"), nil).ValueAsString(), Table: records,
		Operations: &[]*string{jsii.String("charge"), awscdk.NewCfnParameter(stack, jsii.String("Operation"), nil).ValueAsString()},
		Reconciler: reconciler, OldestUnknown: some, StoreErrorRate: parameter(stack, "StoreErrors"), MisuseRate: parameter(stack, "Misuse"),
	})
	wantRefusals(t, stack, "an element of Operations is not known at synthesis", "Every of Reconciler is not known at synthesis")
	wantAlarms(t, stack, map[string]string{"Misuse": `{"Threshold": {"Ref": "Misuse"}}`})
	infra.NewIdempotencyAlarms(stack, jsii.String("Others"), &infra.IdempotencyAlarmsProps{
		Namespace: jsii.String("Charges"), Operations: jsii.Strings("charge"), Table: records, OldestUnknown: some,
		Reconciler: infra.NewReconciler(stack, jsii.String("Other"), &infra.ReconcilerProps{Function: newFunction(stack, "Reconcile", 60), Table: records}),
	})
	wantRefusals(t, stack, "an element of Operations is not known", "Every of Reconciler is not known", "OldestUnknown is not known at synthesis")
}

// Each length of a queue source can be a parameter beside known ones.
func TestOneToken(t *testing.T) {
	for _, length := range []string{"the visibility time-out", "the queue's retention", "the dead-letter queue's retention", "the time-out", "the window", "the outcomes"} {
		stack := newStack()
		unknown := awscdk.Duration_Seconds(parameter(stack, "Seconds"))
		or := func(name string, known time.Duration) awscdk.Duration {
			if name == length {
				return unknown
			}
			return seconds(known)
		}
		const day = 24 * time.Hour
		dead := awssqs.NewQueue(stack, jsii.String("Dead"), &awssqs.QueueProps{RetentionPeriod: or("the dead-letter queue's retention", 4*day)})
		infra.NewQueueSource(stack, jsii.String("Source"), &infra.QueueSourceProps{
			Function: newFunctionOf(stack, "Function", awslambda.FunctionProps{Timeout: or("the time-out", 5*time.Second)}),
			Queue: newQueue(stack, awssqs.QueueProps{
				VisibilityTimeout: or("the visibility time-out", 36*time.Second), RetentionPeriod: or("the queue's retention", 4*day),
				DeadLetterQueue: &awssqs.DeadLetterQueue{Queue: dead, MaxReceiveCount: jsii.Number(5)},
			}),
			Retention: or("the outcomes", 12*day+72*time.Second),
			Source:    &awslambdaeventsources.SqsEventSourceProps{MaxBatchingWindow: or("the window", 6*time.Second)},
		})
		wantNoMessages(t, stack)
	}
}

// A token with which the CDK itself would stop is refused.
func TestTokensThatTheCDKRefuses(t *testing.T) {
	stack := newStack()
	some := awscdk.Duration_Seconds(parameter(stack, "Seconds"))
	infra.NewReconciler(stack, jsii.String("Reconciler"), &infra.ReconcilerProps{
		Function: newFunction(stack, "Reconcile", 60), Table: infra.NewIdempotencyTable(stack, jsii.String("Records"), nil), Every: some,
	})
	infra.NewStreamSource(stack, jsii.String("Source"), &infra.StreamSourceProps{
		Function: newFunction(stack, "Function", 3), Stream: awskinesis.NewStream(stack, jsii.String("Stream"), nil), Retention: days(1),
		Kinesis: &awslambdaeventsources.KinesisEventSourceProps{
			StartingPosition: awslambda.StartingPosition_LATEST, MaxRecordAge: some,
			OnFailure: awslambdaeventsources.NewSqsDlq(newQueue(stack, awssqs.QueueProps{})),
		},
	})
	wantRefusals(t, stack, "Every is in seconds: set it to whole minutes", "MaxRecordAge is not known at synthesis")
}

// Metrics for alarms of one's own.
func TestMetrics(t *testing.T) {
	stack := newStack()
	records := infra.NewIdempotencyTable(stack, jsii.String("Records"), nil)
	alarms := infra.NewIdempotencyAlarms(stack, jsii.String("Alarms"), &infra.IdempotencyAlarmsProps{
		Namespace: jsii.String("Charges"), Operations: jsii.Strings("charge"), Table: records,
	})
	alarm := func(id string, metric awscloudwatch.IMetric) {
		awscloudwatch.NewAlarm(stack, jsii.String(id), &awscloudwatch.AlarmProps{Metric: metric, Threshold: jsii.Number(1), EvaluationPeriods: jsii.Number(1)})
	}
	hourly := &awscloudwatch.MetricOptions{Period: awscdk.Duration_Hours(jsii.Number(1))}
	alarm("OneReplays", alarms.MetricForEvent(event.Replayed, jsii.String("charge"), nil))
	alarm("AllReplays", alarms.MetricForEvent(event.Replayed, nil, nil))
	alarm("HourlyReplays", alarms.MetricForEvent(event.Replayed, jsii.String("charge"), hourly))
	alarm("OfTheIndex", records.MetricForIndex(jsii.String("ConsumedWriteCapacityUnits"), nil))
	alarm("HourlyTable", records.Table.MetricUserErrors(hourly))
	wantAlarms(t, stack, map[string]string{
		"OneReplays":    `{"Namespace": "Charges", "MetricName": "once.replayed", "Statistic": "Sum", "Period": 300, "Dimensions": [{"Name": "operation", "Value": "charge"}]}`,
		"AllReplays":    `{"MetricName": "once.replayed", "Dimensions": null}`,
		"HourlyReplays": `{"MetricName": "once.replayed", "Statistic": "Sum", "Period": 3600}`,
		"OfTheIndex": `{"Namespace": "AWS/DynamoDB", "MetricName": "ConsumedWriteCapacityUnits", "Period": 300, "Dimensions": [
			{"Name": "GlobalSecondaryIndexName", "Value": "recovery"}, {"Name": "TableName", "Value": {"Ref": "RecordsTableC9B7A30B"}}]}`,
		"HourlyTable": `{"MetricName": "UserErrors", "Period": 3600}`,
	})
}

// A function of another stack gets the permissions and the name of the table.
func TestTwoStacks(t *testing.T) {
	app := awscdk.NewApp(nil)
	records := infra.NewIdempotencyTable(awscdk.NewStack(app, jsii.String("Data"), nil), jsii.String("Records"), nil)
	stack := awscdk.NewStack(app, jsii.String("Test"), nil)
	records.GrantHandler(newFunction(stack, "Function", 3), jsii.String("charge"))
	wantRefusals(t, stack)
	variables := asJSON(t, resources(t, stack, "AWS::Lambda::Function")[0].Properties["Environment"])
	if !strings.Contains(variables, "Fn::ImportValue") {
		t.Errorf("the function's environment is %s, want the name from the other stack", variables)
	}
	if resource := asJSON(t, resources(t, stack, "AWS::IAM::Policy")[0].Properties); strings.Count(resource, "Fn::ImportValue") != 2 {
		t.Errorf("the policy is %s, want the ARN from the other stack", resource)
	}
}

// Two tables of one function with names: each has its own variables, and so have its
// reconciler and its alarms. The first may be without a name.
func TestNamedTables(t *testing.T) {
	stack := newStackIn("eu-central-1")
	fn := newFunction(stack, "Function", 60)
	for _, name := range []string{"", "old-orders"} {
		records := infra.NewIdempotencyTable(stack, jsii.String("Records"+name), &awsdynamodb.TablePropsV2{TableName: jsii.String("records" + name)})
		every := 12.0
		if name != "" {
			records.Named(&name).KeepLargeResultsIn(awsdynamodb.TableV2_FromTableName(stack, jsii.String("Chunks"), jsii.String("chunks")))
			every = 24
		}
		records.GrantHandler(fn, jsii.String("order"))
		reconciler := infra.NewReconciler(stack, jsii.String("Reconciler"+name), &infra.ReconcilerProps{
			Function: fn, Table: records, Scan: &infra.ScanProps{Every: awscdk.Duration_Hours(&every), Segments: jsii.Number(every / 6)},
		})
		infra.NewIdempotencyAlarms(stack, jsii.String("Alarms"+name), &infra.IdempotencyAlarmsProps{
			Namespace: jsii.String("Orders"), Operations: jsii.Strings("order"), Functions: &[]awslambda.IFunction{fn}, Table: records, Reconciler: reconciler,
		})
	}
	wantRefusals(t, stack)
	variables := variablesOf(t, stack)
	for variable, value := range variables {
		if ref, ok := value.(map[string]any); ok {
			variables[variable] = name(ref["Ref"].(string))
		}
	}
	want := map[string]any{
		"ONCE_TABLE": "RecordsTable", "ONCE_SCAN_EVERY": "12h0m0s", "ONCE_SCAN_SEGMENTS": "2",
		"ONCE_EXHAUSTED_QUEUE_URL": "ReconcilerExhausted", "ONCE_METRICS_NAMESPACE": "Orders",
		"ONCE_TABLE_OLD_ORDERS": "RecordsoldordersTable", "ONCE_CHUNK_TABLE_OLD_ORDERS": "chunks", "ONCE_SCAN_SEGMENTS_OLD_ORDERS": "4",
		"ONCE_EXHAUSTED_QUEUE_URL_OLD_ORDERS": "ReconcileroldordersExhausted",
	}
	if got, want := asJSON(t, variables), asJSON(t, want); got != want {
		t.Errorf("the variables are %s, want %s", got, want)
	}
}

// What would give one variable two values, or none, names both constructs.
func TestConflicts(t *testing.T) {
	table := func(s awscdk.Stack, id string) *infra.IdempotencyTable {
		return infra.NewIdempotencyTable(s, jsii.String(id), nil)
	}
	from := func(s awscdk.Stack, id string, layout *infra.TableLayout) *infra.IdempotencyTable {
		shop, ok := s.Node().TryFindChild(jsii.String("Shop")).(awsdynamodb.ITable)
		if !ok {
			shop = awsdynamodb.TableV2_FromTableName(s, jsii.String("Shop"), jsii.String("shop"))
		}
		return infra.IdempotencyTableFrom(s, jsii.String(id), shop, layout)
	}
	reconcile := func(s awscdk.Stack, id string, fn awslambda.IFunction, t *infra.IdempotencyTable, scan *infra.ScanProps) *infra.Reconciler {
		return infra.NewReconciler(s, jsii.String(id), &infra.ReconcilerProps{Function: fn, Table: t, Scan: scan})
	}
	alarms := func(s awscdk.Stack, namespace string, fn awslambda.IFunction, t *infra.IdempotencyTable) {
		infra.NewIdempotencyAlarms(s, jsii.String("Alarms"+namespace), &infra.IdempotencyAlarmsProps{
			Namespace: &namespace, Operations: jsii.Strings("order"), Functions: &[]awslambda.IFunction{fn}, Table: t,
		})
	}
	charge, env := jsii.String("charge"), &awscdk.Environment{Region: jsii.String("eu-central-1"), Account: jsii.String("123456789012")}
	prefix := &infra.TableLayout{Prefix: jsii.String("ONCE#")}
	const function = " of the function Test/Function"
	for _, row := range []struct {
		name string
		add  func(awscdk.Stack, awslambda.Function)
		want []string
	}{
		{"two tables", func(s awscdk.Stack, fn awslambda.Function) {
			table(s, "A").GrantHandler(fn, charge)
			table(s, "B").GrantHandler(fn, charge)
		}, []string{"Test/B and Test/A want different values of ONCE_TABLE" + function + ": name one of the tables with Named"}},
		{"two tables, by an alias", func(s awscdk.Stack, fn awslambda.Function) {
			table(s, "A").GrantHandler(fn.AddAlias(jsii.String("live"), nil), charge)
			table(s, "B").GrantHandler(fn, charge)
		}, []string{"Test/B and Test/A want different values of ONCE_TABLE" + function}},
		{"two tables with one name", func(s awscdk.Stack, fn awslambda.Function) {
			table(s, "A").Named(jsii.String("orders")).GrantHandler(fn, charge)
			table(s, "B").Named(jsii.String("orders")).GrantReconciler(fn)
		}, []string{"Test/B and Test/A want different values of ONCE_TABLE_ORDERS" + function}},
		{"tables of two stacks whose resources have one id", func(s awscdk.Stack, fn awslambda.Function) {
			other := awscdk.NewStack(s.Node().Root().(constructs.Construct), jsii.String("Other"), &awscdk.StackProps{Env: env})
			table(s, "A").GrantHandler(fn, charge)
			table(other, "A").GrantHandler(fn, charge)
			wantRefusals(t, other, "Other/A and Test/A want different values of ONCE_TABLE"+function)
		}, nil},
		{"a value, and none", func(s awscdk.Stack, fn awslambda.Function) {
			from(s, "A", prefix).GrantHandler(fn, charge)
			from(s, "B", nil).GrantHandler(fn, charge)
		}, []string{"Test/B and Test/A want different values of ONCE_PREFIX" + function}},
		{"no value, and one", func(s awscdk.Stack, fn awslambda.Function) {
			from(s, "A", nil).GrantHandler(fn, charge)
			b := from(s, "B", nil)
			b.KeepLargeResultsIn(awsdynamodb.TableV2_FromTableName(s, jsii.String("Chunks"), jsii.String("chunks")))
			b.GrantHandler(fn, charge)
		}, []string{"Test/B and Test/A want different values of ONCE_CHUNK_TABLE" + function}},
		{"two reconcilers", func(s awscdk.Stack, fn awslambda.Function) {
			records := table(s, "A")
			reconcile(s, "R", fn, records, nil)
			reconcile(s, "Q", fn, records, &infra.ScanProps{Segments: jsii.Number(2)})
		}, []string{"Test/Q and Test/R want different values of ONCE_SCAN_SEGMENTS" + function, "Test/Q and Test/R want different values of ONCE_EXHAUSTED_QUEUE_URL" + function}},
		{"two namespaces", func(s awscdk.Stack, fn awslambda.Function) {
			records := table(s, "A")
			alarms(s, "X", fn, records)
			alarms(s, "Y", fn, records)
		}, []string{"Test/AlarmsY and Test/AlarmsX want different values of ONCE_METRICS_NAMESPACE" + function + ": give both the same Namespace"}},
		{"two namespaces of two tables", func(s awscdk.Stack, fn awslambda.Function) {
			alarms(s, "X", fn, table(s, "A"))
			alarms(s, "Y", fn, table(s, "B").Named(jsii.String("bookings")))
		}, []string{"Test/AlarmsY and Test/AlarmsX want different values of ONCE_METRICS_NAMESPACE" + function + ": give both the same Namespace"}},
		{"a variable of the function itself", func(s awscdk.Stack, fn awslambda.Function) {
			fn.AddEnvironment(jsii.String("ONCE_TABLE"), jsii.String("other"), nil)
			fn.AddEnvironment(jsii.String("ONCE_PREFIX"), jsii.String("ONCE#"), nil)
			table(s, "A").GrantHandler(fn, charge)
		}, []string{"Test/A and the function's own Environment want different values of ONCE_PREFIX and ONCE_TABLE" + function}},
		{"the same value of the function itself", func(s awscdk.Stack, fn awslambda.Function) {
			records := table(s, "A")
			fn.AddEnvironment(jsii.String("ONCE_TABLE"), records.Table.TableName(), nil)
			records.GrantHandler(fn, charge)
			records.GrantReconciler(fn)
			from(s, "B", prefix).Named(jsii.String("shop")).GrantHandler(fn, charge)
			from(s, "C", prefix).Named(jsii.String("shop")).GrantHandler(fn, charge)
		}, nil},
		{"a name after a grant", func(s awscdk.Stack, fn awslambda.Function) {
			records := table(s, "A")
			records.GrantHandler(fn, charge)
			records.Named(jsii.String("orders"))
		}, []string{"Named is called after a grant"}},
		{"invalid names", func(s awscdk.Stack, _ awslambda.Function) {
			table(s, "A").Named(jsii.String("Orders")).Named(jsii.String("or_ders")).Named(nil)
		}, []string{`invalid name "Orders"`, `invalid name "or_ders"`, `invalid name ""`}},
		{"a table of another region", func(s awscdk.Stack, fn awslambda.Function) {
			records := infra.IdempotencyTableFrom(s, jsii.String("A"), awsdynamodb.TableV2_FromTableArn(s, jsii.String("Table"), jsii.String(tableThere)), nil)
			records.GrantHandler(fn.AddAlias(jsii.String("live"), nil), charge)
			records.GrantHandler(anImportedFunction(s), charge)
			records.GrantHandler(newRole(s, "Role"), charge) // its functions are not known
		}, []string{"the function Test/Function/Aliaslive is in eu-central-1 and the table Test/Table in eu-west-1", "the function Test/Imported is in eu-central-1"}},
		{"a function without its role", func(s awscdk.Stack, _ awslambda.Function) {
			fn := awslambda.Function_FromFunctionArn(s, jsii.String("Imported"), jsii.String(importedFunction))
			records := table(s, "A")
			records.GrantHandler(fn, charge)
			reconcile(s, "R", fn, records, nil)
			infra.NewQueueSource(s, jsii.String("Source"), &infra.QueueSourceProps{Function: fn, Queue: newQueue(s, awssqs.QueueProps{}), Retention: days(23)})
		}, []string{"the function Test/Imported is imported without its role", "without its role", "without its role"}},
		{"a reconciler in another account or region", func(s awscdk.Stack, _ awslambda.Function) {
			there := func(id, arn string) awslambda.IFunction {
				return awslambda.Function_FromFunctionAttributes(s, jsii.String(id), &awslambda.FunctionAttributes{FunctionArn: jsii.String(arn), Role: newRole(s, id+"Role")})
			}
			reconcile(s, "R", there("Foreign", "arn:aws:lambda:eu-central-1:210987654321:function:reconcile"), table(s, "A"), nil)
			reconcile(s, "Q", there("Far", "arn:aws:lambda:eu-west-1:123456789012:function:reconcile"), table(s, "B"), nil)
		}, []string{"the function Test/Foreign is in 210987654321 and this construct in 123456789012", "the function Test/Far is in eu-west-1 and this construct in eu-central-1"}},
		{"a function that the app creates in another account, with names", func(s awscdk.Stack, _ awslambda.Function) {
			other := awscdk.NewStack(s.Node().Root().(constructs.Construct), jsii.String("Other"), &awscdk.StackProps{
				Env: &awscdk.Environment{Region: env.Region, Account: jsii.String("210987654321")},
			})
			role := awsiam.NewRole(other, jsii.String("Role"), &awsiam.RoleProps{
				RoleName: jsii.String("charge"), AssumedBy: awsiam.NewServicePrincipal(jsii.String("lambda.amazonaws.com"), nil),
			})
			records := infra.NewIdempotencyTable(s, jsii.String("A"), &awsdynamodb.TablePropsV2{TableName: jsii.String("records")})
			records.GrantHandler(newFunctionOf(other, "Charge", awslambda.FunctionProps{Role: role}), charge)
			if got := variablesOf(t, other)["ONCE_TABLE"]; !strings.Contains(asJSON(t, got), ":123456789012:table/records") {
				t.Errorf("ONCE_TABLE is %v, want the ARN of the table", got)
			}
		}, nil},
		{"large results of another region", func(s awscdk.Stack, fn awslambda.Function) {
			records := table(s, "A")
			records.KeepLargeResultsIn(awsdynamodb.TableV2_FromTableArn(s, jsii.String("Chunks"), jsii.String(tableThere)))
			records.GrantHandler(fn, charge)
		}, []string{"the table Test/Chunks in eu-west-1"}},
		{"a replica in the region", func(s awscdk.Stack, fn awslambda.Function) {
			home := awscdk.NewStack(s.Node().Root().(constructs.Construct), jsii.String("Home"), &awscdk.StackProps{
				Env: &awscdk.Environment{Region: jsii.String("eu-west-1"), Account: env.Account},
			})
			records := infra.NewIdempotencyTable(home, jsii.String("A"), &awsdynamodb.TablePropsV2{
				TableName: jsii.String("records"), Replicas: &[]*awsdynamodb.ReplicaTableProps{{Region: jsii.String("eu-central-1")}},
			})
			infra.IdempotencyTableFrom(s, jsii.String("B"), records.Table.(awsdynamodb.TableV2).Replica(jsii.String("eu-central-1")), nil).GrantHandler(fn, charge)
		}, nil},
		{"a reconciler of a table without the index", func(s awscdk.Stack, fn awslambda.Function) {
			reconcile(s, "R", fn, infra.IdempotencyTableFrom(s, jsii.String("A"), newTable(s, "T", awsdynamodb.TablePropsV2{TimeToLiveAttribute: jsii.String("ttl")}), nil), &infra.ScanProps{Every: awscdk.Duration_Seconds(jsii.Number(0))})
		}, []string{"the table has no index recovery"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			stack := newStackIn("eu-central-1")
			row.add(stack, newFunction(stack, "Function", 60))
			wantRefusals(t, stack, row.want...)
		})
	}
}

// The queues of a reconciler have a name, a key that the function and EventBridge may
// use, and a removal policy.
func TestQueuesOfAReconciler(t *testing.T) {
	stack := newStackIn("eu-central-1")
	infra.NewReconciler(stack, jsii.String("Reconciler"), &infra.ReconcilerProps{
		Function: newFunction(stack, "Function", 60), Table: infra.NewIdempotencyTable(stack, jsii.String("Records"), nil),
		Queues: &infra.ReconcilerQueues{Name: jsii.String("charges"), Key: newKey(stack, "Key"), RemovalPolicy: awscdk.RemovalPolicy_RETAIN},
	})
	wantNoMessages(t, stack)
	got := map[string]string{}
	for _, queue := range resources(t, stack, "AWS::SQS::Queue") {
		got[queue.Properties["QueueName"].(string)] = queue.DeletionPolicy + " " + symbolic(queue.Properties["KmsMasterKeyId"])
	}
	if want := map[string]string{"charges-exhausted": "Retain <Key961B73FD.Arn>", "charges-undelivered": "Retain <Key961B73FD.Arn>"}; !maps.Equal(got, want) {
		t.Errorf("the queues are %v, want %v", got, want)
	}
	wantAllowed(t, policyOf(t, stack), request{"kms:GenerateDataKeyWithoutPlaintext", "<Key961B73FD.Arn>", nil}, true)
	policy := asJSON(t, resources(t, stack, "AWS::KMS::Key")[0].Properties["KeyPolicy"])
	if want := `{"Action":["kms:Decrypt","kms:GenerateDataKey*"],"Condition":{"StringEquals":{"aws:SourceAccount":"123456789012"}},"Effect":"Allow","Principal":{"Service":"events.amazonaws.com"},"Resource":"*"}`; !strings.Contains(policy, want) {
		t.Errorf("the key's policy is %s, want in it %s", policy, want)
	}

	stack = newStackIn("eu-central-1")
	infra.NewReconciler(stack, jsii.String("Reconciler"), &infra.ReconcilerProps{
		Function: newFunction(stack, "Function", 60), Table: infra.NewIdempotencyTable(stack, jsii.String("Records"), nil),
		Queues: &infra.ReconcilerQueues{
			Name: jsii.String("charges.fifo"),
			Key:  awskms.Key_FromKeyArn(stack, jsii.String("Key"), jsii.String("arn:aws:kms:eu-central-1:123456789012:key/4b5ff7a6-1f7b-4c53-9d7d-0a6d2f6f2a11")),
		},
	})
	wantRefusals(t, stack, `Queues.Name is "charges.fifo"`)
	wantWarnings(t, stack, "the policy of the imported key Test/Key cannot be changed here")
}
