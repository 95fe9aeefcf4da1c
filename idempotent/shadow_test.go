// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
)

func inShadow(o *idempotent.Options) { o.Shadow = true }

func gives(value string, err error) handlerFunc {
	return func(context.Context) (string, error) { return value, err }
}

// What the guard reports about a request after others with its key, and what becomes of
// the record.
func TestShadow_Findings(t *testing.T) {
	t.Parallel()
	asRerun := func(o *idempotent.Options) { o.Recovery = idempotent.Rerun }
	for _, row := range []struct {
		name string
		// before is what happened to the key; enforcing is a guard over the same store.
		before  func(shadow, enforcing *fixture)
		handler handlerFunc
		options func(*idempotent.Options)
		want    event.Kind
		leaves  driver.State // of the record; 0: it is unchanged
	}{
		{name: "a new key", handler: gives("one", nil), want: event.ShadowRun, leaves: driver.StateCompleted},
		{name: "a new key, and the handler fails", handler: gives("", errDown), want: event.ShadowRun, leaves: driver.StateRetryable},
		{name: "a new key, and the outcome is unknown", handler: gives("", idempotent.Unknown(errDown)), want: event.ShadowRun, leaves: driver.StateRetryable},
		{name: "a new key, and the outcome is final", handler: gives("", idempotent.Final("sold_out", "Sold out.")), want: event.ShadowRun, leaves: driver.StateCompleted},
		{name: "a new key that a predecessor has answered", options: func(o *idempotent.Options) {
			o.Predecessor = func(context.Context, idempotent.Key) (any, bool, error) { return "old", true, nil }
		}, handler: gives("one", nil), want: event.ShadowRun, leaves: driver.StateCompleted},
		{name: "in progress, and requests wait", before: func(s, _ *fixture) { s.dies(nil) },
			options: func(o *idempotent.Options) { o.WaitFor = time.Hour }, handler: gives("one", nil), want: event.ShadowInProgress},
		{name: "completed with the same result", before: func(s, _ *fixture) { s.do(gives("one", nil)) },
			handler: gives("one", nil), want: event.ShadowReplayed},
		{name: "completed with another result", before: func(s, _ *fixture) { s.do(gives("one", nil)) },
			handler: gives("two", nil), want: event.ShadowDiffers},
		{name: "completed, and the handler fails", before: func(s, _ *fixture) { s.do(gives("one", nil)) },
			handler: gives("", errDown), want: event.ShadowDiffers},
		{name: "completed with the same final error", before: func(s, _ *fixture) { s.do(gives("", idempotent.Final("sold_out", "Sold out."))) },
			handler: gives("", idempotent.Final("sold_out", "Sold out.")), want: event.ShadowReplayed},
		{name: "completed by a guard that enforces", before: func(_, e *fixture) { e.do(gives("one", nil)) },
			handler: gives("one", nil), want: event.ShadowReplayed},
		{name: "completed without a result", before: func(s, _ *fixture) {
			s.do(gives("one", nil))
			s.change(func(r *driver.Record) { r.Encoding, r.Result = driver.EncodingOmitted, nil })
		}, handler: gives("one", nil), want: event.ShadowUncompared},
		{name: "a result that cannot be stored", before: func(s, _ *fixture) { s.do(gives("one", nil)) },
			handler: gives("\xff", nil), want: event.ShadowUncompared},
		{name: "completed with a result of another version", before: func(s, _ *fixture) { s.do(gives("one", nil)) },
			options: func(o *idempotent.Options) { o.ResultVersion = "2" }, handler: gives("one", nil), want: event.ShadowUncompared},
		{name: "completed with a result that is sealed", before: func(s, _ *fixture) {
			s.do(gives("one", nil))
			s.change(func(r *driver.Record) { r.Encoding += driver.EncodingSealed })
		}, handler: gives("one", nil), want: event.ShadowUncompared},
		{name: "the fingerprint has another version", before: func(s, _ *fixture) {
			s.do(gives("one", nil))
			s.change(func(r *driver.Record) { r.Fingerprint[0]++ })
		}, handler: gives("one", nil), want: event.ShadowUncompared},
		{name: "failed", before: func(s, _ *fixture) { s.do(gives("", errDown)) },
			handler: gives("one", nil), want: event.ShadowTakenOver, leaves: driver.StateCompleted},
		{name: "killed", before: func(s, _ *fixture) { s.dies(nil); s.clock.Advance(time.Minute) },
			handler: gives("one", nil), want: event.ShadowKilled, leaves: driver.StateCompleted},
		{name: "killed after a takeover", before: func(s, _ *fixture) {
			s.do(gives("", errDown))
			s.on(driver.OpReplace, func(c *call) {
				if c.n > 1 { // the process is dead
					c.Err = errDown
					return
				}
				c.do()
			})
			s.do(gives("", errDown))
			s.on(driver.OpReplace, nil)
			s.clock.Advance(time.Minute)
		}, handler: gives("one", nil), want: event.ShadowKilled, leaves: driver.StateCompleted},
		{name: "expired while it was read", before: func(s, _ *fixture) {
			s.on(driver.OpInsert, first(meets(driver.Record{State: driver.StateCompleted, Expires: time.Unix(1, 0)})))
		}, handler: gives("one", nil), want: event.ShadowRun, leaves: driver.StateCompleted},
		{name: "deleted before the takeover", before: func(s, _ *fixture) {
			s.do(gives("", errDown))
			s.on(driver.OpReplace, first(fail(idempotent.ErrNoRecord)))
		}, handler: gives("one", nil), want: event.ShadowTakenOver, leaves: driver.StateCompleted},
		{name: "the takeover fails", before: func(s, _ *fixture) {
			s.do(gives("", errDown))
			s.on(driver.OpReplace, fail(errDown))
		}, handler: gives("one", nil), want: event.ShadowFailed},
		{name: "the reply to the takeover is lost", before: func(s, _ *fixture) {
			s.do(gives("", errDown))
			s.on(driver.OpReplace, first(lose(errDown)))
		}, handler: gives("one", nil), want: event.ShadowFailed, leaves: driver.StateInProgress},
		{name: "another request takes over first", before: func(s, _ *fixture) {
			s.do(gives("", errDown))
			s.on(driver.OpReplace, first(after(func(r *driver.Record) { r.State, r.Expires = driver.StateUnknown, time.Time{} })))
		}, handler: gives("one", nil), want: event.ShadowUnresolved, leaves: driver.StateUnknown},
		{name: "killed, and the lease has not ended", before: func(s, _ *fixture) { s.dies(nil) },
			handler: gives("one", nil), want: event.ShadowInProgress},
		{name: "failed under a guard that enforces Rerun", before: func(_, e *fixture) {
			e.do(gives("", errDown), func(o *idempotent.Operation) { o.Recovery = idempotent.Rerun })
		},
			options: asRerun, handler: gives("one", nil), want: event.ShadowTakenOver},
		{name: "killed under a guard that enforces Rerun", before: func(_, e *fixture) {
			e.dies(nil, func(o *idempotent.Operation) { o.Recovery = idempotent.Rerun })
			e.clock.Advance(time.Minute)
		}, options: asRerun, handler: gives("one", nil), want: event.ShadowKilled},
		{name: "killed under a guard that enforces", before: func(_, e *fixture) { e.dies(nil); e.clock.Advance(time.Minute) },
			handler: gives("one", nil), want: event.ShadowKilled},
		{name: "unknown", before: func(_, e *fixture) { e.do(gives("", errDown)) },
			handler: gives("one", nil), want: event.ShadowUnresolved},
		{name: "of another request", before: func(s, _ *fixture) {
			s.do(gives("one", nil))
			s.key.Fingerprint = idempotent.FingerprintBytes([]byte("another request"))
		}, handler: gives("one", nil), want: event.ShadowMismatch},
		{name: "in a state of a later version", before: func(s, _ *fixture) {
			s.do(gives("one", nil))
			s.change(func(r *driver.Record) { r.State = 99 })
		}, handler: gives("one", nil), want: event.ShadowFailed},
		{name: "expired", before: func(s, _ *fixture) { s.do(gives("one", nil)); s.clock.Advance(25 * time.Hour) },
			handler: gives("two", nil), want: event.ShadowRun, leaves: driver.StateCompleted},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			enforcing := newFixture(t)
			f := enforcing.with(inShadow)
			if row.before != nil {
				row.before(f, enforcing)
			}
			if row.options != nil {
				f2 := f.with(inShadow, row.options)
				f2.key = f.key
				f = f2
			}
			var before *driver.Record
			if row.leaves == 0 {
				before = f.record()
			}
			*f.events = idempotenttest.Recorder{}
			value, err := f.do(row.handler)
			wantValue, wantErr := row.handler(t.Context())
			if value != wantValue || !sameError(err, wantErr) {
				t.Errorf("got %q, %v; want what the handler returns: %q, %v", value, err, wantValue, wantErr)
			}
			_, final := idempotent.AsFinal(wantErr)
			if e := f.events.Events()[0]; wantErr != nil && !final && e.Err != wantErr {
				t.Errorf("the event has the error %v, want the handler's", e.Err)
			}
			if got := f.kinds(); got != string(row.want) {
				t.Errorf("got the events %s, want %s", got, row.want)
			}
			r := f.record()
			switch {
			case row.leaves == 0:
				if !reflect.DeepEqual(r, before) {
					t.Errorf("the record became %+v, was %+v", r, before)
				}
			case row.leaves == driver.StateUnknown: // written by another guard
			case r.State != row.leaves || r.Reason != driver.ReasonShadow || r.Recovery != idempotent.Rerun || !r.Due.IsZero() || r.Expires.IsZero():
				t.Errorf("got the record %+v, want it %s in shadow mode, and that nothing waits for evidence", r, row.leaves)
			}
		})
	}
}

// sameError reports whether got is the very error want.
func sameError(got, want error) bool {
	return got == want || got != nil && want != nil && reflect.DeepEqual(got, want)
}

// The event has what the operation declares, the number of the run and the key's hash, but
// no key, and there is no other event.
func TestShadow_Event(t *testing.T) {
	t.Parallel()
	var all idempotenttest.Recorder
	var log bytes.Buffer
	f := newFixture(t, inShadow, func(o *idempotent.Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		o.Observer, o.Recovery, o.Steps = &all, idempotent.Resume, []string{"ship"}
		o.RequestID = func(context.Context) string { return "r-1" }
	})
	f.do(gives("", errDown))
	f.do(gives("one", nil))
	if n := len(all.Events()); n != 2 {
		t.Fatalf("got %d events, want one for each request: %v", n, all.Kinds())
	}
	e := all.Events()[1]
	want := event.Event{
		Kind: event.ShadowTakenOver, Time: e.Time, Operation: "charge", KeyHash: f.key.RecordID().KeyHash(), RequestID: "r-1", Attempt: 2,
		Recovery: idempotent.Resume, Reason: driver.ReasonShadow,
	}
	if e != want {
		t.Errorf("got %+v, want %+v", e, want)
	}
	if r := f.record(); r.StepNames != nil {
		t.Errorf("the record declares the steps %q", r.StepNames)
	}
	if strings.Contains(log.String(), "shadow_") {
		t.Errorf("an event for the observer is also logged: %s", log.String())
	}
	if all.Events()[0].Err != errDown {
		t.Errorf("the first event has the error %v, want the handler's", all.Events()[0].Err)
	}
}

// Results that are sealed are compared. If they cannot be opened now, the finding is not
// known.
func TestShadow_Seal(t *testing.T) {
	t.Parallel()
	f := newSealed(t, inShadow)
	f.do(gives(private, nil))
	f.do(gives(private, nil))
	f.do(gives("another", nil))
	f.opening(&idempotent.StoreError{Op: driver.OpGet, Err: errDown})
	f.do(gives(private, nil))
	if got := f.kinds(); got != "shadow_run shadow_replayed shadow_differs shadow_failed" {
		t.Errorf("got the events %s", got)
	}
	f.wantPrivate("shadow mode")
}

// Requests without a usable key run.
func TestShadow_NoKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t, inShadow)
	for name, key := range map[string]idempotent.Key{
		"no id":          {Operation: "charge", Scope: "acme", Fingerprint: f.key.Fingerprint},
		"no operation":   {Scope: "acme", ID: "1", Fingerprint: f.key.Fingerprint},
		"no scope":       {Operation: "charge", ID: "1", Fingerprint: f.key.Fingerprint},
		"no fingerprint": {Operation: "charge", Scope: "acme", ID: "1"},
	} {
		f.key = key
		if got, err := f.do(gives("one", nil)); got != "one" || err != nil {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
		if got := f.kinds(); got != string(event.ShadowNoKey) {
			t.Errorf("%s: got the events %s", name, got)
		}
	}
	if _, err := idempotent.Do(t.Context(), f.guard, newKey(), func(context.Context) (func(), error) { return nil, nil }); err != nil || f.kinds() != string(event.ShadowFailed) {
		t.Errorf("a result that cannot be stored: got %v", err)
	}
	if len(f.calls) != 0 {
		t.Errorf("the store got the calls %q", f.calls)
	}
	run := func(name string, key idempotent.KeyFunc[string], why string) {
		h := idempotent.Wrap(f.guard, key, func(_ context.Context, in string) (string, error) { return in, nil })
		got, err := h(t.Context(), "in")
		if e := f.events.Events()[0]; e.Err == nil || !strings.Contains(e.Err.Error(), why) {
			t.Errorf("%s: the event has the error %v", name, e.Err)
		}
		if got != "in" || err != nil || f.kinds() != string(event.ShadowNoKey) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	run("an error", func(context.Context, string) (idempotent.Key, error) { return idempotent.Key{}, errDown }, "down")
	run("a key and an error", func(context.Context, string) (idempotent.Key, error) { return newKey(), errDown }, "down")
	run("a panic", func(context.Context, string) (idempotent.Key, error) { panic("no key") }, "panicked")
	h := idempotent.Wrap(f.guard, func(_ context.Context, in string) (idempotent.Key, error) {
		return idempotent.Key{Operation: "charge", Scope: "acme", ID: in}, nil
	}, func(_ context.Context, in string) (string, error) { return in, nil })
	for i, want := range []event.Kind{event.ShadowRun, event.ShadowReplayed} {
		if got, err := h(t.Context(), "in"); got != "in" || err != nil || f.kinds() != string(want) {
			t.Errorf("request %d: got %q, %v; want %s", i, got, err, want)
		}
	}
}

// Whatever the store does, the caller gets the handler's result, at most 250 ms later, and
// at most a tenth of the time left later.
func TestShadow_StoreFails(t *testing.T) {
	t.Parallel()
	hangs := func(ctx context.Context, c *idempotenttest.StoreCall) {
		<-ctx.Done()
		c.Err = ctx.Err()
	}
	deaf := func(ctx context.Context, c *idempotenttest.StoreCall) {
		select {} // ignores its context
	}
	broken := func(_ context.Context, c *idempotenttest.StoreCall) { panic("broken") }
	refuses := func(_ context.Context, c *idempotenttest.StoreCall) { c.Err = errDown }
	loses := func(ctx context.Context, c *idempotenttest.StoreCall) {
		c.Do(ctx)
		c.Current, c.Err = nil, errDown
	}
	for _, row := range []struct {
		name  string
		op    driver.Op
		harm  func(context.Context, *idempotenttest.StoreCall)
		left  time.Duration // of the invocation; 0: it has no deadline
		most  time.Duration
		state driver.State
	}{
		{"the insert is refused", driver.OpInsert, refuses, time.Minute, 0, 0},
		{"the reply of the insert is lost", driver.OpInsert, loses, time.Minute, 0, driver.StateInProgress},
		{"the insert hangs", driver.OpInsert, hangs, time.Minute, 250 * time.Millisecond, 0},
		{"the insert hangs, without a deadline", driver.OpInsert, hangs, 0, 250 * time.Millisecond, 0},
		{"the insert hangs, with a second left", driver.OpInsert, hangs, 2 * time.Second, 100 * time.Millisecond, 0},
		{"the insert panics", driver.OpInsert, broken, time.Minute, 0, 0},
		{"the outcome is refused", driver.OpReplace, refuses, time.Minute, 0, driver.StateInProgress},
		{"the reply to the outcome is lost", driver.OpReplace, loses, time.Minute, 0, driver.StateCompleted},
		{"the outcome hangs", driver.OpReplace, hangs, time.Minute, 250 * time.Millisecond, driver.StateInProgress},
		{"the outcome panics", driver.OpReplace, broken, time.Minute, 0, driver.StateInProgress},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				g, events := newGuardOver(t, idempotenttest.Intercept(store, func(ctx context.Context, c *idempotenttest.StoreCall) {
					if c.Op == row.op {
						row.harm(ctx, c)
						return
					}
					c.Do(ctx)
				}), inShadow)
				ctx, key := t.Context(), newKey()
				if row.left > 0 {
					limited, cancel := context.WithTimeout(ctx, row.left)
					defer cancel()
					ctx = limited
				}
				var ended time.Time
				got, err := idempotent.Do(ctx, g, key, func(context.Context) (string, error) {
					time.Sleep(time.Second)
					ended = time.Now()
					return "one", nil
				})
				if got != "one" || err != nil {
					t.Errorf("got %q, %v", got, err)
				}
				if took := time.Since(ended); took > row.most {
					t.Errorf("the answer came %s after the handler, want %s at most", took, row.most)
				}
				if kinds := fmt.Sprint(events.Kinds()); kinds != "[shadow_failed]" {
					t.Errorf("got the events %s", kinds)
				}
				state := driver.State(0)
				if r, err := store.Get(t.Context(), key.RecordID()); err == nil {
					state = r.State
				}
				if state != row.state {
					t.Errorf("the record is %s, want %s", state, row.state)
				}
			})
		})
	}
	// A store that ignores its context keeps its goroutine, which a bubble waits for.
	g, events := newGuardOver(t, idempotenttest.Intercept(memstore.New(), deaf), inShadow)
	if got, err := idempotent.Do(t.Context(), g, newKey(), gives("one", nil)); got != "one" || err != nil || events.Count(event.ShadowFailed) != 1 {
		t.Errorf("got %q, %v and the events %v", got, err, events.Kinds())
	}
}

// The insert runs beside the handler, and a client that goes away does not end it.
func TestShadow_Beside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var began time.Time
		g, events := newGuardOver(t, idempotenttest.Intercept(memstore.New(), func(ctx context.Context, c *idempotenttest.StoreCall) {
			time.Sleep(time.Second)
			c.Do(ctx)
		}), inShadow)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		start := time.Now()
		for _, want := range []time.Duration{2*time.Second + 250*time.Millisecond, 2 * time.Second} {
			_, err := idempotent.Do(ctx, g, idempotent.Key{Operation: "charge", Scope: "acme", ID: "1", Fingerprint: idempotent.FingerprintBytes(nil)},
				func(context.Context) (string, error) {
					began = time.Now()
					cancel()
					time.Sleep(2 * time.Second)
					return "one", nil
				})
			if waited := began.Sub(start); err != nil || waited != 0 {
				t.Errorf("the handler began after %s: %v", waited, err)
			}
			if took := time.Since(start); took != want {
				t.Errorf("the request took %s, want %s", took, want)
			}
			start = time.Now()
		}
		// The first outcome needs a second, and so is not stored in time.
		if got := fmt.Sprint(events.Kinds()); got != "[shadow_failed shadow_in_progress]" {
			t.Errorf("got the events %s", got)
		}
	})
}

// A panic and the end of the goroutine go on as without a guard. Their key runs again.
func TestShadow_Panics(t *testing.T) {
	t.Parallel()
	f := newFixture(t, inShadow)
	if got := f.panics(func(context.Context) (string, error) { panic(errDown) }); got != errDown {
		t.Errorf("got the panic %v", got)
	}
	ended := make(chan bool)
	go func() {
		defer close(ended)
		f.do(func(context.Context) (string, error) { runtime.Goexit(); return "", nil })
	}()
	<-ended
	f.do(gives("one", nil))
	if got := f.kinds(); got != "shadow_run shadow_taken_over shadow_taken_over" {
		t.Errorf("got the events %s", got)
	}
}

// The handler gets no execution, and runs inside another guarded handler as outside.
func TestShadow_NoExecution(t *testing.T) {
	t.Parallel()
	outer, f := newFixture(t), newFixture(t, inShadow)
	_, err := outer.do(func(ctx context.Context) (string, error) {
		return idempotent.Do(ctx, f.guard, f.key, func(ctx context.Context) (string, error) {
			if _, ok := idempotent.FromContext(ctx); ok {
				t.Error("the handler has an execution")
			}
			if _, err := idempotent.CommitStep(ctx, "ship", "one", nil); err == nil || !strings.Contains(err.Error(), "shadow mode") {
				t.Errorf("CommitStep returned %v", err)
			}
			if a, b := idempotent.DownstreamKey(ctx), idempotent.DownstreamKey(ctx); a == b {
				t.Error("two downstream keys are equal")
			}
			return idempotent.Step(ctx, "ship", func(context.Context) (string, error) { return "", errDown })
		})
	})
	if err != errDown {
		t.Errorf("got %v, want the error itself", err)
	}
}

// What shadow mode leaves is what a guard that enforces finds: it replays what is
// completed, waits for what is running, and runs what failed or was killed. Nothing waits
// for evidence.
func TestShadow_Enforce(t *testing.T) {
	t.Parallel()
	enforcing := newFixture(t)
	f := enforcing.with(inShadow)
	f.do(gives("one", nil))
	if got, err := enforcing.outcome(gives("two", nil)); got.Value != "one" || !got.Replayed || err != nil {
		t.Errorf("completed: got %+v, %v", got, err)
	}
	enforcing.key = newKey()
	f.key = enforcing.key
	claimed := make(chan bool)
	f.on(driver.OpInsert, func(c *call) { c.do(); close(claimed) })
	f.do(func(context.Context) (string, error) {
		<-claimed
		if _, err := enforcing.do(gives("two", nil)); !errors.As(err, new(*idempotent.InProgressError)) {
			t.Errorf("running: got %v", err)
		}
		return "", errDown
	})
	if got, err := enforcing.do(gives("two", nil)); got != "two" || err != nil {
		t.Errorf("failed: got %q, %v", got, err)
	}
	enforcing.key = newKey()
	f.key = enforcing.key
	f.on(driver.OpInsert, nil)
	f.dies(nil)
	f.clock.Advance(time.Minute)
	if report := enforcing.sweep(); report.Due+report.Pending+report.PendingReleased != 0 {
		t.Errorf("a reconciler found work: %+v", report)
	}
	if got, err := enforcing.do(gives("two", nil)); got != "two" || err != nil {
		t.Errorf("killed: got %q, %v", got, err)
	}
}

// Without an observer the findings are logged. New warns.
func TestShadow_Logs(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	g, err := idempotent.New(memstore.New(), inShadow, func(o *idempotent.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	if err != nil {
		t.Fatal(err)
	}
	if got := log.String(); strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, "shadow mode") {
		t.Errorf("New logged %s", got)
	}
	key := newKey()
	idempotent.Do(t.Context(), g, key, gives("one", nil))
	if got := log.String(); strings.Count(got, "event=shadow_run") != 1 || strings.Contains(got, key.ID) {
		t.Errorf("it logged %s", got)
	}
	if _, err := g.With(func(o *idempotent.Options) { o.Disabled = true }); err == nil || !strings.Contains(err.Error(), "Options.Shadow and Options.Disabled are both set") {
		t.Errorf("With returned %v", err)
	}
}

// ONCE_SHADOW switches without a new build, in both directions.
func TestShadow_Variable(t *testing.T) {
	for value, want := range map[string]string{"": "code", "true": "shadow", "false": "enforcing", "1": `the variable ONCE_SHADOW is "1"; set it to true or false`, "TRUE": "set it to true or false"} {
		t.Setenv("ONCE_SHADOW", value)
		for _, code := range []bool{true, false} {
			g, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Shadow, o.Logger = code, slog.New(slog.DiscardHandler) })
			if err != nil {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q: got %v, want %s", value, err, want)
				}
				continue
			}
			key := newKey()
			idempotent.Do(t.Context(), g, key, gives("one", nil))
			got, _ := idempotent.Do(t.Context(), g, key, gives("two", nil))
			if shadow := got == "two"; want != map[bool]string{true: "shadow", false: "enforcing"}[shadow] && !(want == "code" && shadow == code) {
				t.Errorf("%q, Options.Shadow %t: shadow mode is %t, want %s", value, code, shadow, want)
			}
		}
	}
}

// Requests with one key at the same time: one is a run, and the others are in progress.
func TestShadow_Storm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, events := newGuard(t, inShadow)
		key, ran := newKey(), atomic.Int32{}
		for range 50 {
			go idempotent.Do(t.Context(), g, key, func(context.Context) (string, error) {
				time.Sleep(time.Second)
				return fmt.Sprint(ran.Add(1)), nil
			})
		}
		synctest.Wait()
		time.Sleep(2 * time.Second)
		if n := ran.Load(); n != 50 || events.Count(event.ShadowRun) != 1 || events.Count(event.ShadowInProgress) != 49 {
			t.Errorf("%d ran, with the events %v", n, events.Kinds())
		}
	})
}
