// SPDX-License-Identifier: Apache-2.0

package lambdabatch

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/logs"
)

// The KeyFuncs of sources that deliver one event at a time, for idempotent.Wrap.
// The fingerprints of AWS sources cover the sender's content and not the
// envelope, which may change when the source retries. If the wrapped handler
// returns an error, the source retries. Store outcomes for longer than it does:
// set [idempotent.Operation.Retention] to at least [EventBridgeRedelivery],
// [SNSRedelivery] or [AsyncRedelivery]. The default of 24 hours is too short for
// EventBridge and SNS.

// EventBridge identifies the work by the event's id, in the scope of its account
// and source. If a sender may put the same event twice, the two have different
// ids: use a field of the detail instead. S3 does, so the key of its events is that of
// [S3].
func EventBridge(operation string) idempotent.KeyFunc[events.EventBridgeEvent] {
	return func(_ context.Context, e events.EventBridgeEvent) (idempotent.Key, error) {
		if e.Source == s3Source {
			if key, err := s3Detail(&e); err != nil || key.ID != "" { // not that of a call that CloudTrail reports
				key.Operation = operation
				return key, err
			}
		}
		return bound(idempotent.Key{Operation: operation, Scope: e.AccountID + "/" + e.Source, ID: e.ID}, e.DetailType, e.Detail)
	}
}

// bound returns key with a fingerprint of content.
func bound(key idempotent.Key, content ...any) (idempotent.Key, error) {
	var err error
	key.Fingerprint, err = idempotent.FingerprintOf(content)
	return key, err
}

// errOneRecord reports an event that breaks its source's promise of one record.
var errOneRecord error = logs.Error("lambdabatch: invalid event: it must have exactly one record")

// SNS identifies the work by the message's id, in the scope of its topic.
func SNS(operation string) idempotent.KeyFunc[events.SNSEvent] {
	return func(_ context.Context, e events.SNSEvent) (idempotent.Key, error) {
		if len(e.Records) != 1 {
			return idempotent.Key{}, errOneRecord
		}
		m := &e.Records[0].SNS
		return bound(idempotent.Key{Operation: operation, Scope: m.TopicArn, ID: m.MessageID}, m.Subject, m.Message, m.MessageAttributes)
	}
}

// S3 identifies the work by the kind of event, the object, its version and its
// sequencer, in the scope of its bucket: S3 may send a notification more than once.
// S3 sends a sequencer for PUT and DELETE only (Amazon S3 user guide, "Event message
// structure"). Without one, the id contains the event's time and the id of the request
// that caused it, so that two changes of the tags of an object are two works.
func S3(operation string) idempotent.KeyFunc[events.S3Event] {
	return func(_ context.Context, e events.S3Event) (idempotent.Key, error) {
		if len(e.Records) != 1 {
			return idempotent.Key{}, errOneRecord
		}
		key, err := s3Key(&e)
		key.Operation = operation
		return key, err
	}
}

// s3Key returns the key of the work that an event with one record stands for, without its
// operation.
func s3Key(e *events.S3Event) (idempotent.Key, error) {
	r := &e.Records[0]
	return s3Work(r.S3.Bucket.Name, r.EventName, &r.S3.Object, r.EventTime, r.ResponseElements["x-amz-request-id"])
}

// s3Source is the source of S3's events on EventBridge.
const s3Source = "aws.s3"

// s3Detail is s3Key for the form that S3 sends to EventBridge (Amazon S3 user guide,
// "EventBridge event message structure").
func s3Detail(e *events.EventBridgeEvent) (idempotent.Key, error) {
	var detail struct {
		Bucket struct{ Name string }
		Object struct {
			Key       string
			VersionID string `json:"version-id"`
			Sequencer string
			ETag      string
			Size      int64
		}
		RequestID string `json:"request-id"`
	}
	if err := json.Unmarshal(e.Detail, &detail); err != nil {
		return idempotent.Key{}, &DecodeError{err}
	}
	d := &detail.Object
	object := events.S3Object{Key: d.Key, VersionID: d.VersionID, Sequencer: d.Sequencer, ETag: d.ETag, Size: d.Size}
	return s3Work(detail.Bucket.Name, e.DetailType, &object, e.Time, detail.RequestID)
}

// s3Work returns the key of an event about an object. The id is empty, and so refused, if
// the event does not name its object, or has nothing that is different in the next event
// of the same kind.
func s3Work(bucket, kind string, o *events.S3Object, at time.Time, request string) (idempotent.Key, error) {
	key := idempotent.Key{Scope: bucket}
	which := o.Sequencer
	if which == "" && request != "" && !at.IsZero() {
		which = at.UTC().Format(time.RFC3339Nano) + " " + request
	}
	if o.Key == "" || which == "" {
		return key, nil
	}
	// Only the object's key, the last part, can contain a NUL.
	key.ID = strings.Join([]string{kind, o.VersionID, which, o.Key}, "\x00")
	return bound(key, o.ETag, o.Size)
}

// AsyncInvoke identifies the work of an asynchronous invocation by its request
// id, which stays the same when Lambda retries. If a caller may invoke twice,
// the two have different ids: use a field of the payload instead.
func AsyncInvoke[Req any](operation string) idempotent.KeyFunc[Req] {
	return func(ctx context.Context, _ Req) (idempotent.Key, error) {
		key := idempotent.Key{Operation: operation, Scope: lambdacontext.FunctionName}
		if c, ok := lambdacontext.FromContext(ctx); ok {
			key.ID = c.AwsRequestID
			key.Scope = c.InvokedFunctionArn
		}
		return key, nil
	}
}

// StepFunctions identifies the work by the execution and the state, which the
// state machine must put into the task's input: $$.Execution.Id and
// $$.State.Name. A retry of the state has the same values as the first attempt.
// If a state is entered more than once in an execution, in a loop or a Map,
// names must return a state that differs each time, for example with
// $$.Map.Item.Index.
func StepFunctions[Req any](operation string, names func(Req) (execution, state string)) idempotent.KeyFunc[Req] {
	return func(_ context.Context, r Req) (idempotent.Key, error) {
		execution, state := names(r)
		return idempotent.Key{Operation: operation, Scope: execution, ID: state}, nil // the guard refuses an empty execution
	}
}
