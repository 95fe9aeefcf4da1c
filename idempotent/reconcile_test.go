// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
)

// stranded is a store with records whose owners have died.
type stranded struct {
	*memstore.Store
	clock  *idempotenttest.Clock
	guard  *idempotent.Guard
	events *idempotenttest.Recorder
}

func newStranded(t *testing.T, optFns ...func(*idempotent.Options)) *stranded {
	t.Helper()
	s := &stranded{Store: memstore.New(), clock: &idempotenttest.Clock{}}
	s.guard, s.events = newGuardOver(t, s.Store, append(optFns, func(o *idempotent.Options) { o.Now = s.clock.Now })...)
	return s
}

// leave runs work under a new key and then restores the record as it was at the
// last call of died, as if the process had died there.
func (s *stranded) leave(t *testing.T, work func(ctx context.Context, died func())) idempotent.Key {
	t.Helper()
	key := newKey()
	var left *driver.Record
	_, _ = idempotent.Do(s.clock.Invocation(t.Context(), 10*time.Second), s.guard, key, func(ctx context.Context) (string, error) {
		died := func() { left = record(t, s, key) }
		died()
		work(ctx, died)
		return "", nil
	})
	if met, err := s.Replace(t.Context(), *left, record(t, s, key).Version); met != nil || err != nil {
		t.Fatal(met, err)
	}
	return key
}

// reconcile reconciles in a bubble, in which workers that wait without end fail at once.
func (s *stranded) reconcile(t *testing.T, resolve idempotent.ResolveFunc, optFns ...func(*idempotent.ReconcileOptions)) (report idempotent.Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if report, err = idempotent.ReconcileDue(t.Context(), s.guard, resolve, optFns...); err != nil {
			t.Fatal(err)
		}
	})
	return report
}

// notExecuted stands for evidence that the record's attempt had no effect.
var notExecuted = idempotent.ProvenNotExecuted("of the record in question")

func answer(r idempotent.Resolution) idempotent.ResolveFunc {
	return func(_ context.Context, record idempotent.PendingRecord) (idempotent.Resolution, error) {
		if reflect.DeepEqual(r, notExecuted) {
			return idempotent.ProvenNotExecuted(record.Token), nil
		}
		return r, nil
	}
}

func atOnce(context.Context, func()) {}

// FM10, FM11, FM12: the process died before, at or after the effect. The record
// becomes unknown, and the resolver's answer decides.
func TestCrashBeforeTheEffect(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	key := s.leave(t, atOnce)
	if report := s.reconcile(t, answer(notExecuted)); report.Due != 0 {
		t.Errorf("while the lease lasts: %s", report)
	}
	s.clock.Advance(time.Minute)
	report := s.reconcile(t, answer(notExecuted))
	if got := report.String(); got != "1 due, 1 marked unknown, 1 not executed" {
		t.Errorf("the report: %s", got)
	}
	if v, err := idempotent.Do(t.Context(), s.guard, key, func(context.Context) (string, error) { return "ran", nil }); v != "ran" || err != nil {
		t.Errorf("a retry gets %q, %v; want it to run", v, err)
	}
}

// FM12.
func TestCrashAfterTheEffect(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	provider := map[string]string{} // by downstream key
	key := s.leave(t, func(ctx context.Context, died func()) { provider[idempotent.DownstreamKey(ctx)] = "ch_1" })
	s.clock.Advance(time.Minute)
	if _, err := idempotent.Do(t.Context(), s.guard, key, never[string]); !errors.As(err, new(*idempotent.UnresolvedError)) {
		t.Fatalf("got error %v", err)
	}
	s.clock.Advance(time.Minute)
	report := s.reconcile(t, func(_ context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
		if id, found := provider[r.ID.DownstreamKey()]; found {
			return idempotent.Resolved(id), nil
		}
		return idempotent.ProvenNotExecuted(r.Token), nil
	})
	if got := report.String(); got != "1 due, 1 completed" {
		t.Errorf("the report: %s", got)
	}
	if v, err := idempotent.Do(t.Context(), s.guard, key, never[string]); v != "ch_1" || err != nil {
		t.Errorf("a retry gets %q, %v", v, err)
	}
}

// FM28: under Resume, the end of the lease makes the record retryable. A finished
// step is preserved, and a provider that honors the key books once.
func TestResumeAfterACrash(t *testing.T) {
	t.Parallel()
	s := newStranded(t, resume("pay", "ship"))
	booked := map[string]int{}
	handler := func(ctx context.Context, died func()) {
		_, _ = idempotent.Step(ctx, "pay", func(ctx context.Context) (string, error) {
			booked[idempotent.DownstreamKey(ctx)]++
			return "paid", nil
		})
		died()
		_, _ = idempotent.Step(ctx, "ship", func(ctx context.Context) (string, error) {
			booked[idempotent.DownstreamKey(ctx)]++
			return "shipped", nil
		})
	}
	key := s.leave(t, handler)
	s.clock.Advance(time.Minute)
	report := s.reconcile(t, answer(idempotent.Later(0)))
	if got := report.String(); got != "1 due, 1 released, 1 postponed" {
		t.Errorf("the report: %s", got)
	}
	if r := record(t, s, key); r.State != driver.StateRetryable || len(r.Steps) != 1 || !r.Expires.IsZero() {
		t.Errorf("the record is %s with %d steps, expires %s", r.State, len(r.Steps), r.Expires)
	}
	if _, err := idempotent.Do(t.Context(), s.guard, key, func(ctx context.Context) (string, error) {
		handler(ctx, func() {})
		return "", nil
	}); err != nil {
		t.Fatal(err)
	}
	id := key.RecordID()
	if booked[id.StepKey("pay")] != 1 || booked[id.StepKey("ship")] != 2 || len(booked) != 2 {
		t.Errorf("the provider was called %v", booked)
	}
}

// FM44, FM45: the list is a hint. A record that has changed meanwhile is not
// touched.
func TestStaleList(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	key := s.leave(t, atOnce)
	s.clock.Advance(time.Minute)
	stale := record(t, s, key)
	if err := s.guard.Resolve(t.Context(), key.RecordID(), idempotent.Resolved("by a webhook")); err != nil {
		t.Fatal(err)
	}
	before := record(t, s, key)
	g, _ := newGuardOver(t, listing{s.Store, []driver.Record{*stale}}, func(o *idempotent.Options) { o.Now = s.clock.Now })
	report, err := idempotent.ReconcileDue(t.Context(), g, answer(notExecuted))
	if got := report.String(); err != nil || got != "1 due, 1 marked unknown, 1 stale" && got != "1 due, 1 stale" {
		t.Errorf("the report: %s, %v", got, err)
	}
	if after := record(t, s, key); after.Version != before.Version {
		t.Errorf("the record was changed: %s", after.State)
	}
}

// listing lists the records that it is given.
type listing struct {
	driver.Store
	records []driver.Record
}

func (l listing) Due(context.Context) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		for _, r := range l.records {
			if !yield(r.Listed(), nil) {
				return
			}
		}
	}
}
func (l listing) Exhausted(ctx context.Context) iter.Seq2[driver.Listed, error] { return l.Due(ctx) }

// FM46: of two reconcilers that disagree, the first wins.
func TestTwoReconcilers(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	key := s.leave(t, atOnce)
	s.clock.Advance(time.Minute)
	s.reconcile(t, func(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
		// The other reconciler, meanwhile.
		if _, err := idempotent.ReconcileDue(t.Context(), s.guard, answer(idempotent.Later(time.Millisecond))); err != nil {
			t.Error(err)
		}
		if err := s.guard.Resolve(ctx, r.ID, idempotent.Resolved("first")); err != nil {
			t.Error(err)
		}
		return idempotent.Resolved("second"), nil
	})
	if v, err := idempotent.Do(t.Context(), s.guard, key, never[string]); v != "first" || err != nil {
		t.Errorf("a retry gets %q, %v", v, err)
	}
	if s.events.Count(event.Contradicted) != 1 {
		t.Errorf("events %s", s.events.Kinds())
	}
}

// F41, G02: a resolver without an answer is called less and less often. When the
// record is too old, OnExhausted gets it, and it is no longer listed as due.
func TestExhausted(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	key := s.leave(t, atOnce)
	s.clock.Advance(time.Minute)
	var handed []idempotent.RecordID
	refuse := errDown
	options := func(o *idempotent.ReconcileOptions) {
		o.GiveUpAfter, o.Backoff, o.MaxBackoff = 9*time.Minute, time.Minute, 3*time.Minute
		o.OnExhausted = func(_ context.Context, r idempotent.PendingRecord) error {
			handed = append(handed, r.ID)
			if errors.Is(refuse, errPanic) {
				panic("no such queue")
			}
			return refuse
		}
	}
	asked := 0
	resolve := func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
		asked++
		return idempotent.Later(0), nil
	}
	for i, pause := range []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute, 3 * time.Minute, 3 * time.Minute, 3 * time.Minute} {
		if i == 5 {
			refuse = errPanic
		}
		report := s.reconcile(t, resolve, options)
		if want := max(0, i-3); asked != i+1 || len(handed) != want || report.Failed != min(1, want) || report.Postponed != 1 {
			t.Fatalf("called %d times, and OnExhausted %d times, want %d and %d: %s", asked, len(handed), i+1, want, report)
		}
		r := record(t, s, key)
		if left := r.Due.Sub(s.clock.Now()); left > pause || left < pause-10*time.Second || r.Exhausted {
			t.Errorf("after call %d it is due in %s, want %s; exhausted %t", i+1, left, pause, r.Exhausted)
		}
		s.clock.Advance(pause)
	}
	if n := s.events.Count(event.ReconcileFailed); n != 2 {
		t.Errorf("%d events of a failed OnExhausted, want 2", n)
	}
	refuse = nil
	if report := s.reconcile(t, resolve, options); report.Exhausted != 1 || handed[len(handed)-1] != key.RecordID() || report.Pending != 0 {
		t.Errorf("the report: %s, OnExhausted got %v", report, handed)
	}
	s.clock.Advance(time.Hour)
	if report := s.reconcile(t, resolve, options); report.Due != 0 {
		t.Errorf("an exhausted record is still due: %s", report)
	}
	exhausted := 0
	for e, err := range s.Exhausted(t.Context()) {
		if err != nil || e.ID != key.RecordID() {
			t.Error(e, err)
		}
		exhausted++
	}
	if exhausted != 1 {
		t.Errorf("%d records are listed as exhausted", exhausted)
	}
	// It stays unknown for clients, and evidence still settles it.
	if _, err := idempotent.Do(t.Context(), s.guard, key, never[string]); !errors.As(err, new(*idempotent.UnresolvedError)) {
		t.Errorf("a retry gets error %v", err)
	}
	if err := s.guard.Resolve(t.Context(), key.RecordID(), idempotent.Resolved("found")); err != nil {
		t.Fatal(err)
	}
	if r := record(t, s, key); r.Exhausted || !r.Due.IsZero() || r.ReconcileAttempts != 0 {
		t.Errorf("the settled record is still listed: %+v", r)
	}
}

// errPanic makes a function of a test panic.
var errPanic = errors.New("panic")

// A failure with one record does not stop the others.
func TestReconcileFailures(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	ok := s.leave(t, atOnce)
	bad := map[idempotent.RecordID]func() (idempotent.Resolution, error){
		s.leave(t, atOnce).RecordID(): func() (idempotent.Resolution, error) { return idempotent.Resolution{}, errDown },
		s.leave(t, atOnce).RecordID(): func() (idempotent.Resolution, error) { panic("no such customer") },
		s.leave(t, atOnce).RecordID(): func() (idempotent.Resolution, error) { return idempotent.Resolved(make(chan int)), nil },
	}
	s.clock.Advance(time.Minute)
	report := s.reconcile(t, func(_ context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
		if fail := bad[r.ID]; fail != nil {
			return fail()
		}
		return idempotent.Resolved("found"), nil
	})
	if got := report.String(); got != "4 due, 4 marked unknown, 1 completed, 3 postponed, 3 failed" {
		t.Errorf("the report: %s", got)
	}
	if report.Oldest.IsZero() || report.Pending != 3 || !report.Listed {
		t.Errorf("%d wait, the oldest since %s, want 3; listed %t", report.Pending, report.Oldest, report.Listed)
	}
	if v, err := idempotent.Do(t.Context(), s.guard, ok, never[string]); v != "found" || err != nil {
		t.Errorf("a retry gets %q, %v", v, err)
	}
	if n := s.events.Count(event.ReconcileFailed); n != 3 {
		t.Errorf("%d events of failures, want 3", n)
	}
	for _, e := range s.events.Events() {
		if e.Err != nil && strings.Contains(e.Err.Error(), "no such customer") {
			t.Errorf("an event contains the value of a resolver's panic: %v", e.Err)
		}
	}
}

// A PendingRecord that a test of a resolver builds has no stored record.
func TestPendingRecordWithoutRecord(t *testing.T) {
	t.Parallel()
	p := idempotent.PendingRecord{ID: newKey().RecordID()}
	if stored := p.Stored(); !reflect.DeepEqual(stored, driver.Record{}) {
		t.Errorf("got %+v", stored)
	}
	if finished, err := p.Step(t.Context(), "a", new(string)); finished || err != nil {
		t.Errorf("got a step: %t, %v", finished, err)
	}
}

func TestReconcileDryRun(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	s.unknowns(t, 1)
	key := s.leave(t, atOnce)
	s.clock.Advance(time.Minute)
	before := record(t, s, key)
	events := len(s.events.Events())
	dry := func(o *idempotent.ReconcileOptions) { o.DryRun, o.GiveUpAfter = true, time.Minute }
	for want, resolution := range map[string]idempotent.Resolution{
		"2 due, 1 marked unknown, 2 completed":              idempotent.Resolved("x"),
		"2 due, 1 marked unknown, 1 postponed, 1 exhausted": idempotent.Later(time.Hour),
		"2 due, 1 marked unknown, 2 not executed":           notExecuted,
	} {
		if report := s.reconcile(t, answer(resolution), dry); report.String() != want {
			t.Errorf("the report: %s, want %s", report, want)
		}
	}
	if after := record(t, s, key); after.Version != before.Version || len(s.events.Events()) != events {
		t.Errorf("a dry run wrote: %s, events %s", after.State, s.events.Kinds())
	}
}

func TestReconcileOptions(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	other := s.leave(t, atOnce)
	s.clock.Advance(time.Minute)
	t.Run("operations", func(t *testing.T) {
		if report := s.reconcile(t, answer(idempotent.Later(0)), func(o *idempotent.ReconcileOptions) { o.Operations = []string{"refund"} }); report.Due != 0 {
			t.Errorf("the report: %s", report)
		}
		_ = other
	})
	for name, f := range map[string]func(*idempotent.ReconcileOptions){
		"GiveUpAfter": func(o *idempotent.ReconcileOptions) { o.GiveUpAfter = -1 },
		"Concurrency": func(o *idempotent.ReconcileOptions) { o.Concurrency = -1 },
		"Backoff":     func(o *idempotent.ReconcileOptions) { o.Backoff = 2 * time.Hour },
		"Timeout":     func(o *idempotent.ReconcileOptions) { o.Timeout = -1 },
		"ReleasedFor": func(o *idempotent.ReconcileOptions) { o.ReleasedFor = -1 },
	} {
		if _, err := idempotent.ReconcileDue(t.Context(), s.guard, answer(idempotent.Later(0)), f); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got error %v", name, err)
		}
	}
	if _, err := idempotent.ReconcileDue(t.Context(), s.guard, nil); err == nil {
		t.Error("no resolver: no error")
	}
	plain, _ := newGuardOver(t, struct{ driver.Store }{s.Store})
	if _, err := idempotent.ReconcileDue(t.Context(), plain, answer(idempotent.Later(0))); err == nil || !strings.Contains(err.Error(), "driver.DueLister") {
		t.Errorf("a store without lists: got error %v", err)
	}
	if err := s.guard.Resolve(t.Context(), other.RecordID(), idempotent.Later(0)); err == nil {
		t.Error("Resolve accepted Later as evidence")
	}
}

// F41: the handler calls the resolver of the record's operation. A record without
// a resolver is not lost: the end of its lease is processed, it is counted, and one
// line is logged.
func TestReconciler(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	s := newStranded(t, func(o *idempotent.Options) { o.Logger = slog.New(slog.NewTextHandler(&logged, nil)) })
	key := s.leave(t, atOnce)
	s.clock.Advance(time.Minute)
	refunds := idempotent.Reconciler(s.guard, map[string]idempotent.ResolveFunc{"refund": answer(idempotent.Resolved("x"))})
	ended := record(t, s, key).LeaseEnd
	for i, want := range []string{"1 due, 1 marked unknown", "0 due", "0 due"} {
		report, err := refunds(t.Context())
		waiting := map[string]idempotent.Waiting{"charge": {Pending: 1, Oldest: ended, NoResolver: true}}
		if err != nil || report.String() != want || !reflect.DeepEqual(report.Operations, waiting) || report.Pending != 1 {
			t.Errorf("run %d: %s, %v; %+v", i, report, err, report.Operations)
		}
		s.clock.Advance(time.Hour)
	}
	if text := logged.String(); strings.Count(text, "no resolver") != 1 || !strings.Contains(text, "operation=charge records=1") {
		t.Errorf("logged %s", text)
	}
	report, err := idempotent.Reconciler(s.guard, map[string]idempotent.ResolveFunc{"charge": answer(idempotent.Resolved("x"))})(t.Context())
	if err != nil || report.String() != "1 due, 1 completed" || report.Operations != nil || report.Pending != 0 {
		t.Errorf("the report: %s, %v; %+v", report, err, report.Operations)
	}
	if v, err := idempotent.Do(t.Context(), s.guard, key, never[string]); v != "x" || err != nil {
		t.Errorf("a retry gets %q, %v", v, err)
	}
	for name, make := range map[string]func(){
		"no function": func() { idempotent.Reconciler(s.guard, map[string]idempotent.ResolveFunc{"charge": nil}) },
		"no guard":    func() { idempotent.Reconciler(nil, nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			make()
		}()
	}
}

// F40, F82: a sweep writes what follows from ended leases and calls no resolver,
// however often it runs.
func TestReconcileSweepOnly(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	key := s.leave(t, atOnce)
	s.clock.Advance(time.Minute)
	sweep := func(o *idempotent.ReconcileOptions) { o.SweepOnly, o.GiveUpAfter = true, time.Minute }
	dry := func(o *idempotent.ReconcileOptions) { o.DryRun = true }
	ended := record(t, s, key).LeaseEnd
	for _, want := range []struct {
		report string
		optFns []func(*idempotent.ReconcileOptions)
	}{
		{"1 due, 1 marked unknown", []func(*idempotent.ReconcileOptions){sweep, dry}},
		{"1 due, 1 marked unknown", []func(*idempotent.ReconcileOptions){sweep}},
		{"0 due", []func(*idempotent.ReconcileOptions){sweep}},
	} {
		report := s.reconcile(t, nil, want.optFns...)
		if report.String() != want.report || !report.Oldest.Equal(ended) || report.Operations["charge"].NoResolver {
			t.Errorf("the report: %s, oldest %s; want %s, %s", report, report.Oldest, want.report, ended)
		}
		if !strings.Contains(want.report, "unknown") || len(want.optFns) > 1 {
			continue
		}
		s.clock.Advance(time.Hour)
	}
	if n := s.events.Count(event.MarkedUnknown); n != 1 {
		t.Errorf("%d events of a record that became unknown, want 1", n)
	}
	r := record(t, s, key)
	if r.State != driver.StateUnknown || r.ReconcileAttempts != 0 || r.Exhausted {
		t.Errorf("the record is %s after %d attempts", r.State, r.ReconcileAttempts)
	}
}
