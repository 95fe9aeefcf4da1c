// SPDX-License-Identifier: Apache-2.0

package infra

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/aws-cdk-go/awscdk/v2/interfaces/interfacesawscloudwatch"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/telemetry"
)

// IdempotencyDashboardProps are the properties of [NewIdempotencyDashboard].
type IdempotencyDashboardProps struct {
	// Namespace is the namespace that the functions pass to emf.New. Required.
	Namespace *string

	// Operations are the functions' operations. Required.
	Operations *[]*string

	// Alarms are shown above the graphs. Default: none.
	Alarms *IdempotencyAlarms

	// DashboardName is the dashboard's name. Default: a name that
	// CloudFormation generates.
	DashboardName *string
}

// IdempotencyDashboard shows the outcomes of requests, the records that wait
// for evidence, and failures.
type IdempotencyDashboard struct {
	constructs.Construct
	Dashboard awscloudwatch.Dashboard
}

// NewIdempotencyDashboard creates the dashboard.
func NewIdempotencyDashboard(scope constructs.Construct, id *string, props *IdempotencyDashboardProps) *IdempotencyDashboard {
	if props == nil {
		props = &IdempotencyDashboardProps{}
	}
	d := &IdempotencyDashboard{Construct: constructs.NewConstruct(scope, id)}
	m := metricsOf(d.Construct, props.Namespace, props.Operations)
	d.Dashboard = awscloudwatch.NewDashboard(d.Construct, jsii.String("Dashboard"), &awscloudwatch.DashboardProps{DashboardName: props.DashboardName})
	if props.Alarms != nil {
		var alarms []interfacesawscloudwatch.IAlarmRef
		for _, a := range props.Alarms.Alarms {
			alarms = append(alarms, a)
		}
		d.Dashboard.AddWidgets(awscloudwatch.NewAlarmStatusWidget(&awscloudwatch.AlarmStatusWidgetProps{
			Title: jsii.String("Alarms"), Alarms: &alarms, Width: jsii.Number(24),
		}))
	}
	for _, row := range [][]graph{
		{{"First requests", event.Reserved}, {"Replays", event.Replayed}, {"Refused: in progress", event.InProgress}},
		{{"Outcomes that became unknown", event.MarkedUnknown}, {"Refused: outcome unknown", event.Unresolved}, {"Settled by evidence", event.Resolved}},
		{{"Keys used for other requests", event.Mismatch}, {"Store errors", event.StoreError}, {"Outcomes not stored", event.CompletionFailed}},
		{{"Late completions", event.LateCompletion}, {"Contradictions", event.Contradicted}, {"Given up by reconciliation", event.ReconcileExhausted}},
	} {
		var widgets []awscloudwatch.IWidget
		for _, g := range row {
			widgets = append(widgets, widget(g.title, m.each(g.kind)))
		}
		d.Dashboard.AddWidgets(widgets...)
	}
	d.Dashboard.AddWidgets(
		widget("Age of the oldest unknown outcome (seconds)", &[]awscloudwatch.IMetric{m.oldest(telemetry.UnknownOldestAge)}),
		widget("Age of the oldest released run that no request has continued (seconds)", &[]awscloudwatch.IMetric{m.oldest(telemetry.ReleasedOldestAge)}),
	)
	return d
}

type graph struct {
	title string
	kind  event.Kind
}

func widget(title string, left *[]awscloudwatch.IMetric) awscloudwatch.IWidget {
	return awscloudwatch.NewGraphWidget(&awscloudwatch.GraphWidgetProps{Title: jsii.String(title), Left: left, Width: jsii.Number(8)})
}

// IdempotencyAlarmsProps are the properties of [NewIdempotencyAlarms].
type IdempotencyAlarmsProps struct {
	// Namespace is the namespace that the functions pass to emf.New. Required.
	Namespace *string

	// Operations are the functions' operations. Required. Each operation has its
	// own alarms, so that an alarm shows where to look.
	Operations *[]*string

	// Table is the table whose throttles raise an alarm. Required.
	Table *IdempotencyTable

	// DeadLetterQueues are the queues that should stay empty, such as those of
	// a [Reconciler]. Default: none.
	DeadLetterQueues *[]awssqs.IQueue

	// OldestUnknown is the age of an unknown outcome above which there is an
	// alarm, if it is exceeded for three minutes. Default: 15 minutes.
	OldestUnknown awscdk.Duration

	// Reconciled declares that a reconciler reports to Namespace. Set it to false
	// if there is no reconciler: then the metrics for the age of unknown outcomes
	// and for records that were given up do not exist, and there are no alarms on
	// them. Default: true.
	Reconciled *bool

	// MisuseRate is the percentage of requests that may use a key with another
	// payload. There is an alarm if it is exceeded in each of five minutes.
	// Default: 1.
	MisuseRate *float64

	// StoreErrors is the number of calls to the store that may fail in a minute.
	// There is an alarm if it is exceeded in each of three minutes. Default: 0.
	StoreErrors *float64

	// Action is executed when an alarm starts and when it ends. Default: nothing.
	Action awscloudwatch.IAlarmAction
}

// IdempotencyAlarms are the alarms for conditions that need an operator. The
// description of each alarm says what happened and what to do.
type IdempotencyAlarms struct {
	constructs.Construct
	Alarms []awscloudwatch.Alarm

	action awscloudwatch.IAlarmAction
}

// NewIdempotencyAlarms creates the alarms.
func NewIdempotencyAlarms(scope constructs.Construct, id *string, props *IdempotencyAlarmsProps) *IdempotencyAlarms {
	if props == nil {
		props = &IdempotencyAlarmsProps{}
	}
	a := &IdempotencyAlarms{Construct: constructs.NewConstruct(scope, id), action: props.Action}
	m := metricsOf(a.Construct, props.Namespace, props.Operations)
	reconciled := or(props.Reconciled, true)
	for _, operation := range m.operations {
		add := func(id string, metric awscloudwatch.IMetric, threshold, minutes float64, description string) {
			a.add(id+"-"+operation, metric, threshold, minutes, operation+": "+description)
		}
		add("StoreErrors", m.of(event.StoreError, operation), or(props.StoreErrors, 0), 3,
			"Calls to the table fail. Requests are refused, not run unguarded. Check the table, its throttles, and the permissions.")
		add("Contradicted", m.of(event.Contradicted, operation), 0, 1,
			"Evidence contradicts a record: an effect may have happened twice, or a resolver is wrong. Compare the audit with the provider.")
		add("Unknown", m.of(event.MarkedUnknown, operation), 0, 1,
			"A run ended with an unknown outcome. It is not run again automatically. Check whether reconciliation settles it (once list --due),"+
				" the function's time-out and errors, and whether the handler could return NotExecuted.")
		add("NotStored", m.of(event.CompletionFailed, operation), 0, 1,
			"Work was done, and its outcome or result could not be stored. Check the table, its throttles, and the size of results.")
		add("Late", m.sum(operation, event.LateCompletion, event.LeaseLost), 0, 1,
			"A handler outlived its lease. Raise the function's time-out, or find out what resolves records while the handler runs.")
		add("Misuse", m.share(operation, event.Mismatch,
			event.Reserved, event.Replayed, event.InProgress, event.Mismatch),
			or(props.MisuseRate, 1), 5,
			"The percentage of requests that use the key of another request is too high. Look for a client that generates its keys wrongly,"+
				" or a sender that adds a time to every retry and needs a Fingerprint.")
		if reconciled {
			add("Exhausted", m.of(event.ReconcileExhausted, operation), 0, 1,
				"Reconciliation has given up a record. An operator must resolve it (once list --exhausted).")
		}
	}
	if reconciled {
		a.add("OldestUnknown", m.oldest(telemetry.UnknownOldestAge), duration(props.OldestUnknown, 15*time.Minute).Seconds(), 3,
			"The age of the oldest unknown outcome, in seconds, is too high. Check whether the reconciler runs, and what the resolver returns (once list --due).")
	}
	if props.Table == nil {
		refuse(a.Construct, "Table is not set: set it to the table whose throttles raise an alarm")
	} else {
		a.throttles(props.Table.Table)
	}
	if props.DeadLetterQueues != nil {
		for i, queue := range *props.DeadLetterQueues {
			a.add(fmt.Sprintf("DeadLetters%d", i), queue.MetricApproximateNumberOfMessagesVisible(&awscloudwatch.MetricOptions{
				Statistic: awscloudwatch.Stats_MAXIMUM(), Period: aMinute(),
			}), 0, 1, "Messages were given up and wait for an operator in "+*queue.Node().Path()+".")
		}
	}
	return a
}

// throttles adds the alarms for the table and its index.
func (a *IdempotencyAlarms) throttles(table awsdynamodb.TableV2) {
	for _, throttled := range []struct {
		id         string
		dimensions map[string]*string
	}{
		{"Throttles", map[string]*string{"TableName": table.TableName()}},
		{"IndexThrottles", map[string]*string{"TableName": table.TableName(), "GlobalSecondaryIndexName": jsii.String(dynamostore.IndexName)}},
	} {
		a.add(throttled.id, awscloudwatch.NewMetric(&awscloudwatch.MetricProps{
			Namespace: jsii.String("AWS/DynamoDB"), MetricName: jsii.String("WriteThrottleEvents"),
			DimensionsMap: &throttled.dimensions, Statistic: awscloudwatch.Stats_SUM(), Period: aMinute(),
		}), 0, 3, "DynamoDB throttles writes of records. Look for one hot key, or a larger burst than the table has served before.")
	}
}

// add creates an alarm for a metric that is above threshold for the given
// number of minutes. Missing data is not an alarm, because a fact that never
// occurred has no metric.
func (a *IdempotencyAlarms) add(id string, metric awscloudwatch.IMetric, threshold, minutes float64, description string) {
	alarm := awscloudwatch.NewAlarm(a.Construct, jsii.String(id), &awscloudwatch.AlarmProps{
		Metric:             metric,
		Threshold:          jsii.Number(threshold),
		ComparisonOperator: awscloudwatch.ComparisonOperator_GREATER_THAN_THRESHOLD,
		EvaluationPeriods:  jsii.Number(minutes),
		TreatMissingData:   awscloudwatch.TreatMissingData_NOT_BREACHING,
		AlarmDescription:   jsii.String(description),
	})
	if a.action != nil {
		alarm.AddAlarmAction(a.action)
		alarm.AddOkAction(a.action)
	}
	a.Alarms = append(a.Alarms, alarm)
}

// allOperations is the operation of the metrics that are not about a single one.
const allOperations = "all"

// metrics are the metrics of package telemetry that the functions print
// through telemetry/emf, in one namespace.
type metrics struct {
	namespace  string
	operations []string
}

// metricsOf validates its arguments and reports missing ones as errors on scope.
func metricsOf(scope constructs.Construct, namespace *string, operations *[]*string) metrics {
	m := metrics{namespace: "not-set"} // so that the missing namespace is the only error
	if namespace != nil && *namespace != "" {
		m.namespace = *namespace
	} else {
		refuse(scope, "Namespace is not set: set it to the namespace that the functions pass to emf.New")
	}
	if operations != nil {
		for _, o := range *operations {
			switch {
			case o == nil || *o == "":
				refuse(scope, "one of Operations has no name: remove it")
			case slices.Contains(m.operations, *o):
				refuse(scope, fmt.Sprintf("%q is twice in Operations: remove one", *o))
			default:
				m.operations = append(m.operations, *o)
			}
		}
	}
	if len(m.operations) == 0 {
		refuse(scope, "Operations are not set: list the names of the functions' operations, with which record ids begin")
	}
	return m
}

// of returns the count of a kind of fact in one operation.
func (m metrics) of(kind event.Kind, operation string) awscloudwatch.IMetric {
	return m.named(telemetry.Metrics()[telemetry.Index(kind)].Name, operation, awscloudwatch.Stats_SUM())
}

// oldest returns a gauge of package telemetry: the age in seconds of a record.
func (m metrics) oldest(gauge string) awscloudwatch.IMetric {
	return m.named(gauge, allOperations, awscloudwatch.Stats_MAXIMUM())
}

func (m metrics) named(name, operation string, statistic *string) awscloudwatch.IMetric {
	return awscloudwatch.NewMetric(&awscloudwatch.MetricProps{
		Namespace:     jsii.String(m.namespace),
		MetricName:    jsii.String(name),
		DimensionsMap: &map[string]*string{"operation": jsii.String(operation)},
		Statistic:     statistic,
		Period:        aMinute(),
		Label:         jsii.String(operation),
	})
}

// each returns the count of a kind of fact in every operation.
func (m metrics) each(kind event.Kind) *[]awscloudwatch.IMetric {
	var all []awscloudwatch.IMetric
	for _, operation := range m.operations {
		all = append(all, m.of(kind, operation))
	}
	return &all
}

// sum returns how often any of the kinds happened in an operation.
func (m metrics) sum(operation string, kinds ...event.Kind) awscloudwatch.IMetric {
	using := map[string]awscloudwatch.IMetric{}
	return expression(m.add(using, operation, kinds...), using)
}

// share returns the percentage of an operation's requests in which the kind
// happened.
func (m metrics) share(operation string, kind event.Kind, requests ...event.Kind) awscloudwatch.IMetric {
	using := map[string]awscloudwatch.IMetric{}
	part, whole := m.add(using, operation, kind), m.add(using, operation, requests...)
	// Without requests the share is 0.
	return expression(fmt.Sprintf("IF(%[2]s > 0, 100 * %[1]s / (%[2]s), 0)", part, whole), using)
}

// add returns the sum of the kinds as an expression. A fact that never occurred
// has no metric, and counts as zero.
func (m metrics) add(using map[string]awscloudwatch.IMetric, operation string, kinds ...event.Kind) string {
	var terms []string
	for _, kind := range kinds {
		id := fmt.Sprintf("m%d", telemetry.Index(kind))
		using[id] = m.of(kind, operation)
		terms = append(terms, "FILL("+id+", 0)")
	}
	return "(" + strings.Join(terms, " + ") + ")"
}

func expression(text string, using map[string]awscloudwatch.IMetric) awscloudwatch.IMetric {
	return awscloudwatch.NewMathExpression(&awscloudwatch.MathExpressionProps{
		Expression: jsii.String(text), UsingMetrics: &using, Period: aMinute(),
	})
}

func aMinute() awscdk.Duration { return awscdk.Duration_Minutes(jsii.Number(1)) }
