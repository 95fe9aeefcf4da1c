// SPDX-License-Identifier: Apache-2.0

package lambdabatch_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/errtype"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdabatch"
)

var errBroken = errors.New("the warehouse is closed: order o-2 of acme")

const comesAgain, acknowledged = true, false

// outcomes are what happens to a message, by how its handler ends: at the first
// delivery, and when it is redelivered. docs/batch.md shows them as a table.
var outcomes = []struct {
	name     string
	declared idempotent.Recovery
	do       func(context.Context) error
	first    bool // redelivered
	state    string
	second   bool
	runs     int
}{
	{"success", idempotent.Reconcile, nil, acknowledged, "completed", acknowledged, 1},
	{"Final", idempotent.Reconcile, returns(idempotent.Final("sold_out", "Sold out.")), acknowledged, "completed", acknowledged, 1},
	{"a wrapped Final", idempotent.Rerun, returns(fmt.Errorf("no: %w", idempotent.Final("sold_out", "Sold out."))), acknowledged, "completed", acknowledged, 1},
	{"a joined Final", idempotent.Rerun, returns(errors.Join(errBroken, idempotent.Final("sold_out", "Sold out."))), comesAgain, "retryable", comesAgain, 2},
	{"Final of an inner operation", idempotent.Reconcile, inside(idempotent.Final("sold_out", "Sold out.")), comesAgain, "unknown", comesAgain, 1},
	{"NotExecuted", idempotent.Reconcile, returns(idempotent.NotExecuted(errBroken)), comesAgain, "retryable", comesAgain, 2},
	{"a wrapped NotExecuted", idempotent.Reconcile, returns(fmt.Errorf("no: %w", idempotent.NotExecuted(errBroken))), comesAgain, "unknown", comesAgain, 1},
	{"NotExecuted of an inner operation", idempotent.Reconcile, inside(idempotent.NotExecuted(errBroken)), comesAgain, "unknown", comesAgain, 1},
	{"an error, Reconcile", idempotent.Reconcile, returns(errBroken), comesAgain, "unknown", comesAgain, 1},
	{"an error, Rerun", idempotent.Rerun, returns(errBroken), comesAgain, "retryable", comesAgain, 2},
	{"an error, Resume", idempotent.Resume, returns(errBroken), comesAgain, "retryable", comesAgain, 2},
	{"Unknown, Rerun", idempotent.Rerun, returns(idempotent.Unknown(errBroken)), comesAgain, "unknown", comesAgain, 1},
	{"a wrapped Unknown", idempotent.Rerun, returns(fmt.Errorf("no: %w", idempotent.Unknown(errBroken))), comesAgain, "unknown", comesAgain, 1},
	{"success after a Commit in doubt, Reconcile", idempotent.Reconcile, careless, comesAgain, "unknown", comesAgain, 1},
	{"success after a Commit in doubt, Rerun", idempotent.Rerun, careless, comesAgain, "retryable", comesAgain, 2},
	{"a panic, Reconcile", idempotent.Reconcile, func(context.Context) error { panic("o-2 of acme") }, comesAgain, "unknown", comesAgain, 1},
	{"a panic, Rerun", idempotent.Rerun, func(context.Context) error { panic("o-2 of acme") }, comesAgain, "retryable", comesAgain, 2},
}

// inside is a handler that returns the error of an operation inside it.
func inside(err error) func(context.Context) error {
	guard := newGuard()
	key := idempotent.Key{Operation: "inside", Scope: "s", ID: "i", Fingerprint: idempotent.FingerprintBytes(nil)}
	return func(ctx context.Context) error {
		_, err := idempotent.Do(ctx, guard, key, func(context.Context) (int, error) { return 0, err })
		return err
	}
}

// careless is a handler that ignores the error of its Commit, which never
// reached the store.
func careless(ctx context.Context) error {
	e, _ := idempotent.FromContext(ctx)
	_ = e.Commit(ctx, struct{}{}, func(context.Context, driver.Record, driver.Version) (*driver.Record, error) { return nil, errBroken })
	return nil
}

// The message and its record after each outcome; the log shows no content of
// the message.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, row := range outcomes {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			w.on("o-2", row.do)
			h := lambdabatch.SQS(w.guard, w.handle, w.options(guarded(func(o *idempotent.Operation) { o.Recovery, o.Steps = row.declared, []string{"ship"} })))
			for i, again := range []bool{row.first, row.second} {
				want := []string{}
				if again {
					want = append(want, "m2")
				}
				wantIDs(t, w.send(h, messages("o-1", "o-2", "o-3")), want...)
				if i == 0 {
					w.wantState("o-2", row.state)
				}
			}
			runs := 0
			for _, id := range w.runs {
				if id == "o-2" {
					runs++
				}
			}
			if runs != row.runs || len(w.runs) != row.runs+2 {
				t.Errorf("the handler ran for %q, want o-2 %d times and the others once", w.runs, row.runs)
			}
			if log := w.log(); strings.Contains(log, "acme") || strings.Contains(log, "o-2") || row.first && !strings.Contains(log, "item=m2") {
				t.Errorf("the log:\n%s\nwant a line about m2 without its content", log)
			}
		})
	}
}

// FM39: the same message twice in one batch, and two messages of one order,
// also if the second one could start while the first one runs.
func TestTwoCopiesInABatch(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			w := newFixture(t)
			w.on("o-1", func(context.Context) error {
				time.Sleep(time.Second)
				return nil
			})
			h := lambdabatch.SQS(w.guard, w.handle, w.options(concurrency(n)))
			batch := messages("o-1", "o-1", "o-1")
			batch.Records[1].MessageId = "m1"
			wantIDs(t, w.send(h, batch))
			w.wantRuns("o-1")
			if n := w.seen.Count(event.Replayed); n != 2 {
				t.Errorf("%d messages were replayed, want 2", n)
			}
		})
	}
}

// FM39: the first of two copies fails. Its id is named once, and the second one
// is a retry.
func TestTheFirstCopyFails(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	h := lambdabatch.SQS(w.guard, w.handle, w.options())
	event := messages("o-1", "o-1", "o-1")
	event.Records[2].MessageId = "m1"
	w.on("o-1", returns(errBroken))
	wantIDs(t, w.send(h, event), "m1", "m2")
	w.on("o-1", nil)
	wantIDs(t, w.send(h, messages("o-1", "o-1")))
	w.wantRuns("o-1", "o-1", "o-1", "o-1")
}

// FM40: a message is redelivered while the first invocation is still processing
// it.
func TestRedeliveryWhileRunning(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	h := lambdabatch.SQS(w.guard, w.handle, w.options())
	w.on("o-1", func(context.Context) error {
		wantIDs(t, w.send(h, messages("o-1")), "m1")
		return nil
	})
	wantIDs(t, w.send(h, messages("o-1")))
	wantIDs(t, w.send(h, messages("o-1")))
	w.wantRuns("o-1")
	if n := w.seen.Count(event.InProgress); n != 1 {
		t.Errorf("%d messages were refused as in progress, want 1", n)
	}
}

// FM42: the function is killed in the middle of a batch. Finished messages
// remain finished, and the rest runs when the batch is redelivered.
func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	h := lambdabatch.SQS(w.guard, w.handle, w.options())
	killed := make(chan struct{})
	w.on("o-3", func(context.Context) error {
		close(killed)
		select {} // the process is gone
	})
	batch := messages("o-1", "o-2", "o-3", "o-4")
	go h(w.invocation(), batch)
	<-killed
	w.wantState("o-2", "completed")
	w.on("o-3", nil)
	wantIDs(t, w.send(h, batch), "m3") // its lease has not ended
	w.clock.Advance(2 * timeout)
	wantIDs(t, w.send(h, batch))
	w.wantRuns("o-1", "o-2", "o-3", "o-4", "o-3")
}

// G10, FM42: the time runs out in the middle of a batch. Messages that were not
// started are redelivered and have no record.
func TestOutOfTime(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*fixture, context.CancelFunc){
		"below the reserve": func(w *fixture, _ context.CancelFunc) { w.clock.Advance(timeout - time.Second + 1) },
		"cancelled":         func(_ *fixture, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			h := lambdabatch.SQS(w.guard, w.handle, w.options())
			ctx, cancel := context.WithCancel(w.invocation())
			defer cancel()
			w.on("o-2", func(context.Context) error {
				end(w, cancel)
				return nil
			})
			batch := messages("o-1", "o-2", "o-3", "o-4")
			response, err := h(ctx, batch)
			wantIDs(t, failed(t, response, err), "m3", "m4")
			w.wantState("o-3", "none")
			if !strings.Contains(w.log(), "out of time") || !strings.Contains(w.log(), "messages=2") {
				t.Errorf("the log does not report two messages that were out of time:\n%s", w.log())
			}
			wantIDs(t, w.send(h, batch))
			w.wantRuns("o-1", "o-2", "o-3", "o-4")
		})
	}
}

// FM42: the end of the time is logged once, and only if messages remain.
func TestOutOfTimeIsSaidOnce(t *testing.T) {
	t.Parallel()
	for orders, want := range map[int]int{2: 0, 5: 1} {
		synctest.Test(t, func(t *testing.T) {
			w := newFixture(t)
			h := lambdabatch.SQS(w.guard, w.handle, w.options(concurrency(2)))
			var ids []string
			for i := range orders {
				id := fmt.Sprintf("o-%d", i)
				ids = append(ids, id)
				w.on(id, func(context.Context) error {
					time.Sleep(time.Second) // the second handler begins, too
					w.clock.Advance(timeout)
					return nil
				})
			}
			w.send(h, messages(ids...))
			if n := strings.Count(w.log(), "out of time"); n != want {
				t.Errorf("with %d messages the log reports the end of the time %d times, want %d:\n%s", orders, n, want, w.log())
			}
		})
	}
}

// A message is started if at least the reserve is left, to the nanosecond. The reserve
// is at most a fifth of the time of the batch, 5 s.
func TestReserve(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		reserve, left time.Duration
		again         []string
	}{
		{500 * time.Millisecond, 500 * time.Millisecond, nil},
		{500 * time.Millisecond, 500*time.Millisecond - 1, []string{"m2"}},
		{0, time.Second, nil}, // the default
		{0, time.Second - 1, []string{"m2"}},
		{10 * time.Second, time.Second, nil},
		{10 * time.Second, time.Second - 1, []string{"m2"}},
	} {
		w := newFixture(t)
		h := lambdabatch.SQS(w.guard, w.handle, w.options(func(o *lambdabatch.Options) { o.Reserve = row.reserve }))
		w.on("o-1", func(context.Context) error {
			w.clock.Advance(5*time.Second - row.left)
			return nil
		})
		response, err := h(w.clock.Invocation(t.Context(), 5*time.Second), messages("o-1", "o-2"))
		wantIDs(t, failed(t, response, err), row.again...)
	}
}

// FM67: a message whose record is unknown is redriven from the dead-letter
// queue with another id. The business key is the same, so it still does not
// run. A resolved outcome is stored for as long as the queue redelivers, even if the
// guard that resolves it has a shorter retention.
func TestRedriveFromTheDeadLetterQueue(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	h := lambdabatch.SQS(w.guard, w.handle, w.options(recovery(idempotent.Reconcile)))
	w.on("o-1", returns(errBroken))
	wantIDs(t, w.send(h, messages("o-1")), "m1")
	redriven := messages("o-1")
	redriven.Records[0].MessageId = "another"
	wantIDs(t, w.send(h, redriven), "another")
	w.wantRuns("o-1")
	if strings.Contains(w.log(), "panic") {
		t.Errorf("the log reports a panic:\n%s", w.log())
	}

	id := idempotent.Key{Operation: "fulfil", Scope: queue, ID: "o-1"}.RecordID()
	if err := w.guard.Resolve(t.Context(), id, idempotent.Resolved("shipped as s-1")); err != nil { // its Retention is 24 h
		t.Fatal(err)
	}
	w.clock.Advance(lambdabatch.SQSRedelivery - time.Minute)
	wantIDs(t, w.send(h, redriven)) // whatever the type of the resolved value is
	w.wantRuns("o-1")
}

// H10: a message is done, but SQS gets no answer. It expires at the end of each
// queue's retention, by the published limits, but is redriven just before with a
// new id and a new retention. Its last delivery is a replay.
func TestTheLastDeliveryOfARedrivenMessage(t *testing.T) {
	t.Parallel()
	// SQS developer guide, "Amazon SQS message quotas": in seconds.
	const retention, longestRetention, longestVisibility = 345_600 * time.Second, 1_209_600 * time.Second, 43_200 * time.Second
	w := newFixture(t)
	h := lambdabatch.SQS(w.guard, w.handle, w.options())
	wantIDs(t, w.send(h, messages("o-1")))
	w.clock.Advance(retention + longestVisibility + longestRetention)
	redriven := messages("o-1")
	redriven.Records[0].MessageId = "another"
	w.clock.Advance(retention + longestVisibility - time.Second)
	wantIDs(t, w.send(h, redriven))
	w.wantRuns("o-1")
}

// FM67: a message that is handed over is acknowledged, and its record remains
// due.
func TestHandOver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handOver func(context.Context) error
		again    []string
	}{
		"success":  {returns(nil), nil},
		"an error": {returns(errBroken), []string{"m1"}},
		"a panic":  {func(context.Context) error { panic("no") }, []string{"m1"}},
		"Final":    {returns(idempotent.Final("a", "b")), []string{"m1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			var handed []string
			h := lambdabatch.SQS(w.guard, w.handle, w.options(recovery(idempotent.Reconcile), func(o *lambdabatch.Options) {
				o.HandOver = func(ctx context.Context, r *lambdabatch.Message, reason error) error {
					unresolved, _ := errors.AsType[*idempotent.UnresolvedError](reason)
					handed = append(handed, r.ItemID+" "+unresolved.RecordID.Operation()+" "+r.Event.(*events.SQSMessage).Body)
					return c.handOver(ctx)
				}
			}))
			w.on("o-1", returns(errBroken))
			wantIDs(t, w.send(h, messages("o-1", "o-2")), "m1")
			if handed != nil {
				t.Errorf("the failed attempt handed over %q", handed)
			}
			wantIDs(t, w.send(h, messages("o-1", "o-2")), c.again...)
			if len(handed) != 1 || handed[0] != `m1 fulfil {"order_id":"o-1"}` {
				t.Errorf("handed over: %q", handed)
			}
			w.wantRuns("o-1", "o-2")
			w.wantState("o-1", "unknown")
		})
	}
}

// says is an error of which only the text is known.
type says string

func (s says) Error() string { return string(s) }

// A message is handed over with its reason if no retry by the same code can change that
// it is refused, and the next message of its group runs. It is not if a retry can. In
// both cases it leaves no record, and the log has no content of it.
func TestHandOver_Refusals(t *testing.T) {
	t.Parallel()
	id := func(f lambdabatch.IDFunc) func(*lambdabatch.Options) {
		return func(o *lambdabatch.Options) { o.ID = f }
	}
	failing := func(err error) func(*lambdabatch.Options) {
		return id(func(ctx context.Context, m *lambdabatch.Message) (string, error) {
			if m.ItemID == "m1" {
				return "x", err
			}
			return lambdabatch.Field("/order_id")(ctx, m)
		})
	}
	scope := func(err error) func(*lambdabatch.Options) {
		return func(o *lambdabatch.Options) {
			o.Scope = func(context.Context, *lambdabatch.Message) (string, error) { return "", err }
		}
	}
	fingerprint := func(err error) func(*lambdabatch.Options) {
		return func(o *lambdabatch.Options) {
			o.Fingerprint = func(context.Context, *lambdabatch.Message) (idempotent.Fingerprint, error) {
				return idempotent.FingerprintBytes(nil), err
			}
		}
	}
	decode := func(err error) func(*lambdabatch.Options) {
		return func(o *lambdabatch.Options) { o.Decode = func(context.Context, []byte, any) error { return err } }
	}
	unwrap := func(err error) func(*lambdabatch.Options) {
		return func(o *lambdabatch.Options) {
			o.Unwrap = func(context.Context, *lambdabatch.Message) error { return err }
		}
	}
	unreadable := &lambdabatch.DecodeError{Err: errBroken}
	const first = `{"order_id":"o-1"}`
	for name, c := range map[string]struct {
		body   string
		option func(*lambdabatch.Options)
		reason error // nil: it is redelivered
	}{
		"no field":                 {`{}`, nil, says("no string or number")},
		"no JSON":                  {`*`, nil, says("the body is not JSON")},
		"no id":                    {`{}`, id(lambdabatch.Attribute("order")), new(idempotent.InvalidKeyError)},
		"another letter case":      {`{"order_id":"o-1","ORDER_ID":"o-2"}`, nil, says(`a member named like "order_id" in another letter case`)},
		"ID cannot read it":        {`{}`, failing(unreadable), unreadable},
		"no scope":                 {first, scope(nil), new(idempotent.InvalidKeyError)},
		"Scope cannot read it":     {first, scope(unreadable), unreadable},
		"another content":          {`{"order_id":"o-9","amount":2}`, nil, new(idempotent.MismatchError)},
		"cannot be decoded":        {`{"order_id":"o-1","amount":"all"}`, nil, new(lambdabatch.DecodeError)},
		"a member of another type": {`{"order_id":"o-1","amount":"all"}`, nil, says("a value is no int")},
		"Decode cannot read it":    {first, decode(unreadable), unreadable},
		"no fingerprint":           {first, fingerprint(unreadable), unreadable},
		"Unwrap cannot read it":    {first, unwrap(unreadable), unreadable},
		"test event of S3":         {`{"Service":"Amazon S3","Event":"s3:TestEvent"}`, lambdabatch.FromS3, says("exactly one record")},
		"no notification":          {first, lambdabatch.FromSNS, says("raw message delivery")},
		"an error of ID":           {`{}`, failing(errBroken), nil},
		"an error of Scope":        {first, scope(errBroken), nil},
		"an error of Fingerprint":  {first, fingerprint(errBroken), nil},
		"an error of Unwrap":       {first, unwrap(errBroken), nil},
		"an error of Decode":       {first, decode(errBroken), nil},
		"ID read another record":   {`{}`, failing(&idempotent.UnresolvedError{RecordID: "charge#x"}), nil},
		"decoding was interrupted": {first, decode(&lambdabatch.DecodeError{Err: fmt.Errorf("schema: %w", context.DeadlineExceeded)}), nil},
		"decoding was canceled":    {first, decode(&lambdabatch.DecodeError{Err: context.Canceled}), nil},
		"a panic of ID":            {`{}`, id(func(context.Context, *lambdabatch.Message) (string, error) { panic("no") }), nil},
		"store error":              {first, nil, nil},
		"no time":                  {first, nil, nil},
		"in progress":              {`{"order_id":"o-8"}`, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			wantIDs(t, w.send(lambdabatch.SQS(w.guard, w.handle, w.options()), messages("o-9")))
			w.on("o-8", func(context.Context) error { // while it runs
				h := lambdabatch.SQSFIFO(w.guard, w.handle, w.options(func(o *lambdabatch.Options) {
					if c.option != nil {
						c.option(o)
					}
					o.HandOver = func(_ context.Context, m *lambdabatch.Message, reason error) error {
						if text, ok := c.reason.(says); m.ItemID == "m1" && (c.reason == nil || ok && !strings.Contains(reason.Error(), string(text)) || !ok && !errtype.Matches(reason, c.reason)) {
							t.Errorf("handed over, because of %v", reason)
						}
						w.on("handed over", nil)
						return nil
					}
				}))
				event := messages("", "o-7")
				event.Records[0].Body = c.body
				event.Records[0].Attributes, event.Records[1].Attributes = map[string]string{"MessageGroupId": "g"}, map[string]string{"MessageGroupId": "g"}
				invocation := w.invocation()
				switch name {
				case "store error":
					w.fails = func(driver.Op) bool { return true }
				case "no time":
					invocation = w.clock.Invocation(t.Context(), 0)
				}
				again := []string{"m1", "m2"}
				if c.reason != nil {
					again = nil
				}
				response, err := h(invocation, event)
				wantIDs(t, failed(t, response, err), again...)
				w.fails = nil
				return nil
			})
			wantIDs(t, w.send(lambdabatch.SQS(w.guard, w.handle, w.options()), messages("o-8")))
			_, handed := w.plan["handed over"]
			if logged := strings.Contains(w.log(), "message is handed over, because"); handed != (c.reason != nil) || logged != handed {
				t.Errorf("handed over: %t, and in the log: %t", handed, logged)
			}
			if w.state(queue, "o-1") != "none" || strings.Contains(w.log(), "acme") {
				t.Errorf("the record of o-1 is %s; the log:\n%s", w.state(queue, "o-1"), w.log())
			}
		})
	}
	if err := error(&lambdabatch.DecodeError{Err: errBroken}); !errors.Is(err, errBroken) || strings.Contains(err.Error(), "acme") {
		t.Errorf("the error is %q", err)
	}
}

// A record that other code can continue is not unknown: its message waits for
// the deployment of that code.
func TestUndeclaredStepIsNotHandedOver(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	steps := func(name string) func(*lambdabatch.Options) {
		return func(o *lambdabatch.Options) {
			guarded(func(g *idempotent.Operation) { g.Recovery, g.Steps = idempotent.Resume, []string{name} })(o)
			o.HandOver = func(context.Context, *lambdabatch.Message, error) error {
				t.Error("the message was handed over")
				return nil
			}
		}
	}
	w.on("o-1", func(ctx context.Context) error {
		if _, err := idempotent.Step(ctx, "ship", func(context.Context) (int, error) { return 1, nil }); err != nil {
			return err
		}
		return errBroken
	})
	wantIDs(t, w.send(lambdabatch.SQS(w.guard, w.handle, w.options(steps("ship"))), messages("o-1")), "m1")
	wantIDs(t, w.send(lambdabatch.SQS(w.guard, w.handle, w.options(steps("send"))), messages("o-1")), "m1")
	w.wantRuns("o-1")
}

// INV-13: a message whose success could not be recorded is redelivered; a
// message whose record is completed is not, even if its result is lost.
func TestAcknowledgedByTheRecord(t *testing.T) {
	t.Parallel()
	for name, outcome := range map[string]error{"success": nil, "Final": idempotent.Final("sold_out", "Sold out.")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			h := lambdabatch.SQS(w.guard, w.handle, w.options())
			w.on("o-1", returns(outcome))
			w.fails = func(op driver.Op) bool { return op == driver.OpReplace }
			wantIDs(t, w.send(h, messages("o-1")), "m1")
			w.wantState("o-1", "in_progress")
			w.fails = func(op driver.Op) bool { return op == driver.OpInsert }
			wantIDs(t, w.send(h, messages("o-1")), "m1")
			w.fails = nil
			w.clock.Advance(2 * timeout)
			wantIDs(t, w.send(h, messages("o-1")))
			w.wantRuns("o-1", "o-1")
			w.wantState("o-1", "completed")
		})
	}
	t.Run("omitted", func(t *testing.T) {
		t.Parallel()
		w := newFixture(t)
		h := lambdabatch.SQS(w.guard, w.handle, w.options(func(o *lambdabatch.Options) {
			o.Guard = func(g *idempotent.Operation) { g.Codec = mute{} }
		}))
		wantIDs(t, w.send(h, messages("o-1")), "m1")
		w.wantState("o-1", "completed")
		wantIDs(t, w.send(h, messages("o-1")))
		w.wantRuns("o-1")
	})
}

// mute is a codec that fails to encode anything.
type mute struct{}

func (mute) Name() string { return "mute" }

func (mute) Encode(any) ([]byte, error) { return nil, errBroken }

func (mute) Decode([]byte, any) error { return errBroken }

// A message whose fingerprint cannot be compared with its record is not done.
func TestUncomparedComesAgain(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	h := lambdabatch.SQS(w.guard, w.handle, w.options())
	wantIDs(t, w.send(h, messages("o-1")))
	id := idempotent.Key{Operation: "fulfil", Scope: queue, ID: "o-1"}.RecordID()
	r, err := w.store.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	was := r.Version
	r.Fingerprint[0]++ // its version
	r.Version[0]++
	if _, err := w.store.Replace(t.Context(), *r, was); err != nil {
		t.Fatal(err)
	}
	wantIDs(t, w.send(h, messages("o-1")), "m1")
}

// With a disabled guard only the handler's error decides. The log says once that it
// is disabled.
func TestDisabled(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	disabled, err := w.guard.With(func(o *idempotent.Options) { o.Disabled = true })
	if err != nil {
		t.Fatal(err)
	}
	h := lambdabatch.SQS(disabled, w.handle, w.options())
	w.on("o-2", returns(errBroken))
	w.on("o-3", returns(idempotent.Final("a", "b")))
	wantIDs(t, w.send(h, messages("o-1", "o-2", "o-3")), "m2")
	w.wantState("o-1", "none")
	if got := strings.Count(w.log(), "Options.Disabled is set"); got != 1 {
		t.Errorf("%d warnings, want 1, in\n%s", got, w.log())
	}
}

// F02: the event in testdata has two messages of one order, in different
// spellings.
func TestSQS_RealEvent(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	event := load[events.SQSEvent](t, "sqs")
	h := lambdabatch.SQS(w.guard, w.handle, w.options())
	wantIDs(t, w.send(h, event))
	w.wantRuns("o-1", "o-2")
	event.Records[2].Body = `{"order_id":"o-1","amount":1}`
	wantIDs(t, w.send(h, event), event.Records[2].MessageId) // a mismatch
	w.wantRuns("o-1", "o-2")

	tenants := map[string]int{}
	raw := lambdabatch.SQS(w.guard, func(_ context.Context, m events.SQSMessage) error {
		tenants[*m.MessageAttributes["tenant"].StringValue]++
		return nil
	}, w.options(func(o *lambdabatch.Options) {
		o.Operation, o.ID = "by tenant", lambdabatch.Attribute("tenant")
	}))
	wantIDs(t, w.send(raw, event), event.Records[2].MessageId) // it has no tenant
	if len(tenants) != 2 || tenants["acme"] != 1 || tenants["zeta"] != 1 {
		t.Errorf("the handler saw %v", tenants)
	}
}

var update = flag.Bool("update", false, "write the generated parts of the documents")

// TestDocs compares the table of outcomes in docs/reports/failure-modes.md with the tests.
func TestDocs(t *testing.T) {
	t.Parallel()
	says := map[bool]string{comesAgain: "redelivered", acknowledged: "acknowledged"}
	recoveries := map[idempotent.Recovery]string{idempotent.Reconcile: "Reconcile", idempotent.Resume: "Resume", idempotent.Rerun: "Rerun"}
	var table strings.Builder
	table.WriteString("| how the handler ends | recovery | the message | its record | on redelivery | total runs |\n| --- | --- | --- | --- | --- | --: |\n")
	for _, row := range outcomes {
		name, _, _ := strings.Cut(row.name, ", "+recoveries[row.declared])
		fmt.Fprintf(&table, "| %s | `%s` | %s | %s | %s | %d |\n", name, recoveries[row.declared], says[row.first], row.state, says[row.second], row.runs)
	}
	kit.Part(t, "../docs/reports/failure-modes.md", "outcomes", table.String(), *update)
}

const fifoQueue = queue + ".fifo"

// grouped returns an event of a FIFO queue: groups[i] is the group of order
// o-(i+1) in message m(i+1).
func grouped(groups ...string) (event events.SQSEvent) {
	for i, group := range groups {
		event.Records = append(event.Records, events.SQSMessage{
			MessageId: fmt.Sprintf("m%d", i+1), Body: fmt.Sprintf(`{"order_id":"o-%d"}`, i+1), EventSourceARN: fifoQueue,
			Attributes: map[string]string{"MessageGroupId": group},
		})
	}
	return event
}

// G10, FM41: m1 succeeds, m2 fails, m3 is of the same group and m4 of another group, which
// goes on. No message overtakes one that fails before the handler because it is invalid or
// has no key. Messages without a group are one group.
func TestFIFO(t *testing.T) {
	t.Parallel()
	broken, panics := returns(errBroken), func(context.Context) error { panic("no") }
	groups, nameless := []string{"a", "a", "a", "b"}, []string{"", "", "", ""}
	all, group := []string{"m2", "m3", "m4"}, []string{"m2", "m3"}
	for name, c := range map[string]struct {
		groups []string
		side   int // concurrency
		fails  func(context.Context) error
		body   string
		again  []string
	}{
		"the handler fails":  {groups, 1, broken, "", group},
		"the handler panics": {groups, 1, panics, "", group},
		"side by side":       {groups, 4, broken, "", group},
		"no key":             {groups, 1, nil, `{"amount":1}`, group},
		"not JSON":           {groups, 1, nil, `order o-1`, group},
		"not decoded":        {groups, 1, nil, `{"order_id":"o-2","amount":"many"}`, group},
		"no group":           {nameless, 4, broken, "", all},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			h := lambdabatch.SQSFIFO(w.guard, w.handle, w.options(concurrency(c.side)))
			w.on("o-2", c.fails)
			batch := grouped(c.groups...)
			repaired := batch.Records[1].Body
			if c.body != "" {
				batch.Records[1].Body = c.body
			}
			if c.groups[2] == "" {
				batch.Records[2].Attributes = nil
			}
			wantIDs(t, w.send(h, batch), c.again...)
			if got := w.state(fifoQueue, "o-3"); got != "none" {
				t.Errorf("m3 overtook m2: its record is %s", got)
			}
			w.on("o-2", nil)
			batch.Records[1].Body = repaired
			rest := events.SQSEvent{Records: slices.DeleteFunc(batch.Records, func(m events.SQSMessage) bool { return !slices.Contains(c.again, m.MessageId) })}
			wantIDs(t, w.send(h, rest))
			once := map[string]bool{}
			for _, id := range w.runs {
				once[id] = true
			}
			if n := len(w.runs); len(once) != 4 || c.body == "" && n != 5 || c.body != "" && n != 4 {
				t.Errorf("the handler ran for %q, want each order once, and o-2 twice if its handler failed", w.runs)
			}
		})
	}
}

func TestSQSFIFO_RealEvent(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	event := load[events.SQSEvent](t, "sqs-fifo")
	h := lambdabatch.SQSFIFO(w.guard, w.handle, w.options())
	w.on("o-2", returns(idempotent.NotExecuted(errBroken)))
	wantIDs(t, w.send(h, event), event.Records[1].MessageId, event.Records[2].MessageId)
	w.wantRuns("o-1", "o-2", "o-4")
}

// The reference of a message is stored when it is claimed. One without a reference is
// processed, and the log says that it has none.
func TestRef(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		ref       lambdabatch.IDFunc
		want, log string
	}{
		"a field":     {lambdabatch.Field("/order_id"), "o-1", ""},
		"no field":    {lambdabatch.Field("/none"), "", "message has no reference"},
		"that fails":  {func(context.Context, *lambdabatch.Message) (string, error) { return "x", errBroken }, "", "message has no reference"},
		"that panics": {func(context.Context, *lambdabatch.Message) (string, error) { panic("acme") }, "", "Options.Ref panicked"},
	} {
		w := newFixture(t)
		ref := ""
		w.on("o-1", func(ctx context.Context) error {
			e, _ := idempotent.FromContext(ctx)
			r, err := e.Store().Get(ctx, e.RecordID())
			ref = r.Ref
			return err
		})
		h := lambdabatch.SQS(w.guard, w.handle, w.options(func(o *lambdabatch.Options) { o.Ref = row.ref }))
		wantIDs(t, w.send(h, messages("o-1")))
		if log := w.log(); ref != row.want || !strings.Contains(log, row.log) || strings.Contains(log, "acme") || row.log == "" && log != "" {
			t.Errorf("%s: while it ran, the record had %q; the log:\n%s", name, ref, log)
		}
	}
}

// A message without a key is not asked for a reference.
func TestRef_OfNoKey(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	h := lambdabatch.SQS(w.guard, w.handle, w.options(func(o *lambdabatch.Options) {
		o.ID = lambdabatch.Field("/none")
		o.Ref = func(context.Context, *lambdabatch.Message) (string, error) {
			t.Error("Ref was called")
			return "", nil
		}
	}))
	event := messages("o-1")
	wantIDs(t, w.send(h, event), event.Records[0].MessageId)
}
