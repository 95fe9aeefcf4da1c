package lambdabatch

import (
	"context"
	"errors"
	"strings"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/once-lambda/once/idempotent"
)

// The KeyFuncs of sources that bring one event at a time, for idempotent.Wrap.
// Those of AWS bind what the sender said to the key, and not the envelope, which
// may be another one when the source tries again. A
// failure is the error that the wrapped handler returns: the source retries.
// Keep outcomes for longer than it does: set [idempotent.Options.Retention] to
// [EventBridgeRedelivery], [SNSRedelivery] or [AsyncRedelivery] at least. The
// default of 24 hours is too short for EventBridge and SNS.

// EventBridge names the work by the event's id, for its bus's account. A sender
// that puts the same fact twice gives it two ids: then use a field of the
// detail.
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

// errOneRecord is the mistake of an event that is no longer what its source
// promises.
var errOneRecord = errors.New("lambdabatch: the event has to have exactly one record")

// SNS names the work by the message's id, for its topic.
func SNS(operation string) idempotent.KeyFunc[events.SNSEvent] {
	return func(_ context.Context, e events.SNSEvent) (idempotent.Key, error) {
		if len(e.Records) != 1 {
			return idempotent.Key{}, errOneRecord
		}
		m := &e.Records[0].SNS
		return bound(idempotent.Key{Operation: operation, Scope: m.TopicArn, ID: m.MessageID}, m.Subject, m.Message, m.MessageAttributes)
	}
}

// S3 names the work by what happened to which version of which object, for its
// bucket: S3 may send a notification more than once. The sequencer orders the
// events of one object (Amazon S3 user guide, "Event message structure").
func S3(operation string) idempotent.KeyFunc[events.S3Event] {
	return func(_ context.Context, e events.S3Event) (idempotent.Key, error) {
		if len(e.Records) != 1 {
			return idempotent.Key{}, errOneRecord
		}
		r := &e.Records[0]
		o := &r.S3.Object
		if o.Key == "" || o.Sequencer == "" && o.VersionID == "" {
			return idempotent.Key{Operation: operation, Scope: r.S3.Bucket.Name}, nil // no key: refused
		}
		return bound(idempotent.Key{
			Operation: operation, Scope: r.S3.Bucket.Name,
			// None of the parts but the object's key can hold a NUL.
			ID: strings.Join([]string{r.EventName, o.VersionID, o.Sequencer, o.Key}, "\x00"),
		}, o.ETag, o.Size)
	}
}

// AsyncInvoke names the work of an asynchronous invocation by its request id,
// which Lambda keeps when it tries again. A caller that invokes twice gets two
// ids: where that matters take a field of the payload.
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

// StepFunctions names the work by the execution and the state, which the state
// machine has to put into the task's input: $$.Execution.Id and
// $$.State.Name. A retry of the state has both in common with the first try. A
// state that is entered more than once in an execution, in a loop or a Map,
// needs what tells its turns apart in its name, such as $$.Map.Item.Index.
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
