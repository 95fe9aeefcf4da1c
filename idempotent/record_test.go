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
)

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
