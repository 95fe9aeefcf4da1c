package infra

import (
	"fmt"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/telemetry"
)

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
	reconciled := *orTrue(props.Reconciled)
	for _, operation := range m.operations {
		add := func(id string, metric awscloudwatch.IMetric, threshold, minutes float64, description string) {
			a.add(id+"-"+operation, metric, threshold, minutes, operation+": "+description)
		}
		add("StoreErrors", m.of(event.StoreError, operation), orElse(props.StoreErrors, 0), 3,
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
			orElse(props.MisuseRate, 1), 5,
			"The percentage of requests that use the key of another request is too high. Look for a client that generates its keys wrongly,"+
				" or a sender that adds a time to every retry and needs a Fingerprint.")
		if reconciled {
			add("Exhausted", m.of(event.ReconcileExhausted, operation), 0, 1,
				"Reconciliation has given up a record. An operator must resolve it (once list --exhausted).")
		}
	}
	if reconciled {
		a.add("OldestUnknown", m.oldest(telemetry.OldestUnresolved), duration(props.OldestUnknown, 15*time.Minute).Seconds(), 3,
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

func orElse(n *float64, otherwise float64) float64 {
	if n == nil {
		return otherwise
	}
	return *n
}
