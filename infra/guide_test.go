// SPDX-License-Identifier: Apache-2.0

package infra_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/assertions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambdaeventsources"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/infra"
	"github.com/once-lambda/once/internal/doctest"
)

var update = flag.Bool("update", false, "write what is generated")

// protect is the code that docs/deploy.md adds to a stack with existing
// functions.
func protect(stack awscdk.Stack, charge, reconcile awslambda.IFunction, pager, tickets awssns.ITopic) *infra.IdempotencyTable {
	records := infra.NewIdempotencyTable(stack, jsii.String("Records"), nil)
	records.GrantHandler(charge, jsii.String("POST /charges")) // and sets ONCE_TABLE
	reconciler := infra.NewReconciler(stack, jsii.String("Reconciler"), &infra.ReconcilerProps{
		Function: reconcile, Table: records,
	})
	infra.NewIdempotencyAlarms(stack, jsii.String("OnceAlarms"), &infra.IdempotencyAlarmsProps{
		Namespace: jsii.String("Charges"), Operations: jsii.Strings("POST /charges"), Table: records,
		Functions:  &[]awslambda.IFunction{charge}, // sets ONCE_METRICS_NAMESPACE, for emf.New
		Reconciler: reconciler, Page: pager, Ticket: tickets,
	})
	return records
}

// feed is the code that docs/deploy.md adds for a queue.
func feed(stack awscdk.Stack, records *infra.IdempotencyTable, orders awslambda.IFunction, queue awssqs.IQueue) {
	records.GrantHandler(orders, jsii.String("take-order"))
	infra.NewQueueSource(stack, jsii.String("OrderSource"), &infra.QueueSourceProps{
		Function: orders, Queue: queue,
		Retention: awscdk.Duration_Days(jsii.Number(23)), // the default of lambdabatch
		Source:    &awslambdaeventsources.SqsEventSourceProps{BatchSize: jsii.Number(10)},
	})
}

// The code that the guide shows is accepted.
func TestGuide(t *testing.T) {
	stack := newStack()
	topic := awssns.NewTopic(stack, jsii.String("Topic"), nil)
	records := protect(stack, newFunction(stack, "Charge", 10), newFunction(stack, "Reconcile", 60), topic, topic)
	feed(stack, records, newFunction(stack, "Orders", 5), awssqs.NewQueue(stack, jsii.String("Orders Queue"), &awssqs.QueueProps{
		DeadLetterQueue: &awssqs.DeadLetterQueue{Queue: awssqs.NewQueue(stack, jsii.String("Dead"), nil), MaxReceiveCount: jsii.Number(5)},
	}))
	wantRefusals(t, stack)
	wantWarnings(t, stack)
	if got := len(resources(t, stack, "AWS::IAM::Policy")); got != 3 {
		t.Errorf("%d functions have permissions, want 3", got)
	}
}

// The permissions in the guide equal those that the constructs grant.
func TestPermissionsInTheGuide(t *testing.T) {
	var table strings.Builder
	table.WriteString("| who | on | may | with keys of |\n| --- | --- | --- | --- |\n")
	for _, grantee := range grantees {
		stack := newStack()
		grantee.grant(infra.NewIdempotencyTable(stack, jsii.String("Records"), nil), newFunction(stack, "Function", 3))
		who := grantee.name
		for _, s := range statements(t, resources(t, stack, "AWS::IAM::Policy")[0].Properties["PolicyDocument"]) {
			on := "the table"
			if strings.Contains(s.Resource[0], "/index/"+dynamostore.IndexName) {
				on = "its index, `…/index/" + dynamostore.IndexName + "`"
			}
			fmt.Fprintf(&table, "| %s | %s | `%s` | %s |\n", who, on, strings.Join(s.Action, "`, `"), keysIn(s))
			who = ""
		}
	}
	doctest.Part(t, "../docs/deploy.md", "permissions", table.String(), *update)
}

// keysIn names the keys that a statement is limited to.
func keysIn(s statement) string {
	var kinds []string
	for _, pattern := range s.Condition["ForAllValues:StringLike"]["dynamodb:LeadingKeys"] {
		kind := "records"
		if strings.HasSuffix(pattern, "#*") {
			kind = "chunks"
		}
		kinds = append(kinds, kind)
	}
	return strings.Join(kinds, " and ")
}

// The table of alarms in the guide equals the alarms that the construct creates,
// and each has a section that its description links to.
func TestAlarmsInTheGuide(t *testing.T) {
	stack, alarms := watched()
	text, err := os.ReadFile("../docs/alarms.md")
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]resource{}
	for _, r := range resources(t, stack, "AWS::CloudWatch::Alarm") {
		made[r.id] = r
	}
	var table strings.Builder
	table.WriteString("| alarm | notifies | rings if |\n| --- | --- | --- |\n")
	rows := map[string]bool{}
	for _, list := range []struct {
		topic  string
		alarms []awscloudwatch.Alarm
	}{{"`Page`", alarms.Page}, {"`Ticket`", alarms.Ticket}, {"`Look`", alarms.Look}} {
		for _, alarm := range list.alarms {
			name, _, _ := strings.Cut(strings.TrimRight(*alarm.Node().Id(), "0123456789"), "-")
			if rows[name] {
				continue // the alarm of another queue or operation
			}
			rows[name] = true
			r := made[*stack.GetLogicalId(alarm.Node().DefaultChild().(awscdk.CfnElement))]
			anchor := "#" + strings.ToLower(name)
			if link := "https://github.com/once-lambda/once/blob/main/docs/alarms.md" + anchor; !strings.HasSuffix(r.Properties["AlarmDescription"].(string), " "+link) {
				t.Errorf("%s does not link to its procedure: %s", name, r.Properties["AlarmDescription"])
			}
			if !bytes.Contains(text, []byte("\n## "+name+"\n")) {
				t.Errorf("docs/alarms.md has no section %s", name)
			}
			fmt.Fprintf(&table, "| [%s](%s) | %s | %s |\n", name, anchor, list.topic, rings(t, r))
		}
	}
	for _, heading := range regexp.MustCompile(`(?m)^## ([A-Z]\w+)$`).FindAllSubmatch(text, -1) {
		if !rows[string(heading[1])] {
			t.Errorf("docs/alarms.md has a section for %s, and there is no such alarm", heading[1])
		}
	}
	doctest.Part(t, "../docs/alarms.md", "alarms", table.String(), *update)
}

// rings says when an alarm rings, from its properties.
func rings(t *testing.T, r resource) string {
	t.Helper()
	var a struct {
		MetricName, ComparisonOperator, TreatMissingData string
		Period, Threshold                                float64
		EvaluationPeriods, DatapointsToAlarm             int
		Metrics                                          []struct {
			Expression string
			MetricStat struct {
				Period float64
				Metric struct{ MetricName string }
			}
		}
	}
	decode(t, asJSON(t, r.Properties), &a)
	on, percent := []string{a.MetricName}, false
	if len(a.Metrics) > 0 {
		on = nil
	}
	for _, m := range a.Metrics {
		percent = percent || strings.HasPrefix(m.Expression, "IF(")
		if m.Expression != "" {
			continue
		}
		a.Period = m.MetricStat.Period
		if name := m.MetricStat.Metric.MetricName; name != "once.request_ended" && name != "ConsumedWriteCapacityUnits" {
			on = append(on, name)
		}
	}
	slices.Sort(on)
	said := "`" + strings.Join(on, "` and `") + "`"
	if percent {
		said += " per request"
		if on[0] == "WriteThrottleEvents" {
			said = "`WriteThrottleEvents` per write unit"
		}
	}
	said += map[string]string{"GreaterThanThreshold": " > ", "LessThanThreshold": " < "}[a.ComparisonOperator] + fmt.Sprint(a.Threshold)
	if percent {
		said += " %"
	}
	if a.TreatMissingData == "breaching" {
		said += " or missing"
	}
	unit := map[float64]string{60: "minute", 3600: "hour"}[a.Period]
	switch {
	case a.EvaluationPeriods == 1:
		return said + " in the last " + unit
	case a.DatapointsToAlarm == a.EvaluationPeriods:
		return fmt.Sprintf("%s in %d %ss in a row", said, a.EvaluationPeriods, unit)
	default:
		return fmt.Sprintf("%s in %d of %d %ss", said, a.DatapointsToAlarm, a.EvaluationPeriods, unit)
	}
}

// The table for CloudFormation is the one that the CDK synthesises.
func TestTableTemplate(t *testing.T) {
	app := awscdk.NewApp(&awscdk.AppProps{AnalyticsReporting: jsii.Bool(false)})
	stack := awscdk.NewStack(app, jsii.String("Test"), &awscdk.StackProps{
		Description: jsii.String("The table of package dynamostore"),
		Synthesizer: awscdk.NewDefaultStackSynthesizer(&awscdk.DefaultStackSynthesizerProps{GenerateBootstrapVersionRule: jsii.Bool(false)}),
	})
	table := infra.NewIdempotencyTable(stack, jsii.String("Records"), nil)
	table.Table.Node().DefaultChild().(awsdynamodb.CfnGlobalTable).OverrideLogicalId(jsii.String("Records"))
	awscdk.NewCfnOutput(stack, jsii.String("TableName"), &awscdk.CfnOutputProps{Value: table.Table.TableName()})
	awscdk.NewCfnOutput(stack, jsii.String("TableArn"), &awscdk.CfnOutputProps{Value: table.Table.TableArn()})
	want, err := json.MarshalIndent(assertions.Template_FromStack(stack, nil).ToJSON(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile("table.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile("table.json"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("table.json is out of date (%v): run go test ./infra -run %s -update", err, t.Name())
	}
}
