package infra_test

import (
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatchactions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambdaeventsources"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/infra"
)

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
		Retention: awscdk.Duration_Hours(jsii.Number(4*24 + 12)), // the default of lambdabatch
		Source:    &awslambdaeventsources.SqsEventSourceProps{BatchSize: jsii.Number(10)},
	})
}

// The code that the guide shows is accepted.
func TestGuide(t *testing.T) {
	stack := newStack(t)
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
