// SPDX-License-Identifier: Apache-2.0

package infra_test

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/infra"
	"github.com/once-lambda/once/telemetry"
)

// watched is a stack with the alarms and dashboards of two services: one with a
// reconciler and one set of alarms for all operations, and one without a reconciler
// and with a set for each operation. The tests share it, and do not change it.
var watched = sync.OnceValues(func() (awscdk.Stack, *infra.IdempotencyAlarms) {
	stack := newStack()
	table := infra.NewIdempotencyTable(stack, jsii.String("Records"), nil)
	topic := func(id string) awssns.Topic {
		return awssns.NewTopic(stack, jsii.String(id), &awssns.TopicProps{EnforceSSL: jsii.Bool(true)})
	}
	pager, tickets, looks := topic("Pager"), topic("Tickets"), topic("Looks")
	alarms := infra.NewIdempotencyAlarms(stack, jsii.String("Charges"), &infra.IdempotencyAlarmsProps{
		Namespace: jsii.String("Charges"), Table: table,
		Functions: &[]awslambda.IFunction{newFunction(stack, "ChargeFunction", 10)},
		Reconciler: infra.NewReconciler(stack, jsii.String("Reconciler"), &infra.ReconcilerProps{
			Function: newFunction(stack, "Reconcile", 60), Table: table,
		}),
		Page: pager, Ticket: tickets, Look: looks,
	})
	infra.NewIdempotencyDashboard(stack, jsii.String("ChargesDashboard"), &infra.IdempotencyDashboardProps{
		Namespace: jsii.String("Charges"), Operations: jsii.Strings("charge", "refund"), Alarms: alarms,
	})
	infra.NewIdempotencyAlarms(stack, jsii.String("Orders"), &infra.IdempotencyAlarmsProps{
		Namespace: jsii.String("Orders"), Operations: jsii.Strings("order", "return"), Table: table,
		Functions:        &[]awslambda.IFunction{newFunction(stack, "OrderFunction", 15*60)},
		DeadLetterQueues: &[]awssqs.IQueue{awssqs.NewQueue(stack, jsii.String("Dead"), nil)},
		Page:             pager, Ticket: tickets,
	})
	return stack, alarms
})

// Each alarm has a topic, for its start and its end, and the topic's policy lets
// CloudWatch publish for this account. A policy that only denies would take the
// place of the default policy, and no alarm would reach anyone.
func TestAlarmsReachTheirTopics(t *testing.T) {
	stack, _ := watched()
	wantNoMessages(t, stack)
	publish := map[string]bool{} // by topic: CloudWatch may publish
	for _, policy := range resources(t, stack, "AWS::SNS::TopicPolicy") {
		var p struct {
			PolicyDocument struct {
				Statement []struct {
					Effect, Action string
					Principal      any
					Condition      any
					Resource       struct{ Ref string }
				}
			}
			Topics []struct{ Ref string }
		}
		decode(t, asJSON(t, policy.Properties), &p)
		for _, s := range p.PolicyDocument.Statement {
			if s.Effect == "Allow" && s.Action == "sns:Publish" && asJSON(t, s.Principal) == `{"Service":"cloudwatch.amazonaws.com"}` &&
				asJSON(t, s.Condition) == `{"StringEquals":{"aws:SourceAccount":{"Ref":"AWS::AccountId"}}}` {
				for _, topic := range p.Topics {
					publish[topic.Ref] = topic.Ref == s.Resource.Ref
				}
			}
		}
	}
	got := map[string]int{}
	for _, alarm := range resources(t, stack, "AWS::CloudWatch::Alarm") {
		var a struct{ AlarmActions, OKActions []struct{ Ref string } }
		decode(t, asJSON(t, alarm.Properties), &a)
		switch {
		case len(a.AlarmActions) == 0 && len(a.OKActions) == 0:
			got["none"]++
		case len(a.AlarmActions) != 1 || len(a.OKActions) != 1 || a.AlarmActions[0] != a.OKActions[0]:
			t.Errorf("%s has the actions %v", alarm.id, a)
		case !publish[a.AlarmActions[0].Ref]:
			t.Errorf("%s notifies %s, whose policy does not let CloudWatch publish", alarm.id, a.AlarmActions[0].Ref)
		default:
			got[name(a.AlarmActions[0].Ref)]++
		}
	}
	if want := map[string]int{"Pager": 20, "Tickets": 23, "Looks": 1, "none": 2}; !maps.Equal(got, want) {
		t.Errorf("alarms by topic: %v, want %v", got, want)
	}
}

// A topic with a key lets CloudWatch use it. The policy of an imported topic is
// left to its owner, and synthesis says so.
func TestTopicsOfOtherKinds(t *testing.T) {
	stack := newStack()
	key := newKey(stack, "Key")
	infra.NewIdempotencyAlarms(stack, jsii.String("Alarms"), &infra.IdempotencyAlarmsProps{
		Namespace: jsii.String("Charges"), Operations: jsii.Strings("charge"), Table: infra.NewIdempotencyTable(stack, jsii.String("Records"), nil),
		Functions: &[]awslambda.IFunction{newFunction(stack, "Charge", 10)},
		Page:      awssns.NewTopic(stack, jsii.String("Pager"), &awssns.TopicProps{MasterKey: key}),
		Ticket:    awssns.Topic_FromTopicArn(stack, jsii.String("Imported"), jsii.String("arn:aws:sns:eu-west-1:123456789012:tickets")),
	})
	wantRefusals(t, stack)
	wantWarnings(t, stack, "the policy of the imported topic Test/Imported cannot be changed here")
	policy := asJSON(t, resources(t, stack, "AWS::KMS::Key")[0].Properties["KeyPolicy"])
	if want := `{"Action":["kms:Decrypt","kms:GenerateDataKey*"],"Condition":{"StringEquals":{"aws:SourceAccount":{"Ref":"AWS::AccountId"}}},"Effect":"Allow","Principal":{"Service":"cloudwatch.amazonaws.com"},"Resource":"*"}`; !strings.Contains(policy, want) {
		t.Errorf("the key's policy is %s, want in it %s", policy, want)
	}
}

// Without functions and topics the alarms are synthesised, with warnings.
func TestSilentAlarmsAreWarnedAbout(t *testing.T) {
	stack := newStack()
	infra.NewIdempotencyAlarms(stack, jsii.String("Alarms"), &infra.IdempotencyAlarmsProps{
		Namespace: jsii.String("Orders"), Operations: jsii.Strings("order"), Table: infra.NewIdempotencyTable(stack, jsii.String("Records"), nil),
	})
	wantRefusals(t, stack)
	wantWarnings(t, stack, "Functions are not set", "Page is not set", "Ticket is not set")
	for _, alarm := range resources(t, stack, "AWS::CloudWatch::Alarm") {
		if strings.Contains(alarm.id, "Reconciler") || strings.Contains(alarm.id, "OldestUnknown") || strings.Contains(alarm.id, "Exhausted") {
			t.Errorf("without a reconciler there is the alarm %s", alarm.id)
		}
	}
}

// An application log level above INFO is warned about. Lambda filters only the format
// JSON, and the CDK sets a level only with it.
func TestLogFiltersAreWarnedAbout(t *testing.T) {
	for level, want := range map[awslambda.ApplicationLogLevel][]string{
		"": nil, awslambda.ApplicationLogLevel_TRACE: nil, awslambda.ApplicationLogLevel_DEBUG: nil, awslambda.ApplicationLogLevel_INFO: nil,
		awslambda.ApplicationLogLevel_WARN:  {"the function Test/Charge has the application log level WARN"},
		awslambda.ApplicationLogLevel_ERROR: {"the function Test/Charge has the application log level ERROR"},
		awslambda.ApplicationLogLevel_FATAL: {"the function Test/Charge has the application log level FATAL"},
	} {
		stack := newStack()
		topic := awssns.NewTopic(stack, jsii.String("Topic"), nil)
		infra.NewIdempotencyAlarms(stack, jsii.String("Alarms"), &infra.IdempotencyAlarmsProps{
			Namespace: jsii.String("Charges"), Table: infra.NewIdempotencyTable(stack, jsii.String("Records"), nil), Page: topic, Ticket: topic,
			Functions: &[]awslambda.IFunction{newFunctionOf(stack, "Charge", awslambda.FunctionProps{
				LoggingFormat: awslambda.LoggingFormat_JSON, ApplicationLogLevelV2: level,
			})},
		})
		wantRefusals(t, stack)
		wantWarnings(t, stack, want...)
	}
}

// Some alarms are made only for what they watch: FunctionFails, which looks back for a
// quarter of an hour, for a time-out that is known and below ten minutes, beside
// FunctionFailsLong; ScanLate for a reconciler that scans.
func TestAlarmsThatAreConditional(t *testing.T) {
	function := func(seconds float64) func(awscdk.Stack, *infra.IdempotencyAlarmsProps) {
		return func(s awscdk.Stack, p *infra.IdempotencyAlarmsProps) {
			p.Functions = &[]awslambda.IFunction{newFunction(s, "Function", seconds)}
		}
	}
	reconciler := func(props infra.ReconcilerProps) func(awscdk.Stack, *infra.IdempotencyAlarmsProps) {
		return func(s awscdk.Stack, p *infra.IdempotencyAlarmsProps) {
			props.Function, props.Table = newFunction(s, "Reconcile", 60), p.Table
			p.Reconciler = infra.NewReconciler(s, jsii.String("Reconciler"), &props)
		}
	}
	for _, row := range []struct {
		name, alarm string
		watch       func(awscdk.Stack, *infra.IdempotencyAlarmsProps)
		want        int
	}{
		{"3 s", "FunctionFails", function(3), 2},
		{"300 s", "FunctionFails", function(300), 2},
		{"599 s", "FunctionFails", function(599), 2},
		{"600 s", "FunctionFails", function(600), 1},
		{"900 s", "FunctionFails", function(900), 1},
		{"not known", "FunctionFails", func(s awscdk.Stack, p *infra.IdempotencyAlarmsProps) {
			p.Functions = &[]awslambda.IFunction{anImportedFunction(s)}
		}, 1},
		{"scans", "ScanLate", reconciler(infra.ReconcilerProps{}), 1},
		{"no scans", "ScanLate", reconciler(infra.ReconcilerProps{Scan: &infra.ScanProps{Every: awscdk.Duration_Seconds(jsii.Number(0))}}), 0},
		{"a reconciler that is refused", "ScanLate", reconciler(infra.ReconcilerProps{Every: awscdk.Duration_Seconds(jsii.Number(90))}), 0},
	} {
		stack := newStackIn("eu-central-1")
		props := &infra.IdempotencyAlarmsProps{Namespace: jsii.String("Charges"), Table: infra.NewIdempotencyTable(stack, jsii.String("Records"), nil)}
		row.watch(stack, props)
		infra.NewIdempotencyAlarms(stack, jsii.String("Alarms"), props)
		got := 0
		for _, alarm := range resources(t, stack, "AWS::CloudWatch::Alarm") {
			got += strings.Count(alarm.id, row.alarm)
		}
		if got != row.want {
			t.Errorf("%s: %d alarms %s, want %d", row.name, got, row.alarm, row.want)
		}
	}
}

// The functions get the namespace that the alarms watch.
func TestFunctionsGetTheNamespace(t *testing.T) {
	stack, _ := watched()
	got := map[string]string{}
	for _, fn := range resources(t, stack, "AWS::Lambda::Function") {
		got[name(fn.id)] = fmt.Sprint(fn.Properties["Environment"].(map[string]any)["Variables"].(map[string]any)["ONCE_METRICS_NAMESPACE"])
	}
	if want := map[string]string{"ChargeFunction": "Charges", "Reconcile": "Charges", "OrderFunction": "Orders"}; !maps.Equal(got, want) {
		t.Errorf("the namespaces are %v, want %v", got, want)
	}
}

// A reconciler that runs rarely has alarms with its own interval, and a limit of
// three intervals.
func TestAlarmsOfARareReconciler(t *testing.T) {
	stack := newStack()
	table := infra.NewIdempotencyTable(stack, jsii.String("Records"), nil)
	infra.NewIdempotencyAlarms(stack, jsii.String("Alarms"), &infra.IdempotencyAlarmsProps{
		Namespace: jsii.String("Charges"), Operations: jsii.Strings("charge"), Table: table,
		Reconciler: infra.NewReconciler(stack, jsii.String("Reconciler"), &infra.ReconcilerProps{
			Function: newFunction(stack, "Reconcile", 60), Table: table, Every: awscdk.Duration_Hours(jsii.Number(1)),
		}),
		StoreErrorRate: jsii.Number(2), MisuseRate: jsii.Number(3),
	})
	wantRefusals(t, stack)
	wantAlarms(t, stack, map[string]string{
		"OldestUnknown":       `{"Period": 3600, "Threshold": 10800, "EvaluationPeriods": 3}`,
		"ScanLate":            `{"Period": 3600, "Threshold": 172800, "EvaluationPeriods": 3}`,
		"ReconcilerErrors":    `{"Period": 3600, "Threshold": 0, "EvaluationPeriods": 3}`,
		"ReconcilerThrottled": `{"Period": 3600, "Threshold": 0, "EvaluationPeriods": 3}`,
		"ReconcilerSilent":    `{"Period": 3600, "Threshold": 1, "EvaluationPeriods": 3, "ComparisonOperator": "LessThanThreshold"}`,
		"StoreErrorscharge":   `{"Threshold": 2}`,
		"Misuse":              `{"Threshold": 3}`,
	})
	wantProperties(t, resources(t, stack, "AWS::Events::Rule")[0], `{"ScheduleExpression": "rate(1 hour)"}`)
}

// G12: every metric of the alarms and the dashboard is one that the functions
// print.
func TestMetricsAreThoseOfTelemetry(t *testing.T) {
	stack, _ := watched()
	text := asJSON(t, resources(t, stack, "AWS::CloudWatch::Alarm")) + asJSON(t, resources(t, stack, "AWS::CloudWatch::Dashboard"))
	known := map[string]bool{
		telemetry.ScanAge: true, telemetry.UnknownRecords: true, telemetry.UnknownOldestAge: true, telemetry.ReleasedRecords: true, telemetry.ReleasedOldestAge: true,
		telemetry.ClaimDuration: true, telemetry.HandlerDuration: true, telemetry.SettleDuration: true,
	}
	for _, m := range telemetry.Metrics() {
		known[m.Name] = true
	}
	found := 0
	for _, name := range regexp.MustCompile(`"once\.[a-z_.]+`).FindAllString(strings.ReplaceAll(text, `\"`, `"`), -1) {
		if found++; !known[name[1:]] {
			t.Errorf("package telemetry has no metric %s", name[1:])
		}
	}
	if found < 60 {
		t.Errorf("found %d metrics, want at least 60", found)
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
			[]string{"Namespace is not set", "Table is not set"}},
		{"alarms of a function", func(s awscdk.Stack, id *string) {
			infra.NewIdempotencyAlarms(s, id, &infra.IdempotencyAlarmsProps{Namespace: jsii.String("Charges"), Functions: &[]awslambda.IFunction{newFunction(s, "Charge", 10)}})
		}, []string{"Table is not set"}},
		{"functions", func(s awscdk.Stack, id *string) {
			fn := newFunction(s, "Charge", 10)
			infra.NewIdempotencyAlarms(s, id, &infra.IdempotencyAlarmsProps{
				Namespace: jsii.String("Charges"), Table: infra.NewIdempotencyTable(s, jsii.String("Records"), nil),
				Functions: &[]awslambda.IFunction{fn, newFunction(s, "Slow", 115*60), fn},
			})
		}, []string{"the time-out of Test/Slow is 1h55m0s, and FunctionFailsLong would not see its errors", "Test/Charge is twice in Functions"}},
		{"operations", func(s awscdk.Stack, id *string) {
			infra.NewIdempotencyAlarms(s, id, &infra.IdempotencyAlarmsProps{
				Namespace: jsii.String("AWS/Charges"), Operations: &[]*string{nil, jsii.String("charge"), jsii.String("charge"), jsii.String("post /charges"), jsii.String("*")},
				Table: infra.NewIdempotencyTable(s, jsii.String("Records"), nil),
			})
		}, []string{
			`Namespace is "AWS/Charges", and names that begin with AWS/ are for services of AWS: set it to another, or emf.New fails`,
			"one of Operations has no name", `"charge" is twice in Operations`, `one of Operations is "post /charges": want "POST /charges"`,
			`one of Operations is "*", and no metric has that name: write the names of the operations`,
		}},
		{"dashboard", func(s awscdk.Stack, id *string) { infra.NewIdempotencyDashboard(s, id, nil) },
			[]string{"Namespace is not set", "Operations are not set"}},
		{"reconciler", func(s awscdk.Stack, id *string) {
			r := infra.NewReconciler(s, id, nil)
			r.Exhausted.MetricApproximateNumberOfMessagesVisible(nil) // the fields that are used before synthesis are set
			infra.NewIdempotencyAlarms(s, jsii.String("Alarms"), &infra.IdempotencyAlarmsProps{
				Namespace: jsii.String("Charges"), Operations: jsii.Strings("charge"), Reconciler: r,
			})
		}, []string{"Function is not set", "Table is not set", "Table is not set"}},
		{"reconciler, too often", func(s awscdk.Stack, id *string) {
			infra.NewReconciler(s, id, &infra.ReconcilerProps{
				Function: newFunction(s, "Function", 60), Table: infra.NewIdempotencyTable(s, jsii.String("Records"), nil),
				Every: awscdk.Duration_Seconds(jsii.Number(90)),
			})
		}, []string{"Every is 1m30s: set it to whole minutes"}},
		{"queue source", func(s awscdk.Stack, id *string) { infra.NewQueueSource(s, id, nil) },
			[]string{"Function is not set", "Queue is not set"}},
		{"table that exists", func(s awscdk.Stack, id *string) {
			infra.IdempotencyTableFrom(s, id, nil, nil).GrantHandler(newFunction(s, "Function", 3), jsii.String("charge"))
		}, []string{"the table is not set: import one"}},
		{"stream source", func(s awscdk.Stack, id *string) { infra.NewStreamSource(s, id, nil) }, []string{"Function is not set"}},
		{"Kafka source", func(s awscdk.Stack, id *string) { infra.NewKafkaSource(s, id, nil) },
			[]string{"Function is not set", "Managed and SelfManaged are both set, or not set"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			stack := newStack()
			row.make(stack, jsii.String("Subject"))
			wantRefusals(t, stack, row.want...)
		})
	}
}

// F41: the reconciler runs once a minute, and the records it gives up go to a
// queue. An event that does not reach the function goes to another one.
func TestReconciler(t *testing.T) {
	stack := newStack()
	infra.NewReconciler(stack, jsii.String("Reconciler"), &infra.ReconcilerProps{
		Function: newFunction(stack, "Function", 60), Table: infra.NewIdempotencyTable(stack, jsii.String("Records"), nil),
	})
	rule := resources(t, stack, "AWS::Events::Rule")[0]
	wantProperties(t, rule, `{"ScheduleExpression": "rate(1 minute)", "State": "ENABLED"}`)
	var target []any
	plainNames(t, rule.Properties["Targets"], &target)
	if got, want := asJSON(t, target), `[{"Arn":"Function.Arn","DeadLetterConfig":{"Arn":"ReconcilerUndelivered.Arn"},"Id":"Target0","RetryPolicy":{"MaximumRetryAttempts":0}}]`; got != want {
		t.Errorf("the targets are %s, want %s", got, want)
	}
	wantProperties(t, resources(t, stack, "AWS::Lambda::EventInvokeConfig")[0], `{"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 0, "Qualifier": "$LATEST"}`)
	for _, queue := range resources(t, stack, "AWS::SQS::Queue") {
		wantProperties(t, queue, `{"MessageRetentionPeriod": 1209600, "SqsManagedSseEnabled": true}`)
	}
	if variables := variablesOf(t, stack); variables["ONCE_EXHAUSTED_QUEUE_URL"] == nil || variables["ONCE_TABLE"] == nil {
		t.Errorf("the function's environment is %v", variables)
	}
	if policy := asJSON(t, resources(t, stack, "AWS::IAM::Policy")); !strings.Contains(policy, "sqs:SendMessage") || strings.Contains(policy, `"*"`) {
		t.Errorf("the policies are %s", policy)
	}
}
