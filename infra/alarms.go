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
	"github.com/once-lambda/once/idempotent"
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
	for _, operation := range m.operations {
		a.add("Unknown-"+operation, m.of(idempotent.EventMarkedUnknown, operation), 0, 1,
			operation+": the outcome of a request became unknown. It does not run again by itself: see whether reconciliation settles it (once list --due).")
		a.add("Misuse-"+operation, m.share(operation, idempotent.EventMismatch,
			idempotent.EventReserved, idempotent.EventReplayed, idempotent.EventInProgress, idempotent.EventMismatch),
			orElse(props.MisuseRate, 1), 5,
			operation+": clients use a key for different requests. Look for a client that makes its keys wrongly.")
		a.add("StoreErrors-"+operation, m.of(idempotent.EventStoreError, operation), orElse(props.StoreErrors, 0), 3,
			operation+": calls to the table fail. Requests are refused, not run unguarded.")
		a.add("Late-"+operation, m.sum(operation, idempotent.EventLateCompletion, idempotent.EventContradicted, idempotent.EventLeaseLost), 0, 1,
			operation+": an outcome came after its lease, contradicts another or was refused. Raise the function's time-out, or look at who resolves.")
		a.add("Exhausted-"+operation, m.of(idempotent.EventReconcileExhausted, operation), 0, 1,
			operation+": reconciliation has given up a record. It needs a person (once list --exhausted).")
	}
	a.add("OldestUnknown", m.oldest(), duration(props.OldestUnknown, 15*time.Minute).Seconds(), 3,
		"An unknown outcome is not settled for too long. See what the resolver says of it (once list --due), and whether the reconciler runs.")
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
