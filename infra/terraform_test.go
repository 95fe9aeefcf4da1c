// SPDX-License-Identifier: Apache-2.0

//go:build tofu

package infra_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/infra"
	"github.com/once-lambda/once/internal/tabledef"
)

// applied are the resources that OpenTofu made of infra/terraform/testdata/watched, by
// address: the tables, queues and alarms of the stacks below. The tests of tools/tofu,
// which run these, write the file.
func applied(t *testing.T) (resources map[string]map[string]any) {
	t.Helper()
	text, err := os.ReadFile(os.Getenv("APPLIED"))
	if err != nil {
		t.Fatal(err)
	}
	decode(t, string(text), &resources)
	return resources
}

// Every resource of the Terraform modules is the resource of the CDK constructs,
// property by property.
func TestTerraformIsTheCDK(t *testing.T) {
	want := map[string]string{}
	stack, _ := watched()
	for _, s := range []awscdk.Stack{stack, fed(), apart(), everywhere()} {
		for _, kind := range slices.Sorted(maps.Values(kinds)) {
			for _, r := range resources(t, s, kind) {
				properties := r.Properties
				plainNames(t, properties, &properties)
				for name, text := range fromCDK(t, kind, name(r.id), properties) {
					want[name] = text
				}
			}
		}
	}
	got := map[string]string{}
	for address, values := range applied(t) {
		if strings.HasPrefix(address, "module.handler") || strings.HasPrefix(address, "module.operator.") || strings.HasPrefix(address, "module.viewer.") || strings.Contains(address, "_access") || strings.Contains(address, ".data.") {
			continue // TestTerraformAccess
		}
		for name, text := range fromTerraform(t, address, values) {
			got[name] = text
		}
	}
	for name := range maps.Keys(want) {
		if got[name] != want[name] {
			t.Errorf("%s\nTerraform %s\nCDK       %s", name, got[name], want[name])
		}
	}
	for name := range maps.Keys(got) {
		if want[name] == "" {
			t.Errorf("the CDK has no %s", name)
		}
	}
	if len(want) < 50 {
		t.Errorf("only %d resources were compared", len(want))
	}
}

// fed is a stack with a queue source, as in infra/terraform/testdata/watched.
func fed() awscdk.Stack {
	stack := newStack()
	queue := func(id string, props awssqs.QueueProps) awssqs.Queue {
		props.EnforceSSL, props.Encryption = jsii.Bool(true), awssqs.QueueEncryption_SQS_MANAGED
		return awssqs.NewQueue(stack, jsii.String(id), &props)
	}
	dead := queue("OrdersDead", awssqs.QueueProps{RetentionPeriod: awscdk.Duration_Days(jsii.Number(14))})
	infra.NewQueueSource(stack, jsii.String("OrderSource"), &infra.QueueSourceProps{
		Function: newFunction(stack, "OrdersFunction", 30),
		Queue: queue("Orders", awssqs.QueueProps{
			VisibilityTimeout: awscdk.Duration_Minutes(jsii.Number(3)), RetentionPeriod: awscdk.Duration_Days(jsii.Number(4)),
			DeadLetterQueue: &awssqs.DeadLetterQueue{Queue: dead, MaxReceiveCount: jsii.Number(5)},
		}),
		Retention: awscdk.Duration_Days(jsii.Number(23)),
	})
	return stack
}

// apart is a stack with a table of large results, as in
// infra/terraform/testdata/watched.
func apart() awscdk.Stack {
	stack := newStack()
	infra.NewIdempotencyTable(stack, jsii.String("Apart"), nil).KeepLargeResultsIn(nil)
	return stack
}

// everywhere is a stack with a table in several regions, as in
// infra/terraform/testdata/watched.
func everywhere() awscdk.Stack {
	stack := newStackIn("eu-west-1")
	props := strong("eu-west-3", "eu-central-1")
	props.TableName = nil
	infra.NewIdempotencyTable(stack, jsii.String("Everywhere"), props)
	return stack
}

// kinds are the types of resources that are compared.
var kinds = map[string]string{
	"aws_cloudwatch_dashboard":                "AWS::CloudWatch::Dashboard",
	"aws_cloudwatch_event_rule":               "AWS::Events::Rule",
	"aws_cloudwatch_metric_alarm":             "AWS::CloudWatch::Alarm",
	"aws_dynamodb_table":                      "AWS::DynamoDB::GlobalTable",
	"aws_iam_role_policy":                     "AWS::IAM::Policy",
	"aws_lambda_event_source_mapping":         "AWS::Lambda::EventSourceMapping",
	"aws_lambda_function_event_invoke_config": "AWS::Lambda::EventInvokeConfig",
	"aws_lambda_permission":                   "AWS::Lambda::Permission",
	"aws_sqs_queue":                           "AWS::SQS::Queue",
	"aws_sqs_queue_policy":                    "AWS::SQS::QueuePolicy",
}

// names are those that the CDK gives to what OpenTofu names by its own names.
var names = strings.NewReplacer(
	"aws_dynamodb_table.records.arn", "RecordsTable.Arn",
	`"records"`, `"RecordsTable"`,
	"aws_dynamodb_table.apart.arn", "ApartTable.Arn",
	"aws_dynamodb_table.apart-chunks.arn", "ApartChunks.Arn",
	`"apart"`, `"ApartTable"`,
	"aws_dynamodb_table.everywhere.arn", "EverywhereTable.Arn",
	`"everywhere"`, `"EverywhereTable"`,
	`"apart-chunks"`, `"ApartChunks"`,
	"aws_sqs_queue.reconciler-exhausted.arn", "ReconcilerExhausted.Arn",
	"aws_sqs_queue.reconciler-undelivered.arn", "ReconcilerUndelivered.Arn",
	"aws_sqs_queue.orders-dead.arn", "OrdersDead.Arn",
	"aws_sqs_queue.orders.arn", "Orders.Arn",
	`"reconciler-exhausted"`, `"ReconcilerExhausted.QueueName"`,
	`"reconciler-undelivered"`, `"ReconcilerUndelivered.QueueName"`,
	`"orders-dead"`, `"Dead.QueueName"`,
	"in reconciler-exhausted.", "in Test/Reconciler/Exhausted.",
	"in reconciler-undelivered.", "in Test/Reconciler/Undelivered.",
	"in orders-dead.", "in Test/Dead.",
	"aws_cloudwatch_event_rule.reconciler.arn", "ReconcilerSchedule.Arn",
	"aws_lambda_function.reconcile.arn", "Reconcile.Arn",
	`"reconcile"`, `"Reconcile"`,
	`"charge-function"`, `"ChargeFunction"`,
	"function charge-function fail", "function Test/ChargeFunction fail",
	`"order-function"`, `"OrderFunction"`,
	"function order-function fail", "function Test/OrderFunction fail",
	"aws_lambda_function.orders.arn", "OrdersFunction",
	"aws_region.current.region", "AWS::Region",
)

// fromCDK returns what is compared, by name. A policy is compared by statements,
// because a role can have several policies. So is the target of a rule.
func fromCDK(t *testing.T, kind, id string, properties map[string]any) map[string]string {
	t.Helper()
	switch kind {
	case "AWS::CloudWatch::Alarm":
		properties["Metrics"] = byID(elements(properties["Metrics"]), "Id")
		return map[string]string{kind + " " + strings.ToLower(id): asJSON(t, properties)}
	case "AWS::CloudWatch::Dashboard":
		return map[string]string{kind: dashboard(t, properties["DashboardBody"].(string))}
	case "AWS::DynamoDB::GlobalTable":
		properties["AttributeDefinitions"] = byID(elements(properties["AttributeDefinitions"]), "AttributeName")
	case "AWS::Events::Rule":
		target := elements(properties["Targets"])[0].(map[string]any)
		delete(target, "Id")
		return map[string]string{
			kind + " " + id:          asJSON(t, map[string]any{"ScheduleExpression": properties["ScheduleExpression"], "State": properties["State"]}),
			"target of a rule " + id: asJSON(t, target),
		}
	case "AWS::IAM::Policy", "AWS::SQS::QueuePolicy":
		out := map[string]string{}
		for _, s := range statementTexts(t, properties["PolicyDocument"]) {
			out[kind+" "+s] = s
		}
		return out
	case "AWS::Lambda::EventInvokeConfig", "AWS::Lambda::Permission":
		delete(properties, "Qualifier") // $LATEST, as without one
		return map[string]string{kind: asJSON(t, properties)}
	case "AWS::Lambda::EventSourceMapping":
		return map[string]string{kind: asJSON(t, properties)}
	case "AWS::SQS::Queue":
		if id == "Dead" {
			return nil // of the stack, not of a construct
		}
	}
	return map[string]string{kind + " " + id: asJSON(t, properties)}
}

// fromTerraform returns the same for a resource of OpenTofu.
func fromTerraform(t *testing.T, address string, values map[string]any) map[string]string {
	t.Helper()
	decode(t, names.Replace(asJSON(t, values)), &values)
	kind := regexp.MustCompile(`aws_\w+`).FindString(address)
	p := map[string]any{}
	set := func(from map[string]any, pairs ...string) {
		for i := 0; i < len(pairs); i += 2 {
			if v := from[pairs[i]]; v != nil && v != float64(0) || pairs[i] == "threshold" || pairs[i] == "maximum_retry_attempts" {
				p[pairs[i+1]] = v
			}
		}
	}
	only := func(name string) map[string]any {
		if len(elements(values[name])) == 0 {
			return nil
		}
		return elements(values[name])[0].(map[string]any)
	}
	switch kind {
	case "aws_cloudwatch_dashboard":
		return map[string]string{kinds[kind]: dashboard(t, values["dashboard_body"].(string))}
	case "aws_cloudwatch_event_target":
		return map[string]string{"target of a rule ReconcilerSchedule": asJSON(t, map[string]any{
			"Arn":              values["arn"],
			"DeadLetterConfig": map[string]any{"Arn": only("dead_letter_config")["arn"]},
			"RetryPolicy":      map[string]any{"MaximumRetryAttempts": only("retry_policy")["maximum_retry_attempts"]},
		})}
	case "aws_cloudwatch_event_rule":
		p["State"] = "ENABLED" // the provider's default
		set(values, "schedule_expression", "ScheduleExpression", "state", "State")
		return map[string]string{kinds[kind] + " ReconcilerSchedule": asJSON(t, p)}
	case "aws_iam_role_policy", "aws_sqs_queue_policy":
		out := map[string]string{}
		var document any
		decode(t, values["policy"].(string), &document)
		for _, s := range statementTexts(t, document) {
			out[kinds[kind]+" "+s] = s
		}
		return out
	case "aws_lambda_event_source_mapping":
		set(values, "batch_size", "BatchSize", "event_source_arn", "EventSourceArn", "function_name", "FunctionName",
			"function_response_types", "FunctionResponseTypes", "maximum_batching_window_in_seconds", "MaximumBatchingWindowInSeconds")
		delete(p, "BatchSize") // the CDK leaves out the default
		if values["batch_size"] != float64(10) {
			t.Errorf("the batch size is %v, and Lambda's default is 10", values["batch_size"])
		}
		return map[string]string{kinds[kind]: asJSON(t, p)}
	case "aws_lambda_function_event_invoke_config":
		set(values, "function_name", "FunctionName", "maximum_event_age_in_seconds", "MaximumEventAgeInSeconds", "maximum_retry_attempts", "MaximumRetryAttempts")
		return map[string]string{kinds[kind]: asJSON(t, p)}
	case "aws_lambda_permission":
		p["FunctionName"] = "Reconcile.Arn" // by its name here
		set(values, "action", "Action", "principal", "Principal", "source_arn", "SourceArn")
		return map[string]string{kinds[kind]: asJSON(t, p)}
	case "aws_sqs_queue":
		set(values, "message_retention_seconds", "MessageRetentionPeriod", "sqs_managed_sse_enabled", "SqsManagedSseEnabled", "visibility_timeout_seconds", "VisibilityTimeout")
		if redrive, ok := values["redrive_policy"].(string); ok {
			var policy any
			decode(t, redrive, &policy)
			p["RedrivePolicy"] = policy
		}
		id := map[string]string{
			"ReconcilerExhausted.QueueName": "ReconcilerExhausted", "ReconcilerUndelivered.QueueName": "ReconcilerUndelivered",
			"Dead.QueueName": "OrdersDead", "orders": "Orders",
		}[values["name"].(string)]
		return map[string]string{kinds[kind] + " " + id: asJSON(t, p)}
	case "aws_dynamodb_table":
		return map[string]string{kinds[kind] + " " + values["name"].(string): asJSON(t, table(values, only))}
	case "aws_cloudwatch_metric_alarm":
		set(values, "alarm_actions", "AlarmActions", "ok_actions", "OKActions", "alarm_description", "AlarmDescription", "comparison_operator", "ComparisonOperator",
			"datapoints_to_alarm", "DatapointsToAlarm", "evaluation_periods", "EvaluationPeriods", "threshold", "Threshold", "treat_missing_data", "TreatMissingData",
			"metric_name", "MetricName", "namespace", "Namespace", "period", "Period", "statistic", "Statistic")
		if of, ok := values["dimensions"]; ok {
			p["Dimensions"] = dimensions(of)
		}
		var queries []any
		for _, q := range elements(values["metric_query"]) {
			queries = append(queries, query(q.(map[string]any)))
		}
		p["Metrics"] = byID(queries, "Id")
		id := strings.ToLower(strings.ReplaceAll(values["alarm_name"].(string), "-", ""))
		return map[string]string{kinds[kind] + " " + id: asJSON(t, p)}
	}
	t.Errorf("no test compares %s", address)
	return nil
}

// table returns the properties of a table of CloudFormation. Its settings of a
// region are those of its replica.
func table(values map[string]any, only func(string) map[string]any) map[string]any {
	key := func(hash, sort any) []any {
		out := []any{map[string]any{"AttributeName": hash, "KeyType": "HASH"}}
		if sort != nil {
			out = append(out, map[string]any{"AttributeName": sort, "KeyType": "RANGE"})
		}
		return out
	}
	var attributes, indexes, ofRegion []any
	for _, a := range elements(values["attribute"]) {
		a := a.(map[string]any)
		attributes = append(attributes, map[string]any{"AttributeName": a["name"], "AttributeType": a["type"]})
	}
	for _, i := range elements(values["global_secondary_index"]) {
		i := i.(map[string]any)
		indexes = append(indexes, map[string]any{
			"IndexName": i["name"], "KeySchema": key(i["hash_key"], i["range_key"]), "Projection": map[string]any{"ProjectionType": i["projection_type"], "NonKeyAttributes": inOrder(elements(i["non_key_attributes"]))},
		})
		ofRegion = append(ofRegion, map[string]any{"IndexName": i["name"]})
	}
	replica := map[string]any{
		"Region": "AWS::Region", "DeletionProtectionEnabled": values["deletion_protection_enabled"],
		"PointInTimeRecoverySpecification": map[string]any{"PointInTimeRecoveryEnabled": only("point_in_time_recovery")["enabled"]},
	}
	out := map[string]any{
		"AttributeDefinitions": byID(attributes, "AttributeName"), "BillingMode": values["billing_mode"],
		"KeySchema":        key(values["hash_key"], values["range_key"]),
		"SSESpecification": map[string]any{"SSEEnabled": only("server_side_encryption")["enabled"]},
	}
	if ttl := only("ttl"); ttl != nil {
		out["TimeToLiveSpecification"] = map[string]any{"AttributeName": ttl["attribute_name"], "Enabled": ttl["enabled"]}
	}
	if indexes != nil {
		out["GlobalSecondaryIndexes"], replica["GlobalSecondaryIndexes"] = indexes, ofRegion
	}
	var replicas []any
	for _, r := range elements(values["replica"]) {
		r, own := r.(map[string]any), maps.Clone(replica)
		own["Region"], own["DeletionProtectionEnabled"] = r["region_name"], r["deletion_protection_enabled"]
		own["PointInTimeRecoverySpecification"] = map[string]any{"PointInTimeRecoveryEnabled": r["point_in_time_recovery"]}
		replicas = append(replicas, own)
		out["MultiRegionConsistency"] = r["consistency_mode"]
		out["StreamSpecification"] = map[string]any{"StreamViewType": values["stream_view_type"]}
		replica["Region"] = "eu-west-1" // of everywhere
	}
	out["Replicas"] = append(replicas, replica)
	if witness := only("global_table_witness"); witness != nil {
		out["GlobalTableWitnesses"] = []any{map[string]any{"Region": witness["region_name"]}}
	}
	return out
}

// query returns a query of metrics as in CloudFormation.
func query(q map[string]any) map[string]any {
	out := map[string]any{"Id": q["id"], "ReturnData": q["return_data"] == true}
	for from, to := range map[string]string{"expression": "Expression", "label": "Label"} {
		if q[from] != nil {
			out[to] = q[from]
		}
	}
	for _, m := range elements(q["metric"]) {
		m := m.(map[string]any)
		metric := map[string]any{"Namespace": m["namespace"], "MetricName": m["metric_name"]}
		if of := m["dimensions"]; of != nil {
			metric["Dimensions"] = dimensions(of)
		}
		out["MetricStat"] = map[string]any{"Period": m["period"], "Stat": m["stat"], "Metric": metric}
	}
	return out
}

func dimensions(of any) []any {
	var out []any
	for name, value := range of.(map[string]any) {
		out = append(out, map[string]any{"Name": name, "Value": value})
	}
	return byID(out, "Name")
}

func elements(v any) []any {
	out, _ := v.([]any)
	return out
}

// byID sorts objects by a member.
func byID(objects []any, member string) []any {
	return slices.SortedFunc(slices.Values(objects), func(a, b any) int {
		return strings.Compare(fmt.Sprint(a.(map[string]any)[member]), fmt.Sprint(b.(map[string]any)[member]))
	})
}

// inOrder returns the attributes of a set in the order of the CDK's list.
func inOrder(attributes []any) []any {
	order := tabledef.IndexAttributes()
	return slices.SortedFunc(slices.Values(attributes), func(a, b any) int {
		return slices.Index(order, a.(string)) - slices.Index(order, b.(string))
	})
}

// statementTexts returns the statements of a policy, without their names.
func statementTexts(t *testing.T, document any) (out []string) {
	t.Helper()
	for _, s := range document.(map[string]any)["Statement"].([]any) {
		s := s.(map[string]any)
		delete(s, "Sid")
		if actions, several := s["Action"].([]any); several && len(actions) == 1 {
			s["Action"] = actions[0]
		}
		out = append(out, asJSON(t, s))
	}
	return out
}

// dashboard returns a body with the alarms in alphabetical order.
func dashboard(t *testing.T, body string) string {
	t.Helper()
	var d struct{ Widgets []map[string]any }
	decode(t, body, &d)
	for _, w := range d.Widgets {
		properties := w["properties"].(map[string]any)
		if alarms := elements(properties["alarms"]); alarms != nil {
			var sorted []string
			for _, a := range alarms {
				plain := strings.ReplaceAll(strings.TrimPrefix(a.(string), "aws_cloudwatch_metric_alarm."), "-", "")
				sorted = append(sorted, strings.ToLower(plain))
			}
			slices.Sort(sorted)
			properties["alarms"] = sorted
		}
	}
	return asJSON(t, d.Widgets)
}

// Each role has the permissions that the CDK grants. The key of a table can be used
// through DynamoDB only.
func TestTerraformAccess(t *testing.T) {
	policies := map[string][]string{}
	for address, values := range applied(t) {
		if text, ok := values["policy"].(string); ok {
			var document any
			decode(t, names.Replace(text), &document)
			policies[address] = statementTexts(t, document)
		}
	}
	several := part{name: "handler_of_operations", grant: func(t *infra.IdempotencyTable, to awsiam.IGrantable) awsiam.Grant {
		return t.GrantHandler(to, jsii.String("charge"), jsii.String("GET /*"))
	}}
	tables := map[string]func(awscdk.Stack) *infra.IdempotencyTable{
		"": func(s awscdk.Stack) *infra.IdempotencyTable {
			return infra.NewIdempotencyTable(s, jsii.String("Records"), nil)
		},
		"apart_access": func(s awscdk.Stack) *infra.IdempotencyTable {
			records := infra.NewIdempotencyTable(s, jsii.String("Apart"), nil)
			records.KeepLargeResultsIn(nil)
			return records
		},
		"everywhere_access": func(s awscdk.Stack) *infra.IdempotencyTable {
			return infra.NewIdempotencyTable(s, jsii.String("Everywhere"), strong("eu-west-3", "eu-central-1"))
		},
		"shared_access": func(s awscdk.Stack) *infra.IdempotencyTable {
			shop := awsdynamodb.TableV2_FromTableArn(s, jsii.String("Shop"), jsii.String("arn:aws:dynamodb:eu-west-1:123456789012:table/shop"))
			return infra.IdempotencyTableFrom(s, jsii.String("Records"), shop, &infra.TableLayout{SortKey: jsii.String("SK"), Prefix: jsii.String("ONCE#")})
		},
	}
	for of, table := range tables {
		for _, p := range append(slices.Clone(grantees), several) {
			if of != "" && p.name == several.name {
				continue
			}
			stack := newStackIn("eu-west-1")
			p.grant(table(stack), newFunction(stack, "Function", 3))
			var document any
			plainNames(t, resources(t, stack, "AWS::IAM::Policy")[0].Properties["PolicyDocument"], &document)
			want := statementTexts(t, document)
			address := "module." + p.name + ".aws_iam_role_policy.access"
			switch {
			case of != "":
				address = `module.` + of + `["` + p.name + `"].aws_iam_role_policy.access`
			case p.name == "reconciler":
				address = "module.reconciler.module.access.aws_iam_role_policy.access"
			case p.name == several.name:
				want = append(want, `{"Action":["kms:Decrypt","kms:DescribeKey","kms:Encrypt","kms:GenerateDataKey","kms:GenerateDataKeyWithoutPlaintext","kms:ReEncryptFrom","kms:ReEncryptTo"],"Condition":{"StringEquals":{"kms:ViaService":"dynamodb.eu-west-1.amazonaws.com"}},"Effect":"Allow","Resource":"arn:aws:kms:eu-west-1:123456789012:key/1"}`)
			}
			got := policies[address]
			slices.Sort(got)
			slices.Sort(want)
			if len(want) == 0 || !slices.Equal(got, want) {
				t.Errorf("%s: a %s may\n%s\nand with the CDK\n%s", of, p.name, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	}
}
