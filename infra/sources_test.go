// SPDX-License-Identifier: Apache-2.0

package infra_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambdaeventsources"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/infra"
)

func seconds(d time.Duration) awscdk.Duration {
	return awscdk.Duration_Seconds(jsii.Number(d.Seconds()))
}

// G12: a configuration that cannot work is refused, and the message says what
// to change.
func TestQueueSource(t *testing.T) {
	const day = 24 * time.Hour
	for _, row := range []struct {
		name      string
		timeout   float64 // of the function
		queue     awssqs.QueueProps
		dead      time.Duration // retention of the dead-letter queue; 0: the default, 4 days
		imported  bool          // the dead-letter queue is of another stack
		noDead    bool
		noRedrive bool
		kept      time.Duration
		window    time.Duration
		want      []string
	}{
		{name: "valid", timeout: 30, queue: awssqs.QueueProps{VisibilityTimeout: seconds(3 * time.Minute)}, kept: 23 * day},
		{name: "visibility", timeout: 30, queue: awssqs.QueueProps{VisibilityTimeout: seconds(179 * time.Second)}, kept: 23 * day,
			want: []string{"visibility time-out is 2m59s and must be at least 3m0s"}},
		{name: "the default visibility", timeout: 6, kept: 23 * day,
			want: []string{"visibility time-out is 30s and must be at least 36s"}},
		{name: "visibility and window", timeout: 30, queue: awssqs.QueueProps{VisibilityTimeout: seconds(3 * time.Minute)}, kept: 23 * day, window: time.Second,
			want: []string{"visibility time-out is 3m0s and must be at least 3m1s"}},
		{name: "retention, just enough", timeout: 5, kept: 12*day + 60*time.Second},
		{name: "retention", timeout: 5, kept: 12*day + 59*time.Second,
			want: []string{"outcomes are stored for 12 days and 59s and a message may be delivered again for 12 days and 1m0s: it would run twice"}},
		{name: "the former default of lambdabatch", timeout: 5, kept: 4*day + 12*time.Hour,
			want: []string{"or set NoRedrive in both"}},
		{name: "the default of lambdabatch, just enough", timeout: 5, queue: awssqs.QueueProps{VisibilityTimeout: seconds(12 * time.Hour)}, dead: 14 * day, kept: 23 * day},
		{name: "a queue with a longer retention", timeout: 5, queue: awssqs.QueueProps{RetentionPeriod: seconds(14 * day)}, kept: 23 * day,
			want: []string{"may be delivered again for 32 days and 1m0s"}},
		{name: "a dead-letter queue with a longer retention", timeout: 5, dead: 14 * day, kept: 20 * day,
			want: []string{"may be delivered again for 22 days and 1m0s"}},
		{name: "a dead-letter queue of another stack", timeout: 5, imported: true, kept: 20 * day,
			want: []string{"may be delivered again for 22 days and 1m0s"}},
		{name: "no redrive", timeout: 5, noRedrive: true, kept: 4*day + 30*time.Second},
		{name: "no redrive, too short", timeout: 5, noRedrive: true, kept: 4 * day,
			want: []string{"delivered again for 4 days and 30s: it would run twice; raise the retention in the function's code and here, or shorten the retention of the queue"}},
		{name: "no retention", timeout: 5, want: []string{"Retention is not set"}},
		{name: "no dead-letter queue", timeout: 5, kept: 5 * day, noDead: true, want: []string{"no dead-letter queue"}},
		{name: "everything at once", timeout: 60, kept: time.Hour, noDead: true,
			want: []string{"must be at least 6m0s", "outcomes are stored for 1h0m0s", "no dead-letter queue"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			stack := newStack()
			if !row.noDead {
				row.queue.DeadLetterQueue = &awssqs.DeadLetterQueue{Queue: deadLetters(stack, row.dead, row.imported), MaxReceiveCount: jsii.Number(5)}
			}
			props := &infra.QueueSourceProps{
				Function: newFunction(stack, "Function", row.timeout),
				Queue:    awssqs.NewQueue(stack, jsii.String("Queue"), &row.queue),
				Source:   &awslambdaeventsources.SqsEventSourceProps{BatchSize: jsii.Number(7), ReportBatchItemFailures: jsii.Bool(false)},
			}
			if row.noRedrive {
				props.NoRedrive = jsii.Bool(true)
			}
			if row.kept != 0 {
				props.Retention = seconds(row.kept)
			}
			if row.window != 0 {
				props.Source.MaxBatchingWindow = seconds(row.window)
			}
			infra.NewQueueSource(stack, jsii.String("Source"), props)
			wantRefusals(t, stack, row.want...)
			wantProperties(t, resources(t, stack, "AWS::Lambda::EventSourceMapping")[0],
				`{"BatchSize": 7, "FunctionResponseTypes": ["ReportBatchItemFailures"]}`)
			policy := asJSON(t, resources(t, stack, "AWS::IAM::Policy")[0].Properties["PolicyDocument"])
			if !strings.Contains(policy, `"sqs:ChangeMessageVisibility"`) {
				t.Errorf("the function may not change the visibility time-out of messages: %s", policy)
			}
		})
	}
}

func deadLetters(stack awscdk.Stack, retention time.Duration, imported bool) awssqs.IQueue {
	if imported {
		return awssqs.Queue_FromQueueArn(stack, jsii.String("Dead"), jsii.String("arn:aws:sqs:us-east-1:123456789012:dead"))
	}
	props := &awssqs.QueueProps{}
	if retention != 0 {
		props.RetentionPeriod = seconds(retention)
	}
	return awssqs.NewQueue(stack, jsii.String("Dead"), props)
}

func TestCheckRetention(t *testing.T) {
	stack := newStack()
	infra.CheckRetention(stack, seconds(30*time.Hour), seconds(30*time.Hour))
	wantRefusals(t, stack)
	infra.CheckRetention(stack, seconds(29*time.Hour), seconds(30*time.Hour))
	wantRefusals(t, stack, "outcomes are stored for 1 days and 5h0m0s")
}
