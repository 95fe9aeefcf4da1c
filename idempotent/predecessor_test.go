// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/errtype"
)

// asked returns an option that answers for the predecessor.
func asked(answer func(ctx context.Context, key idempotent.Key) (any, bool, error)) func(*idempotent.Options) {
	return func(o *idempotent.Options) { o.Predecessor = answer }
}

// answered is asked with one answer.
func answered(result any, done bool, err error) func(*idempotent.Options) {
	return asked(func(context.Context, idempotent.Key) (any, bool, error) { return result, done, err })
}

// The predecessor is asked once a key is claimed, and not about a key whose outcome
// the guard has. What it has done is the outcome: it is stored and replayed as if the
// handler had returned it, and the handler never runs.
func TestPredecessor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		result any
		done   bool
		err    error
		events string
	}{
		"it has not begun": {nil, false, nil, "reserved completed replayed"},
		"a value":          {"ch_7", true, nil, "reserved completed replayed replayed"},
		"encoded":          {json.RawMessage(`"ch_7"`), true, nil, "reserved completed replayed replayed"},
		"large":            {json.RawMessage(`"` + strings.Repeat("ch_7", 10_000) + `"`), true, nil, "reserved completed replayed replayed"},
		"a final error":    {nil, true, idempotent.Final("declined", "The card was declined."), "reserved completed replayed replayed"},
	} {
		questions := 0
		f := newFixture(t)
		f = f.over(newChunked(f.Store), asked(func(_ context.Context, key idempotent.Key) (any, bool, error) {
			questions++
			if r := record(t, f, key); key != f.key || r.State != driver.StateInProgress {
				t.Errorf("%s: asked about %+v while the record was %s", name, key, r.State)
			}
			return c.result, c.done, c.err
		}))
		ran := false
		for i := range 2 {
			out, err := f.outcome(func(context.Context) (string, error) { ran = true; return "ch_1", nil })
			value := "ch_1"
			if c.done {
				value = "ch_7"
			}
			if !errtype.Matches(err, c.err) || c.err == nil && !strings.HasPrefix(out.Value, value) ||
				out.Replayed != (c.done || i > 0) || !out.Stored || out.Expires.IsZero() || ran == c.done {
				t.Errorf("%s: got %.20q, replayed %t, %v; the handler ran: %t", name, out.Value, out.Replayed, err, ran)
			}
		}
		if r, kinds := f.record(), f.kinds(); r.State != driver.StateCompleted ||
			(r.Reason == driver.ReasonPredecessor) != c.done || questions != 1 || kinds != c.events {
			t.Errorf("%s: the record is %s (%s), %d questions, events %s", name, r.State, r.Reason, questions, kinds)
		}
	}
}

// What the outcome of the predecessor meets: the caller gets it although it cannot be
// stored, but not after another request took the record over; the outcome of that stands.
func TestPredecessorMeets(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		replace func(*call)
		value   string
		stored  bool
		err     error
	}{
		"a store that is down":  {fail(errDown), "ch_7", false, nil},
		"another run":           {after(stolen), "", false, new(idempotent.LeaseLostError)},
		"another run's outcome": {first(after(func(r *driver.Record) { stolen(r); byWebhook(r) })), "by the webhook", true, nil},
	} {
		f := newFixture(t, answered("ch_7", true, nil))
		f.on(driver.OpReplace, c.replace)
		if out, err := f.outcome(forbidden(t)); !errtype.Matches(err, c.err) || err == nil && (out.Value != c.value || !out.Replayed || out.Stored != c.stored) {
			t.Errorf("%s: got %+v, %v", name, out, err)
		}
	}
}

// A refusal reaches the caller, nothing runs, and the key is bound to no request:
// the next one may have another payload. A process whose clock is behind by the margin
// finds the record expired, too.
func TestPredecessorRefuses(t *testing.T) {
	t.Parallel()
	failed := new(idempotent.StoreError)
	for name, c := range map[string]struct {
		option func(*idempotent.Options)
		want   error
		event  string
	}{
		"in progress":                     {answered(nil, false, &idempotent.InProgressError{}), new(idempotent.InProgressError), "in_progress"},
		"mismatch":                        {answered(nil, false, &idempotent.MismatchError{}), new(idempotent.MismatchError), "mismatch"},
		"failure":                         {answered(nil, false, errDown), failed, "store_error"},
		"panic":                           {asked(func(context.Context, idempotent.Key) (any, bool, error) { panic("secret") }), failed, "store_error"},
		"a result that cannot be encoded": {answered(json.RawMessage(`{`), true, nil), failed, "store_error"},
	} {
		f := newFixture(t, c.option)
		_, err := f.do(forbidden(t))
		if !errtype.Matches(err, c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got error %v", name, err)
		}
		if failed := new(idempotent.StoreError); errors.As(err, &failed) && (failed.Op != driver.OpPredecessor || failed.Entered || !strings.Contains(err.Error(), "Operation.Predecessor: ask failed")) {
			t.Errorf("%s: got error %#v", name, err)
		}
		if kinds := f.kinds(); strings.Count(kinds, c.event) != 1 || !f.record().Expires.Equal(start.Add(-3*time.Second)) {
			t.Errorf("%s: events %s; the record expires at %s", name, kinds, f.record().Expires)
		}
		f.key.Fingerprint = idempotent.FingerprintBytes([]byte("another request"))
		if _, err := idempotent.Lookup[string](t.Context(), f.guard, f.key); !errors.Is(err, idempotent.ErrNoRecord) {
			t.Errorf("%s: Lookup got error %v", name, err)
		}
		if got, err := f.with(answered(nil, false, nil)).do(charged); got != "ch_1" || err != nil {
			t.Errorf("%s: another request got %q, %v", name, got, err)
		}
	}
}

// A record that existed before keeps its fingerprint and its steps.
func TestPredecessorRefusesALaterAttempt(t *testing.T) {
	t.Parallel()
	f := newFixture(t, resume("pay"), answered(nil, false, nil))
	_, _ = f.do(func(ctx context.Context) (string, error) {
		return "", errors.Join(step("pay", charged)(ctx), errDown)
	})
	f = f.with(resume("pay"), answered(nil, false, &idempotent.InProgressError{}))
	if _, err := f.do(forbidden(t)); !errors.As(err, new(*idempotent.InProgressError)) {
		t.Errorf("got error %v", err)
	}
	if r := f.record(); r.State != driver.StateRetryable || len(r.Steps) != 1 || !r.Expires.IsZero() {
		t.Errorf("the record is %+v", r)
	}
	f.key.Fingerprint = idempotent.FingerprintBytes([]byte("another request"))
	if _, err := f.do(charged); !errors.As(err, new(*idempotent.MismatchError)) {
		t.Errorf("another request: got error %v", err)
	}
}

// The predecessor was interrupted: the record waits for evidence, under Rerun too.
func TestPredecessorWasInterrupted(t *testing.T) {
	t.Parallel()
	for _, recovery := range []idempotent.Recovery{idempotent.Reconcile, idempotent.Rerun} {
		f := newFixture(t, answered(nil, false, idempotent.Unknown(errors.New("it was killed"))), func(o *idempotent.Options) {
			o.Recovery, o.ReconcileAfter = recovery, 7*time.Second
		})
		for range 2 {
			_, err := f.do(forbidden(t))
			if unresolved := (*idempotent.UnresolvedError)(nil); !errors.As(err, &unresolved) || unresolved.RetryAfter != 7*time.Second {
				t.Errorf("%s: got error %v", recovery, err)
			}
		}
		marked := f.events.Events()[1]
		if r, kinds := f.record(), f.kinds(); r.State != driver.StateUnknown || r.Reason != driver.ReasonPredecessor ||
			r.Due.IsZero() || kinds != "reserved marked_unknown unresolved" || !idempotent.IsUnknown(marked.Err) {
			t.Errorf("%s: the record is %+v; events %s, with the error %v", recovery, r, kinds, marked.Err)
		}
		f.mustResolve(idempotent.Resolved("ch_7"))
		if got, err := f.do(forbidden(t)); got != "ch_7" || err != nil {
			t.Errorf("%s: after evidence a request got %q, %v", recovery, got, err)
		}
		f.key = newKey()
		_, _ = f.do(forbidden(t), func(o *idempotent.Operation) {
			o.Predecessor = func(context.Context, idempotent.Key) (any, bool, error) {
				f.mustResolve(idempotent.ResolvedStep("pay", "x"))
				return nil, false, idempotent.Unknown(errDown)
			}
		})
		if r := f.record(); r.State != driver.StateUnknown || r.Reason != driver.ReasonPredecessor || len(r.Steps) != 1 {
			t.Errorf("%s: after evidence about a step the record is %s (%s), with the steps %v", recovery, r.State, r.Reason, r.Steps)
		}
	}
}

// The predecessor's context ends with the handler's time, so that the reserve is left
// for the outcome. If it takes all the time, the handler does not run.
func TestPredecessorHasTheHandlersTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var asking, running time.Time
	if _, err := f.do(func(ctx context.Context) (string, error) {
		running, _ = ctx.Deadline()
		return charged(ctx)
	}, func(o *idempotent.Operation) {
		o.Predecessor = func(ctx context.Context, _ idempotent.Key) (any, bool, error) {
			asking, _ = ctx.Deadline()
			return nil, false, nil
		}
	}); err != nil {
		t.Fatal(err)
	}
	if want := start.Add(9500 * ms); !asking.Equal(want) || !running.Equal(want) {
		t.Errorf("the predecessor has until %s and the handler until %s, want %s", asking, running, want)
	}
	f.key = newKey()
	if _, err := f.do(forbidden(t), func(o *idempotent.Operation) {
		o.Predecessor = func(context.Context, idempotent.Key) (any, bool, error) {
			f.clock.Advance(time.Minute)
			return nil, false, nil
		}
	}); !errors.As(err, new(*idempotent.NoTimeError)) {
		t.Errorf("got error %v", err)
	}
}
