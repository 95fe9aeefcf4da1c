// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
)

// How long calls take, by the clock.
const (
	insertTakes  = 10 * time.Millisecond
	replaceTakes = 30 * time.Millisecond
	handlerTakes = 200 * time.Millisecond
)

// The last event of every request with a key has the durations of its phases.
func TestRequestEnded(t *testing.T) {
	t.Parallel()
	commit := func(ctx context.Context) (string, error) {
		e, _ := idempotent.FromContext(ctx)
		return "ok", e.Commit(ctx, "ok", e.Store().Replace)
	}
	takes := map[driver.Op]time.Duration{driver.OpInsert: insertTakes, driver.OpReplace: replaceTakes}
	first := event.Durations{Claim: insertTakes, Handler: handlerTakes, Settle: replaceTakes}
	for _, c := range []struct {
		name    string
		before  func(context.Context) (string, error) // of an earlier request with the key
		handler func(context.Context) (string, error)
		left    time.Duration
		want    event.Durations
	}{
		{"a first request", nil, func(context.Context) (string, error) { return "ok", nil }, time.Minute, first},
		{"an error", nil, func(context.Context) (string, error) { return "", errors.New("no") }, time.Minute, first},
		{"a panic", nil, func(context.Context) (string, error) { panic("no") }, time.Minute, first},
		{"a Commit", nil, commit, time.Minute, event.Durations{Claim: insertTakes, Handler: handlerTakes + replaceTakes}},
		{"a Commit, then an error", nil, func(ctx context.Context) (string, error) {
			_, _ = commit(ctx)
			return "", errors.New("no")
		}, time.Minute, event.Durations{Claim: insertTakes, Handler: handlerTakes + replaceTakes}},
		{"a Commit, then a panic", nil, func(ctx context.Context) (string, error) {
			_, _ = commit(ctx)
			panic("no")
		}, time.Minute, event.Durations{Claim: insertTakes, Handler: handlerTakes + replaceTakes}},
		{"a takeover", func(context.Context) (string, error) { return "", idempotent.NotExecuted(errors.New("busy")) },
			func(context.Context) (string, error) { return "ok", nil }, time.Minute,
			event.Durations{Claim: insertTakes + replaceTakes, Handler: handlerTakes, Settle: replaceTakes}},
		{"a replay", func(context.Context) (string, error) { return "ok", nil }, nil, time.Minute, event.Durations{Claim: insertTakes}},
		{"a refusal", func(context.Context) (string, error) { return "", errors.New("no") }, nil, time.Minute, event.Durations{Claim: insertTakes}},
		{"no time", nil, nil, 2 * time.Millisecond, event.Durations{Claim: insertTakes + replaceTakes}},
	} {
		clock, events := new(idempotenttest.Clock), new(idempotenttest.Recorder)
		observer := event.ObserverFunc(func(ctx context.Context, e event.Event) {
			if e.Kind == event.Contradicted {
				clock.Advance(time.Hour) // after the handler
			}
			events.Observe(ctx, e)
		})
		slow := idempotenttest.Intercept(memstore.New(), func(ctx context.Context, c *idempotenttest.StoreCall) {
			clock.Advance(takes[c.Op])
			c.Do(ctx)
		})
		g, err := idempotent.New(slow, func(o *idempotent.Options) {
			o.Now, o.Observer, o.Logger, o.RequestID = clock.Now, observer, quiet, func(context.Context) string { return "request-1" }
		})
		if err != nil {
			t.Fatal(err)
		}
		key := newKey()
		do := func(h func(context.Context) (string, error), left time.Duration) {
			defer func() { _ = recover() }()
			_, _ = idempotent.Do(clock.Invocation(t.Context(), left), g, key, func(ctx context.Context) (string, error) {
				clock.Advance(handlerTakes)
				return h(ctx)
			})
		}
		if c.before != nil {
			do(c.before, time.Minute)
		}
		ended, without := events.Count(event.RequestEnded), events.Count(event.NoOutcome)
		do(c.handler, c.left)
		all := events.Events()
		last := all[len(all)-1]
		if last.Kind != event.RequestEnded || events.Count(event.RequestEnded) != ended+1 || last.Durations != c.want ||
			last.Operation != key.Operation || last.KeyHash != key.RecordID().KeyHash() || last.RequestID != "request-1" {
			t.Errorf("%s: the last of %v is %+v, want %s with %+v", c.name, events.Kinds(), last, event.RequestEnded, c.want)
		}
		if got := events.Count(event.NoOutcome) > without; got != slices.Contains([]string{"a refusal", "no time"}, c.name) {
			t.Errorf("%s: counted as without an outcome: %v", c.name, got)
		}
		for _, e := range all {
			if e.Kind != event.RequestEnded && e.Durations != (event.Durations{}) {
				t.Errorf("%s: %s has durations", c.name, e.Kind)
			}
		}
	}
}

// Without an observer, the log says why a store failed, before and after the handler, and
// nothing else.
func TestStoreFailuresAreLogged(t *testing.T) {
	t.Parallel()
	for op, kind := range map[driver.Op]event.Kind{driver.OpInsert: event.StoreError, driver.OpReplace: event.CompletionFailed} {
		for _, observer := range []event.Observer{nil, event.ObserverFunc(func(context.Context, event.Event) {})} {
			var log strings.Builder
			f := newFixture(t, resume("charge"), func(o *idempotent.Options) {
				o.Observer, o.Logger = observer, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			})
			_, _ = f.do(func(ctx context.Context) (string, error) { return "", step("charge", charged)(ctx) })
			if log.String() != "" {
				t.Errorf("nothing failed, and logged is %q", log.String())
			}
			f.key = newKey()
			f.on(op, fail(errDown))
			_, _ = f.do(charged)
			if got := strings.Contains(log.String(), "event="+string(kind)); got != (observer == nil) || observer == nil && !strings.Contains(log.String(), errDown.Error()) {
				t.Errorf("%s fails, observer %t: logged %q", op, observer != nil, log.String())
			}
		}
	}
}

// Without an observer, the log has what a handler returned after its Commit: its caller gets
// the committed result, although what the handler did then may be lost.
func TestErrorsAfterCommitAreLogged(t *testing.T) {
	t.Parallel()
	for _, observer := range []event.Observer{nil, event.ObserverFunc(func(context.Context, event.Event) {})} {
		var log strings.Builder
		f := newFixture(t, func(o *idempotent.Options) { o.Observer, o.Logger = observer, slog.New(slog.NewTextHandler(&log, nil)) })
		got, err := f.do(func(ctx context.Context) (string, error) {
			if err := commit(ctx, "first", f.Replace); err != nil {
				t.Errorf("got error %v", err)
			}
			return "", commit(ctx, "second", f.Replace)
		})
		if got != "first" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		if logged := strings.Contains(log.String(), `event=contradicted`) && strings.Contains(log.String(), "its Commit has stored the outcome"); logged != (observer == nil) {
			t.Errorf("observer %t: logged %q", observer != nil, log.String())
		}
	}
}

// A request that ends without a run and without a replay is counted once, however
// often the store failed. A stored error is an outcome, and a mismatch is the
// client's mistake.
func TestNoOutcome(t *testing.T) {
	t.Parallel()
	works := func(context.Context) (string, error) { return "ok", nil }
	returns := func(err error) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { return "", err }
	}
	for name, c := range map[string]struct {
		before  func(context.Context) (string, error) // an earlier request with the key
		request func(context.Context, *idempotent.Guard, idempotent.Key) error
		down    bool // the store
		want    int
	}{
		"a first request":        {request: asks(works)},
		"a handler that fails":   {request: asks(returns(errors.New("no")))},
		"a replay":               {before: works, request: asks(works)},
		"a replayed Final error": {before: returns(idempotent.Final("declined", "no")), request: asks(works)},
		"a takeover":             {before: returns(idempotent.NotExecuted(errors.New("busy"))), request: asks(works)},
		"a mismatch": {before: works, request: func(ctx context.Context, g *idempotent.Guard, key idempotent.Key) error {
			key.Fingerprint = idempotent.FingerprintBytes([]byte("other"))
			return asks(works)(ctx, g, key)
		}},
		"the store is down":               {request: asks(works), down: true, want: 1},
		"unresolved":                      {before: returns(errors.New("no")), request: asks(works), want: 1},
		"a result of another type stored": {before: works, request: asks(func(context.Context) (int, error) { return 1, nil }), want: 1},
		"in progress": {request: func(ctx context.Context, g *idempotent.Guard, key idempotent.Key) error {
			return asks(func(ctx context.Context) (string, error) {
				return "ok", asks(works)(context.WithoutCancel(t.Context()), g, key)
			})(ctx, g, key)
		}, want: 1},
	} {
		var events idempotenttest.Recorder
		down := false
		store := idempotenttest.Intercept(memstore.New(), func(ctx context.Context, call *idempotenttest.StoreCall) {
			if call.Do(ctx); down {
				call.Err = errLost
			}
		})
		g, err := idempotent.New(store, func(o *idempotent.Options) { o.Observer, o.Logger = &events, quiet })
		if err != nil {
			t.Fatal(err)
		}
		key := newKey()
		if c.before != nil {
			_ = asks(c.before)(t.Context(), g, key)
		}
		if n := events.Count(event.NoOutcome); n != 0 {
			t.Errorf("%s: the earlier request is counted %d times", name, n)
		}
		down = c.down
		if err := c.request(t.Context(), g, key); events.Count(event.NoOutcome) != c.want {
			t.Errorf("%s: counted %d times, want %d (%v)", name, events.Count(event.NoOutcome), c.want, err)
		}
	}
}

// asks returns a request whose handler is h.
func asks[T any](h func(context.Context) (T, error)) func(context.Context, *idempotent.Guard, idempotent.Key) error {
	return func(ctx context.Context, g *idempotent.Guard, key idempotent.Key) error {
		_, err := idempotent.Do(ctx, g, key, h)
		return err
	}
}

// The record stores the trace parent of its current attempt, and the events about
// it contain that, whichever request they report.
func TestTraceParent(t *testing.T) {
	t.Parallel()
	const first, second = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-1af7651916cd43dd8448eb211c80319c-c7ad6b7169203331-00"
	type current struct{}
	s, key := memstore.New(), newKey()
	g, events := newGuardOver(t, s, func(o *idempotent.Options) {
		o.TraceParent = func(ctx context.Context) string { return ctx.Value(current{}).(string) }
	})
	send := func(trace string, err error) {
		_, _ = idempotent.Do(context.WithValue(t.Context(), current{}, trace), g, key, func(context.Context) (int, error) { return 1, err })
	}
	send(first, idempotent.NotExecuted(errors.New("busy")))
	if r := record(t, s, key); r.TraceParent != first {
		t.Errorf("the record has the trace %q, want that of the first request", r.TraceParent)
	}
	send(second, nil)
	send(first, nil) // a replay
	if r := record(t, s, key); r.TraceParent != second {
		t.Errorf("the record has the trace %q, want that of the request that ran", r.TraceParent)
	}
	want := []struct {
		kind  event.Kind
		trace string
	}{{event.Reserved, first}, {event.Retryable, first}, {event.TakenOver, second}, {event.Completed, second}, {event.Replayed, second}}
	for i, e := range events.Events() {
		if e.Kind != want[i].kind || e.TraceParent != want[i].trace {
			t.Errorf("event %d is %s with the trace %q, want %s with %q", i, e.Kind, e.TraceParent, want[i].kind, want[i].trace)
		}
	}
	for _, invalid := range []string{
		"", "no trace", first + "0", first[1:], strings.ToUpper(first), "ff" + first[2:], strings.Replace(first, "c", "\n", 1),
	} {
		key = newKey()
		send(invalid, nil)
		if r := record(t, s, key); r.TraceParent != "" {
			t.Errorf("%q is stored as %q", invalid, r.TraceParent)
		}
	}
}

// Without the option nothing is stored, and an earlier attempt's trace goes with
// that attempt.
func TestTraceParentIsOffByDefault(t *testing.T) {
	t.Parallel()
	s, key := memstore.New(), newKey()
	for i, o := range []func(*idempotent.Options){
		func(o *idempotent.Options) {
			o.TraceParent = func(context.Context) string { return "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" }
		},
		func(*idempotent.Options) {},
	} {
		g, _ := newGuardOver(t, s, o)
		_, _ = idempotent.Do(t.Context(), g, key, func(context.Context) (int, error) { return 1, idempotent.NotExecuted(errors.New("busy")) })
		if r := record(t, s, key); (r.TraceParent == "") != (i == 1) || r.Attempt != i+1 {
			t.Errorf("attempt %d has the trace %q", r.Attempt, r.TraceParent)
		}
	}
}

func TestEventsCarryFacts(t *testing.T) {
	t.Parallel()
	type requestID struct{}
	g, events := newGuard(t, func(o *idempotent.Options) {
		o.Recovery = idempotent.Rerun
		o.RequestID = func(ctx context.Context) string { return ctx.Value(requestID{}).(string) }
	})
	id := strings.Repeat("é", 512) // 1 KB
	s := context.WithValue(t.Context(), requestID{}, id+"é")
	key := newKey()
	if _, err := idempotent.Do(s, g, key, func(context.Context) (int, error) { return 0, idempotent.NotExecuted(errors.New("busy")) }); err == nil {
		t.Fatal("got no error")
	}
	if _, err := idempotent.Do(s, g, key, func(context.Context) (int, error) { return 0, nil }); err != nil {
		t.Fatal(err)
	}
	all := events.Events()
	if got := fmt.Sprint(events.Kinds()); got != "[reserved retryable taken_over completed]" {
		t.Fatalf("got events %s", got)
	}
	for i, e := range all {
		if e.Operation != "charge" || e.KeyHash != key.RecordID().KeyHash() || e.RequestID != id ||
			e.Recovery != idempotent.Rerun || e.Time.IsZero() || e.Attempt != i/2+1 {
			t.Errorf("event %d has missing fields: %+v", i, e)
		}
	}
	if all[1].Reason != driver.ReasonNotExecuted || all[1].Err == nil {
		t.Errorf("the event has no reason: %+v", all[1])
	}
}

// No function of the user ends the process: each of them panics here, in requests and in a
// reconciler, and the log has the name of what panicked and no content.
func TestFunctionsOfTheUserMayPanic(t *testing.T) {
	t.Parallel()
	implementations := map[string]any{
		"Codec": panicsAlways{}, "Seal": panicsAlways{}, "Observer": panicsAlways{},
	}
	panics := func(field reflect.Value, name string) {
		switch {
		case field.Kind() == reflect.Func:
			field.Set(reflect.MakeFunc(field.Type(), func([]reflect.Value) []reflect.Value { panic("secret") }))
		case implementations[name] != nil:
			field.Set(reflect.ValueOf(implementations[name]))
		default:
			t.Errorf("no implementation for %s", name)
		}
	}
	for _, options := range []reflect.Type{reflect.TypeFor[idempotent.Options](), reflect.TypeFor[idempotent.ReconcileOptions]()} {
		for _, field := range reflect.VisibleFields(options) {
			name, kind := field.Name, field.Type.Kind()
			if kind != reflect.Func && kind != reflect.Interface || name == "Now" {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var log bytes.Buffer
				f := newFixture(t, func(o *idempotent.Options) {
					o.Logger = slog.New(slog.NewTextHandler(&log, nil))
					if field := reflect.ValueOf(o).Elem().FieldByName(name); options == reflect.TypeFor[idempotent.Options]() {
						panics(field, name)
					}
				})
				var errs []error
				for _, ends := range []error{nil, idempotent.Final("no", "no"), idempotent.Unknown(errDown)} {
					f.key = newKey()
					for range 2 {
						_, err := f.do(func(context.Context) (string, error) { return "ok", ends })
						errs = append(errs, err)
					}
				}
				resolver := func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
					panic("secret")
				}
				for range 2 { // the second run gives up
					f.clock.Advance(8 * 24 * time.Hour)
					_, err := kit.Reconcile(f.invocation(), f.guard, resolver, func(o *idempotent.ReconcileOptions) {
						if field := reflect.ValueOf(o).Elem().FieldByName(name); options == reflect.TypeFor[idempotent.ReconcileOptions]() {
							panics(field, name)
						}
					})
					errs = append(errs, err)
				}
				for _, e := range f.events.Events() {
					errs = append(errs, e.Err)
				}
				if text := log.String() + errors.Join(errs...).Error(); strings.Contains(text, "secret") || !strings.Contains(text, "panicked") {
					t.Errorf("%s", text)
				}
			})
		}
	}
}

// panicsAlways panics in every method.
type panicsAlways struct{}

func (panicsAlways) Name() string                                         { return "panics" }
func (panicsAlways) Encode(any) ([]byte, error)                           { panic("secret") }
func (panicsAlways) Decode([]byte, any) error                             { panic("secret") }
func (panicsAlways) Seal(context.Context, []byte, []byte) ([]byte, error) { panic("secret") }
func (panicsAlways) Open(context.Context, []byte, []byte) ([]byte, error) { panic("secret") }
func (panicsAlways) Observe(context.Context, event.Event)                 { panic("secret") }
func (panicsAlways) Reconciled(context.Context, idempotent.Report)        { panic("secret") }

// The way of one request through the product: a first request, its replay, and the
// takeover of a run that was killed. make count counts the files that these three enter,
// which a reader of the core meets first, without those that only New and Wrap enter.
func TestWayOfOneRequest(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	clock := func(o *idempotent.Options) { o.Now, o.Recovery = func() time.Time { return now }, idempotent.Rerun }
	payload := idempotent.FingerprintBytes([]byte("4200 EUR"))
	key := idempotent.Key{Operation: "charge", Scope: "acme", ID: "order-1", Fingerprint: payload}
	keyOf := func(context.Context, string) (idempotent.Key, error) { return key, nil }
	var left *driver.Record // as a process leaves it that is killed in its handler
	runs := 0
	handler := func(store driver.Store) func(context.Context, string) (string, error) {
		g, err := idempotent.New(store, clock)
		if err != nil {
			t.Fatal(err)
		}
		return idempotent.Wrap(g, keyOf, func(ctx context.Context, _ string) (string, error) {
			runs++
			left, err = store.Get(ctx, key.RecordID())
			return "ch_1", err
		})
	}
	first, second := memstore.New(), memstore.New()
	charge, afterwards := handler(first), handler(second)
	request := func(what string, h func(context.Context, string) (string, error), wantRuns int) {
		t.Helper()
		if got, err := h(t.Context(), "4200 EUR"); got != "ch_1" || err != nil || runs != wantRuns {
			t.Errorf("%s: got %q, %v after %d runs, want ch_1 after %d", what, got, err, runs, wantRuns)
		}
	}
	t.Run("requests", func(t *testing.T) {
		request("a first request", charge, 1)
		request("its replay", charge, 1)
		if _, err := second.Insert(t.Context(), *left, now); err != nil {
			t.Fatal(err)
		}
		now = left.LeaseEnd
		request("a takeover", afterwards, 2)
		if left.Attempt != 2 {
			t.Errorf("attempt %d, want 2", left.Attempt)
		}
	})
}

// An event about a record reports the recovery with which the record was claimed,
// whatever the reporting code declares.
func TestEventsHaveTheRecordsRecovery(t *testing.T) {
	t.Parallel()
	rerun := newFixture(t, func(o *idempotent.Options) { o.Recovery = idempotent.Rerun })
	reconcile := rerun.with()
	if _, err := rerun.do(func(context.Context) (string, error) {
		_, err := reconcile.do(forbidden(t))
		if !errors.As(err, new(*idempotent.InProgressError)) {
			t.Errorf("the second request: got error %v, want InProgressError", err)
		}
		return "ch_1", nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, e := range reconcile.events.Events() {
		if e.Recovery != idempotent.Rerun {
			t.Errorf("the event %s has the recovery %s, want that of the record: %s", e.Kind, e.Recovery, idempotent.Rerun)
		}
	}
	if kinds := reconcile.kinds(); kinds != "in_progress" {
		t.Errorf("events %s", kinds)
	}
}

// The record stores what its operation declared, but no defaults, and every later writer
// follows that, not its own options. A request of the operation's code declares its options
// again, because the new run is that code's work.
func TestRecordKeepsTheDeclaration(t *testing.T) {
	t.Parallel()
	declare := func(o *idempotent.Options) {
		o.Recovery, o.Steps = idempotent.Resume, []string{"charge", "ship"}
		o.Retention, o.UnresolvedRetention = 30*24*time.Hour, 90*24*time.Hour
		o.Codec, o.ResultVersion = raw{}, "2"
	}
	f := newFixture(t, declare)
	check := func(when string) {
		t.Helper()
		r := f.record()
		if r.Recovery != idempotent.Resume || !reflect.DeepEqual(r.StepNames, []string{"charge", "ship"}) || r.Codec != "raw" || r.ResultVersion != "2" ||
			r.Retention != 30*24*time.Hour || r.UnresolvedRetention != 90*24*time.Hour {
			t.Errorf("%s the record declares %+v", when, r)
		}
	}
	f.dies(func(context.Context) { check("claimed,") })
	f.clock.Advance(time.Hour)
	f.with().reconcile(answer(idempotent.Later(time.Minute)))
	check("swept,")
	if r := f.record(); r.State != driver.StateRetryable || !r.Expires.Equal(r.Since.Add(90*24*time.Hour)) {
		t.Errorf("after the sweep, the record is %s and expires %s after it was settled", r.State, r.Expires.Sub(r.Since))
	}
	_, _ = f.do(noAnswer, func(o *idempotent.Operation) { o.Retention, o.ResultVersion = time.Hour, "3" })
	if r := f.record(); r.Retention != time.Hour || r.ResultVersion != "3" {
		t.Errorf("after the takeover, the record declares %s and version %q", r.Retention, r.ResultVersion)
	}

	f = newFixture(t)
	_, _ = f.do(charged)
	if r := f.record(); r.Retention != 0 || r.UnresolvedRetention != 0 || r.Codec != "" || r.StepNames != nil || !r.Expires.Equal(r.Since.Add(24*time.Hour)) {
		t.Errorf("by default, the record declares %+v", r)
	}
}

// Evidence is retained as long as the operation declared, or the guard that
// settles, whichever is longer.
func TestEvidenceIsKeptAsDeclared(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, row := range []struct{ declared, settling, want time.Duration }{
		{30 * day, 0, 30 * day},
		{0, 30 * day, 30 * day},
		{108 * time.Hour, time.Hour, 108 * time.Hour},
	} {
		for name, evidence := range map[string]func(*fixture) idempotent.Resolution{
			"a result":     func(*fixture) idempotent.Resolution { return idempotent.Resolved("ch_1") },
			"no result":    func(*fixture) idempotent.Resolution { return idempotent.ResolvedWithoutResult() },
			"not executed": (*fixture).notExecuted,
		} {
			f := newFixture(t, func(o *idempotent.Options) { o.Retention = row.declared })
			_, _ = f.do(noAnswer)
			f.clock.Advance(time.Hour)
			f.with(func(o *idempotent.Options) { o.Retention = row.settling }).mustResolve(evidence(f))
			if got := f.record().Expires.Sub(f.clock.Now()); got != row.want {
				t.Errorf("declared %s, settled by %s, %s: retained for %s, want %s", row.declared, row.settling, name, got, row.want)
			}
		}
	}
}
