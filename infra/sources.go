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

// The defaults of AWS.
const (
	defaultTimeout        = 3 * time.Second    // of a function
	defaultVisibility     = 30 * time.Second   // of a queue
	defaultQueueRetention = 4 * 24 * time.Hour // of a queue
	visibilityTimeouts    = 6                  // Lambda developer guide, "Creating and configuring an Amazon SQS event source mapping"
)

// QueueSourceProps are the properties of [NewQueueSource].
type QueueSourceProps struct {
	// Function processes the messages, with a handler of lambdabatch. Required.
	Function awslambda.Function

	// Queue is the source of the messages. Required. It needs a dead-letter
	// queue.
	Queue awssqs.Queue

	// Retention is how long the function stores outcomes: the value that its
	// code passes to lambdabatch (Options.Retention, or Redelivery). Required.
	Retention awscdk.Duration

	// Source contains the other settings of the event source mapping. Its
	// ReportBatchItemFailures is ignored: partial failures are always reported.
	Source *awslambdaeventsources.SqsEventSourceProps
}

// QueueSource feeds a queue to a function, message by message. Only the messages
// that the function reports as failed are delivered again.
type QueueSource struct{ constructs.Construct }

// NewQueueSource connects the queue and the function. It refuses a configuration
// that would run a message twice, or lose it: a visibility time-out below six
// times the function's time-out plus the batching window, outcomes that expire
// while the queue may still deliver, a queue without a dead-letter queue.
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
	CheckRetention(s.Construct, props.Retention, awscdk.Duration_Seconds(jsii.Number((retention + visibility).Seconds())))
	if props.Queue.DeadLetterQueue() == nil {
		refuse(s.Construct, "the queue has no dead-letter queue: a message that always fails would be delivered until it expires; set DeadLetterQueue of the queue")
	}
	props.Function.AddEventSource(awslambdaeventsources.NewSqsEventSource(props.Queue, &source))
	return s
}

// CheckRetention refuses outcomes that expire while a source may still deliver
// the same event. It attaches the error to scope. [NewQueueSource] calls it for
// its queue. For a stream, redelivery is the stream's retention period; for
// EventBridge it is the maximum age of an event plus six hours of Lambda's own
// queue.
func CheckRetention(scope constructs.IConstruct, retention, redelivery awscdk.Duration) {
	switch kept, needed := duration(retention, 0), duration(redelivery, 0); {
	case retention == nil:
		refuse(scope, "Retention is not set: set it to the time for which the function stores outcomes; it must be longer than the source may deliver the same message again")
	case kept < needed:
		refuse(scope, fmt.Sprintf("outcomes are stored for %s and a message may be delivered again for %s: it would run twice; raise the retention in the"+
			" function's code and here, or let the source give up earlier", inWords(kept), inWords(needed)))
	}
}
