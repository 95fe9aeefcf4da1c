// SPDX-License-Identifier: Apache-2.0

package lambdabatch_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/errtype"
	"github.com/once-lambda/once/lambdabatch"
)

// task is the input of a state machine's task.
type task struct {
	Execution string `json:"execution"`
	State     string `json:"state"`
	Input     order  `json:"input"`
}

func names(t task) (execution, state string) { return t.Execution, t.State }

// twice wraps a handler, sends req twice and another request once, and checks
// that there are two runs.
func twice[Req any](t *testing.T, w *fixture, key idempotent.KeyFunc[Req], req, another Req, in ...context.Context) {
	t.Helper()
	ctx, other := w.invocation(), w.invocation()
	if len(in) == 2 {
		ctx, other = in[0], in[1]
	}
	runs := 0
	h := idempotent.Wrap(w.guard, key, func(context.Context, Req) (int, error) { runs++; return runs, nil })
	for _, c := range []struct {
		ctx  context.Context
		req  Req
		want int
	}{{ctx, req, 1}, {ctx, req, 1}, {other, another, 2}} {
		if got, err := h(c.ctx, c.req); err != nil || got != c.want {
			t.Errorf("got %d %v, want %d", got, err, c.want)
		}
	}
}

// refused sends requests without a key, or with an invalid number of records.
func refused[Req any](t *testing.T, w *fixture, key idempotent.KeyFunc[Req], want error, reqs ...Req) {
	t.Helper()
	h := idempotent.Wrap(w.guard, key, func(context.Context, Req) (int, error) {
		t.Error("the handler ran")
		return 0, nil
	})
	for _, req := range reqs {
		if _, err := h(w.invocation(), req); err == nil || want != nil && !errtype.Matches(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}

// F02: the event's own id is the key.
func TestEventBridge(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	e := load[events.EventBridgeEvent](t, "eventbridge.json")
	another := e
	another.Source = "shop.returns" // an id is unique for its source only
	twice(t, w, lambdabatch.EventBridge("fulfil"), e, another)
	nameless := e
	nameless.ID = ""
	refused(t, w, lambdabatch.EventBridge("fulfil"), new(idempotent.NoKeyError), nameless)
	forged := e
	forged.Detail = []byte(`{"order_id":"o-2"}`)
	refused(t, w, lambdabatch.EventBridge("fulfil"), new(idempotent.MismatchError), forged)
}

func TestSNS(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	e, another, nameless := load[events.SNSEvent](t, "sns.json"), load[events.SNSEvent](t, "sns.json"), load[events.SNSEvent](t, "sns.json")
	another.Records[0].SNS.TopicArn += "-returns"
	twice(t, w, lambdabatch.SNS("fulfil"), e, another)
	nameless.Records[0].SNS.MessageID = ""
	refused(t, w, lambdabatch.SNS("fulfil"), new(idempotent.NoKeyError), nameless)
	refused(t, w, lambdabatch.SNS("fulfil"), nil, events.SNSEvent{}, events.SNSEvent{Records: append(e.Records, e.Records...)})
}

func TestS3(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	object := func(change func(*events.S3EventRecord)) events.S3Event {
		e := load[events.S3Event](t, "s3.json")
		change(&e.Records[0])
		return e
	}
	e := object(func(*events.S3EventRecord) {})
	for name, change := range map[string]func(*events.S3EventRecord){
		"later event":   func(r *events.S3EventRecord) { r.S3.Object.Sequencer += "1" },
		"other version": func(r *events.S3EventRecord) { r.S3.Object.VersionID = "" },
		"other object":  func(r *events.S3EventRecord) { r.S3.Object.Key += "x" },
		"removed":       func(r *events.S3EventRecord) { r.EventName = "ObjectRemoved:Delete" },
		"other bucket":  func(r *events.S3EventRecord) { r.S3.Bucket.Name += "x" },
	} {
		twice(t, w, lambdabatch.S3("fulfil "+name), e, object(change))
	}
	// S3 sends no sequencer with the events of tags, which one version can have many of.
	tagged := func(change func(*events.S3EventRecord)) events.S3Event {
		return object(func(r *events.S3EventRecord) {
			r.EventName, r.S3.Object.Sequencer = "ObjectTagging:Put", ""
			change(r)
		})
	}
	for name, change := range map[string]func(*events.S3EventRecord){
		"tagged later":              func(r *events.S3EventRecord) { r.EventTime = r.EventTime.Add(time.Millisecond) },
		"tagged by another request": func(r *events.S3EventRecord) { r.ResponseElements = map[string]string{"x-amz-request-id": "other"} },
		"tagged, without a version": func(r *events.S3EventRecord) { r.S3.Object.VersionID = "" },
	} {
		twice(t, w, lambdabatch.S3("fulfil "+name), tagged(func(*events.S3EventRecord) {}), tagged(change))
	}
	refused(t, w, lambdabatch.S3("fulfil"), new(idempotent.NoKeyError),
		object(func(r *events.S3EventRecord) { r.S3.Object.Key = "" }),
		tagged(func(r *events.S3EventRecord) { r.ResponseElements = nil }), tagged(func(r *events.S3EventRecord) { r.EventTime = time.Time{} }))
	refused(t, w, lambdabatch.S3("fulfil"), nil, events.S3Event{}, events.S3Event{Records: append(e.Records, e.Records...)})
}

func TestAsyncInvoke(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	o := load[order](t, "asyncinvoke.json")
	in := func(id string) context.Context {
		return lambdacontext.NewContext(w.invocation(), &lambdacontext.LambdaContext{AwsRequestID: id, InvokedFunctionArn: "arn:aws:lambda:eu-central-1:123456789012:function:fulfil"})
	}
	twice(t, w, lambdabatch.AsyncInvoke[order]("fulfil"), o, o, in("8476a536-e9f4-11e8-9739-2dfe598c3fcd"), in("another"))
	refused(t, w, lambdabatch.AsyncInvoke[order]("fulfil"), nil, o) // not in a function
}

func TestStepFunctions(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	in := load[task](t, "stepfunctions.json")
	state, execution := in, in
	state.State = "Ship"
	execution.Execution += "2"
	twice(t, w, lambdabatch.StepFunctions("fulfil", names), in, state)
	twice(t, w, lambdabatch.StepFunctions("fulfil again", names), in, execution)
	refused(t, w, lambdabatch.StepFunctions("fulfil", names), new(idempotent.NoKeyError), task{State: "Ship"}, task{Execution: in.Execution})
}

// The envelope may change when a source retries; only the sender's content is
// part of the fingerprint.
func TestEnvelopesMayDiffer(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	topic := func(change func(*events.SNSEntity)) events.SNSEvent {
		e := load[events.SNSEvent](t, "sns.json")
		change(&e.Records[0].SNS)
		return e
	}
	object := func(change func(*events.S3EventRecord)) events.S3Event {
		e := load[events.S3Event](t, "s3.json")
		change(&e.Records[0])
		return e
	}
	event := func(change func(*events.EventBridgeEvent)) events.EventBridgeEvent {
		e := load[events.EventBridgeEvent](t, "eventbridge.json")
		change(&e)
		return e
	}
	again(t, w, lambdabatch.SNS("sns"), topic(func(*events.SNSEntity) {}), topic(func(m *events.SNSEntity) {
		m.Signature, m.SigningCertURL, m.Timestamp = "another", "another", m.Timestamp.Add(1)
	}))
	again(t, w, lambdabatch.S3("s3"), object(func(*events.S3EventRecord) {}), object(func(r *events.S3EventRecord) {
		r.EventTime, r.ResponseElements = r.EventTime.Add(1), nil
	}))
	again(t, w, lambdabatch.EventBridge("eb"), event(func(*events.EventBridgeEvent) {}), event(func(e *events.EventBridgeEvent) { e.Time = e.Time.Add(1) }))

	refused(t, w, lambdabatch.SNS("sns"), new(idempotent.MismatchError),
		topic(func(m *events.SNSEntity) { m.Message = "another" }), topic(func(m *events.SNSEntity) { m.Subject = "another" }), topic(func(m *events.SNSEntity) { m.MessageAttributes = nil }))
	refused(t, w, lambdabatch.S3("s3"), new(idempotent.MismatchError),
		object(func(r *events.S3EventRecord) { r.S3.Object.ETag = "another" }), object(func(r *events.S3EventRecord) { r.S3.Object.Size++ }))
	refused(t, w, lambdabatch.EventBridge("eb"), new(idempotent.MismatchError),
		event(func(e *events.EventBridgeEvent) { e.DetailType = "another" }))
}

// again sends the same event in two envelopes and checks that there is one run.
func again[Req any](t *testing.T, w *fixture, key idempotent.KeyFunc[Req], first, second Req) {
	t.Helper()
	runs := 0
	h := idempotent.Wrap(w.guard, key, func(context.Context, Req) (int, error) { runs++; return runs, nil })
	for _, req := range []Req{first, second} {
		if got, err := h(w.invocation(), req); err != nil || got != 1 {
			t.Errorf("got %d %v, want 1", got, err)
		}
	}
}

// H10: an outcome that is stored for the time that this package names is replayed
// to the last delivery that the source's documentation allows, and is not stored
// for more than a day longer.
func TestRedeliveryOfSingleEvents(t *testing.T) {
	t.Parallel()
	const async = 6 * time.Hour // Lambda developer guide: MaximumEventAgeInSeconds is at most 21,600
	// SNS developer guide, "AWS managed endpoints": 3 retries at once, 2 after 1 s,
	// 10 after 1 s to 20 s, 100,000 after 20 s.
	const sns = (2*1 + 10*20 + 100_000*20) * time.Second
	const bridge = 86_400 * time.Second // EventBridge API reference: the longest MaximumEventAgeInSeconds
	onLast(t, lambdabatch.SNS("fulfil"), load[events.SNSEvent](t, "sns.json"), lambdabatch.SNSRedelivery, sns+async)
	onLast(t, lambdabatch.EventBridge("fulfil"), load[events.EventBridgeEvent](t, "eventbridge.json"), lambdabatch.EventBridgeRedelivery, bridge+async)
	onLast(t, lambdabatch.S3("fulfil"), load[events.S3Event](t, "s3.json"), lambdabatch.AsyncRedelivery, async)
}

// onLast delivers an event, and again after the longest time for which its source
// retries.
func onLast[Req any](t *testing.T, key idempotent.KeyFunc[Req], req Req, stored, longest time.Duration) {
	t.Helper()
	w := newFixture(t)
	runs := 0
	h := idempotent.Wrap(w.guard, key, func(context.Context, Req) (int, error) { runs++; return runs, nil },
		func(o *idempotent.Options) { o.Retention = stored })
	for range 2 {
		if got, err := h(w.invocation(), req); err != nil || got != 1 {
			t.Errorf("%T: got %d %v, want 1", req, got, err)
		}
		w.clock.Advance(longest - time.Second)
	}
	if stored >= longest+24*time.Hour {
		t.Errorf("%T: outcomes are stored for %s, and the source retries for %s", req, stored, longest)
	}
}

// The parts of a key are in the right fields.
func TestSingleKeys(t *testing.T) {
	t.Parallel()
	key, err := lambdabatch.S3("fulfil")(t.Context(), load[events.S3Event](t, "s3.json"))
	if err != nil || key.Scope != "shop-orders" || strings.Count(key.ID, "\x00") != 3 || !strings.HasSuffix(key.ID, "\x00inbox/order+1.json") {
		t.Errorf("got %+v %v", key, err)
	}
}
