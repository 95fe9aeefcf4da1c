// SPDX-License-Identifier: Apache-2.0

package lambdabatch

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/once-lambda/once/idempotent"
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
// ids: use a field of the detail instead.
func EventBridge(operation string) idempotent.KeyFunc[events.EventBridgeEvent] {
	return func(_ context.Context, e events.EventBridgeEvent) (idempotent.Key, error) {
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
var errOneRecord = errors.New("lambdabatch: invalid event: it must have exactly one record")

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
		key, err := s3Key(&e)
		key.Operation = operation
		return key, err
	}
}

// s3Key returns the key of the work that an event stands for, without its operation.
// The id is empty, and so refused, if the event does not name its object, or has
// nothing that is different in the next event of the same kind.
func s3Key(e *events.S3Event) (key idempotent.Key, err error) {
	if len(e.Records) != 1 {
		return key, errOneRecord
	}
	r := &e.Records[0]
	o := &r.S3.Object
	key.Scope = r.S3.Bucket.Name
	which := o.Sequencer
	if request := r.ResponseElements["x-amz-request-id"]; which == "" && request != "" && !r.EventTime.IsZero() {
		which = r.EventTime.UTC().Format(time.RFC3339Nano) + " " + request
	}
	if o.Key == "" || which == "" {
		return key, nil
	}
	// Only the object's key, the last part, can contain a NUL.
	key.ID = strings.Join([]string{r.EventName, o.VersionID, which, o.Key}, "\x00")
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
		key := idempotent.Key{Operation: operation, Scope: execution, ID: state}
		if execution == "" {
			key.Scope, key.ID = idempotent.Global, "" // no key: refused
		}
		return key, nil
	}
}
