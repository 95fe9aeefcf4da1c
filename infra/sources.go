// SPDX-License-Identifier: Apache-2.0

package infra

import (
	"fmt"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambdaeventsources"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// The defaults and limits of AWS.
const (
	defaultTimeout        = 3 * time.Second     // of a function
	defaultVisibility     = 30 * time.Second    // of a queue
	defaultQueueRetention = 4 * 24 * time.Hour  // of a queue
	longestQueueRetention = 14 * 24 * time.Hour // of a queue
	visibilityTimeouts    = 6                   // Lambda developer guide, "Creating and configuring an Amazon SQS event source mapping"
)

// QueueSourceProps are the properties of [NewQueueSource].
type QueueSourceProps struct {
	// Function processes the messages, with a handler of lambdabatch. Required.
	Function awslambda.Function

	// Queue is the source of the messages. Required. It needs a dead-letter
	// queue.
	Queue awssqs.Queue

	// Retention is how long the function stores outcomes: the value that its
	// code passes to lambdabatch (Options.Retention, or Redelivery), or that
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
func NewQueueSource(scope constructs.Construct, id *string, props *QueueSourceProps) *QueueSource {
	if props == nil {
		props = &QueueSourceProps{}
	}
	s := &QueueSource{constructs.NewConstruct(scope, id)}
	if props.Function == nil {
		refuse(s.Construct, "Function is not set: set it to the function that processes the messages, with a handler of lambdabatch")
	}
	if props.Queue == nil {
		refuse(s.Construct, "Queue is not set: set it to the source of the messages")
	}
	if props.Function == nil || props.Queue == nil {
		return s
	}
	source := awslambdaeventsources.SqsEventSourceProps{}
	if props.Source != nil {
		source = *props.Source
	}
	source.ReportBatchItemFailures = jsii.Bool(true)

	queue := props.Queue.Node().DefaultChild().(awssqs.CfnQueue)
	visibility := seconds(queue.VisibilityTimeout(), defaultVisibility)
	retention := seconds(queue.MessageRetentionPeriod(), defaultQueueRetention)
	needed := visibilityTimeouts*duration(props.Function.Timeout(), defaultTimeout) + duration(source.MaxBatchingWindow, 0)
	if visibility < needed {
		refuse(s.Construct, fmt.Sprintf("the queue's visibility time-out is %v and must be at least %v, six times the function's time-out plus the"+
			" batching window: a message would be delivered again during its first run; raise VisibilityTimeout of the queue",
			inWords(visibility), inWords(needed)))
	}
	redelivery, otherwise := retention+visibility, "shorten the retention of the queue"
	dead := props.Queue.DeadLetterQueue()
	if dead == nil {
		refuse(s.Construct, "the queue has no dead-letter queue: a message that always fails would be delivered until it expires; set DeadLetterQueue of the queue")
	} else if !or(props.NoRedrive, false) {
		redelivery = 2*redelivery + retentionOf(dead.Queue)
		otherwise = "set NoRedrive in both if messages are never redriven from the dead-letter queue"
	}
	checkRetention(s.Construct, props.Retention, redelivery, otherwise)
	props.Function.AddEventSource(awslambdaeventsources.NewSqsEventSource(props.Queue, &source))
	return s
}

// retentionOf returns how long a dead-letter queue retains messages.
func retentionOf(queue awssqs.IQueue) time.Duration {
	if created, ok := queue.Node().DefaultChild().(awssqs.CfnQueue); ok {
		return seconds(created.MessageRetentionPeriod(), defaultQueueRetention)
	}
	return longestQueueRetention
}

// CheckRetention refuses outcomes that expire while a source may still deliver
// the same event. It attaches the error to scope. [NewQueueSource] calls it for
// its queue. For a stream, redelivery is the stream's retention period; for
// EventBridge it is the maximum age of an event plus six hours of Lambda's own
// queue. Package lambdabatch has constants for the defaults of each source.
func CheckRetention(scope constructs.IConstruct, retention, redelivery awscdk.Duration) {
	checkRetention(scope, retention, duration(redelivery, 0), "let the source give up earlier")
}

// checkRetention is CheckRetention with the second thing that a user can do.
func checkRetention(scope constructs.IConstruct, retention awscdk.Duration, needed time.Duration, otherwise string) {
	switch stored := duration(retention, 0); {
	case retention == nil:
		refuse(scope, "Retention is not set: set it to the time for which the function stores outcomes; it must be longer than the source may deliver the same message again")
	case stored < needed:
		refuse(scope, fmt.Sprintf("outcomes are stored for %s and a message may be delivered again for %s: it would run twice; raise the retention in the"+
			" function's code and here, or %s", inWords(stored), inWords(needed), otherwise))
	}
}
