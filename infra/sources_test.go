// SPDX-License-Identifier: Apache-2.0

package infra_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskinesis"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambdaeventsources"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssecretsmanager"
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
		batch     float64 // 0: 7
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
		{name: "a window of a FIFO queue", timeout: 5, queue: awssqs.QueueProps{Fifo: jsii.Bool(true)}, kept: 23 * day, window: time.Second,
			want: []string{"MaxBatchingWindow is set, and Lambda supports no batching window for a FIFO queue"}},
		{name: "a large batch of a FIFO queue", timeout: 5, queue: awssqs.QueueProps{Fifo: jsii.Bool(true)}, kept: 23 * day, window: time.Second, batch: 11,
			want: []string{"MaxBatchingWindow is set", "BatchSize is 11, and Lambda passes at most 10 messages of a FIFO queue at a time: lower it"}},
		{name: "the largest batch of a FIFO queue", timeout: 5, queue: awssqs.QueueProps{Fifo: jsii.Bool(true)}, kept: 23 * day, batch: 10},
		{name: "a FIFO queue", timeout: 5, queue: awssqs.QueueProps{Fifo: jsii.Bool(true)}, kept: 23 * day},
		{name: "everything at once", timeout: 60, kept: time.Hour, noDead: true,
			want: []string{"must be at least 6m0s", "outcomes are stored for 1h0m0s", "no dead-letter queue"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			stack := newStack()
			if !row.noDead {
				row.queue.DeadLetterQueue = &awssqs.DeadLetterQueue{Queue: deadLetters(stack, row.dead, row.imported), MaxReceiveCount: jsii.Number(5)}
			}
			props := &infra.QueueSourceProps{
				Function: newFunction(stack, "Function", row.timeout), NoRedrive: jsii.Bool(row.noRedrive),
				Queue:  awssqs.NewQueue(stack, jsii.String("Queue"), &row.queue),
				Source: &awslambdaeventsources.SqsEventSourceProps{BatchSize: jsii.Number(cmp.Or(row.batch, 7)), ReportBatchItemFailures: jsii.Bool(false)},
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
				fmt.Sprintf(`{"BatchSize": %v, "FunctionResponseTypes": ["ReportBatchItemFailures"]}`, min(cmp.Or(row.batch, 7), 10)))
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
	wantRefusals(t, stack, "outcomes are stored for 1 day and 5h0m0s")
}

// wantMapping checks the only event source mapping of a stack.
func wantMapping(t *testing.T, stack awscdk.Stack, want string) {
	t.Helper()
	mappings := resources(t, stack, "AWS::Lambda::EventSourceMapping")
	if len(mappings) != 1 {
		t.Fatalf("got %d mappings, want 1", len(mappings))
	}
	wantProperties(t, mappings[0], want)
}

// A stream whose records could run twice, block their shard or be lost is refused.
func TestStreamSource(t *testing.T) {
	const day = 24 * time.Hour
	for _, row := range []struct {
		name    string
		kept    time.Duration
		props   func(awscdk.Stack, *infra.StreamSourceProps)
		kinesis func(*awslambdaeventsources.KinesisEventSourceProps)
		table   func(*awslambdaeventsources.DynamoEventSourceProps)
		want    []string
		warning []string
	}{
		{name: "valid", kept: day},
		{name: "retention", kept: day - time.Second, want: []string{
			"outcomes are stored for 23h59m59s and a message may be delivered again for 1 day: it would run twice; raise the retention in the function's code and here, or shorten the retention of the stream"}},
		{name: "a stream with a longer retention", kept: 6 * day, props: func(s awscdk.Stack, p *infra.StreamSourceProps) {
			p.Stream = awskinesis.NewStream(s, jsii.String("Long"), &awskinesis.StreamProps{RetentionPeriod: days(7)})
		}, want: []string{"may be delivered again for 7 days"}},
		{name: "a limit of age does not replace the retention", kept: time.Hour, kinesis: func(p *awslambdaeventsources.KinesisEventSourceProps) {
			p.MaxRecordAge = seconds(time.Hour)
		}, want: []string{"may be delivered again for 1 day"}},
		{name: "a retention that is a parameter", kept: time.Hour, props: func(s awscdk.Stack, p *infra.StreamSourceProps) {
			p.Stream = awskinesis.NewStream(s, jsii.String("Parameter"), &awskinesis.StreamProps{RetentionPeriod: awscdk.Duration_Hours(parameter(s, "Hours"))})
		}},
		{name: "an imported stream", kept: day, props: imported(nil), warning: []string{"the stream is imported, so its retention is not known here and counts as 24 hours"}},
		{name: "an imported stream with its retention", kept: 6 * day, props: imported(days(7)), want: []string{"may be delivered again for 7 days"}},
		{name: "no destination", kept: day, kinesis: func(p *awslambdaeventsources.KinesisEventSourceProps) { p.OnFailure = nil },
			want: []string{"OnFailure is not set: a record that is given up would be lost"}},
		{name: "no limit", kept: day, kinesis: func(p *awslambdaeventsources.KinesisEventSourceProps) { p.RetryAttempts = nil },
			want: []string{"neither RetryAttempts nor MaxRecordAge is set"}},
		{name: "retries without a limit", kept: day, kinesis: func(p *awslambdaeventsources.KinesisEventSourceProps) { p.RetryAttempts = jsii.Number(-1) },
			want: []string{"neither RetryAttempts nor MaxRecordAge is set"}},
		{name: "a tumbling window", kept: day, kinesis: func(p *awslambdaeventsources.KinesisEventSourceProps) { p.TumblingWindow = seconds(time.Minute) },
			want: []string{"TumblingWindow is set"}},
		{name: "no retention", want: []string{"Retention is not set"}},
		{name: "two sources", kept: day, table: func(*awslambdaeventsources.DynamoEventSourceProps) {}, kinesis: func(*awslambdaeventsources.KinesisEventSourceProps) {},
			want: []string{"the source is not set, or is set twice"}},
		{name: "a stream without settings", kept: day, props: func(_ awscdk.Stack, p *infra.StreamSourceProps) { p.Kinesis = nil },
			want: []string{"the source is not set, or is set twice"}},
		{name: "a table", kept: day, table: func(*awslambdaeventsources.DynamoEventSourceProps) {}},
		{name: "a table, retention", kept: time.Hour, table: func(*awslambdaeventsources.DynamoEventSourceProps) {},
			want: []string{"outcomes are stored for 1h0m0s and a message may be delivered again for 1 day"}},
		{name: "a table, everything at once", kept: day, table: func(p *awslambdaeventsources.DynamoEventSourceProps) {
			p.OnFailure, p.RetryAttempts, p.TumblingWindow = nil, nil, seconds(time.Minute)
		}, want: []string{"OnFailure is not set", "neither RetryAttempts nor MaxRecordAge is set", "TumblingWindow is set"}},
		{name: "an imported table without a stream", kept: day, table: func(*awslambdaeventsources.DynamoEventSourceProps) {}, props: func(s awscdk.Stack, p *infra.StreamSourceProps) {
			p.Table = awsdynamodb.TableV2_FromTableName(s, jsii.String("Imported"), jsii.String("orders"))
		}, want: []string{"the table has no stream"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			stack := newStackIn("eu-central-1")
			props := &infra.StreamSourceProps{Function: newFunction(stack, "Function", 30)}
			failed := awslambdaeventsources.NewSqsDlq(awssqs.NewQueue(stack, jsii.String("Failed"), nil))
			if row.table != nil {
				props.Table = newTable(stack, "Table", awsdynamodb.TablePropsV2{DynamoStream: awsdynamodb.StreamViewType_NEW_IMAGE})
				props.DynamoDB = &awslambdaeventsources.DynamoEventSourceProps{
					StartingPosition: awslambda.StartingPosition_TRIM_HORIZON, OnFailure: failed, RetryAttempts: jsii.Number(5),
				}
				row.table(props.DynamoDB)
			}
			if row.table == nil || row.kinesis != nil {
				props.Stream = awskinesis.NewStream(stack, jsii.String("Stream"), nil)
				props.Kinesis = &awslambdaeventsources.KinesisEventSourceProps{
					StartingPosition: awslambda.StartingPosition_LATEST, BatchSize: jsii.Number(7), OnFailure: failed,
					RetryAttempts: jsii.Number(5), ReportBatchItemFailures: jsii.Bool(false),
				}
			}
			if row.table == nil && row.kinesis != nil {
				row.kinesis(props.Kinesis)
			}
			if row.kept != 0 {
				props.Retention = seconds(row.kept)
			}
			if row.props != nil {
				row.props(stack, props)
			}
			infra.NewStreamSource(stack, jsii.String("Source"), props)
			wantRefusals(t, stack, row.want...)
			wantWarnings(t, stack, row.warning...)
			if len(row.want) == 0 {
				wantMapping(t, stack, `{"FunctionResponseTypes": ["ReportBatchItemFailures"], "MaximumRetryAttempts": 5}`)
			}
		})
	}
}

// imported replaces the stream by an imported one.
func imported(retention awscdk.Duration) func(awscdk.Stack, *infra.StreamSourceProps) {
	return func(stack awscdk.Stack, p *infra.StreamSourceProps) {
		p.Stream = awskinesis.Stream_FromStreamArn(stack, jsii.String("Imported"), jsii.String("arn:aws:kinesis:eu-central-1:123456789012:stream/orders"))
		p.StreamRetention = retention
	}
}

// A topic whose records could run twice, block their partition or be lost is
// refused, on MSK and on other clusters.
func TestKafkaSource(t *testing.T) {
	const day = 24 * time.Hour
	for _, row := range []struct {
		name   string
		kept   time.Duration
		change func(*infra.KafkaSourceProps, *awslambdaeventsources.ManagedKafkaEventSourceProps)
		want   []string
	}{
		{name: "valid", kept: 7 * day},
		{name: "retention", kept: 7*day - time.Second, want: []string{"may be delivered again for 7 days: it would run twice; raise the retention in the function's code and here, or shorten the retention of the topic"}},
		{name: "no retention", want: []string{"Retention is not set"}},
		{name: "no retention of the topic", kept: day, change: func(p *infra.KafkaSourceProps, _ *awslambdaeventsources.ManagedKafkaEventSourceProps) {
			p.TopicRetention = nil
		}, want: []string{"TopicRetention is not set"}},
		{name: "everything else", kept: 7 * day, change: func(_ *infra.KafkaSourceProps, s *awslambdaeventsources.ManagedKafkaEventSourceProps) {
			s.ProvisionedPollerConfig, s.OnFailure, s.MaxRecordAge = nil, nil, nil
		}, want: []string{"ProvisionedPollerConfig is not set: without provisioned mode", "OnFailure is not set", "neither RetryAttempts nor MaxRecordAge is set"}},
	} {
		for _, cluster := range []string{"MSK", "another"} {
			t.Run(row.name+" "+cluster, func(t *testing.T) {
				stack := newStack()
				source := awslambdaeventsources.ManagedKafkaEventSourceProps{
					ClusterArn: jsii.String("arn:aws:kafka:eu-central-1:123456789012:cluster/orders/1"), Topic: jsii.String("orders"),
					StartingPosition: awslambda.StartingPosition_TRIM_HORIZON, MaxRecordAge: seconds(time.Hour), ReportBatchItemFailures: jsii.Bool(false),
					OnFailure:               awslambdaeventsources.NewSqsDlq(awssqs.NewQueue(stack, jsii.String("Failed"), nil)),
					ProvisionedPollerConfig: &awslambdaeventsources.ProvisionedPollerConfig{MinimumPollers: jsii.Number(1), MaximumPollers: jsii.Number(2)},
				}
				props := &infra.KafkaSourceProps{Function: newFunction(stack, "Function", 30), TopicRetention: days(7)}
				if row.kept != 0 {
					props.Retention = seconds(row.kept)
				}
				if row.change != nil {
					row.change(props, &source)
				}
				if cluster == "MSK" {
					props.Managed = &source
				} else {
					props.SelfManaged = &awslambdaeventsources.SelfManagedKafkaEventSourceProps{
						BootstrapServers: jsii.Strings("kafka.example.com:9092"), Topic: source.Topic, StartingPosition: source.StartingPosition,
						Secret:       awssecretsmanager.NewSecret(stack, jsii.String("Secret"), nil),
						MaxRecordAge: source.MaxRecordAge, OnFailure: source.OnFailure, ProvisionedPollerConfig: source.ProvisionedPollerConfig,
					}
				}
				infra.NewKafkaSource(stack, jsii.String("Source"), props)
				wantRefusals(t, stack, row.want...)
				if len(row.want) == 0 {
					wantMapping(t, stack, `{"FunctionResponseTypes": ["ReportBatchItemFailures"], "MaximumRecordAgeInSeconds": 3600, "MaximumRetryAttempts": 10000, "Topics": ["orders"]}`)
				}
			})
		}
	}
}
