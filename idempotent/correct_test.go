// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/errtype"
	"github.com/once-lambda/once/internal/kit"
)

// What operators do: Requeue and Forget.

// wrong returns the request to discard the outcome of the attempt with that token.
func wrong(token string) idempotent.Correction {
	return idempotent.Correction{Token: token, Actor: "mia@desk", Reason: "ch_1 belongs to another order"}
}

func (f *fixture) requeue() error { return f.guard.Requeue(f.t.Context(), f.key.RecordID()) }

// forget discards the outcome of the current attempt.
func (f *fixture) forget() error {
	return f.guard.Forget(f.t.Context(), f.key.RecordID(), wrong(f.record().Token()))
}

// A record that is not in the right state is refused, with a text that says why. A failure
// of the store is a StoreError and an event, and another write is judged again. Neither
// is reported as done.
func TestOperatorIsRefused(t *testing.T) {
	t.Parallel()
	const ended = -time.Minute
	var (
		failed    = new(idempotent.StoreError)
		busy      = new(idempotent.InProgressError)
		unknown   = &driver.Record{State: driver.StateUnknown, LeaseEnd: start}
		completed = &driver.Record{State: driver.StateCompleted, LeaseEnd: start.Add(ended)}
		settled   = first(after(func(r *driver.Record) { r.State = driver.StateCompleted }))
		ranAgain  = first(after(func(r *driver.Record) { r.State, r.Owner = driver.StateInProgress, driver.Owner{8} }))
	)
	requeue := func(f *fixture) error { return f.requeue() }
	forget := func(f *fixture) error { return f.forget() }
	for name, c := range map[string]struct {
		stands       *driver.Record // nil: no record
		get, replace func(*call)
		act          func(*fixture) error
		want         error
		says         string
		events       string
	}{
		"requeue no id": {unknown, nil, nil, func(f *fixture) error { return f.guard.Requeue(t.Context(), "charge") },
			new(idempotent.InvalidKeyError), "RecordID", ""},
		"requeue no record":       {nil, nil, nil, requeue, idempotent.ErrNoRecord, "", ""},
		"requeue a running one":   {running(time.Hour), nil, nil, requeue, busy, "", ""},
		"requeue a completed one": {completed, nil, nil, requeue, nil, "is completed and does not wait", ""},
		"requeue one within its lease": {&driver.Record{State: driver.StateCompleted, LeaseEnd: start.Add(time.Minute)}, nil, nil, requeue,
			nil, "is completed and does not wait", ""},
		"requeue an expired one":     {&driver.Record{State: driver.StateUnknown, Expires: start}, nil, nil, requeue, idempotent.ErrNoRecord, "", ""},
		"requeue, down":              {unknown, nil, fail(errDown), requeue, failed, "", "store_error"},
		"requeue, gone":              {unknown, nil, fail(idempotent.ErrNoRecord), requeue, idempotent.ErrNoRecord, "", ""},
		"requeue, too large":         {unknown, nil, fail(driver.ErrTooLarge), requeue, failed, "", "store_error"},
		"requeue, settled meanwhile": {unknown, nil, settled, requeue, nil, "does not wait", ""},
		"forget no id": {completed, nil, nil, func(f *fixture) error { return f.guard.Forget(t.Context(), "charge", wrong("1")) },
			new(idempotent.InvalidKeyError), "RecordID", ""},
		"forget no record": {nil, nil, nil, func(f *fixture) error { return f.guard.Forget(t.Context(), f.key.RecordID(), wrong("1")) }, idempotent.ErrNoRecord, "", ""},
		"forget of no attempt": {completed, nil, nil, func(f *fixture) error { return f.guard.Forget(t.Context(), f.key.RecordID(), wrong("")) },
			new(idempotent.StaleEvidenceError), "", ""},
		"forget a running one": {running(time.Hour), nil, nil, forget, busy, "", ""},
		"forget within its lease": {&driver.Record{State: driver.StateCompleted, LeaseEnd: start.Add(time.Minute)}, nil, nil, forget,
			busy, "its handler may still be running; retry after 1m", ""},
		"forget an unknown one": {unknown, nil, nil, forget, nil, "is unknown and has no stored outcome", ""},
		"forget an expired one": {&driver.Record{State: driver.StateCompleted, LeaseEnd: start.Add(ended), Expires: start}, nil, nil, forget, idempotent.ErrNoRecord, "", ""},
		"forget, no read":       {completed, fail(errDown), nil, forget, failed, "", "store_error"},
		"forget, down":          {completed, nil, fail(errDown), forget, failed, "", "store_error"},
		"forget, gone":          {completed, nil, fail(idempotent.ErrNoRecord), forget, idempotent.ErrNoRecord, "", ""},
		"forget, too large":     {completed, nil, fail(driver.ErrTooLarge), forget, failed, "", "store_error"},
		"forget, ran meanwhile": {completed, nil, ranAgain, forget, new(idempotent.StaleEvidenceError), "", ""},
	} {
		f := newFixture(t)
		if c.stands != nil {
			f.holds(*c.stands)
		}
		f.on(driver.OpGet, c.get)
		f.on(driver.OpReplace, c.replace)
		if err := c.act(f); err == nil || c.want != nil && !errtype.Matches(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got error %v, want %v, %q", name, err, c.want, c.says)
		}
		if kinds := f.kinds(); kinds != c.events {
			t.Errorf("%s: events %s", name, kinds)
		}
	}
}

// A requeued record is due at once, its pauses and its age count anew, and it
// keeps the reason why it is unknown.
func TestRequeue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.unknowns(1)
	f.giveUp()
	given := f.record()
	if !given.Exhausted || given.ReconcileAttempts != 1 {
		t.Fatalf("the record is %+v", given)
	}
	f.clock.Advance(30 * 24 * time.Hour)
	f.kinds()
	if err := f.requeue(); err != nil {
		t.Fatal(err)
	}
	r, now := f.record(), f.clock.Now()
	if kinds := f.kinds(); r.Exhausted || r.ReconcileAttempts != 0 || !r.Due.Equal(now) || !r.Since.Equal(now) ||
		r.Reason != given.Reason || !r.Created.Equal(given.Created) || kinds != "reconcile_scheduled" {
		t.Errorf("the record is %+v, events %s", r, kinds)
	}
	for range 3 { // it is not given up at once
		if report := f.reconcile(answer(idempotent.Later(24 * time.Hour))); report.String() != "1 due, 1 postponed" {
			t.Errorf("the report: %s", report)
		}
		f.clock.Advance(24 * time.Hour)
	}
	// The time since when it is unknown does not become younger: see Report.Oldest.
	if report := f.reconcile(answer(idempotent.Later(0))); !report.Oldest.Equal(given.LeaseEnd) {
		t.Errorf("the oldest is unknown since %s, want %s", report.Oldest, given.LeaseEnd)
	}
	// It also ends a long pause.
	if err := f.requeue(); err != nil {
		t.Fatal(err)
	}
	if report := f.reconcile(answer(idempotent.Resolved("x"))); report.String() != "1 due, 1 completed" {
		t.Errorf("the report: %s", report)
	}
}

// Requeue processes the end of a lease at once, as a reconciler would: the record is
// due now, if it waits for anything.
func TestRequeueAfterTheLease(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		recovery idempotent.Recovery
		mode     []func(*idempotent.StepOptions)
		want     driver.State
		events   string
		report   string // of the next run
	}{
		"Reconcile":           {idempotent.Reconcile, nil, driver.StateUnknown, "marked_unknown", "1 due, 1 postponed"},
		"Resume":              {idempotent.Resume, nil, driver.StateRetryable, "retryable", "1 due, 1 postponed"},
		"Rerun, at most once": {idempotent.Rerun, []func(*idempotent.StepOptions){atMostOnce}, driver.StateUnknown, "marked_unknown", "1 due, 1 postponed"},
		"Rerun":               {idempotent.Rerun, nil, driver.StateRetryable, "retryable", "0 due"},
	} {
		f := newFixture(t, func(o *idempotent.Options) { o.Recovery, o.Steps = row.recovery, []string{"charge"} })
		f.dies(func(ctx context.Context) { _ = step("charge", noAnswer, row.mode...)(ctx) })
		f.clock.Advance(time.Hour)
		f = f.with()
		if err := f.requeue(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		r, kinds := f.record(), f.kinds()
		if r.State != row.want || r.Due.IsZero() != (row.report == "0 due") || r.Due.After(f.clock.Now()) || kinds != row.events {
			t.Errorf("%s: the record is %s, due %s; events %s", name, r.State, r.Due, kinds)
		}
		if report := f.reconcile(answer(idempotent.Later(time.Hour))).String(); report != row.report {
			t.Errorf("%s: the next run: %s, want %s", name, report, row.report)
		}
	}
}

// RequeueExhausted requeues the records that were given up, of the operations that
// it is given, and no other record. It works on several at a time.
func TestRequeueExhausted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	given := len(f.unknowns(20))
	f.giveUp()
	f.unknowns(1)
	before := f.record().Version
	meeting := make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	defer cancel()
	f.on(driver.OpReplace, func(c *call) {
		if c.n <= 2 {
			select {
			case meeting <- struct{}{}:
			case <-meeting:
			case <-ctx.Done():
				c.Err = ctx.Err()
				return
			}
		}
		c.do()
	})
	for _, row := range []struct {
		operations []string
		want       int
	}{{[]string{"refund"}, 0}, {[]string{"refund", "charge"}, given}, {nil, 0}} {
		if n, err := f.guard.RequeueExhausted(ctx, row.operations...); n != row.want || err != nil {
			t.Errorf("of %v: requeued %d, %v; want %d", row.operations, n, err, row.want)
		}
	}
	if f.record().Version != before {
		t.Error("a record that was not given up was written")
	}
	if report := f.reconcile(answer(idempotent.Resolved("x"))); report.Completed != given+1 {
		t.Errorf("the report: %s", report)
	}
}

// A list is only a hint, and a failure with one record does not stop the others.
func TestRequeueExhaustedFails(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	keys := f.unknowns(4)
	failed, stale, fine, last := keys[0], keys[1], keys[2], keys[3]
	f.giveUp()
	list := []driver.Record{*record(t, f, failed), *record(t, f, stale), {ID: newKey().RecordID()}, *record(t, f, fine)}
	if err := f.guard.Resolve(t.Context(), stale.RecordID(), idempotent.Resolved("x")); err != nil {
		t.Fatal(err)
	}
	fails := func(c *call) {
		if c.StoreCall.Record.ID == failed.RecordID() {
			c.Err = errDown
			return
		}
		c.do()
	}
	damaged := []error{nil, nil, nil, errLost} // the list could not read it, and a read can
	other := f.over(yields{f.Store, list, damaged})
	other.on(driver.OpReplace, fails)
	n, err := other.guard.RequeueExhausted(t.Context())
	if n != 1 || !errors.Is(err, errDown) || !strings.Contains(err.Error(), "1 of 2 records failed") || record(t, f, fine).Exhausted {
		t.Errorf("requeued %d, %v; want 1, and an error about the other", n, err)
	}
	// A list that fails ends the call, whatever else failed.
	list = []driver.Record{*record(t, f, failed), {}, *record(t, f, last)}
	other = f.over(yields{f.Store, list, []error{nil, errLost, nil}})
	other.on(driver.OpReplace, fails)
	n, err = other.guard.RequeueExhausted(t.Context())
	listed := (*idempotent.StoreError)(nil)
	if n != 0 || !errors.Is(err, errLost) || !errors.As(err, &listed) || listed.Op != driver.OpListDue ||
		other.events.Count(event.StoreError) != 2 || !record(t, f, last).Exhausted {
		t.Errorf("with a list that fails: requeued %d, %v", n, err)
	}
	if _, err := f.over(struct{ driver.Store }{f.Store}).guard.RequeueExhausted(t.Context()); err == nil || !strings.Contains(err.Error(), "driver.DueLister") {
		t.Errorf("a store without lists: got error %v", err)
	}
}

// complete leaves a completed record whose lease has ended.
func (f *fixture) complete(result string) {
	f.t.Helper()
	if _, err := f.do(func(ctx context.Context) (string, error) {
		e, _ := idempotent.FromContext(ctx)
		return result, e.SetRef("orders/1")
	}); err != nil {
		f.t.Fatal(err)
	}
	f.clock.Advance(time.Minute)
	f.kinds()
}

// Forget leaves nothing of the outcome, also if it is large or in the cache, and the next
// request runs as the next attempt. What is left expires like any settled record.
func TestForget(t *testing.T) {
	t.Parallel()
	for _, result := range []string{"wrong", letters(20_000)} {
		f := newFixture(t)
		f = f.over(newChunked(f.Store), func(o *idempotent.Options) { o.CacheEntries = 10 })
		f.complete(result)
		_, _ = f.outcome(never[string]) // the cache has it
		f.kinds()
		if large := len(result) > 10; (f.record().Chunks.Count > 0) != large {
			t.Errorf("the result has %d chunks", f.record().Chunks.Count)
		}
		if err := f.forget(); err != nil {
			t.Fatal(err)
		}
		r, now := f.record(), f.clock.Now()
		if r.State != driver.StateRetryable || r.Reason != driver.ReasonForgotten || r.Result != nil || r.Encoding != "" || r.Chunks != (driver.Chunks{}) || r.Ref != "" ||
			!r.Due.IsZero() || !r.Since.Equal(now) || !r.Expires.Equal(now.Add(24*time.Hour)) {
			t.Errorf("the record is %+v", r)
		}
		out, err := f.outcome(value("right"))
		if kinds := f.kinds(); err != nil || out.Value != "right" || out.Replayed || f.record().Attempt != 2 || kinds != "forgotten taken_over completed" {
			t.Errorf("the next request got %.50q, replayed %t, %v; events %s", out.Value, out.Replayed, err, kinds)
		}
	}
}

// The event says who discarded the outcome and why. A request that does not say so,
// or says too much, changes nothing.
func TestForgetStatesActorAndReason(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.complete("wrong")
	token := f.record().Token()
	for name, c := range map[string]struct {
		change func(*idempotent.Correction)
		want   string
	}{
		"no actor":     {func(r *idempotent.Correction) { r.Actor = "" }, "missing Actor: state who"},
		"no reason":    {func(r *idempotent.Correction) { r.Reason = " \n" }, "missing Reason: state how"},
		"long actor":   {func(r *idempotent.Correction) { r.Actor = strings.Repeat("a", 1025) }, "invalid Actor: want at most 1024 bytes"},
		"broken UTF-8": {func(r *idempotent.Correction) { r.Reason = "\xff" }, "invalid Reason: want"},
	} {
		r := wrong(token)
		c.change(&r)
		if err := f.guard.Forget(t.Context(), f.key.RecordID(), r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want %q", name, err, c.want)
		}
	}
	if r := f.record(); r.State != driver.StateCompleted || len(f.events.Events()) != 0 {
		t.Fatalf("the record is %s, events %v", r.State, f.events.Kinds())
	}
	longest := wrong(token)
	longest.Reason = strings.Repeat("r", 1024)
	if err := f.guard.Forget(t.Context(), f.key.RecordID(), longest); err != nil {
		t.Fatal(err)
	}
	if all := f.events.Events(); len(all) != 1 || all[0].Kind != event.Forgotten || all[0].Actor != longest.Actor ||
		all[0].Note != longest.Reason || all[0].Reason != driver.ReasonForgotten {
		t.Errorf("events %+v", all)
	}
}

// An outcome that is stored after Forget gets another write id: the one of the
// discarded outcome was used, although its owner never learned it.
func TestForgetThenTheLostOutcome(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var used driver.Version
	f.on(driver.OpReplace, first(func(c *call) {
		c.do()
		used = c.StoreCall.Record.Version
		f.clock.Advance(time.Hour) // the reply is lost, and the SDK sends it again
		if err := f.with().forget(); err != nil {
			t.Error(err)
		}
		c.do()
	}))
	if _, err := f.do(value("late")); err != nil {
		t.Fatal(err)
	}
	if r := f.record(); r.State != driver.StateCompleted || r.Version == used || f.events.Count(event.Contradicted) != 1 {
		t.Errorf("the record is %s, with a new write id: %t; events %s", r.State, r.Version != used, f.events.Kinds())
	}
}

// A discarded outcome of the predecessor does not come back: the predecessor is not
// asked again while the record exists, whatever becomes of the runs after Forget.
func TestForgetOutcomeOfPredecessor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		result any
		err    error
		seal   idempotent.Sealer
		late   bool // the record is marked unknown while the predecessor is asked
	}{
		"a value":                     {result: "wrong"},
		"a final error":               {err: idempotent.Final("declined", "The card was declined.")},
		"a result that is not stored": {result: "wrong", seal: sealedSize(-1)},
		"an answer after the lease":   {result: "wrong", late: true},
	} {
		f := newFixture(t)
		questions := 0
		do := func(fn handlerFunc, seal idempotent.Sealer) (string, error) {
			return f.do(fn, func(o *idempotent.Operation) {
				o.Predecessor = func(context.Context, idempotent.Key) (any, bool, error) {
					if questions++; c.late {
						f.clock.Advance(time.Minute)
						if _, err := f.with().do(forbidden(t)); !errors.As(err, new(*idempotent.UnresolvedError)) {
							t.Errorf("%s: another request got error %v", name, err)
						}
					}
					return c.result, true, c.err
				}
			}, func(o *idempotent.Operation) { o.Seal = seal })
		}
		_, _ = do(forbidden(t), c.seal)
		f.clock.Advance(time.Minute)
		if err := f.forget(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i, want := range []error{idempotent.NotExecuted(errDown), idempotent.Unknown(errDown), nil} {
			if f.record().State == driver.StateUnknown {
				f.clock.Advance(time.Minute)
				f.mustResolve(f.notExecuted())
			}
			ran := false
			if _, err := do(func(context.Context) (string, error) { ran = true; return "right", want }, nil); !ran || !errors.Is(err, want) {
				t.Errorf("%s: run %d: the handler ran: %t; got %v", name, i+1, ran, err)
			}
		}
		if questions != 1 {
			t.Errorf("%s: the predecessor was asked %d times", name, questions)
		}
		f.clock.Advance(25 * time.Hour)
		if _, _ = do(forbidden(t), nil); questions != 2 {
			t.Errorf("%s: after the record expired, the predecessor was asked %d times", name, questions)
		}
	}
}

// instead corrects the outcome of the attempt with this token, on the guard of f.
func (f *fixture) instead(r idempotent.Resolution, token string) error {
	return f.guard.Resolve(context.Background(), f.key.RecordID(), r.InsteadOf(wrong(token)))
}

// Every kind of outcome replaces every other one, large ones too. The record keeps its
// reference and its attempt, and is retained from the correction on.
func TestInsteadOf(t *testing.T) {
	t.Parallel()
	large := letters(20_000)
	for name, row := range map[string]struct {
		right idempotent.Resolution
		want  string // of a retry: the value or the error
	}{
		"a value":        {idempotent.Resolved("right"), "right"},
		"a large value":  {idempotent.Resolved(large), large},
		"a Final":        {idempotent.ResolvedFinal("no", "right"), "no: right"},
		"without result": {idempotent.ResolvedWithoutResult(), "cannot be replayed"},
	} {
		for _, first := range []string{"wrong", letters(30_000)} {
			f := newFixture(t)
			f = f.over(newChunked(f.Store), func(o *idempotent.Options) { o.CacheEntries = 10 })
			f.complete(first)
			_, _ = f.outcome(never[string]) // the cache has it
			f.kinds()
			before := f.record()
			if err := f.instead(row.right, before.Token()); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			r := f.record()
			if r.State != driver.StateCompleted || r.Reason != driver.ReasonResolved || r.Ref != "orders/1" || r.Attempt != 1 || r.Token() == before.Token() ||
				!r.Since.Equal(f.clock.Now()) || !r.Expires.Equal(f.clock.Now().Add(24*time.Hour)) || r.Fingerprint != before.Fingerprint {
				t.Errorf("%s: the record is %+v", name, r)
			}
			events := f.events.Events()
			if len(events) != 1 || events[0].Kind != event.Resolved || events[0].Actor != wrong("").Actor || events[0].Note != wrong("").Reason {
				t.Errorf("%s: events %+v", name, events)
			}
			out, err := f.outcome(never[string])
			if got := out.Value; err != nil && !strings.Contains(err.Error(), row.want) || err == nil && got != row.want {
				t.Errorf("%s: a retry gets %.50q, %v; want %.50q", name, got, err, row.want)
			}
			if err := f.instead(row.right, "any"); err != nil {
				t.Errorf("%s: the same again: %v", name, err)
			}
			if err := f.instead(idempotent.Resolved("third"), before.Token()); !errors.As(err, new(*idempotent.StaleEvidenceError)) {
				t.Errorf("%s: a second correction with the token: got error %v", name, err)
			}
		}
	}
}

// What cannot be corrected is refused, with what to do, and nothing is written.
func TestInsteadOfIsRefused(t *testing.T) {
	t.Parallel()
	correct := func(f *fixture, r idempotent.Resolution, change func(*idempotent.Correction)) error {
		c := wrong(f.record().Token())
		change(&c)
		return f.guard.Resolve(t.Context(), f.key.RecordID(), r.InsteadOf(c))
	}
	right, as := idempotent.Resolved("right"), func(*idempotent.Correction) {}
	completed := func(f *fixture) { f.complete("wrong") }
	for name, row := range map[string]struct {
		before func(*fixture)
		right  idempotent.Resolution
		change func(*idempotent.Correction)
		want   string
	}{
		"a step":          {completed, idempotent.ResolvedStep("a", 1), as, "use CorrectedStep"},
		"a correction":    {completed, idempotent.CorrectedStep("a", 1), as, "use CorrectedStep"},
		"not executed":    {completed, idempotent.ProvenNotExecuted("x"), as, "InsteadOf corrects an outcome"},
		"no evidence":     {completed, idempotent.Later(0), as, "InsteadOf corrects an outcome"},
		"no actor":        {completed, right, func(c *idempotent.Correction) { c.Actor = "" }, "InsteadOf: missing Actor"},
		"no reason":       {completed, right, func(c *idempotent.Correction) { c.Reason = "" }, "InsteadOf: missing Reason"},
		"another token":   {completed, right, func(c *idempotent.Correction) { c.Token = "x" }, "not about the current attempt (1)"},
		"unknown":         {func(f *fixture) { _, _ = f.do(returns(errDown)) }, right, as, "has no stored outcome; use the same evidence without InsteadOf"},
		"released":        {func(f *fixture) { _, _ = f.do(returns(idempotent.NotExecuted(errDown))) }, right, as, "has no stored outcome"},
		"the lease lives": {func(f *fixture) { _, _ = f.do(value("wrong")) }, right, as, "may still be running"},
		"expired":         {func(f *fixture) { f.complete("wrong"); f.clock.Advance(24 * time.Hour) }, right, as, "has expired"},
	} {
		f := newFixture(t)
		row.before(f)
		before := f.record()
		if err := correct(f, row.right, row.change); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got error %v, want %q", name, err, row.want)
		}
		if f.record().Version != before.Version {
			t.Errorf("%s: the record was written", name)
		}
	}
	for _, op := range []driver.Op{driver.OpReplace, driver.OpGetChunks} {
		f := newFixture(t)
		f = f.over(newChunked(f.Store), kit.NewSealer().Option) // so that outcomes are compared unsealed
		f.complete(letters(20_000))
		before := f.record()
		f.on(op, fail(errDown))
		if err := f.instead(idempotent.Resolved(letters(30_000)), before.Token()); !errors.As(err, new(*idempotent.StoreError)) || f.record().Version != before.Version {
			t.Errorf("%s fails: got error %v", op, err)
		}
	}
}

// Random histories of a key, 10,000 of them: requests, two operators who correct with tokens that
// they have read before, late webhooks, and Forget. No work runs because of a correction;
// the first correction that is accepted for a token stands; every retry gets what is
// stored; and each change has one event with its actor.
func TestCorrectionHistories(t *testing.T) {
	t.Parallel()
	accepted, stale, agreed, forgotten := 0, 0, 0, 0
	seeds := kit.Short(10_000, 1_000)
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 2))
		f := newFixture(t, func(o *idempotent.Options) { o.CacheEntries = 10 })
		other := f.with() // another party, without a cache
		runs, allowed, changes := 0, 1, 0
		stands, of := "", map[string]string{} // the stored outcome, and the correction accepted for each token
		var tokens [2]string                  // what each operator has read
		request := func(by *fixture) {
			v, err := by.do(func(context.Context) (string, error) {
				runs++
				stands = fmt.Sprint("run ", runs)
				return stands, nil
			})
			if err != nil || v != stands || runs > allowed {
				t.Errorf("seed %d: a request got %q, %v after %d runs of %d; %q is stored", seed, v, err, runs, allowed, stands)
			}
		}
		request(f)
		f.clock.Advance(time.Minute) // the lease has ended
		for range 12 {
			before := f.record()
			who := r.IntN(2)
			switch r.IntN(7) {
			case 0:
				request(f)
			case 1:
				request(other)
			case 2:
				tokens[who] = before.Token()
			case 3, 4:
				right := fmt.Sprint("correction ", r.IntN(3))
				err := f.instead(idempotent.Resolved(right), tokens[who])
				after := f.record()
				switch {
				case after.Version != before.Version:
					if err != nil || tokens[who] != before.Token() || of[tokens[who]] != "" {
						t.Errorf("seed %d: the correction for %s replaced %q: %v", seed, tokens[who], of[tokens[who]], err)
					}
					stands, of[tokens[who]], changes = right, right, changes+1
					accepted++
				case err == nil && right == stands:
					agreed++
				case errors.As(err, new(*idempotent.StaleEvidenceError)):
					stale++
				case before.State == driver.StateRetryable && err != nil:
				default:
					t.Errorf("seed %d: got error %v for %q; %q is stored", seed, err, right, stands)
				}
			case 5: // a webhook of the first run, in vain unless it agrees
				err := f.guard.Resolve(t.Context(), before.ID, idempotent.Resolved("run 1"))
				if before.State == driver.StateRetryable {
					stands, allowed = "run 1", runs // evidence, in place of the run that Forget allowed
					if err != nil {
						t.Errorf("seed %d: %v", seed, err)
					}
				} else if (err == nil) != (stands == "run 1") {
					t.Errorf("seed %d: the webhook: %v; %q is stored", seed, err, stands)
				}
			case 6:
				if r.IntN(3) > 0 {
					continue
				}
				err := f.guard.Forget(t.Context(), before.ID, wrong(tokens[who]))
				if after := f.record(); after.Version != before.Version {
					allowed, changes = runs+1, changes+1
					forgotten++
				} else if err == nil && before.State == driver.StateCompleted {
					t.Errorf("seed %d: Forget wrote nothing", seed)
				}
			}
			f.clock.Advance(time.Duration(r.IntN(90)) * time.Second)
		}
		byPeople := 0
		for _, e := range f.events.Events() {
			if e.Actor != "" {
				byPeople++
			}
		}
		if byPeople != changes {
			t.Errorf("seed %d: %d changes by people, and %d events of them", seed, changes, byPeople)
		}
	}
	t.Logf("%d corrections were accepted, %d were stale, %d agreed; %d outcomes were forgotten", accepted, stale, agreed, forgotten)
	if want := seeds / 10; min(accepted, stale, agreed, forgotten) < want {
		t.Errorf("want each %d times", want)
	}
}
