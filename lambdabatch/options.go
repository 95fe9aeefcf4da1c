// SPDX-License-Identifier: Apache-2.0

package lambdabatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/logs"
)

// Options configure [SQS], [SQSFIFO], [Kinesis], [DynamoDB] and [Kafka]. The zero value
// of each field is its documented default.
//
// The context of each function ends when half of the time has passed that is left until
// the batch must be answered: one message costs the others at most that. A function must
// return then. If it fails, the message is redelivered.
type Options struct {
	// Operation names the operation on a message. Required.
	Operation string

	// ID returns the unit of work that a message stands for. The id of the message
	// itself is refused for queues, because a redriven message has a new one; see
	// NoRedrive. Required for queues; default for streams: ItemID.
	ID IDFunc

	// Ref returns what a message is about, without secrets, such as Field("/order_id").
	// It is stored when the message is claimed, so that a run that is killed is found by
	// it: see [idempotent.Key]. An error or a panic of it is logged, and the message is
	// processed without a reference. Default: none.
	Ref IDFunc

	// Scope is the scope of the idempotency key. Two sources that deliver the same
	// work, such as a queue and its dead-letter queue, need the same scope. Default:
	// the source's ARN. Required for a self-managed Kafka cluster, which has none.
	Scope func(ctx context.Context, m *Message) (string, error)

	// Fingerprint binds a message's content to its key. If the sender adds a
	// time to every retry, set a function that ignores it. Default: the whole
	// body, JSON by meaning and anything else by its bytes.
	Fingerprint func(ctx context.Context, m *Message) (idempotent.Fingerprint, error)

	// Redelivery is how long the source may deliver a message again. Outcomes and
	// unresolved records are stored for at least as long, even if the guard's
	// Retention or UnresolvedRetention is shorter. For a stream it is its retention.
	// For a queue it is twice its retention and visibility timeout, plus the
	// retention of its dead-letter queue, because a message that is redriven has a
	// new retention. For each further redrive of the same message add one retention
	// of each queue and one visibility timeout. Default: SQSRedelivery for queues, 4
	// days and 12 hours with NoRedrive; StreamRedelivery for streams; KafkaRedelivery.
	Redelivery time.Duration

	// NoRedrive declares that messages of the queue are never redriven from a
	// dead-letter queue. Redelivery then needs only the queue's retention and
	// visibility timeout, and ID may be ItemID. Default: false.
	NoRedrive bool

	// Concurrency is how many messages are processed at the same time. Messages
	// of one FIFO group, of one partition and, in a standard queue, of one key
	// are processed one after the other. (If two groups or partitions contain
	// messages of one key, the second can be refused as in progress, and is
	// redelivered.) Default: 1.
	Concurrency int

	// Reserve is how much time must be left until the deadline to start another
	// message. It is at most a fifth of the time that was left when the batch began.
	// Default: 1 s.
	Reserve time.Duration

	// HandOver takes a message that is refused if no retry by the same code can change
	// that, for example to a queue for operators. The reason is
	// [*idempotent.UnresolvedError] if the outcome of its work is unknown, which is
	// found when it is redelivered and not by the attempt that failed;
	// [*idempotent.MismatchError] or [*idempotent.InvalidKeyError]; or [*DecodeError]. Another
	// error of a function that reads the message, such as Unwrap, can pass: the message is
	// redelivered. A message whose work is in progress, or can be continued
	// by other code, is never handed over. If HandOver returns nil, the message is
	// acknowledged, the next one of its group or partition runs, and an unknown record
	// remains due for reconciliation. If the source delivers the message again, for
	// example because an earlier record of its shard failed, HandOver gets it again.
	// Default: the message is redelivered.
	HandOver func(ctx context.Context, m *Message, reason error) error

	// Visibility hides messages of a queue until another delivery can succeed. Default:
	// they return after the queue's visibility timeout.
	Visibility Visibility

	// Unwrap replaces Body and Attributes of a message by those of the message in its
	// body, for example in the notification of a topic that sends to the queue
	// ([FromSNS] sets it). ID, Scope, Fingerprint and Decode then get these. An error means
	// "not now", for example if Unwrap reads an object that the body names; a
	// [*DecodeError] means that no retry can succeed. Default: the message itself.
	Unwrap func(ctx context.Context, m *Message) error

	// Fail selects the batches for which the handler returns an error instead of a
	// response. Default: FailNever.
	Fail Fail

	// Decode decodes a message's body into the value that v points to. Its errors mean the
	// same as those of Unwrap. A handler of the source's own record type, of []byte or of
	// string gets that value without decoding. Default: JSON; a body that does not decode is
	// a [*DecodeError].
	Decode func(ctx context.Context, body []byte, v any) error

	// Guard changes the guard's options for this handler, for example Recovery
	// and Steps. It is called once, at construction. Default: the guard's
	// options unchanged.
	Guard func(*idempotent.Operation)
}

func (o *Options) change(f func(*Options)) { f(o) }

// Visibility hides messages of an SQS queue by their visibility timeout.
type Visibility struct {
	// Change changes the visibility timeout of a message, with the method
	// ChangeMessageVisibility of an SQS client. It is called at the end of a batch for
	// messages that their records refused, and for those behind them in a FIFO group.
	// A message whose key is running returns when the lease of that run ends; one
	// whose outcome is unknown returns after the error's RetryAfter, doubled with each
	// receipt up to an hour; both up to a tenth later. queueURL is made from the ARN
	// of the queue, and seconds is 1 to 39,600 (11 hours). The calls may be
	// concurrent, and ctx ends after two seconds at the latest. A failure
	// does not change the response; the first one is logged. Default: no message is
	// hidden.
	Change func(ctx context.Context, queueURL, receiptHandle string, seconds int32) error

	// Backoff is how long a message whose handler failed is hidden, too: doubled with
	// each receipt up to an hour, and up to a tenth longer. It requires Change. Default:
	// zero, such a message is not hidden.
	Backoff time.Duration
}

// Fail selects the batches for which a handler returns an error instead of a response.
// The source then redelivers the whole batch, and Lambda's metric Errors counts the
// invocation. Messages that are done are replayed.
type Fail uint8

const (
	// FailNever: the response names the messages that failed.
	FailNever Fail = iota
	// FailIfAll: every message of the batch failed, so that an alarm on Errors rings
	// although the same messages are redelivered.
	FailIfAll
	// FailIfAny: a message of the batch failed. For an event source mapping that ignores
	// the response, such as one of Kafka without provisioned mode.
	FailIfAny
)

// source holds the differences between two sources.
type source struct {
	name       string // of the constructor
	redelivery time.Duration
	sentBy     []string // the values of eventSource
	ids        string   // what its records always have
	streams    bool     // ordered, with a checkpoint and permanent ids
	fifo       bool
	kafka      bool // no checkpoint: the answer names each failure; an empty message deletes its key
}

// defaultReserve is the default of [Options.Reserve].
const defaultReserve = time.Second

// How long each source redelivers by its own defaults. Outcomes must be stored
// for at least as long.
const (
	// SQSRedelivery is enough for a queue with the default retention (4 days) and
	// any visibility timeout (at most 12 hours), whose messages are redriven once
	// from a dead-letter queue with any retention (at most 14 days): 23 days (SQS
	// developer guide, "Amazon SQS message quotas"). A redrive gives a message a new
	// id and a new retention (ibid., "Learn how to configure a dead-letter queue
	// redrive").
	SQSRedelivery = 2*sqsOnce + 14*24*time.Hour
	// StreamRedelivery is the retention of a DynamoDB stream (DynamoDB developer
	// guide, "Change data capture for DynamoDB Streams"), and the default retention
	// of a Kinesis stream (Kinesis Data Streams developer guide, "Change the data
	// retention period").
	StreamRedelivery = 24 * time.Hour
	// KafkaRedelivery is the default retention of a topic (Apache Kafka, "Broker
	// configs", log.retention.hours).
	KafkaRedelivery = 7 * 24 * time.Hour
	// EventBridgeRedelivery is the longest time that EventBridge retries
	// (EventBridge API reference, "RetryPolicy"), plus AsyncRedelivery for Lambda's
	// asynchronous queue behind it.
	EventBridgeRedelivery = 24*time.Hour + AsyncRedelivery
	// SNSRedelivery is how long SNS retries a function, a little over 23 days
	// by its policy for AWS managed endpoints (SNS developer guide, "Amazon SNS
	// message delivery retries"), plus AsyncRedelivery for Lambda's
	// asynchronous queue behind it.
	SNSRedelivery = 24*24*time.Hour + AsyncRedelivery
	// AsyncRedelivery is the longest time that Lambda retains an asynchronous event
	// (Lambda developer guide, "How Lambda handles errors and retries with
	// asynchronous invocation").
	AsyncRedelivery = 6 * time.Hour

	// sqsOnce is how long a queue with the default retention and the longest
	// visibility timeout delivers a message that is not redriven.
	sqsOnce = (4*24 + 12) * time.Hour
)

func (o *Options) setDefaults(s *source) {
	if o.ID == nil && s.streams {
		o.ID = ItemID
	}
	if o.Scope == nil {
		o.Scope = sourceARN
	}
	if o.Fingerprint == nil {
		o.Fingerprint = wholeBody
	}
	if o.Redelivery == 0 {
		o.Redelivery = s.redelivery
		if o.NoRedrive {
			o.Redelivery = sqsOnce
		}
	}
	if o.Concurrency == 0 {
		o.Concurrency = 1
	}
	if o.Reserve == 0 {
		o.Reserve = defaultReserve
	}
	if o.Decode == nil {
		o.Decode = decodeJSON
	}
}

// decodeJSON is the default of [Options.Decode].
func decodeJSON(_ context.Context, body []byte, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		return &DecodeError{err}
	}
	return nil
}

func (o *Options) validate(s *source) error {
	switch {
	case o.Operation == "":
		return errors.New("lambdabatch: Options.Operation is empty; name the operation on a message")
	case o.ID == nil:
		return errors.New("lambdabatch: Options.ID is not set; identify the work of a message, for example with Field(\"/order_id\") (or ItemID, if two messages never stand for the same work)")
	case o.redriven(s) && isItemID(o.ID):
		return errItemID
	case min(o.Redelivery, o.Reserve, o.Visibility.Backoff) < 0 || o.Concurrency < 1:
		return errors.New("lambdabatch: Options.Redelivery, Reserve and Visibility.Backoff must not be negative, and Concurrency must be at least 1 (or zero for the default)")
	case o.NoRedrive && s.streams:
		return fmt.Errorf("lambdabatch: Options.NoRedrive is for queues; the messages of %s are not redriven", s.name)
	case o.Visibility.Change != nil && s.streams:
		return fmt.Errorf("lambdabatch: Options.Visibility is for queues; the messages of %s have no visibility timeout", s.name)
	case o.Visibility.Backoff > 0 && o.Visibility.Change == nil:
		return errors.New("lambdabatch: Options.Visibility.Backoff needs Visibility.Change, which changes the visibility timeout of a message")
	case o.Fail > FailIfAny:
		return fmt.Errorf("lambdabatch: invalid Options.Fail %d: want FailNever, FailIfAll or FailIfAny", o.Fail)
	}
	return nil
}

// redriven reports whether messages of the source can return with another id.
func (o *Options) redriven(s *source) bool { return !s.streams && !o.NoRedrive }

var errNoSource error = logs.Error("lambdabatch: the event has no ARN of its source (eventSourceARN): add it to a test event; a self-managed Kafka cluster has no ARN, so set Options.Scope, for example to its name")

// sourceARN is the default of [Options.Scope].
func sourceARN(_ context.Context, m *Message) (string, error) {
	if m.Source == "" {
		return "", errNoSource
	}
	return m.Source, nil
}

// wholeBody is the default of [Options.Fingerprint].
func wholeBody(_ context.Context, m *Message) (idempotent.Fingerprint, error) {
	if f, err := idempotent.FingerprintOf(json.RawMessage(m.Body)); err == nil {
		return f, nil
	}
	return idempotent.FingerprintBytes(m.Body), nil
}
