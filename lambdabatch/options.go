package lambdabatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/once-lambda/once/idempotent"
)

// Recovery is [idempotent.Recovery] with no default: with a queue behind it the
// choice decides what a failed message does.
type Recovery uint8

const (
	// Reconcile: a message that failed is not run again by itself. It comes back
	// until it is resolved, handed over, or in the dead-letter queue; in a stream
	// it holds up its shard.
	Reconcile Recovery = iota + 1
	// Resume: it runs again and gets its finished steps back.
	Resume
	// Rerun: it runs again from the start.
	Rerun
)

var recoveries = map[Recovery]idempotent.Recovery{
	Reconcile: idempotent.Reconcile, Resume: idempotent.Resume, Rerun: idempotent.Rerun,
}

// Options are given to [SQS], [SQSFIFO], [Kinesis] and [DynamoDB]. The zero
// value of each field is its documented default.
type Options struct {
	// Operation names what is done with a message. Required.
	Operation string

	// ID says which unit of work a message stands for. Required for queues;
	// default for streams: ItemID.
	ID IDFunc

	// Scope says for whom the work is done. Default: the source's ARN. Two
	// sources that bring the same work, such as a queue and its dead-letter
	// queue, need the same scope.
	Scope func(ctx context.Context, r *Record) (string, error)

	// Fingerprint binds a message's content to its key. A sender that adds a
	// time to every retry needs one of its own. Default: the whole body, JSON by
	// meaning and anything else by its bytes.
	Fingerprint func(r *Record) (idempotent.Fingerprint, error)

	// Recovery is the promise of the operation. Required.
	Recovery Recovery

	// Steps are [idempotent.Options.Steps].
	Steps []string

	// Redelivery is how long the source may deliver a message again: its own
	// retention, and the visibility time-out of a queue on top. Outcomes are kept
	// for at least as long. Count a redrive from a dead-letter queue in, if you do
	// that. Default: SQSRedelivery for queues, StreamRedelivery for streams.
	Redelivery time.Duration

	// Retention is [idempotent.Options.Retention]. One shorter than Redelivery is
	// refused. Default: Redelivery.
	Retention time.Duration

	// Concurrency is how many messages are worked on side by side. Messages of
	// one FIFO group, of one partition and, in a standard queue, of one key never
	// are. (Messages of one key in two groups or partitions may meet; the second
	// one is refused as in progress then, and comes again.) Default: 1.
	Concurrency int

	// Reserve is how much time has to be left until the deadline for another
	// message to be begun. Default: 1 s.
	Reserve time.Duration

	// PerGroup lets the other groups of a FIFO batch go on when a message failed;
	// its own group stops either way. Default: the whole batch stops.
	PerGroup bool

	// HandOver takes a message whose record is unknown, for example to a queue
	// for people. If it returns nil the message is acknowledged; its record stays
	// due for reconciliation. It is asked when the message comes again, not by
	// the run that failed. Default: the message comes again.
	HandOver func(ctx context.Context, r *Record, unresolved *idempotent.UnresolvedError) error

	// Decode reads a message's body into the value that v points to. Default:
	// JSON. A handler of the source's own record type, of []byte or of string gets
	// that, undecoded.
	Decode func(body []byte, v any) error

	// Guard changes the guard's other options.
	Guard func(*idempotent.Options)

	// Logger gets a line for every message that failed, with its id and the
	// error's type. Default: the guard's.
	Logger *slog.Logger

	unresolved time.Duration // the guard's UnresolvedRetention
}

func (o *Options) change(f func(*Options)) { f(o) }

func (o *Options) logger() *slog.Logger {
	if o.Logger != nil {
		return o.Logger
	}
	return slog.Default()
}

// source is all that differs between two sources for the engine.
type source struct {
	name       string // of the constructor
	redelivery time.Duration
	streams    bool // ordered, with a checkpoint, and with ids that stay
	fifo       bool
}

// defaultReserve is the default of [Options.Reserve].
const defaultReserve = time.Second

// How long sources deliver again by their own defaults: the least that an
// outcome has to be kept for.
const (
	// SQSRedelivery is the default retention of a queue, and the longest
	// visibility time-out on top (SQS developer guide, "Amazon SQS message quotas").
	SQSRedelivery = (4*24 + 12) * time.Hour
	// StreamRedelivery is the retention of a DynamoDB stream, and the default one
	// of a Kinesis stream.
	StreamRedelivery = 24 * time.Hour
	// EventBridgeRedelivery is EventBridge's own retries, and those of Lambda's
	// asynchronous queue behind it.
	EventBridgeRedelivery = 24*time.Hour + AsyncRedelivery
	// SNSRedelivery is how long SNS tries to reach a function, 23 days and some by its
	// policy for endpoints that AWS manages (SNS developer guide, "Amazon SNS
	// message delivery retries"), and Lambda's asynchronous queue behind it.
	SNSRedelivery = 24*24*time.Hour + AsyncRedelivery
	// AsyncRedelivery is how long Lambda keeps an asynchronous event (Lambda
	// developer guide, "How Lambda handles errors and retries with asynchronous
	// invocation").
	AsyncRedelivery = 6 * time.Hour
)

func (o *Options) setDefaults(s *source) {
	if o.ID == nil && s.streams {
		o.ID = ItemID
	}
	if o.Scope == nil {
		o.Scope = func(_ context.Context, r *Record) (string, error) { return r.Source, nil }
	}
	if o.Fingerprint == nil {
		o.Fingerprint = wholeBody
	}
	if o.Redelivery == 0 {
		o.Redelivery = s.redelivery
	}
	if o.Retention == 0 {
		o.Retention = o.Redelivery
	}
	if o.Concurrency == 0 {
		o.Concurrency = 1
	}
	if o.Reserve == 0 {
		o.Reserve = defaultReserve
	}
	if o.Decode == nil {
		o.Decode = json.Unmarshal
	}
}

func (o *Options) validate(s *source) error {
	switch {
	case o.Operation == "":
		return errors.New("lambdabatch: Options.Operation is empty; name what is done with a message")
	case o.ID == nil:
		return errors.New("lambdabatch: Options.ID is not set; name the work a message stands for, for example with Field(\"/order_id\") (or ItemID, if two messages never stand for the same work)")
	case o.Recovery < Reconcile || o.Recovery > Rerun:
		return errors.New("lambdabatch: Options.Recovery is not set; choose Reconcile, Resume or Rerun: it decides what becomes of a message that failed")
	case o.Redelivery < 0 || o.Reserve < 0 || o.Concurrency < 1:
		return errors.New("lambdabatch: Options.Redelivery and Reserve must not be negative, and Concurrency at least 1 (or zero for the default)")
	case o.Retention < o.Redelivery:
		return fmt.Errorf("lambdabatch: Options.Retention is %s, and the source may deliver a message again for %s (Options.Redelivery): it would run twice; keep outcomes for longer, or give the source's own numbers", o.Retention, o.Redelivery)
	case o.unresolved > 0 && o.unresolved < o.Redelivery:
		return fmt.Errorf("lambdabatch: the guard's UnresolvedRetention is %s, and the source may deliver a message again for %s (Options.Redelivery): one whose outcome is unknown would run again", o.unresolved, o.Redelivery)
	case o.PerGroup && !s.fifo:
		return fmt.Errorf("lambdabatch: Options.PerGroup is for SQSFIFO; %s has no message groups", s.name)
	}
	return nil
}

// wholeBody is the default of [Options.Fingerprint].
func wholeBody(r *Record) (idempotent.Fingerprint, error) {
	if f, err := idempotent.FingerprintOf(json.RawMessage(r.Body)); err == nil {
		return f, nil
	}
	return idempotent.FingerprintBytes(r.Body), nil
}
