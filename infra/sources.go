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

// What AWS assumes where nothing was said.
const (
	defaultTimeout        = 3 * time.Second    // of a function
	defaultVisibility     = 30 * time.Second   // of a queue
	defaultQueueRetention = 4 * 24 * time.Hour // of a queue
	visibilityTimeouts    = 6                  // Lambda developer guide, "Creating and configuring an Amazon SQS event source mapping"
)

// QueueSourceProps are given to [NewQueueSource].
type QueueSourceProps struct {
	// Function takes the messages, with a handler of lambdabatch. Required.
	Function awslambda.Function

	// Queue brings them. Required. It needs a dead-letter queue.
	Queue awssqs.Queue

	// Retention is how long the function keeps outcomes, which is what its code
	// gives to lambdabatch (Options.Retention, or Redelivery). Required.
	Retention awscdk.Duration

	// Source is the rest of the event source mapping. What is said of partial
	// failures in it is ignored: they are reported.
	Source *awslambdaeventsources.SqsEventSourceProps
}

// QueueSource feeds a queue to a function, message by message: what the function
// reports as failed comes again, and nothing else.
type QueueSource struct{ constructs.Construct }

// NewQueueSource connects the two, and refuses what would let a message run
// twice, or hide it: a visibility time-out below six times the function's
// time-out (and the batching window on top), outcomes that are forgotten while
// the queue may still deliver, a queue without a dead-letter queue.
func NewQueueSource(scope constructs.Construct, id *string, props *QueueSourceProps) *QueueSource {
	if props == nil {
		props = &QueueSourceProps{}
	}
	s := &QueueSource{constructs.NewConstruct(scope, id)}
	if props.Function == nil {
		refuse(s.Construct, "Function is not set; it is the one that takes the messages, with a handler of lambdabatch")
	}
	if props.Queue == nil {
		refuse(s.Construct, "Queue is not set; it is the one that brings the messages")
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
		refuse(s.Construct, fmt.Sprintf("the queue's visibility time-out is %v and has to be at least %v, six times the function's time-out and the"+
			" batching window: a message would come again while the first run of it is at work; raise VisibilityTimeout of the queue",
			inWords(visibility), inWords(needed)))
	}
	CheckRetention(s.Construct, props.Retention, awscdk.Duration_Seconds(jsii.Number((retention + visibility).Seconds())))
	if props.Queue.DeadLetterQueue() == nil {
		refuse(s.Construct, "the queue has no dead-letter queue: a message that always fails would come again until it is dropped; set DeadLetterQueue of the queue")
	}
	props.Function.AddEventSource(awslambdaeventsources.NewSqsEventSource(props.Queue, &source))
	return s
}

// CheckRetention refuses outcomes that are forgotten while a source may still
// deliver the same event: its message is attached to scope. [NewQueueSource]
// asks it about its queue. For a stream the redelivery is the stream's retention
// period, for EventBridge the maximum age of an event and six hours of Lambda's
// own queue.
func CheckRetention(scope constructs.IConstruct, retention, redelivery awscdk.Duration) {
	switch kept, needed := duration(retention, 0), duration(redelivery, 0); {
	case retention == nil:
		refuse(scope, "Retention is not set; say how long the function keeps outcomes: longer than its source may deliver the same message again")
	case kept < needed:
		refuse(scope, fmt.Sprintf("outcomes are kept for %s and a message may come again for %s: it would run twice; keep them longer, in the"+
			" function's code and here, or let the source give up earlier", inWords(kept), inWords(needed)))
	}
}

// duration returns d, or what AWS assumes where there is none.
func duration(d awscdk.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return time.Duration(*d.ToMilliseconds(nil)) * time.Millisecond
}

// seconds is duration for a property of CloudFormation.
func seconds(n *float64, otherwise time.Duration) time.Duration {
	if n == nil {
		return otherwise
	}
	return time.Duration(*n * float64(time.Second))
}

// inWords prints a duration with days, as people set them.
func inWords(d time.Duration) string {
	if days := d / (24 * time.Hour); days > 0 {
		if rest := d % (24 * time.Hour); rest > 0 {
			return fmt.Sprintf("%d days and %v", days, rest)
		}
		return fmt.Sprintf("%d days", days)
	}
	return d.String()
}
