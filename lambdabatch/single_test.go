// SPDX-License-Identifier: Apache-2.0

package lambdabatch_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/errtype"
	"github.com/once-lambda/once/lambdabatch"
)

// deliveries are events that follow one that was processed.
type deliveries[Req any] struct {
	same, other              []Req // the same operation, and others
	mismatch, noKey, invalid []Req // how they are refused
}

func deliver[Req any](t *testing.T, key idempotent.KeyFunc[Req], first Req, then deliveries[Req]) {
	t.Helper()
	w := newFixture(t)
	runs := 0
	h := idempotent.Wrap(w.guard, key, func(context.Context, Req) (int, error) { runs++; return runs, nil })
	for i, req := range slices.Concat([]Req{first}, then.same) {
		if got, err := h(w.invocation(), req); err != nil || got != 1 {
			t.Errorf("copy %d: got %d %v, want 1", i, got, err)
		}
	}
	for i, req := range then.other {
		if got, err := h(w.invocation(), req); err != nil || got != i+2 {
			t.Errorf("another event %d: got %d %v, want %d", i, got, err, i+2)
		}
	}
	for want, reqs := range map[error][]Req{new(idempotent.MismatchError): then.mismatch, new(idempotent.InvalidKeyError): then.noKey, error(nil): then.invalid} {
		for i, req := range reqs {
			if _, err := h(w.invocation(), req); err == nil || want != nil && !errtype.Matches(err, want) {
				t.Errorf("event %d: got %v, want %T", i, err, want)
			}
		}
	}
	if want := 1 + len(then.other); runs != want {
		t.Errorf("%d runs, want %d", runs, want)
	}
}

// changed returns the real event of a source after a change.
func changed[Req any](t *testing.T, source string) func(change func(*Req)) Req {
	return func(change func(*Req)) Req {
		e := load[Req](t, source)
		change(&e)
		return e
	}
}

func TestS3(t *testing.T) {
	t.Parallel()
	type record = events.S3EventRecord
	e := load[events.S3Event](t, "s3")
	object := func(change func(*record)) events.S3Event {
		return changed[events.S3Event](t, "s3")(func(e *events.S3Event) { change(&e.Records[0]) })
	}
	// S3 sends no sequencer with the events of tags, which one version can have many of.
	tagged := func(change func(*record)) events.S3Event {
		return object(func(r *record) {
			r.EventName, r.S3.Object.Sequencer = "ObjectTagging:Put", ""
			change(r)
		})
	}
	deliver(t, lambdabatch.S3("fulfil"), e, deliveries[events.S3Event]{
		same: []events.S3Event{e, object(func(r *record) { r.EventTime, r.ResponseElements = r.EventTime.Add(1), nil })},
		other: []events.S3Event{
			object(func(r *record) { r.S3.Object.Sequencer += "1" }),
			object(func(r *record) { r.S3.Object.VersionID = "" }),
			object(func(r *record) { r.S3.Object.Key += "x" }),
			object(func(r *record) { r.EventName = "ObjectRemoved:Delete" }),
			object(func(r *record) { r.S3.Bucket.Name += "x" }),
			tagged(func(*record) {}),
			tagged(func(r *record) { r.EventTime = r.EventTime.Add(time.Millisecond) }),
			tagged(func(r *record) { r.ResponseElements = map[string]string{"x-amz-request-id": "other"} }),
			tagged(func(r *record) { r.S3.Object.VersionID = "" }),
		},
		mismatch: []events.S3Event{object(func(r *record) { r.S3.Object.ETag = "another" }), object(func(r *record) { r.S3.Object.Size++ })},
		noKey: []events.S3Event{
			object(func(r *record) { r.S3.Object.Key = "" }),
			tagged(func(r *record) { r.ResponseElements = nil }),
			tagged(func(r *record) { r.EventTime = time.Time{} }),
		},
		invalid: []events.S3Event{{}, {Records: append(e.Records, e.Records...)}},
	})
	deliver(t, lambdabatch.S3("fulfil"), tagged(func(*record) {}), deliveries[events.S3Event]{
		same: []events.S3Event{tagged(func(r *record) { r.EventTime = r.EventTime.In(time.FixedZone("", 3600)) })},
	})
	key, err := lambdabatch.S3("fulfil")(t.Context(), e)
	if err != nil || key.Scope != "shop-orders" || strings.Count(key.ID, "\x00") != 3 || !strings.HasSuffix(key.ID, "\x00inbox/order+1.json") {
		t.Errorf("got %+v %v", key, err)
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
	for source, row := range map[string]struct{ stored, longest time.Duration }{
		"SNS":         {lambdabatch.SNSRedelivery, sns + async},
		"EventBridge": {lambdabatch.EventBridgeRedelivery, bridge + async},
		"S3":          {lambdabatch.AsyncRedelivery, async},
	} {
		if row.stored < row.longest || row.stored >= row.longest+24*time.Hour {
			t.Errorf("%s: outcomes are stored for %s, and the source retries for %s", source, row.stored, row.longest)
		}
	}
}

// F02: the event's own id is the key. The envelope may change when a source retries;
// only the sender's content is part of the fingerprint.
func TestSingleEvents(t *testing.T) {
	t.Parallel()
	bridge, topic := changed[events.EventBridgeEvent](t, "eventbridge"), changed[events.SNSEvent](t, "sns")
	type bus = events.EventBridgeEvent
	type notice = events.SNSEvent
	deliver(t, lambdabatch.EventBridge("fulfil"), bridge(func(*bus) {}), deliveries[bus]{
		same:     []bus{bridge(func(e *bus) { e.Time = e.Time.Add(1) })},
		other:    []bus{bridge(func(e *bus) { e.Source = "shop.returns" })}, // an id is unique for its source only
		mismatch: []bus{bridge(func(e *bus) { e.Detail = []byte(`{"order_id":"o-2"}`) }), bridge(func(e *bus) { e.DetailType = "another" })},
		noKey:    []bus{bridge(func(e *bus) { e.ID = "" })},
	})
	if key, err := lambdabatch.EventBridge("fulfil")(t.Context(), bridge(func(e *bus) { e.Detail = []byte(`{`) })); err == nil {
		t.Errorf("a detail that is no JSON has the key %+v", key)
	}
	sns := load[notice](t, "sns")
	deliver(t, lambdabatch.SNS("fulfil"), sns, deliveries[notice]{
		same: []notice{topic(func(e *notice) {
			m := &e.Records[0].SNS
			m.Signature, m.SigningCertURL, m.Timestamp = "another", "another", m.Timestamp.Add(1)
		})},
		other: []notice{topic(func(e *notice) { e.Records[0].SNS.TopicArn += "-returns" })},
		mismatch: []notice{
			topic(func(e *notice) { e.Records[0].SNS.Message = "another" }),
			topic(func(e *notice) { e.Records[0].SNS.Subject = "another" }),
			topic(func(e *notice) { e.Records[0].SNS.MessageAttributes = nil }),
		},
		noKey:   []notice{topic(func(e *notice) { e.Records[0].SNS.MessageID = "" })},
		invalid: []notice{{}, {Records: append(sns.Records, sns.Records...)}},
	})
	names := func(names [2]string) (execution, state string) { return names[0], names[1] }
	deliver(t, lambdabatch.StepFunctions("fulfil", names), [2]string{"e-1", "Charge"}, deliveries[[2]string]{
		same:  [][2]string{{"e-1", "Charge"}},
		other: [][2]string{{"e-1", "Ship"}, {"e-2", "Charge"}},
		noKey: [][2]string{{"", "Ship"}, {"e-1", ""}},
	})
	const arn = "arn:aws:lambda:eu-central-1:123456789012:function:fulfil"
	in := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: "r-1", InvokedFunctionArn: arn})
	if key, err := lambdabatch.AsyncInvoke[order]("fulfil")(in, order{}); err != nil || key != (idempotent.Key{Operation: "fulfil", Scope: arn, ID: "r-1"}) {
		t.Errorf("an asynchronous invocation: %+v %v", key, err)
	}
	if key, err := lambdabatch.AsyncInvoke[order]("fulfil")(t.Context(), order{}); err != nil || key.ID != "" {
		t.Errorf("outside a function: %+v %v", key, err)
	}
}

// S3 repeats a notification through EventBridge with another event id. It is one work, with
// one key for a function and for a queue. Events about no object have the event's id.
func TestS3ThroughEventBridge(t *testing.T) {
	t.Parallel()
	type bus = events.EventBridgeEvent
	form := string(forms(t)["S3 through EventBridge"])
	event := func(changes ...string) (e bus) { // old, new, …
		if err := json.Unmarshal([]byte(strings.NewReplacer(changes...).Replace(form)), &e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	const id, sequencer, request, object = "46bf2718", `, "sequencer": "0055AED6DCD90281E5"`, `"request-id": "C3D13FE58DE4C810",`, `"object": {`
	deliver(t, lambdabatch.EventBridge("fulfil"), event(), deliveries[bus]{
		same: []bus{event(id, "00000000"), event("10:00:00", "10:00:01"), event(request, "")},
		other: []bus{
			event("6DCD90281E5", "6DCD90281E6"), event("096fKKX", "096fKKY"), event("in/a b%.csv", "in/b.csv"), event("Object Created", "Object Deleted"), event(`"name": "uploads"`, `"name": "other"`),
			event(sequencer, ""), event(sequencer, "", "10:00:00", "10:00:01"), event(sequencer, "", request, `"request-id": "other",`),
			event(object, `"call": {`), event(object, `"call": {`, id, "00000000"), event(sequencer, "", request, "", id, "00000001"),
		},
		mismatch: []bus{event("d41d8", "d41d9"), event(`"size": 10`, `"size": 11`)},
		invalid:  []bus{event(`"size": 10`, `"size": "10"`, id, "00000002", "6DCD90281E5", "6DCD90281E7")},
	})
	w := newFixture(t)
	var got []string
	h := lambdabatch.SQS(w.guard, func(_ context.Context, e bus) error { got = append(got, e.DetailType); return nil },
		lambdabatch.FromS3, func(o *lambdabatch.Options) { o.Operation = "fulfil" })
	again := strings.Replace(form, id, "00000000", 1)
	wantIDs(t, w.send(h, bodies(form, again, strings.Replace(form, "d41d8", "d41d9", 1), strings.Replace(form, object, `"call": {`, 1), strings.Replace(form, `"size": 10`, `"size": "10"`, 1))), "m3", "m4", "m5")
	if !slices.Equal(got, []string{"Object Created"}) {
		t.Errorf("the handler got %q", got)
	}
	key, err := lambdabatch.EventBridge("fulfil")(t.Context(), event())
	if err != nil || key.Scope != "uploads" || key.ID != "Object Created\x00096fKKXTRTtl3on89fVO\x000055AED6DCD90281E5\x00in/a b%.csv" {
		t.Errorf("got %+v %v", key, err)
	}
	if _, err := w.store.Get(t.Context(), key.RecordID()); err != nil {
		t.Errorf("the record of the key %+v: %v", key, err)
	}
}

// A handler of one form of S3's events does not run on the other, which is not handed over:
// the next version can take it. A type of the program is decoded as it is.
func TestFromS3_Forms(t *testing.T) {
	t.Parallel()
	bridge := string(forms(t)["S3 through EventBridge"])
	direct, err := json.Marshal(load[events.S3Event](t, "s3"))
	if err != nil {
		t.Fatal(err)
	}
	w := newFixture(t)
	var got []string
	option := func(o *lambdabatch.Options) {
		o.Operation += "fulfil"
		o.HandOver = func(_ context.Context, m *lambdabatch.Message, reason error) error {
			got = append(got, m.ItemID+" handed over")
			return nil
		}
	}
	wantIDs(t, w.send(lambdabatch.SQS(w.guard, func(_ context.Context, e events.S3Event) error { got = append(got, object(e)); return nil }, lambdabatch.FromS3, option), bodies(bridge, string(direct), "{")), "m1")
	wantIDs(t, w.send(lambdabatch.SQS(w.guard, func(_ context.Context, e events.EventBridgeEvent) error { got = append(got, e.DetailType); return nil },
		lambdabatch.FromS3, option, func(o *lambdabatch.Options) { o.Operation = "bridge" }), bodies(bridge, string(direct))), "m2")
	type own struct{ Records []any }
	wantIDs(t, w.send(lambdabatch.SQS(w.guard, func(_ context.Context, e own) error { got = append(got, fmt.Sprint(len(e.Records))); return nil },
		lambdabatch.FromS3, option, func(o *lambdabatch.Options) { o.Operation = "own" }), bodies(bridge, string(direct))))
	wantIDs(t, w.send(lambdabatch.SQS(w.guard, func(context.Context, events.S3Event) error { return nil }, lambdabatch.FromS3, option, blind(&got)), bodies("{")))
	if want := []string{"inbox/order+1.json", "m3 handed over", "Object Created", "0", "1", ""}; !slices.Equal(got, want) || strings.Count(w.log(), "another form than the handler takes") != 2 {
		t.Errorf("got %q, want %q; the log:\n%s", got, want, w.log())
	}
}

// notification is the body that SNS sends to a queue.
func notification(message, at string) string {
	return fmt.Sprintf(`{"Type":"Notification","MessageId":"m-1","TopicArn":"arn:topic","Message":%q,"Timestamp":%q}`, message, at)
}

// The rules and the handler get what was published: the same order in another
// envelope is a replay.
func TestFromSNS(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	h := lambdabatch.SQS(w.guard, w.handle, lambdabatch.FromSNS, w.options())
	order := `{"order_id":"o-1"}`
	wantIDs(t, w.send(h, bodies(notification(order, "noon"), notification(order, "one"), order, `{"Type":"Notification"}`, "text",
		`{"Type":"SubscriptionConfirmation","Message":"{\"order_id\":\"o-2\"}"}`, `{"Type":"Notification","Message":{"order_id":"o-3"}}`)),
		"m3", "m4", "m5", "m6", "m7")
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
	event := bodies(`{"Type":"Notification","Message":"{\"order_id\":\"o-1\"}","MessageAttributes":{"order":{"Type":"String","Value":"7"},"bytes":{"Type":"Binary","Value":"AA=="}}}`)
	outer := events.SQSMessageAttribute{StringValue: new("of the queue's message")}
	event.Records[0].MessageAttributes = map[string]events.SQSMessageAttribute{"order": outer, "other": outer}
	wantIDs(t, w.send(h, event))
	w.wantRuns("o-1")
	if len(got) != 1 || got["order"] != "7" {
		t.Errorf("the attributes: %v", got)
	}
	wantIDs(t, w.send(h, bodies(`{"Type":"Notification","Message":"{}"}`)), "m1") // it has no attributes
}

// An event of S3 has the same key through a queue, a queue behind a topic, and
// directly. A notification that S3 sends twice is one work.
func TestFromS3(t *testing.T) {
	t.Parallel()
	event := load[events.S3Event](t, "s3")
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
		response, err := h(w.invocation(), bodies(c.wrap(string(body)), c.wrap(string(second)), c.wrap(none), c.wrap(several), c.wrap(`{"Records":[{}]}`)))
		if err != nil || len(response.BatchItemFailures) != 3 || response.BatchItemFailures[0].ItemIdentifier != "m3" || runs != 1 {
			t.Errorf("%s: %+v, %v after %d runs", name, response, err, runs)
		}
		if strings.Count(w.log(), `error="lambdabatch: invalid event: it must have exactly one record"`) != 2 {
			t.Errorf("%s: the log:\n%s", name, w.log())
		}
		if _, err := w.store.Get(t.Context(), key.RecordID()); err != nil {
			t.Errorf("%s: the record of the key %+v: %v", name, key, err)
		}
		changed := again
		changed.Records[0].S3.Object.ETag = "another"
		other, _ := json.Marshal(changed)
		if response, _ := h(w.invocation(), bodies(c.wrap(string(other)))); len(response.BatchItemFailures) != 1 {
			t.Errorf("%s: another content under the same key is not refused", name)
		}
	}
}

// A pipe redelivers the records that the answer names, and no other: those of a stream by
// their eventID (EventBridge user guide, "Amazon EventBridge Pipes batching and
// concurrency"). A batch of Kafka it redelivers as a whole, after an error. Order o-2 fails,
// and o-3 of its partition or group does not run.
func TestPipe(t *testing.T) {
	t.Parallel()
	body := func(id string) string { return `{"order_id":"` + id + `"}` }
	type record = map[string]any
	for source, row := range map[string]struct {
		handler func(*fixture) any
		number  func(r record, id, lane string)
		failed  []string // the answer; nil: an error
	}{
		"SQS": {func(w *fixture) any { return lambdabatch.Pipe(lambdabatch.SQSFIFO(w.guard, w.handle, w.options())) }, func(r record, id, lane string) {
			r["messageId"], r["body"] = "m:"+id, body(id)
			r["attributes"].(record)["MessageGroupId"] = lane
		}, []string{"m:o-2", "m:o-3"}},
		"Kinesis": {func(w *fixture) any {
			return lambdabatch.Pipe(lambdabatch.Kinesis(w.guard, w.handle, w.options(withoutID)))
		}, func(r record, id, lane string) {
			r["sequenceNumber"], r["eventID"], r["partitionKey"], r["data"] = id, "shard:"+id, lane, []byte(body(id))
		}, []string{"shard:o-2", "shard:o-3"}},
		"DynamoDB": {func(w *fixture) any {
			return lambdabatch.Pipe(lambdabatch.DynamoDB(w.guard, w.handleImage, w.options(withoutID)))
		}, func(r record, id, lane string) {
			r["eventID"] = "shard:" + id
			r["dynamodb"] = record{"SequenceNumber": id, "Keys": record{"pk": record{"S": lane}}, "NewImage": record{"order_id": record{"S": id}}}
		}, []string{"shard:o-2", "shard:o-3"}},
		"Kafka": {func(w *fixture) any { return lambdabatch.Pipe(w.kafka()) }, func(r record, id, lane string) {
			r["partition"], r["offset"], r["value"] = lane, int(id[2]), base64.StdEncoding.EncodeToString([]byte(body(id)))
		}, nil},
	} {
		w := newFixture(t)
		invoke := lambda.NewHandler(row.handler(w)).Invoke
		send := func(ids ...string) ([]string, error) {
			var array []record
			for _, id := range ids {
				var one []record
				if err := json.Unmarshal(forms(t)["pipe of "+source], &one); err != nil {
					t.Fatal(err)
				}
				row.number(one[0], id, map[string]string{"o-1": "1", "o-2": "2", "o-3": "2", "o-4": "3"}[id])
				array = append(array, one[0])
			}
			event, err := json.Marshal(array)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := invoke(w.invocation(), event)
			var response events.SQSEventResponse
			if err == nil {
				err = json.Unmarshal(answer, &response)
			}
			failed := []string{}
			for _, f := range response.BatchItemFailures {
				failed = append(failed, f.ItemIdentifier)
			}
			return failed, err
		}
		w.on("o-2", returns(errBroken))
		failed, err := send("o-1", "o-2", "o-3", "o-4")
		if row.failed == nil != (err != nil && strings.Contains(err.Error(), "2 of 4 messages")) || len(row.failed) > 0 && !slices.Equal(failed, row.failed) {
			t.Errorf("%s: the answer names %q, %v; want %q", source, failed, err, row.failed)
		}
		w.wantRuns("o-1", "o-2", "o-4")
		w.on("o-2", nil)
		if failed, err = send("o-2", "o-3"); err != nil || len(failed) > 0 {
			t.Errorf("%s: afterwards: %q, %v", source, failed, err)
		}
		w.wantRuns("o-1", "o-2", "o-4", "o-2", "o-3")
	}
}

// A handler gets the records of a pipe as it gets those of a mapping. A cluster without an
// ARN needs a scope.
func TestPipe_View(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	kinesis, kafka := "", ""
	all := forms(t)
	for source, h := range map[string]any{
		"Kinesis": lambdabatch.Pipe(lambdabatch.Kinesis(w.guard, func(ctx context.Context, r events.KinesisEventRecord) error {
			m, _ := lambdabatch.FromContext(ctx)
			kinesis = fmt.Sprint(r.Kinesis.SequenceNumber, " ", r.Kinesis.ApproximateArrivalTimestamp.UTC().Year(), " ", m.ItemID == r.EventID, " ", m.Source, " ", m.Lane, " ", string(m.Body))
			return nil
		}, w.options(withoutID))),
		"Kafka": lambdabatch.Pipe(lambdabatch.Kafka(w.guard, func(ctx context.Context, r events.KafkaRecord) error {
			m, _ := lambdabatch.FromContext(ctx)
			kafka = fmt.Sprint(m.ItemID, " ", r.Timestamp.UTC().Year(), " ", m.Source, " ", m.Lane, " ", m.Attributes, " ", string(m.Body))
			return nil
		}, w.options(withoutID))),
	} {
		if answer, err := lambda.NewHandler(h).Invoke(w.invocation(), all["pipe of "+source]); err != nil || string(answer) != allDone {
			t.Errorf("%s: %s, %v", source, answer, err)
		}
	}
	if want := `49545136521847365278364819537645190000001 2026 true arn:aws:kinesis:eu-central-1:123456789012:stream/orders p-1 {"order_id":"o-1"}`; kinesis != want {
		t.Errorf("Kinesis: got %s, want %s", kinesis, want)
	}
	if want := `orders-0-15 2025 arn:aws:kafka:eu-central-1:123456789012:cluster/orders/751d2973-a626-431c-9d4e-d7975eb44dd7-2 orders-0 map[tenant:acme] {"order_id":"o-1"}`; kafka != want {
		t.Errorf("Kafka: got %s, want %s", kafka, want)
	}
	if _, err := lambdabatch.Pipe(w.kafka())(w.invocation(), all["pipe of Kafka, self-managed"]); err == nil || !strings.Contains(w.log(), "set Options.Scope") {
		t.Errorf("without an ARN: %v, the log: %s", err, w.log())
	}
}

// What is no array of the source's records is refused. An empty array is done.
func TestPipe_Refuses(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	kinesis, kafka := lambdabatch.Pipe(lambdabatch.Kinesis(w.guard, w.handle, w.options(withoutID))), lambdabatch.Pipe(w.kafka())
	for _, event := range []string{`null`, `{}`, ``, `{"Records":[]}`, `[1]`, `[{"topic":"orders","offset":1}]`, `[{"topic":"orders","partition":"x"}]`, `[{"partition":1}]`, `[null]`,
		`[{"eventSource":"aws:kinesis","eventID":"e","sequenceNumber":"1","data":5}]`, `[{"eventSource":"aws:kafka","topic":"orders","partition":0,"offset":"1"}]`,
		`[{"eventSource":"aws:sqs","topic":"orders","partition":0,"offset":1}]`} {
		k, errK := kinesis(w.invocation(), json.RawMessage(event))
		f, errF := kafka(w.invocation(), json.RawMessage(event))
		for _, err := range []error{errK, errF} {
			if err == nil || !strings.Contains(err.Error(), "check what invokes the function") {
				t.Errorf("%s: %v; %+v, %+v", event, err, k, f)
			}
		}
	}
	if _, err := lambdabatch.Pipe(lambdabatch.SQS(w.guard, w.handle, w.options()))(w.invocation(), json.RawMessage(`[{"eventSource":"aws:sqs","messageId":"m1","body":5}]`)); err == nil {
		t.Error("a message whose body is a number was taken")
	}
	if _, err := lambdabatch.Pipe(lambdabatch.DynamoDB(w.guard, w.handle, w.options(withoutID)))(w.invocation(), json.RawMessage(`[{"eventSource":"aws:dynamodb","eventID":"e","dynamodb":{"SequenceNumber":"1","SizeBytes":"many"}}]`)); err == nil {
		t.Error("a record whose size is a text was taken")
	}
	for _, event := range []string{`[]`, " \n[ ]"} {
		_, errK := kinesis(w.invocation(), json.RawMessage(event))
		_, errF := kafka(w.invocation(), json.RawMessage(event))
		if errK != nil || errF != nil {
			t.Errorf("%q: %v, %v", event, errK, errF)
		}
	}
	w.wantRuns()
}
