// SPDX-License-Identifier: Apache-2.0

package lambdabatch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdabatch"
)

// notification is the body that SNS sends to a queue.
func notification(message, at string) string {
	return fmt.Sprintf(`{"Type":"Notification","MessageId":"m-1","TopicArn":"arn:topic","Message":%q,"Timestamp":%q}`, message, at)
}

func queued(bodies ...string) (e events.SQSEvent) {
	for i, b := range bodies {
		e.Records = append(e.Records, events.SQSMessage{MessageId: fmt.Sprintf("q-%d", i), EventSourceARN: "arn:queue", Body: b})
	}
	return e
}

// The rules and the handler get what was published: the same order in another
// envelope is a replay.
func TestFromSNS(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	h := lambdabatch.SQS(w.guard, w.handle, lambdabatch.FromSNS, w.options())
	order := `{"order_id":"o-1"}`
	response, err := h(w.invocation(), queued(notification(order, "noon"), notification(order, "one"), order, `{"Type":"Notification"}`, "text",
		`{"Type":"SubscriptionConfirmation","Message":"{\"order_id\":\"o-2\"}"}`, `{"Type":"Notification","Message":{"order_id":"o-3"}}`))
	var failed []string
	for _, f := range response.BatchItemFailures {
		failed = append(failed, f.ItemIdentifier)
	}
	if err != nil || strings.Join(failed, " ") != "q-2 q-3 q-4 q-5 q-6" {
		t.Errorf("these failed: %q, %v", failed, err)
	}
	w.wantRuns("o-1")
	if strings.Count(w.log(), "raw message delivery") != 5 {
		t.Errorf("the log: %s", w.log())
	}
}

// The attributes of a notification replace those of the message.
func TestFromSNS_Attributes(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	var got map[string]string
	h := lambdabatch.SQS(w.guard, func(ctx context.Context, o order) error {
		m, _ := lambdabatch.FromContext(ctx)
		got = m.Attributes
		return w.handle(ctx, o)
	}, lambdabatch.FromSNS, w.options(func(o *lambdabatch.Options) { o.ID = lambdabatch.Attribute("order") }))
	event := queued(`{"Type":"Notification","Message":"{\"order_id\":\"o-1\"}","MessageAttributes":{"order":{"Type":"String","Value":"7"},"bytes":{"Type":"Binary","Value":"AA=="}}}`)
	outer := "of the queue's message"
	event.Records[0].MessageAttributes = map[string]events.SQSMessageAttribute{"order": {StringValue: &outer}, "other": {StringValue: &outer}}
	wantIDs(t, w.send(h, event))
	w.wantRuns("o-1")
	if len(got) != 1 || got["order"] != "7" {
		t.Errorf("the attributes: %v", got)
	}
	wantIDs(t, w.send(h, queued(`{"Type":"Notification","Message":"{}"}`)), "q-0") // it has no attributes
}

// An event of S3 has the same key through a queue, a queue behind a topic, and
// directly. A notification that S3 sends twice is one work.
func TestFromS3(t *testing.T) {
	t.Parallel()
	event := load[events.S3Event](t, "s3.json")
	body, err := json.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	key, err := lambdabatch.S3("fulfil")(t.Context(), event)
	if err != nil {
		t.Fatal(err)
	}
	again := event
	again.Records = []events.S3EventRecord{event.Records[0]}
	again.Records[0].ResponseElements = map[string]string{"x-amz-request-id": "other"}
	second, err := json.Marshal(again)
	if err != nil {
		t.Fatal(err)
	}
	// A handler of another type than events.S3Event would run on it.
	misread := strings.Replace(string(body), `"awsRegion":"eu-central-1"`, `"awsRegion":5`, 1)
	var o lambdabatch.Options
	lambdabatch.FromS3(&o)
	if id, err := o.ID(t.Context(), &lambdabatch.Message{Body: []byte(misread)}); err == nil {
		t.Errorf("an event with a region of another type has the id %q", id)
	}
	for name, c := range map[string]struct {
		optFns []func(*lambdabatch.Options)
		wrap   func(string) string
	}{
		"queue": {nil, func(s string) string { return s }},
		"topic": {[]func(*lambdabatch.Options){lambdabatch.FromSNS}, func(s string) string { return notification(s, "noon") }},
	} {
		w := newFixture(t)
		runs := 0
		optFns := append(c.optFns, func(o *lambdabatch.Options) { o.Operation = "fulfil" }, lambdabatch.FromS3)
		h := lambdabatch.SQS(w.guard, func(_ context.Context, e events.S3Event) error {
			if runs++; e.Records[0].S3.Object.Key != event.Records[0].S3.Object.Key {
				t.Errorf("%s: the handler got %+v", name, e)
			}
			return nil
		}, optFns...)
		none, several := `{"Event":"s3:TestEvent"}`, `{"Records":[{},{}]}`
		response, err := h(w.invocation(), queued(c.wrap(string(body)), c.wrap(string(second)), c.wrap(none), c.wrap(several), c.wrap(`{"Records":[{}]}`)))
		if err != nil || len(response.BatchItemFailures) != 3 || response.BatchItemFailures[0].ItemIdentifier != "q-2" || runs != 1 {
			t.Errorf("%s: %+v, %v after %d runs", name, response, err, runs)
		}
		if _, err := w.store.Get(t.Context(), key.RecordID()); err != nil {
			t.Errorf("%s: the record of the key %+v: %v", name, key, err)
		}
		changed := again
		changed.Records[0].S3.Object.ETag = "another"
		other, _ := json.Marshal(changed)
		if response, _ := h(w.invocation(), queued(c.wrap(string(other)))); len(response.BatchItemFailures) != 1 {
			t.Errorf("%s: another content under the same key is not refused", name)
		}
	}
}

// FailBatch returns an error if nothing succeeded, and FailAny if anything failed.
func TestFailBatch(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ all, any bool }{"default": {}, "FailBatch": {all: true}, "FailAny": {any: true}} {
		w := newFixture(t)
		h := lambdabatch.SQS(w.guard, w.handle, w.options(func(o *lambdabatch.Options) { o.FailBatch, o.FailAny = row.all, row.any }))
		w.on("o-1", returns(idempotent.NotExecuted(errBroken)))
		for says, c := range map[string]struct {
			bodies []string
			fails  bool
		}{
			"1 of 2 messages": {[]string{`{"order_id":"o-1"}`, `{"order_id":"o-2"}`}, row.any},
			"2 of 2 messages": {[]string{`{"order_id":"o-1"}`, `{"order_id":"o-1"}`}, row.any || row.all},
			"0 of 1 messages": {[]string{`{"order_id":"o-2"}`}, false},
			"0 of 0 messages": {[]string{}, false},
		} {
			event := events.SQSEvent{Records: []events.SQSMessage{}}
			event.Records = append(event.Records, queued(c.bodies...).Records...)
			response, err := h(w.invocation(), event)
			if c.fails != (err != nil) || c.fails && !strings.Contains(err.Error(), says) || !c.fails && fmt.Sprint(len(response.BatchItemFailures)) != says[:1] {
				t.Errorf("%s: %s: %+v, %v", name, says, response, err)
			}
		}
	}
}
