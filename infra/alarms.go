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

// IdempotencyAlarmsProps are given to [NewIdempotencyAlarms].
type IdempotencyAlarmsProps struct {
	// Namespace is what the functions give to emf.New. Required.
	Namespace *string

	// Operations are the functions' operations. Required. Each has alarms of its
	// own, so that an alarm says where to look.
	Operations *[]*string

	// Table is the table whose throttles are watched. Required.
	Table *IdempotencyTable

	// DeadLetterQueues are the queues in which nothing should be, such as those
	// of a [Reconciler]. Default: none.
	DeadLetterQueues *[]awssqs.IQueue

	// OldestUnknown is how old an unknown outcome may become. Default: 15 minutes.
	OldestUnknown awscdk.Duration

	// Reconciled says that a reconciler reports to Namespace. Where none does,
	// nobody tells which unknown outcomes are old, or were given up, and there are
	// no alarms for that. Default: true.
	Reconciled *bool

	// MisuseRate is in how many of a hundred requests a key may come with another
	// payload, within five minutes. Default: 1.
	MisuseRate *float64

	// StoreErrors is how many calls to the store may fail within a minute.
	// Default: 0.
	StoreErrors *float64

	// Action is what happens on an alarm and on its end. Default: nothing.
	Action awscloudwatch.IAlarmAction
}

// IdempotencyAlarms are the alarms for what people have to look at. What each is
// about, and what to do then, is in its description.
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
			"Calls to the table fail. Requests are refused, not run unguarded. See the table, its throttles, and the permissions.")
		add("Contradicted", m.of(event.Contradicted, operation), 0, 1,
			"Evidence met a record that says otherwise: an effect may have happened twice, or a resolver is wrong. Compare the audit with the provider.")
		add("Unknown", m.of(event.MarkedUnknown, operation), 0, 1,
			"A run ended and nobody knows how. It does not run again by itself. See whether reconciliation settles it (once list --due),"+
				" the function's time-out and errors, and whether it could say NotExecuted.")
		add("NotStored", m.of(event.CompletionFailed, operation), 0, 1,
			"Work was done, and its outcome or result could not be stored. See the table, its throttles, and how large results are.")
		add("Late", m.sum(operation, event.LateCompletion, event.LeaseLost), 0, 1,
			"A handler outlived its lease. Raise the function's time-out, or look at who resolves while it runs.")
		add("Misuse", m.share(operation, event.Mismatch,
			event.Reserved, event.Replayed, event.InProgress, event.Mismatch),
			orElse(props.MisuseRate, 1), 5,
			"So many of a hundred requests use the key of another request. Look for a client that makes its keys wrongly,"+
				" or a sender that puts a time into every retry and needs a Fingerprint.")
		if reconciled {
			add("Exhausted", m.of(event.ReconcileExhausted, operation), 0, 1,
				"Reconciliation has given up a record. Nobody will look at it any more but a person (once list --exhausted).")
		}
	}
	if reconciled {
		a.add("OldestUnknown", m.oldest(telemetry.OldestUnresolved), duration(props.OldestUnknown, 15*time.Minute).Seconds(), 3,
			"An unknown outcome is so many seconds old. See whether the reconciler runs, and what the resolver says (once list --due).")
	}
	if props.Table == nil {
		refuse(a.Construct, "Table is not set; it is the one whose throttles are watched")
	} else {
		a.throttles(props.Table.Table)
	}
	if props.DeadLetterQueues != nil {
		for i, queue := range *props.DeadLetterQueues {
			a.add(fmt.Sprintf("DeadLetters%d", i), queue.MetricApproximateNumberOfMessagesVisible(&awscloudwatch.MetricOptions{
				Statistic: awscloudwatch.Stats_MAXIMUM(), Period: aMinute(),
			}), 0, 1, "Messages were given up and wait for a person in "+*queue.Node().Path()+".")
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
		}), 0, 3, "DynamoDB throttles writes of records. Look for one hot key, or a burst that the table has not seen before.")
	}
}

// add creates an alarm for a metric that is above a threshold for so many
// minutes. What has no data is well: what never happens has no metric.
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
