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
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatchactions"
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
func protect(stack awscdk.Stack, charge, reconcile awslambda.Function, topic awssns.Topic) *infra.IdempotencyTable {
	records := infra.NewIdempotencyTable(stack, jsii.String("Records"), nil)
	records.GrantHandler(charge) // and sets ONCE_TABLE
	reconciler := infra.NewReconciler(stack, jsii.String("Reconciler"), &infra.ReconcilerProps{
		Function: reconcile, Table: records,
	})
	infra.NewIdempotencyAlarms(stack, jsii.String("OnceAlarms"), &infra.IdempotencyAlarmsProps{
		Namespace: jsii.String("Charges"), Operations: jsii.Strings("POST /charges"), Table: records,
		DeadLetterQueues: &[]awssqs.IQueue{reconciler.Exhausted, reconciler.Undelivered},
		Action:           awscloudwatchactions.NewSnsAction(topic),
	})
	return records
}

// feed is the code that docs/deploy.md adds for a queue.
func feed(stack awscdk.Stack, records *infra.IdempotencyTable, orders awslambda.Function, queue awssqs.Queue) {
	records.GrantHandler(orders)
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
	records := protect(stack, newFunction(stack, "Charge", 10), newFunction(stack, "Reconcile", 60), topic)
	feed(stack, records, newFunction(stack, "Orders", 5), awssqs.NewQueue(stack, jsii.String("Orders Queue"), &awssqs.QueueProps{
		DeadLetterQueue: &awssqs.DeadLetterQueue{Queue: awssqs.NewQueue(stack, jsii.String("Dead"), nil), MaxReceiveCount: jsii.Number(5)},
	}))
	wantRefusals(t, stack)
	if got := len(resources(t, stack, "AWS::IAM::Policy")); got != 3 {
		t.Errorf("%d functions have permissions, want 3", got)
	}
}

// The permissions in the guide equal those that the constructs grant.
func TestPermissionsInTheGuide(t *testing.T) {
	var table strings.Builder
	table.WriteString("| who | on | may |\n| --- | --- | --- |\n")
	for _, row := range []struct {
		who   string
		grant func(*infra.IdempotencyTable, awslambda.Function)
	}{
		{"handler", (*infra.IdempotencyTable).GrantHandler},
		{"reconciler", (*infra.IdempotencyTable).GrantReconciler},
	} {
		stack := newStack()
		row.grant(infra.NewIdempotencyTable(stack, jsii.String("Records"), nil), newFunction(stack, "Function", 3))
		var policy struct {
			Statement []struct{ Action, Resource any }
		}
		decode(t, asJSON(t, resources(t, stack, "AWS::IAM::Policy")[0].Properties["PolicyDocument"]), &policy)
		for _, s := range policy.Statement {
			who, on := row.who, "the table"
			if strings.Contains(asJSON(t, s.Resource), "/index/"+dynamostore.IndexName) {
				who, on = "", "its index, `…/index/"+dynamostore.IndexName+"`"
			}
			actions := strings.FieldsFunc(asJSON(t, s.Action), func(r rune) bool { return strings.ContainsRune(`[",]`, r) }) // one or a list
			fmt.Fprintf(&table, "| %s | %s | `%s` |\n", who, on, strings.Join(actions, "`, `"))
		}
	}
	doctest.Part(t, "../docs/deploy.md", "permissions", table.String(), *update)
}

var (
	metricNames = regexp.MustCompile(`"MetricName":"(?:api\.idempotency\.)?([^"]+)"`)
	numbered    = regexp.MustCompile(`[0-9]+$`)
)

// The alarms in the guide equal those that the construct creates.
func TestAlarmsInTheGuide(t *testing.T) {
	stack, alarms := watched()
	made := map[string]resource{}
	for _, r := range resources(t, stack, "AWS::CloudWatch::Alarm") {
		made[r.id] = r
	}
	var table strings.Builder
	table.WriteString("| alarm | on | when | description |\n| --- | --- | --- | --- |\n")
	rows := map[string]bool{}
	for _, alarm := range alarms.Alarms {
		name, _, _ := strings.Cut(numbered.ReplaceAllString(*alarm.Node().Id(), ""), "-")
		if rows[name] {
			continue // the alarm of another queue or operation
		}
		rows[name] = true
		r := made[*stack.GetLogicalId(alarm.Node().DefaultChild().(awscdk.CfnElement))]
		var on []string
		for _, metric := range metricNames.FindAllStringSubmatch(asJSON(t, r.Properties), -1) {
			on = append(on, metric[1])
		}
		slices.Sort(on)
		if name == "Misuse" { // a share of all requests
			on = slices.DeleteFunc(on, func(metric string) bool { return metric != "reserve.key_misuse.count" })
		}
		minutes := "a minute"
		if n := r.Properties["EvaluationPeriods"].(float64); n > 1 {
			minutes = fmt.Sprintf("each of %v minutes", n)
		}
		said := strings.TrimPrefix(r.Properties["AlarmDescription"].(string), "charge: ")
		said = strings.ReplaceAll(said, "Test/Reconciler/Exhausted", "the queue")
		fmt.Fprintf(&table, "| `%s` | `%s` | > %v in %s | %s |\n", name, strings.Join(on, "`, `"), r.Properties["Threshold"], minutes, said)
	}
	doctest.Part(t, "../docs/observe.md", "alarms", table.String(), *update)
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
