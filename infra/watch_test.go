// SPDX-License-Identifier: Apache-2.0

package infra_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatchactions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/infra"
	"github.com/once-lambda/once/telemetry"
)

// watched is a stack with the alarms and the dashboard of two operations. The
// tests share it, and do not change it.
var watched = sync.OnceValues(func() (awscdk.Stack, *infra.IdempotencyAlarms) {
	stack := newStack()
	table := infra.NewIdempotencyTable(stack, jsii.String("Records"), nil)
	r := infra.NewReconciler(stack, jsii.String("Reconciler"), &infra.ReconcilerProps{
		Function: newFunction(stack, "Function", 60), Table: table,
	})
	alarms := infra.NewIdempotencyAlarms(stack, jsii.String("Alarms"), &infra.IdempotencyAlarmsProps{
		Namespace: jsii.String("Charges"), Operations: jsii.Strings("charge", "order"), Table: table,
		DeadLetterQueues: &[]awssqs.IQueue{r.Exhausted, r.Undelivered},
		Action:           awscloudwatchactions.NewSnsAction(awssns.NewTopic(stack, jsii.String("Topic"), nil)),
	})
	infra.NewIdempotencyDashboard(stack, jsii.String("Dashboard"), &infra.IdempotencyDashboardProps{
		Namespace: jsii.String("Charges"), Operations: jsii.Strings("charge", "order"), Alarms: alarms,
	})
	return stack, alarms
})

// G12: every condition that needs an operator has an alarm with a description.
func TestAlarms(t *testing.T) {
	stack, _ := watched()
	wantRefusals(t, stack)
	about := map[string]int{}
	for _, alarm := range resources(t, stack, "AWS::CloudWatch::Alarm") {
		wantProperties(t, alarm, `{"ComparisonOperator": "GreaterThanThreshold", "TreatMissingData": "notBreaching"}`)
		text := asJSON(t, alarm.Properties)
		if alarm.Properties["AlarmActions"] == nil || alarm.Properties["OKActions"] == nil || alarm.Properties["AlarmDescription"] == nil {
			t.Errorf("an alarm without actions or a description: %s", text)
		}
		for _, what := range []string{
			"zombie_key", "key_misuse", "store.error", "complete.late", "complete.contradicted", "complete.failed", "reconcile.exhausted",
			telemetry.UnknownOldestAge, "WriteThrottleEvents", "ApproximateNumberOfMessagesVisible",
		} {
			if strings.Contains(text, what) {
				about[what]++
			}
		}
	}
	for what, want := range map[string]int{
		"zombie_key": 2, "key_misuse": 2, "store.error": 2, "complete.late": 2, "complete.contradicted": 2, "complete.failed": 2,
		"reconcile.exhausted":      2,
		telemetry.UnknownOldestAge: 1, "WriteThrottleEvents": 2, "ApproximateNumberOfMessagesVisible": 2,
	} {
		if about[what] != want {
			t.Errorf("%d alarms about %s, want %d", about[what], what, want)
		}
	}
}

// Without a reconciler there are no alarms on its metrics.
func TestAlarmsWithoutReconciler(t *testing.T) {
	stack := newStack()
	infra.NewIdempotencyAlarms(stack, jsii.String("Alarms"), &infra.IdempotencyAlarmsProps{
		Namespace: jsii.String("Orders"), Operations: jsii.Strings("order"), Reconciled: jsii.Bool(false),
		Table: infra.NewIdempotencyTable(stack, jsii.String("Records"), nil),
	})
	wantRefusals(t, stack)
	alarms := asJSON(t, resources(t, stack, "AWS::CloudWatch::Alarm"))
	if strings.Contains(alarms, "reconcile.exhausted") || strings.Contains(alarms, telemetry.UnknownOldestAge) {
		t.Errorf("there are alarms on a reconciler's metrics: %s", alarms)
	}
	if !strings.Contains(alarms, "zombie_key") {
		t.Errorf("there is no alarm on unknown outcomes: %s", alarms)
	}
}

// G12: every metric of the alarms and the dashboard is one that the functions
// print.
func TestMetricsAreThoseOfTelemetry(t *testing.T) {
	stack, _ := watched()
	text := asJSON(t, resources(t, stack, "AWS::CloudWatch::Alarm")) + asJSON(t, resources(t, stack, "AWS::CloudWatch::Dashboard"))
	known := map[string]bool{telemetry.UnknownOldestAge: true, telemetry.ReleasedOldestAge: true}
	for _, m := range telemetry.Metrics() {
		known[m.Name] = true
	}
	found := 0
	for part := range strings.SplitSeq(text, "api.idempotency.") {
		name := "api.idempotency." + part[:strings.IndexFunc(part, func(r rune) bool { return r != '.' && r != '_' && (r < 'a' || r > 'z') })]
		if name == "api.idempotency." {
			continue // the text before the first metric
		}
		if found++; !known[name] {
			t.Errorf("package telemetry has no metric %s", name)
		}
	}
	if found < 30 {
		t.Errorf("got %d metrics, want at least 30", found)
	}
}

// Missing properties are reported, and do not stop the program.
func TestWhatIsMissingIsRefused(t *testing.T) {
	for _, row := range []struct {
		name string
		make func(awscdk.Stack, *string)
		want []string
	}{
		{"alarms", func(s awscdk.Stack, id *string) { infra.NewIdempotencyAlarms(s, id, nil) },
			[]string{"Namespace is not set", "Operations are not set", "Table is not set"}},
		{"operations", func(s awscdk.Stack, id *string) {
			infra.NewIdempotencyAlarms(s, id, &infra.IdempotencyAlarmsProps{
				Namespace: jsii.String("Charges"), Operations: &[]*string{nil, jsii.String("charge"), jsii.String("charge")}, Table: infra.NewIdempotencyTable(s, jsii.String("Records"), nil),
			})
		}, []string{"one of Operations has no name", `"charge" is twice in Operations`}},
		{"dashboard", func(s awscdk.Stack, id *string) { infra.NewIdempotencyDashboard(s, id, nil) },
			[]string{"Namespace is not set", "Operations are not set"}},
		{"reconciler", func(s awscdk.Stack, id *string) {
			r := infra.NewReconciler(s, id, nil)
			r.Exhausted.MetricApproximateNumberOfMessagesVisible(nil) // the fields that are used before synthesis are set
		}, []string{"Function is not set", "Table is not set"}},
		{"reconciler, too often", func(s awscdk.Stack, id *string) {
			infra.NewReconciler(s, id, &infra.ReconcilerProps{
				Function: newFunction(s, "Function", 60), Table: infra.NewIdempotencyTable(s, jsii.String("Records"), nil),
				Every: awscdk.Duration_Seconds(jsii.Number(90)),
			})
		}, []string{"Every is 1m30s: set it to whole minutes"}},
		{"queue source", func(s awscdk.Stack, id *string) { infra.NewQueueSource(s, id, nil) },
			[]string{"Function is not set", "Queue is not set"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			stack := newStack()
			row.make(stack, jsii.String("Subject"))
			wantRefusals(t, stack, row.want...)
		})
	}
}

// F41: the reconciler runs once a minute, and the records it gives up go to a
// queue.
func TestReconciler(t *testing.T) {
	stack, _ := watched()
	rule := resources(t, stack, "AWS::Events::Rule")[0]
	wantProperties(t, rule, `{"ScheduleExpression": "rate(1 minute)", "State": "ENABLED"}`)
	target := rule.Properties["Targets"].([]any)[0].(map[string]any)
	if target["DeadLetterConfig"] == nil || asJSON(t, target["RetryPolicy"]) != `{"MaximumRetryAttempts":0}` {
		t.Errorf("the target is %v", target)
	}
	for _, queue := range resources(t, stack, "AWS::SQS::Queue") {
		wantProperties(t, queue, `{"MessageRetentionPeriod": 1209600, "SqsManagedSseEnabled": true}`)
	}
	variables := asJSON(t, resources(t, stack, "AWS::Lambda::Function")[0].Properties["Environment"])
	if !strings.Contains(variables, "ONCE_EXHAUSTED_QUEUE_URL") || !strings.Contains(variables, "ONCE_TABLE") {
		t.Errorf("the function's environment is %s", variables)
	}
	if policy := asJSON(t, resources(t, stack, "AWS::IAM::Policy")); !strings.Contains(policy, "sqs:SendMessage") || strings.Contains(policy, `"*"`) {
		t.Errorf("the policies are %s", policy)
	}
}
