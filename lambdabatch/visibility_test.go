// SPDX-License-Identifier: Apache-2.0

package lambdabatch_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdabatch"
)

// change is one call of Visibility.Change.
type change struct {
	url, receipt string
	seconds      int32
}

// changes is a client of SQS that records its calls.
type changes struct {
	mu    sync.Mutex
	calls []change
}

func (c *changes) option(o *lambdabatch.Options) {
	o.Visibility.Change = func(_ context.Context, queueURL, receiptHandle string, seconds int32) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls = append(c.calls, change{queueURL, receiptHandle, seconds})
		return nil
	}
}

// only returns the seconds of the only call, which is about message m1.
func (c *changes) only(t *testing.T) int32 {
	t.Helper()
	if len(c.calls) != 1 || c.calls[0].url != "https://sqs.eu-central-1.amazonaws.com/123456789012/orders" || c.calls[0].receipt != "receipt of m1" {
		t.Fatalf("got the calls %+v", c.calls)
	}
	return c.calls[0].seconds
}

// received adds receipt handles and a number of receipts to an event.
func received(n int, event events.SQSEvent) events.SQSEvent {
	for i := range event.Records {
		m := &event.Records[i]
		m.ReceiptHandle = "receipt of " + m.MessageId
		attributes := map[string]string{"ApproximateReceiveCount": fmt.Sprint(n)}
		for name, value := range m.Attributes {
			attributes[name] = value
		}
		m.Attributes = attributes
	}
	return event
}

// while calls f while another function runs an order, with that much time left.
func (w *fixture) while(id, scope string, left time.Duration, f func()) {
	w.t.Helper()
	key := idempotent.Key{Operation: "fulfil", Scope: scope, ID: id}
	key.Fingerprint, _ = idempotent.FingerprintOf(map[string]string{"order_id": id})
	_, err := idempotent.Do(w.clock.Invocation(w.t.Context(), left-3*time.Second), w.guard, key, // and a margin of 3 s
		func(context.Context) (struct{}, error) { f(); return struct{}{}, nil })
	if err != nil {
		w.t.Error(err)
	}
}

// G6: a message whose key is running returns when that run's lease ends, up to a
// tenth later; not after the estimate for callers, which is a second here. A lease that
// ended during the batch holds the message no longer.
func TestHide_Running(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		left, batch time.Duration // of the lease, and the time of the batch
		least, most int32
	}{
		{3100 * time.Millisecond, 0, 3, 4},
		{time.Minute, 0, 60, 66},
		{time.Minute, time.Minute, 1, 2},
		{15 * time.Minute, 0, 900, 990},
		{10 * time.Hour, 0, 36_000, 39_600},
		{11 * time.Hour, 0, 39_600, 39_600}, // SQS allows 12 hours from the receipt
		{30 * time.Hour, 0, 39_600, 39_600},
	} {
		w, c := newFixture(t), &changes{}
		h := lambdabatch.SQS(w.guard, w.handle, w.options(c.option))
		w.on("o-2", func(context.Context) error { w.clock.Advance(row.batch); return nil })
		w.while("o-1", queue, row.left, func() {
			response, err := h(t.Context(), received(1, messages("o-1", "o-2"))) // without a deadline
			wantIDs(t, failed(t, response, err), "m1")
		})
		if got := c.only(t); got < row.least || got > row.most {
			t.Errorf("%s before the end of the lease, the message is hidden for %d s, want %d to %d", row.left, got, row.least, row.most)
		}
		if strings.Contains(w.log(), "visibility") {
			t.Errorf("the log:\n%s", w.log())
		}
	}
}

// G6: a message whose outcome is unknown returns after the time that its record
// names, doubled with each receipt up to an hour.
func TestHide_Unknown(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		after    time.Duration // until the record is reconciled
		receives int
		want     int32
	}{
		{time.Minute, 1, 60},
		{time.Minute, 2, 120},
		{time.Minute, 6, 1920},
		{time.Minute, 7, 3600},
		{time.Minute, 1000, 3600},
		{50 * time.Minute, 2, 3600},
		{6 * time.Hour, 5, 21_600},
		{20 * time.Hour, 1, 39_600},
		{100 * time.Millisecond, 1, 1},
	} {
		w, c := newFixture(t), &changes{}
		h := lambdabatch.SQS(w.guard, w.handle, w.options(recovery(idempotent.Reconcile), c.option,
			guarded(func(o *idempotent.Operation) { o.ReconcileAfter = row.after })))
		w.on("o-1", returns(errBroken))
		wantIDs(t, w.send(h, received(row.receives, messages("o-1"))), "m1")
		if len(c.calls) != 0 {
			t.Fatalf("the failed run changed the visibility timeout: %+v", c.calls)
		}
		wantIDs(t, w.send(h, received(row.receives, messages("o-1"))), "m1")
		if got := c.only(t); got < row.want-1 || got > row.want+row.want/10+1 { // a little of the time has passed
			t.Errorf("%s before the reconciliation, at receipt %d, the message is hidden for %d s, want %d and up to a tenth", row.after, row.receives, got, row.want)
		}
	}
}

// Backoff hides a message whose handler failed, longer with each receipt, and no other.
func TestHide_Backoff(t *testing.T) {
	t.Parallel()
	for receives, want := range map[int]int32{1: 10, 2: 20, 4: 80, 10: 3600} {
		w, c := newFixture(t), &changes{}
		h := lambdabatch.SQS(w.guard, w.handle, w.options(c.option, func(o *lambdabatch.Options) { o.Visibility.Backoff = 10 * time.Second }))
		w.on("o-1", returns(errBroken))
		batch := received(receives, messages("o-1", "o-2", ""))
		batch.Records[2].Body = "{}"
		wantIDs(t, w.send(h, batch), "m1", "m3")
		if got := c.only(t); got < want || got > want+want/10+1 {
			t.Errorf("at receipt %d the message is hidden for %d s, want %d and up to a tenth", receives, got, want)
		}
	}
}

// Only messages that their own records refused are hidden.
func TestHide_OnlyTheRefused(t *testing.T) {
	t.Parallel()
	w, c := newFixture(t), &changes{}
	h := lambdabatch.SQS(w.guard, w.handle, w.options(recovery(idempotent.Reconcile), c.option, func(o *lambdabatch.Options) {
		o.HandOver = func(context.Context, *lambdabatch.Message, error) error { return nil }
	}))
	w.on("o-2", returns(errBroken))
	w.on("o-3", returns(&idempotent.InProgressError{RecordID: "charge#x", Until: w.clock.Now().Add(time.Hour)}))
	w.on("o-4", returns(&idempotent.UnresolvedError{RecordID: "charge#x", RetryAfter: time.Hour}))
	batch := received(1, messages("o-1", "o-2", "o-3", "o-4", ""))
	batch.Records[4].Body = "{}"
	wantIDs(t, w.send(h, batch), "m2", "m3", "m4")
	wantIDs(t, w.send(h, batch)) // all are handed over
	if len(c.calls) != 0 {
		t.Errorf("got the calls %+v", c.calls)
	}
}

// A failure does not change the response. It is logged once, without its text.
func TestHide_Failures(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		fails func() error
		log   string
		times int
	}{
		"an error":        {func() error { return errBroken }, "key_hash=", 1},
		"an error of AWS": {func() error { return fmt.Errorf("acme: %w", denied{}) }, "error_code=AccessDenied", 1},
		"a panic":         {func() error { panic("acme") }, "panic_type=string", 4},
		"Goexit":          {func() error { runtime.Goexit(); return nil }, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			h := lambdabatch.SQS(w.guard, w.handle, w.options(func(o *lambdabatch.Options) {
				o.Visibility.Change = func(context.Context, string, string, int32) error { return row.fails() }
			}))
			w.while("o-1", queue, time.Minute, func() {
				for range 2 {
					wantIDs(t, w.send(h, received(1, messages("o-1", "o-1", "o-2"))), "m1", "m2")
				}
			})
			var lines []string
			for line := range strings.Lines(w.log()) {
				if !strings.Contains(line, "message failed and will be redelivered") {
					lines = append(lines, line)
				}
			}
			if len(lines) != row.times || strings.Contains(w.log(), "acme") || row.times > 0 && !strings.Contains(lines[0], row.log) {
				t.Errorf("the log:\n%s", w.log())
			}
		})
	}
}

// denied is an error of an AWS service.
type denied struct{}

func (denied) Error() string { return "User acme is not authorized" }

func (denied) ErrorCode() string { return "AccessDenied" }

// A client that hangs delays the response by two seconds, or by half of the time
// that is left, however many messages were refused.
func TestHide_Hanging(t *testing.T) {
	t.Parallel()
	for left, want := range map[time.Duration]time.Duration{timeout: 2 * time.Second, 3 * time.Second: 1450 * time.Millisecond, -time.Second: 0} {
		synctest.Test(t, func(t *testing.T) {
			w := newFixture(t)
			calls := make(chan struct{}, 100)
			h := lambdabatch.SQS(w.guard, w.handle, w.options(concurrency(30), func(o *lambdabatch.Options) {
				o.Reserve = time.Millisecond
				o.Visibility.Change = func(ctx context.Context, _, _ string, _ int32) error {
					calls <- struct{}{}
					<-ctx.Done()
					return ctx.Err()
				}
			}))
			w.while("o-1", queue, time.Hour, func() {
				ctx := w.clock.Invocation(t.Context(), timeout)
				w.on("o-2", func(context.Context) error { // the last to end
					time.Sleep(timeout - left)
					w.clock.Advance(timeout - left)
					return nil
				})
				began := time.Now()
				response, err := h(ctx, received(1, messages(append(slices.Repeat([]string{"o-1"}, 25), "o-2")...)))
				if n := len(failed(t, response, err)); n != 25 {
					t.Errorf("%d messages are redelivered, want 25", n)
				}
				if took := time.Since(began) - (timeout - left); took != want {
					t.Errorf("with %s left, the response is %s late, want %s", left, took, want)
				}
			})
			if n := len(calls); left > 0 && n != 10 || left < 0 && n != 0 {
				t.Errorf("with %s left, there were %d calls", left, n)
			}
			if n := strings.Count(w.log(), "the visibility timeout of a message was not changed"); left > 0 && n != 1 || left < 0 && n != 0 {
				t.Errorf("with %s left, the log has %d lines:\n%s", left, n, w.log())
			}
		})
	}
}

// G6, FM41: in a FIFO queue the messages behind the refused one are hidden with it,
// if they are of its group; in a standard queue no other message is. A failure ends
// the calls for a group.
func TestHide_Group(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		constructor func(*idempotent.Guard, func(context.Context, order) error, ...func(*lambdabatch.Options)) func(context.Context, events.SQSEvent) (events.SQSEventResponse, error)
		fails       string // the receipt whose call fails
		again       []string
		receipts    string
		runs        int
	}{
		"the group stops": {lambdabatch.SQSFIFO[order], "", []string{"m1", "m2", "m4", "m5"}, "m1 m2 m4 m5", 1},
		"the first fails": {lambdabatch.SQSFIFO[order], "receipt of m1", []string{"m1", "m2", "m4", "m5"}, "m1", 1},
		"a later fails":   {lambdabatch.SQSFIFO[order], "receipt of m4", []string{"m1", "m2", "m4", "m5"}, "m1 m2 m4", 1},
		"a fair queue":    {lambdabatch.SQS[order], "", []string{"m1"}, "m1", 4},
	} {
		w := newFixture(t)
		var calls []string
		seconds := map[int32]bool{}
		h := row.constructor(w.guard, w.handle, w.options(func(o *lambdabatch.Options) {
			o.Visibility.Change = func(_ context.Context, _, receiptHandle string, s int32) error {
				calls, seconds[s] = append(calls, strings.TrimPrefix(receiptHandle, "receipt of ")), true
				if receiptHandle == row.fails {
					return errBroken
				}
				return nil
			}
		}))
		w.while("o-1", fifoQueue, time.Minute, func() {
			if got := w.send(h, received(1, grouped("a", "a", "b", "a", "a"))); !slices.Equal(got, row.again) {
				t.Errorf("%s: %q are redelivered, want %q", name, got, row.again)
			}
		})
		if got := strings.Join(calls, " "); got != row.receipts || len(seconds) != 1 || len(w.runs) != row.runs {
			t.Errorf("%s: the messages %q are hidden for %v s, and the handler ran for %q", name, got, seconds, w.runs)
		}
	}
}

// The URL of a queue has the domain of its partition.
func TestHide_URL(t *testing.T) {
	t.Parallel()
	for arn, want := range map[string]string{
		"arn:aws-cn:sqs:cn-north-1:123456789012:orders":        "https://sqs.cn-north-1.amazonaws.com.cn/123456789012/orders",
		"arn:aws-us-gov:sqs:us-gov-west-1:123456789012:orders": "https://sqs.us-gov-west-1.amazonaws.com/123456789012/orders",
		"orders": "",
	} {
		w, c := newFixture(t), &changes{}
		h := lambdabatch.SQS(w.guard, w.handle, w.options(c.option))
		batch := received(1, messages("o-1"))
		batch.Records[0].EventSourceARN = arn
		w.while("o-1", arn, time.Minute, func() { wantIDs(t, w.send(h, batch), "m1") })
		if len(c.calls) != 1 || c.calls[0].url != want {
			t.Errorf("%s: got the calls %+v, want the URL %q", arn, c.calls, want)
		}
	}
}
