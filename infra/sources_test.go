// SPDX-License-Identifier: Apache-2.0

package infra_test

import (
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
		name    string
		timeout float64 // of the function
		queue   awssqs.QueueProps
		noDead  bool
		kept    time.Duration
		window  time.Duration
		want    []string
	}{
		{name: "valid", timeout: 30, queue: awssqs.QueueProps{VisibilityTimeout: seconds(3 * time.Minute)}, kept: 5 * day},
		{name: "visibility", timeout: 30, queue: awssqs.QueueProps{VisibilityTimeout: seconds(179 * time.Second)}, kept: 5 * day,
			want: []string{"visibility time-out is 2m59s and must be at least 3m0s"}},
		{name: "the default visibility", timeout: 6, kept: 5 * day,
			want: []string{"visibility time-out is 30s and must be at least 36s"}},
		{name: "visibility and window", timeout: 30, queue: awssqs.QueueProps{VisibilityTimeout: seconds(3 * time.Minute)}, kept: 5 * day, window: time.Second,
			want: []string{"visibility time-out is 3m0s and must be at least 3m1s"}},
		{name: "retention, just enough", timeout: 5, kept: 4*day + 30*time.Second},
		{name: "retention", timeout: 5, kept: 4 * day,
			want: []string{"outcomes are stored for 4 days and a message may be delivered again for 4 days and 30s: it would run twice"}},
		{name: "a queue with a longer retention", timeout: 5, queue: awssqs.QueueProps{RetentionPeriod: seconds(14 * day)}, kept: 5 * day,
			want: []string{"may be delivered again for 14 days and 30s"}},
		{name: "no retention", timeout: 5, want: []string{"Retention is not set"}},
		{name: "no dead-letter queue", timeout: 5, kept: 5 * day, noDead: true, want: []string{"no dead-letter queue"}},
		{name: "everything at once", timeout: 60, kept: time.Hour, noDead: true,
			want: []string{"must be at least 6m0s", "outcomes are stored for 1h0m0s", "no dead-letter queue"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			stack := newStack()
			if !row.noDead {
				dead := awssqs.NewQueue(stack, jsii.String("Dead"), nil)
				row.queue.DeadLetterQueue = &awssqs.DeadLetterQueue{Queue: dead, MaxReceiveCount: jsii.Number(5)}
			}
			props := &infra.QueueSourceProps{
				Function: newFunction(stack, "Function", row.timeout),
				Queue:    awssqs.NewQueue(stack, jsii.String("Queue"), &row.queue),
				Source:   &awslambdaeventsources.SqsEventSourceProps{BatchSize: jsii.Number(7), ReportBatchItemFailures: jsii.Bool(false)},
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
		})
	}
}

func TestCheckRetention(t *testing.T) {
	stack := newStack()
	infra.CheckRetention(stack, seconds(30*time.Hour), seconds(30*time.Hour))
	wantRefusals(t, stack)
	infra.CheckRetention(stack, seconds(29*time.Hour), seconds(30*time.Hour))
	wantRefusals(t, stack, "outcomes are stored for 1 days and 5h0m0s")
}
