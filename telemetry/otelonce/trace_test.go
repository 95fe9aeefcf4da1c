// SPDX-License-Identifier: Apache-2.0

package otelonce_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/lambdabatch"
	"github.com/once-lambda/once/telemetry/otelonce"
)

// links returns the trace, span and flags of the links of a span.
func links(s trace.ReadOnlySpan) (all []string) {
	for _, l := range s.Links() {
		all = append(all, fmt.Sprint(l.SpanContext.TraceID(), " ", l.SpanContext.SpanID(), " ", l.SpanContext.TraceFlags()))
	}
	return all
}

// The span of a message has its id and its queue, and a link to the sender's span.
func TestMessageOfAQueue(t *testing.T) {
	t.Parallel()
	const arn = "arn:aws:sqs:eu-west-1:123456789012:orders"
	traceparent := func(v string) map[string]events.SQSMessageAttribute {
		return map[string]events.SQSMessageAttribute{"traceparent": {StringValue: &v, DataType: "String"}}
	}
	const w3c = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for name, c := range map[string]struct {
		message events.SQSMessage
		want    []string
	}{
		"W3C":              {events.SQSMessage{MessageAttributes: traceparent(w3c)}, []string{"0af7651916cd43dd8448eb211c80319c b7ad6b7169203331 01"}},
		"X-Ray":            {events.SQSMessage{Attributes: map[string]string{"AWSTraceHeader": "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"}}, []string{"5759e988bd862e3fe1be46a994272793 53995c3f42cd8ad8 01"}},
		"X-Ray, unsampled": {events.SQSMessage{Attributes: map[string]string{"AWSTraceHeader": "Sampled=0; Parent=53995c3f42cd8ad8; Root=1-5759e988-bd862e3fe1be46a994272793"}}, []string{"5759e988bd862e3fe1be46a994272793 53995c3f42cd8ad8 00"}},
		"both": {events.SQSMessage{MessageAttributes: traceparent(w3c), Attributes: map[string]string{"AWSTraceHeader": "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"}},
			[]string{"0af7651916cd43dd8448eb211c80319c b7ad6b7169203331 01"}},
		"none":               {events.SQSMessage{}, nil},
		"invalid":            {events.SQSMessage{MessageAttributes: traceparent("00-0-0-00")}, nil},
		"X-Ray, only a root": {events.SQSMessage{Attributes: map[string]string{"AWSTraceHeader": "Root=1-5759e988-bd862e3fe1be46a994272793"}}, nil},
	} {
		l := newLab(t)
		work := otelonce.Message(l.observer, "orders", func(context.Context, string) error { return nil })
		h := lambdabatch.SQS(l.guard, work, func(o *lambdabatch.Options) { o.Operation, o.ID, o.NoRedrive = "fulfil", lambdabatch.ItemID, true })
		c.message.MessageId, c.message.EventSourceARN, c.message.Body = "m-1", arn, "{}"
		if answer, err := h(t.Context(), events.SQSEvent{Records: []events.SQSMessage{c.message}}); err != nil || len(answer.BatchItemFailures) != 0 {
			t.Fatal(answer, err)
		}
		ended := l.spans.Ended()
		if len(ended) != 1 {
			t.Fatalf("%s: %d spans", name, len(ended))
		}
		if got := links(ended[0]); !slices.Equal(got, c.want) {
			t.Errorf("%s: the span has the links %q, want %q", name, got, c.want)
		}
		hash := idempotent.Key{Operation: "fulfil", Scope: arn, ID: "m-1"}.RecordID().KeyHash()
		want := []string{
			"messaging.operation.type=process", "messaging.operation.name=process", "messaging.destination.name=orders", "messaging.message.id=m-1",
			"messaging.system=aws_sqs", "once.operation=fulfil", "once.key_hash=" + hash, "once.attempt=1",
		}
		if got := texts(ended[0].Attributes()); !slices.Equal(got, want) {
			t.Errorf("%s: the attributes:\n%q\nwant\n%q", name, got, want)
		}
	}
}

// The span of a record of a stream has its stream; streams carry no trace.
func TestMessageOfAStream(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	work := otelonce.Message(l.observer, "orders", func(context.Context, string) error { return nil })
	h := lambdabatch.Kinesis(l.guard, work, func(o *lambdabatch.Options) { o.Operation = "fulfil" })
	if _, err := h(t.Context(), events.KinesisEvent{Records: []events.KinesisEventRecord{{
		EventSourceArn: "arn:aws:kinesis:eu-west-1:123456789012:stream/orders", EventID: "shardId-1:7", Kinesis: events.KinesisRecord{SequenceNumber: "7", PartitionKey: "p", Data: []byte("{}")},
	}}}); err != nil {
		t.Fatal(err)
	}
	if got := texts(l.spans.Ended()[0].Attributes()); !slices.Contains(got, "messaging.destination.name=orders") || !slices.Contains(got, "messaging.message.id=7") || len(links(l.spans.Ended()[0])) != 0 {
		t.Errorf("the attributes: %q", got)
	}
}

// A replay, a refusal and evidence link to the span of the request that ran, if
// the guard stores it. The request that ran links to nothing.
func TestLinkToTheRequestThatRan(t *testing.T) {
	t.Parallel()
	for _, stored := range []bool{true, false} {
		l := newLab(t)
		guard, err := l.guard.With(func(o *idempotent.Options) {
			if stored {
				o.TraceParent = otelonce.TraceParent
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		l.guard = guard
		unknown := idempotent.Unknown(errors.New("timed out"))
		var h func(context.Context, string) (string, error)
		h = l.charge(func(ctx context.Context, id string) (string, error) {
			if id == "running" {
				if _, err := h(ctx, id); !errors.As(err, new(*idempotent.InProgressError)) {
					t.Error(err)
				}
			}
			if id == "unknown" {
				return "", unknown
			}
			return "ch_1", nil
		})
		for _, id := range []string{"done", "done", "running", "unknown", "unknown"} {
			_, _ = h(t.Context(), id)
		}
		record := idempotent.Key{Operation: "charge", Scope: "acme", ID: "unknown"}.RecordID()
		settle := otelonce.Handler(l.observer, "settle", func(ctx context.Context, id idempotent.RecordID) (int, error) {
			return 0, l.guard.Resolve(ctx, id, idempotent.ResolvedWithoutResult())
		})
		if _, err := settle(t.Context(), record); err != nil {
			t.Fatal(err)
		}
		ended := l.spans.Ended() // the refused request inside the running one ends before it
		for i, ran := range map[int]int{1: 0, 2: 3, 5: 4, 6: 4} {
			var want []string
			if c := ended[ran].SpanContext(); stored {
				want = []string{fmt.Sprint(c.TraceID(), " ", c.SpanID(), " ", c.TraceFlags())}
			}
			if got := links(ended[i]); !slices.Equal(got, want) {
				t.Errorf("stored %v: span %d has the links %q, want %q", stored, i, got, want)
			}
		}
		for _, i := range []int{0, 3, 4} {
			if got := links(ended[i]); len(got) != 0 {
				t.Errorf("stored %v: span %d of a request that ran has the links %q", stored, i, got)
			}
		}
	}
}

// Without a span there is no trace parent, and a span's own has the W3C format.
func TestTraceParent(t *testing.T) {
	t.Parallel()
	if got := otelonce.TraceParent(t.Context()); got != "" {
		t.Errorf("without a span: %q", got)
	}
	l := newLab(t)
	h := otelonce.Handler(l.observer, "charge", func(ctx context.Context, _ int) (string, error) { return otelonce.TraceParent(ctx), nil })
	got, err := h(lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: "8476a536"}), 1)
	c := l.spans.Ended()[0].SpanContext()
	if want := "00-" + c.TraceID().String() + "-" + c.SpanID().String() + "-01"; got != want || err != nil || strings.Count(got, "-") != 3 {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if got := texts(l.spans.Ended()[0].Attributes()); !slices.Equal(got, []string{"faas.invocation_id=8476a536"}) {
		t.Errorf("the span has the attributes %q", got)
	}
}

// The table of words in docs/reports/limits.md has every attribute of a span and of its
// events.
func TestWords(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reports/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "<!-- words -->\n")
	table, _, _ = strings.Cut(table, "<!-- /words -->")
	words := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\|[^|]*\\| `([a-z_.]+)` \\|").FindAllStringSubmatch(table, -1) {
		words[row[1]] = true
	}
	l := newLab(t)
	work := otelonce.Message(l.observer, "orders", func(ctx context.Context, _ string) error {
		l.observer.Observe(ctx, event.Event{
			Kind: event.StoreError, Operation: "fulfil", KeyHash: "h", RequestID: "r", Attempt: 1, Reason: driver.ReasonResult, Step: "s", Err: errors.New("x"),
		})
		return errors.New("x")
	})
	h := otelonce.Handler(l.observer, "batch", lambdabatch.SQS(l.guard, work, func(o *lambdabatch.Options) { o.Operation, o.ID, o.NoRedrive = "fulfil", lambdabatch.ItemID, true }))
	ctx := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: "8476a536"})
	if _, err := h(ctx, events.SQSEvent{Records: []events.SQSMessage{{MessageId: "m-1", EventSourceARN: "arn:aws:sqs:eu-west-1:123456789012:orders", Body: "{}"}}}); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, s := range l.spans.Ended() {
		keys := slices.Clone(s.Attributes())
		for _, e := range s.Events() {
			keys = append(keys, e.Attributes...)
		}
		for _, a := range keys {
			if seen[string(a.Key)] = true; !words[string(a.Key)] {
				t.Errorf("the table has no attribute %s", a.Key)
			}
		}
	}
	for word := range words {
		if !seen[word] {
			t.Errorf("no span has the attribute %s of the table", word)
		}
	}
}
