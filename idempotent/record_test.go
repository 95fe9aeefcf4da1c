// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
)

// A clone is equal, including whether there is a result, and a change to the
// clone does not change the record.
func TestRecordClone(t *testing.T) {
	t.Parallel()
	for _, result := range [][]byte{nil, {}, []byte("ch_1")} {
		r := driver.Record{ID: "charge#key", Result: result, Ref: "orders/1"}
		c := r.Clone()
		if !reflect.DeepEqual(*c, r) {
			t.Errorf("got %+v, want %+v", *c, r)
		}
		if c.Ref = ""; len(c.Result) > 0 {
			c.Result[0] = 'x'
		}
		if string(r.Result) != string(result) || len(result) > 0 && r.Result[0] != 'c' || r.Ref != "orders/1" {
			t.Errorf("a change to the clone changed the record to %+v", r)
		}
	}
}

// An event about a record reports the recovery with which the record was claimed,
// whatever the reporting code declares.
func TestEventsHaveTheRecordsRecovery(t *testing.T) {
	t.Parallel()
	store, key := memstore.New(), newKey()
	rerun, _ := newGuardOver(t, store, func(o *idempotent.Options) { o.Recovery = idempotent.Rerun })
	reconcile, events := newGuardOver(t, store)
	_, err := idempotent.Do(t.Context(), rerun, key, func(ctx context.Context) (string, error) {
		_, err := idempotent.Do(ctx, reconcile, key, forbidden(t))
		if !errors.As(err, new(*idempotent.InProgressError)) {
			t.Errorf("the second request: got error %v, want InProgressError", err)
		}
		return "ch_1", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Events() {
		if e.Recovery != idempotent.Rerun {
			t.Errorf("the event %s has the recovery %s, want that of the record: %s", e.Kind, e.Recovery, idempotent.Rerun)
		}
	}
	if n := events.Count(event.InProgress); n != 1 {
		t.Errorf("%d events %s, want 1", n, event.InProgress)
	}
}

// fixture is one store and one clock, with a guard for each party.
type oldFixture struct {
	*memstore.Store
	clock *idempotenttest.Clock
	key   idempotent.Key
}

func newOldFixture() *oldFixture {
	return &oldFixture{memstore.New(), &idempotenttest.Clock{}, newKey()}
}

func (w *oldFixture) guard(t *testing.T, optFns ...func(*idempotent.Options)) *idempotent.Guard {
	t.Helper()
	g, _ := newGuardOver(t, w.Store, append([]func(*idempotent.Options){func(o *idempotent.Options) { o.Now = w.clock.Now }}, optFns...)...)
	return g
}

func (w *oldFixture) record(t *testing.T) *driver.Record {
	t.Helper()
	return record(t, w.Store, w.key)
}

// do sends a request through g, as an invocation of ten seconds.
func (w *oldFixture) do(t *testing.T, g *idempotent.Guard, h func(context.Context) (string, error)) (idempotent.Outcome[string], error) {
	t.Helper()
	return idempotent.DoOutcome(w.clock.Invocation(t.Context(), 10*time.Second), g, w.key, h)
}

// dies leaves the store as a process leaves it that is killed at the end of
// during.
func (w *oldFixture) dies(t *testing.T, optFn func(*idempotent.Options), during func(ctx context.Context)) {
	t.Helper()
	store := watchOver(w.Store)
	g, _ := newGuardOver(t, store, func(o *idempotent.Options) { o.Now = w.clock.Now }, optFn)
	_, _ = idempotent.Do(w.clock.Invocation(t.Context(), 10*time.Second), g, w.key, func(ctx context.Context) (string, error) {
		during(ctx)
		store.replace = func(context.Context, driver.Record) (*driver.Record, error) { return nil, errDown }
		return "", errDown
	})
}

// The record stores what its operation declared, and every later writer follows
// that, not its own options.
func TestRecordKeepsTheDeclaration(t *testing.T) {
	t.Parallel()
	declare := func(o *idempotent.Options) {
		o.Recovery, o.Steps = idempotent.Resume, []string{"charge", "ship"}
		o.Retention, o.UnresolvedRetention = 30*24*time.Hour, 90*24*time.Hour
		o.Codec, o.ResultVersion = raw{}, "2"
	}
	w := newOldFixture()
	check := func(when string) {
		t.Helper()
		r := w.record(t)
		if r.Recovery != idempotent.Resume || !reflect.DeepEqual(r.StepNames, []string{"charge", "ship"}) || r.Codec != "raw" || r.ResultVersion != "2" ||
			r.Retention != 30*24*time.Hour || r.UnresolvedRetention != 90*24*time.Hour {
			t.Errorf("%s the record declares %+v", when, r)
		}
	}
	w.dies(t, declare, func(context.Context) { check("claimed,") })
	w.clock.Advance(time.Hour)
	if _, err := idempotent.ReconcileDue(t.Context(), w.guard(t), answer(idempotent.Later(time.Minute))); err != nil {
		t.Fatal(err)
	}
	check("swept,")
	if r := w.record(t); r.State != driver.StateRetryable || !r.Expires.Equal(r.Since.Add(90*24*time.Hour)) {
		t.Errorf("after the sweep, the record is %s and expires %s after it was settled", r.State, r.Expires.Sub(r.Since))
	}
	// A request of the operation's code declares its options again, because the new
	// run is that code's work.
	if _, err := w.do(t, w.guard(t, declare, func(o *idempotent.Options) { o.Retention, o.ResultVersion = time.Hour, "3" }), noAnswer); err == nil {
		t.Fatal("got no error")
	}
	if r := w.record(t); r.Retention != time.Hour || r.ResultVersion != "3" {
		t.Errorf("after the takeover, the record declares %s and version %q", r.Retention, r.ResultVersion)
	}
}

// Defaults are not stored in the record.
func TestDefaultsAreNotStored(t *testing.T) {
	t.Parallel()
	w := newOldFixture()
	if _, err := w.do(t, w.guard(t), charged); err != nil {
		t.Fatal(err)
	}
	if r := w.record(t); r.Retention != 0 || r.UnresolvedRetention != 0 || r.Codec != "" || r.StepNames != nil {
		t.Errorf("the record declares %+v", r)
	}
	if r := w.record(t); !r.Expires.Equal(r.Since.Add(24 * time.Hour)) {
		t.Errorf("it expires %s after it was settled", r.Expires.Sub(r.Since))
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
		for name, evidence := range map[string]func(*driver.Record) idempotent.Resolution{
			"a result":     func(*driver.Record) idempotent.Resolution { return idempotent.Resolved("ch_1") },
			"final":        func(*driver.Record) idempotent.Resolution { return idempotent.ResolvedFinal("declined", "") },
			"no result":    func(*driver.Record) idempotent.Resolution { return idempotent.ResolvedWithoutResult() },
			"not executed": func(r *driver.Record) idempotent.Resolution { return idempotent.ProvenNotExecuted(r.Token()) },
		} {
			w := newOldFixture()
			_, _ = w.do(t, w.guard(t, func(o *idempotent.Options) { o.Retention = row.declared }), noAnswer)
			w.clock.Advance(time.Hour)
			g := w.guard(t, func(o *idempotent.Options) { o.Retention = row.settling })
			if err := g.Resolve(t.Context(), w.key.RecordID(), evidence(w.record(t))); err != nil {
				t.Fatal(err)
			}
			if got := w.record(t).Expires.Sub(w.clock.Now()).Round(time.Second); got != row.want {
				t.Errorf("declared %s, settled by %s, %s: retained for %s, want %s", row.declared, row.settling, name, got, row.want)
			}
		}
	}
}

func fns(f ...func(*idempotent.Options)) []func(*idempotent.Options) { return f }

// A sweeper and a takeover follow the record's recovery, whatever the sweeper's
// own guard declares.
func TestSweeperKeepsTheRecordsPromise(t *testing.T) {
	t.Parallel()
	for declared, want := range map[idempotent.Recovery]driver.State{
		idempotent.Reconcile: driver.StateUnknown,
		idempotent.Resume:    driver.StateRetryable,
	} {
		for _, sweeping := range []idempotent.Recovery{idempotent.Reconcile, idempotent.Resume, idempotent.Rerun} {
			w := newOldFixture()
			options := func(r idempotent.Recovery) func(*idempotent.Options) {
				return func(o *idempotent.Options) { o.Recovery, o.Steps = r, []string{"charge"} }
			}
			w.dies(t, options(declared), func(context.Context) {})
			w.clock.Advance(time.Hour)
			if _, err := idempotent.ReconcileDue(t.Context(), w.guard(t, options(sweeping)), answer(idempotent.Later(0))); err != nil {
				t.Fatal(err)
			}
			if r := w.record(t); r.State != want || r.Recovery != declared {
				t.Errorf("declared %s, swept by %s: %s under %s", declared, sweeping, r.State, r.Recovery)
			}
		}
	}
}
