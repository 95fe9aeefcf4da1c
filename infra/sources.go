// SPDX-License-Identifier: Apache-2.0

package infra

import (
	"fmt"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskinesis"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambdaeventsources"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// The defaults and limits of AWS.
const (
	defaultTimeout         = 3 * time.Second     // of a function
	defaultVisibility      = 30 * time.Second    // of a queue
	defaultQueueRetention  = 4 * 24 * time.Hour  // of a queue
	longestQueueRetention  = 14 * 24 * time.Hour // of a queue
	largestFIFOBatch       = 10                  // messages of a FIFO queue
	visibilityTimeouts     = 6                   // Lambda developer guide, "Creating and configuring an Amazon SQS event source mapping"
	defaultStreamRetention = 24 * time.Hour      // of a Kinesis stream; of each DynamoDB stream
)

// QueueSourceProps are the properties of [NewQueueSource].
type QueueSourceProps struct {
	// Function processes the messages, with a handler of lambdabatch. Required.
	Function awslambda.IFunction

	// Queue is the source of the messages. Required. It needs a dead-letter
	// queue.
	Queue awssqs.IQueue

	// Retention is how long the function stores outcomes: the value that its
	// code passes to lambdabatch (Operation.Retention, or Redelivery), or that
	// package's default, 23 days. Required.
	Retention awscdk.Duration

	// NoRedrive declares that messages of the dead-letter queue are never moved
	// back. Set it if the function's code sets NoRedrive of lambdabatch. Default:
	// false.
	NoRedrive *bool

	// Source contains the other settings of the event source mapping. Its
	// ReportBatchItemFailures is ignored: partial failures are always reported.
	Source *awslambdaeventsources.SqsEventSourceProps
}

// QueueSource feeds a queue to a function, message by message. Only the messages
// that the function reports as failed are delivered again. The function may change
// the visibility time-out of messages (sqs:ChangeMessageVisibility).
type QueueSource struct{ constructs.Construct }

// NewQueueSource connects the queue and the function. It refuses a configuration
// that would run a message twice, or lose it: a visibility time-out below six
// times the function's time-out plus the batching window, outcomes that expire
// while the queue may still deliver, a queue without a dead-letter queue.
//
// A message that is redriven from the dead-letter queue has a new retention in the
// queue. So outcomes must be stored for twice the queue's retention and visibility
// time-out, plus the dead-letter queue's retention. A dead-letter queue of another
// stack counts with 14 days, the longest retention.
//
// The settings of an imported queue or function, and values that are known only at
// the deployment, are not compared. Synthesis warns of an imported one.
func NewQueueSource(scope constructs.Construct, id *string, props *QueueSourceProps) *QueueSource {
	if props == nil {
		props = &QueueSourceProps{}
	}
	s := &QueueSource{constructs.NewConstruct(scope, id)}
	hasFunction := checkFunction(s.Construct, props.Function, props.Retention)
	if props.Queue == nil {
		refuse(s.Construct, "Queue is not set: set it to the source of the messages")
	}
	if !hasFunction || props.Queue == nil {
		return s
	}
	source := awslambdaeventsources.SqsEventSourceProps{}
	if props.Source != nil {
		source = *props.Source
	}
	if *props.Queue.Fifo() && source.MaxBatchingWindow != nil {
		refuse(s.Construct, "Source.MaxBatchingWindow is set, and Lambda supports no batching window for a FIFO queue: remove it")
		source.MaxBatchingWindow = nil
	}
	if *props.Queue.Fifo() && or(source.BatchSize, 0) > largestFIFOBatch {
		refuse(s.Construct, fmt.Sprintf("Source.BatchSize is %v, and Lambda passes at most %d messages of a FIFO queue at a time: lower it", *source.BatchSize, largestFIFOBatch))
		source.BatchSize = jsii.Number(largestFIFOBatch)
	}
	source.ReportBatchItemFailures = jsii.Bool(true)
	if queue, ok := props.Queue.Node().DefaultChild().(awssqs.CfnQueue); ok {
		s.check(props, queue, lengthOf(source.MaxBatchingWindow, 0))
	} else {
		warn(s.Construct, "once:imported-queue", "the queue is imported, so its settings are not known here: make sure that its visibility time-out is at least six"+
			" times the function's time-out plus the batching window, that it has a dead-letter queue, and that outcomes are stored for as long as both deliver")
		checkRetention(s.Construct, props.Retention, 0, "")
	}
	props.Function.AddEventSource(awslambdaeventsources.NewSqsEventSource(props.Queue, &source))
	return s
}

// check refuses settings of the queue with which a message would run twice, or be
// lost.
func (s *QueueSource) check(props *QueueSourceProps, queue awssqs.CfnQueue, window length) {
	visibility := secondsOf(queue.VisibilityTimeout(), defaultVisibility)
	if needed := visibilityTimeouts*timeoutOf(s.Construct, props.Function) + window.Duration; visibility.under(needed) {
		refuse(s.Construct, fmt.Sprintf("the queue's visibility time-out is %v and must be at least %v, six times the function's time-out plus the"+
			" batching window: a message would be delivered again during its first run; raise VisibilityTimeout of the queue",
			inWords(visibility.Duration), inWords(needed)))
	}
	redelivery := secondsOf(queue.MessageRetentionPeriod(), defaultQueueRetention).Duration + visibility.Duration
	otherwise := "shorten the retention of the queue"
	dead, found := deadRetention(props.Queue, queue)
	if !found {
		refuse(s.Construct, "the queue has no dead-letter queue: a message that always fails would be delivered until it expires; set DeadLetterQueue of the queue")
	} else if !or(props.NoRedrive, false) {
		redelivery = 2*redelivery + dead
		otherwise = "set NoRedrive in both if messages are never redriven from the dead-letter queue"
	}
	checkRetention(s.Construct, props.Retention, redelivery, otherwise)
}

// deadRetention returns how long the dead-letter queue of a queue retains
// messages, and whether there is one.
func deadRetention(queue awssqs.IQueue, resource awssqs.CfnQueue) (retention time.Duration, found bool) {
	if created, ok := queue.(awssqs.Queue); ok && created.DeadLetterQueue() != nil {
		if dead, ok := created.DeadLetterQueue().Queue.Node().DefaultChild().(awssqs.CfnQueue); ok {
			return secondsOf(dead.MessageRetentionPeriod(), defaultQueueRetention).Duration, true
		}
	}
	return longestQueueRetention, resource.RedrivePolicy() != nil
}

// StreamSourceProps are the properties of [NewStreamSource].
type StreamSourceProps struct {
	// Function processes the records, with a handler of lambdabatch. Required.
	Function awslambda.IFunction

	// Stream is a Kinesis stream, and Kinesis the settings of its event source
	// mapping. Set both, or Table and DynamoDB. Required in both settings:
	// StartingPosition, OnFailure, and RetryAttempts or MaxRecordAge. Their
	// ReportBatchItemFailures is ignored: partial failures are always reported.
	Stream  awskinesis.IStream
	Kinesis *awslambdaeventsources.KinesisEventSourceProps

	// Table is a table whose changes are the records, and DynamoDB the settings of
	// the event source mapping of its stream.
	Table    awsdynamodb.ITable
	DynamoDB *awslambdaeventsources.DynamoEventSourceProps

	// StreamRetention is how long an imported Kinesis stream retains records.
	// Default: the retention of a stream of this app; otherwise 24 hours.
	StreamRetention awscdk.Duration

	// Retention is how long the function stores outcomes: the value that its
	// code passes to lambdabatch (Operation.Retention, or Redelivery), or that
	// package's default, 24 hours. Required.
	Retention awscdk.Duration
}

// StreamSource feeds a Kinesis stream, or the stream of a DynamoDB table, to a
// function. From the first record on that the function reports as failed, a batch
// is delivered again.
type StreamSource struct{ constructs.Construct }

// NewStreamSource connects the stream and the function. It refuses a configuration
// that would run a record twice, block its shard or lose it: outcomes that expire
// while the stream still has the record, no limit of retries or age, no
// destination for records that are given up, and a tumbling window, whose state
// the handlers of lambdabatch do not return.
//
// Outcomes are compared with the retention of the stream, whatever MaxRecordAge
// is, because a new mapping can begin with the oldest record.
func NewStreamSource(scope constructs.Construct, id *string, props *StreamSourceProps) *StreamSource {
	if props == nil {
		props = &StreamSourceProps{}
	}
	s := &StreamSource{constructs.NewConstruct(scope, id)}
	if !checkFunction(s.Construct, props.Function, props.Retention) {
		return s
	}
	kinesis, table := props.Stream != nil && props.Kinesis != nil, props.Table != nil && props.DynamoDB != nil
	switch {
	case kinesis == table:
		refuse(s.Construct, "the source is not set, or is set twice: set Stream and Kinesis, or Table and DynamoDB")
	case kinesis:
		source := *props.Kinesis
		source.ReportBatchItemFailures = jsii.Bool(true)
		source.MaxRecordAge = s.check(source.OnFailure, source.RetryAttempts, source.MaxRecordAge, source.TumblingWindow)
		checkRetention(s.Construct, props.Retention, s.retention(props), shorterStream)
		props.Function.AddEventSource(awslambdaeventsources.NewKinesisEventSource(props.Stream, &source))
	case props.Table.TableStreamArn() == nil:
		refuse(s.Construct, "the table has no stream: set Stream of the table, or TableStreamArn of an imported one")
	default:
		source := *props.DynamoDB
		source.ReportBatchItemFailures = jsii.Bool(true)
		source.MaxRecordAge = s.check(source.OnFailure, source.RetryAttempts, source.MaxRecordAge, source.TumblingWindow)
		checkRetention(s.Construct, props.Retention, defaultStreamRetention, "do not use the stream of a table")
		props.Function.AddEventSource(awslambdaeventsources.NewDynamoEventSource(props.Table, &source))
	}
	return s
}

// shorterStream is what a user can do instead of storing outcomes for longer.
const shorterStream = "shorten the retention of the stream"

// check refuses settings of the mapping with which a record would block its shard
// or be lost. It returns the age that the CDK accepts.
func (s *StreamSource) check(onFailure awslambda.IEventSourceDlq, retries *float64, age, window awscdk.Duration) awscdk.Duration {
	if window != nil {
		refuse(s.Construct, "TumblingWindow is set, and the handlers of lambdabatch return no state for the next window: remove it")
	}
	return checkEnd(s.Construct, onFailure, retries, age)
}

// retention returns how long the Kinesis stream has a record.
func (s *StreamSource) retention(props *StreamSourceProps) time.Duration {
	if created, ok := props.Stream.Node().DefaultChild().(awskinesis.CfnStream); ok {
		if hours := created.RetentionPeriodHours(); hours != nil {
			return 60 * 60 * secondsOf(hours, 0).Duration
		}
	} else if props.StreamRetention == nil {
		warn(s.Construct, "once:imported-stream", "the stream is imported, so its retention is not known here and counts as 24 hours: set StreamRetention")
	}
	return lengthOf(props.StreamRetention, defaultStreamRetention).Duration
}

// KafkaSourceProps are the properties of [NewKafkaSource].
type KafkaSourceProps struct {
	// Function processes the records, with a handler of lambdabatch. Required.
	Function awslambda.IFunction

	// Managed is the source if the cluster is one of Amazon MSK. Set it, or
	// SelfManaged. Required in both: OnFailure, RetryAttempts or MaxRecordAge, and
	// ProvisionedPollerConfig. Their ReportBatchItemFailures is ignored: partial
	// failures are always reported.
	Managed *awslambdaeventsources.ManagedKafkaEventSourceProps

	// SelfManaged is the source if the cluster is one of your own, or of another
	// company. Set it, or Managed.
	SelfManaged *awslambdaeventsources.SelfManagedKafkaEventSourceProps

	// TopicRetention is how long the topic retains records (retention.ms).
	// Required, because the cluster is not part of the app.
	TopicRetention awscdk.Duration

	// Retention is how long the function stores outcomes: the value that its
	// code passes to lambdabatch. Required.
	Retention awscdk.Duration
}

// KafkaSource feeds a topic of Kafka to a function. From the first record of a
// partition on that the function reports as failed, the records are delivered
// again.
type KafkaSource struct{ constructs.Construct }

// NewKafkaSource connects the topic and the function. It refuses the same as
// [NewStreamSource], and a source without provisioned mode: Lambda ignores the
// report of failed records there, so they would be lost. Without a limit, it sets
// RetryAttempts to 10,000: with OnFailure, AWS would retry only ten times.
func NewKafkaSource(scope constructs.Construct, id *string, props *KafkaSourceProps) *KafkaSource {
	if props == nil {
		props = &KafkaSourceProps{}
	}
	s := &KafkaSource{constructs.NewConstruct(scope, id)}
	hasFunction := checkFunction(s.Construct, props.Function, props.Retention)
	if (props.Managed == nil) == (props.SelfManaged == nil) {
		refuse(s.Construct, "Managed and SelfManaged are both set, or not set: set the one that describes the cluster")
		return s
	}
	if !hasFunction {
		return s
	}
	if props.Managed != nil {
		source := *props.Managed
		source.ReportBatchItemFailures = jsii.Bool(true)
		source.MaxRecordAge = s.check(props, source.ProvisionedPollerConfig, source.OnFailure, source.RetryAttempts, source.MaxRecordAge)
		source.RetryAttempts = manyRetries(source.RetryAttempts)
		props.Function.AddEventSource(awslambdaeventsources.NewManagedKafkaEventSource(&source))
		return s
	}
	source := *props.SelfManaged
	source.ReportBatchItemFailures = jsii.Bool(true)
	source.MaxRecordAge = s.check(props, source.ProvisionedPollerConfig, source.OnFailure, source.RetryAttempts, source.MaxRecordAge)
	source.RetryAttempts = manyRetries(source.RetryAttempts)
	props.Function.AddEventSource(awslambdaeventsources.NewSelfManagedKafkaEventSource(&source))
	return s
}

// check refuses settings of the source with which a record would run twice, block
// its partition or be lost. It returns the age that the CDK accepts.
func (s *KafkaSource) check(
	props *KafkaSourceProps, pollers *awslambdaeventsources.ProvisionedPollerConfig, onFailure awslambda.IEventSourceDlq, retries *float64, age awscdk.Duration,
) awscdk.Duration {
	if pollers == nil {
		refuse(s.Construct, "ProvisionedPollerConfig is not set: without provisioned mode Lambda ignores which records failed, and they would be lost; set it")
	}
	if props.TopicRetention == nil {
		refuse(s.Construct, "TopicRetention is not set: set it to the time for which the topic retains records (retention.ms)")
	}
	checkRetention(s.Construct, props.Retention, lengthOf(props.TopicRetention, 0).Duration, "shorten the retention of the topic")
	return checkEnd(s.Construct, onFailure, retries, age)
}

// manyRetries returns the number of retries, or the largest one if it is not limited.
// AWS makes ten retries of an unlimited number if there is a destination for failures.
func manyRetries(retries *float64) *float64 {
	if retries == nil || !isToken(retries) && *retries < 0 {
		return jsii.Number(10_000)
	}
	return retries
}

// checkFunction refuses a source without a function, and reports whether there is
// one. It notes the retention on the function.
func checkFunction(c constructs.Construct, fn awslambda.IFunction, retention awscdk.Duration) bool {
	if fn == nil {
		refuse(c, "Function is not set: set it to the function that processes the messages, with a handler of lambdabatch")
		return false
	}
	noteRetention(fn, retention)
	return !lacksRole(c, fn)
}

// retentionNote is a note of the seconds for which a function stores the outcomes of an
// event source.
const retentionNote = "once:retention"

// noteRetention notes on a function for how long it stores the outcomes of a source.
func noteRetention(fn awslambda.IFunction, retention awscdk.Duration) {
	if created, stored := functionBehind(fn), lengthOf(retention, 0); created != nil {
		note(created, retentionNote, map[string]any{"seconds": stored.Seconds(), "unknown": stored.unknown})
	}
}

// retentionOf returns the longest retention of a function's sources.
func retentionOf(fn awslambda.Function) (longest length) {
	for _, noted := range notes(fn, retentionNote) {
		longest.Duration = max(longest.Duration, time.Duration(noted["seconds"].(float64)*float64(time.Second)))
		longest.unknown = longest.unknown || noted["unknown"].(bool)
	}
	return longest
}

// timeoutOf returns the time-out of a function, or zero if it is not known.
func timeoutOf(c constructs.Construct, fn awslambda.IFunction) time.Duration {
	created := functionBehind(fn)
	if created == nil {
		warn(c, "once:imported-function", "the function is imported, so its time-out is not known here: make sure that the queue's visibility time-out is at least"+
			" six times as long, plus the batching window")
		return 0
	}
	return lengthOf(created.Timeout(), defaultTimeout).Duration
}

// checkEnd refuses a source of ordered records without an end for a record that
// always fails. Such a record blocks those behind it. It returns the age that the
// CDK accepts.
func checkEnd(c constructs.Construct, onFailure awslambda.IEventSourceDlq, retries *float64, age awscdk.Duration) awscdk.Duration {
	if onFailure == nil {
		refuse(c, "OnFailure is not set: a record that is given up would be lost; set it to a queue, a topic or a bucket")
	}
	limited := age != nil || retries != nil && (isToken(retries) || *retries >= 0)
	if !limited {
		refuse(c, "neither RetryAttempts nor MaxRecordAge is set: a record that always fails would block those behind it until it expires; set one of them")
	}
	if lengthOf(age, 0).unknown {
		refuse(c, "MaxRecordAge is not known at synthesis, and the CDK compares it with its limits: write its value")
		return nil
	}
	return age
}

// CheckRetention refuses outcomes that expire while a source may still deliver
// the same event. It attaches the error to scope. The constructs of sources call
// it for theirs. For EventBridge, redelivery is the maximum age of an event plus
// six hours of Lambda's own queue. Package lambdabatch has constants for the
// defaults of each source.
func CheckRetention(scope constructs.IConstruct, retention, redelivery awscdk.Duration) {
	checkRetention(scope, retention, lengthOf(redelivery, 0).Duration, "let the source give up earlier")
}

// checkRetention is CheckRetention with the second thing that a user can do.
func checkRetention(scope constructs.IConstruct, retention awscdk.Duration, needed time.Duration, otherwise string) {
	switch stored := lengthOf(retention, 0); {
	case retention == nil:
		refuse(scope, "Retention is not set: set it to the time for which the function stores outcomes; it must be longer than the source may deliver the same message again")
	case stored.under(needed):
		refuse(scope, fmt.Sprintf("outcomes are stored for %s and a message may be delivered again for %s: it would run twice; raise the retention in the"+
			" function's code and here, or %s", inWords(stored.Duration), inWords(needed), otherwise))
	}
}
