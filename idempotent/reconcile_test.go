// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/outage"
)

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

func answersError(err error) idempotent.ResolveFunc {
	return func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
		return idempotent.Resolution{}, err
	}
}

// from is a hook: the calls before the n-th are made, and later ones meet that hook.
func from(n int, hook func(*call)) func(*call) {
	return func(c *call) {
		if c.n < n {
			c.do()
			return
		}
		hook(c)
	}
}

// yields is a list of given records and errors.
type yields struct {
	driver.Store
	records []driver.Record
	errs    []error
}

func (y yields) Due(context.Context, time.Time) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		for i, r := range y.records {
			if !yield(r.Listed(), y.errs[i]) {
				return
			}
		}
	}
}
func (y yields) Exhausted(ctx context.Context) iter.Seq2[driver.Listed, error] {
	return y.Due(ctx, time.Time{})
}

// stepped leaves a record with a finished step, whose process was killed after it.
func (f *fixture) stepped() {
	f.t.Helper()
	f.dies(func(ctx context.Context) {
		if err := step("a", value("x"))(ctx); err != nil {
			f.t.Error(err)
		}
	})
}

// F41, FM45: what a run writes about a record, and what becomes of it if another party was
// faster or the store fails: the report, what still waits, and the events.
func TestReconcileWrites(t *testing.T) {
	t.Parallel()
	var (
		gone     = fail(idempotent.ErrNoRecord)
		down     = fail(errDown)
		another  = after(func(*driver.Record) {})
		settled  = after(byWebhook)
		running  = after(func(r *driver.Record) { r.Owner, r.State = driver.Owner{7}, driver.StateInProgress })
		tooLarge = func(c *call) {
			if c.StoreCall.Record.State == driver.StateCompleted {
				c.Err = driver.ErrTooLarge
				return
			}
			c.do()
		}
		x, later = idempotent.Resolved("x"), idempotent.Later(time.Hour)
	)
	for name, c := range map[string]struct {
		swept  bool // the record is already unknown
		write  int  // from which one on the hook answers; 1: the sweep, or the claim
		hook   func(*call)
		answer idempotent.Resolution
		want   string
		waits  int
		events string
	}{
		"the sweep":                    {false, 0, nil, x, "1 due, 1 marked unknown, 1 completed", 0, "marked_unknown resolved"},
		"the sweep: gone":              {false, 1, gone, x, "1 due, 1 stale", 0, ""},
		"the sweep: another write":     {false, 1, another, x, "1 due, 1 stale", 1, ""},
		"the sweep: the store is down": {false, 1, down, x, "1 due, 1 failed", 1, "store_error"},
		"the claim: gone":              {true, 1, gone, x, "1 due, 1 stale", 0, ""},
		"the claim: another write":     {true, 1, another, x, "1 due, 1 stale", 1, ""},
		"the claim: the store is down": {true, 1, down, x, "1 due, 1 failed", 1, "store_error"},
		"an answer":                    {true, 0, nil, x, "1 due, 1 completed", 0, "resolved"},
		"an answer: gone":              {true, 2, gone, x, "1 due, 1 stale", 0, ""},
		"an answer: settled":           {true, 2, settled, x, "1 due, 1 stale", 0, "contradicted"},
		"an answer: running":           {true, 2, running, notExecuted, "1 due, 1 stale", 0, ""},
		"an answer: too large":         {true, 2, tooLarge, x, "1 due, 1 postponed, 1 failed", 1, "reconcile_failed reconcile_scheduled"},
		"an answer: the store is down": {true, 2, down, x, "1 due, 1 failed", 1, "store_error"},
		"not executed":                 {true, 0, nil, notExecuted, "1 due, 1 not executed", 0, "resolved"},
		"not executed: store is down":  {true, 2, down, notExecuted, "1 due, 1 failed", 1, "store_error"},
		"of no attempt":                {true, 0, nil, idempotent.ProvenNotExecuted("1.x"), "1 due, 1 postponed, 1 failed", 1, "reconcile_failed reconcile_scheduled"},
		"later":                        {true, 0, nil, later, "1 due, 1 postponed", 1, "reconcile_scheduled"},
		"later: gone":                  {true, 2, gone, later, "1 due, 1 stale", 0, ""},
		"later: another write":         {true, 2, another, later, "1 due, 1 stale", 1, ""},
		"later: the store is down":     {true, 2, down, later, "1 due, 1 failed", 1, "store_error"},
		"given up: another write":      {true, 2, another, later, "1 due, 1 stale", 1, ""},
	} {
		f := newFixture(t)
		f.dies(nil)
		ended := f.record().LeaseEnd
		f.clock.Advance(time.Minute)
		if c.swept {
			f.sweep()
			f.clock.Advance(time.Hour)
		}
		f.kinds()
		if c.hook != nil {
			f.on(driver.OpReplace, from(c.write, c.hook))
		}
		report := f.reconcile(answer(c.answer), func(o *idempotent.ReconcileOptions) {
			if strings.HasPrefix(name, "given up") {
				o.GiveUpAfter = time.Minute
			}
		})
		if report.String() != c.want || report.Pending != c.waits || !report.Listed || c.waits > 0 && !report.Oldest.Equal(ended) {
			t.Errorf("%s: %s, %d pending since %s; want %s, %d", name, report, report.Pending, report.Oldest, c.want, c.waits)
		}
		if kinds := f.kinds(); kinds != c.events {
			t.Errorf("%s: events %s, want %s", name, kinds, c.events)
		}
	}
}

// If another attempt began while the resolver was asked, its evidence counts as
// stale, whether that attempt still runs or has ended.
func TestReconcileWhileAnotherAttemptBegins(t *testing.T) {
	t.Parallel()
	for state, evidence := range map[driver.State]func(idempotent.PendingRecord) idempotent.Resolution{
		driver.StateInProgress: func(idempotent.PendingRecord) idempotent.Resolution { return idempotent.Resolved("x") },
		driver.StateUnknown:    func(r idempotent.PendingRecord) idempotent.Resolution { return idempotent.ProvenNotExecuted(r.Token) },
	} {
		f := newFixture(t)
		f.unknowns(1)
		report := f.reconcile(func(_ context.Context, asked idempotent.PendingRecord) (idempotent.Resolution, error) {
			f.change(func(r *driver.Record) {
				r.Owner, r.Attempt, r.State, r.LeaseEnd = driver.Owner{7}, 2, state, f.clock.Now().Add(time.Minute)
			})
			return evidence(asked), nil
		})
		if got := report.String(); got != "1 due, 1 stale" {
			t.Errorf("%s: %s", state, got)
		}
	}
}

// While a run may still be at work, evidence that it did nothing counts as stale: it is
// not postponed until the end of the lease.
func TestReconcileDuringTheLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.unknowns(1)
	f.change(func(r *driver.Record) { r.LeaseEnd = f.clock.Now().Add(time.Hour) })
	report := f.reconcile(func(_ context.Context, asked idempotent.PendingRecord) (idempotent.Resolution, error) {
		return idempotent.ProvenNotExecuted(asked.Token), nil
	})
	if got := report.String(); got != "1 due, 1 stale" {
		t.Error(got)
	}
}

// An error about one record is counted and reported, and the record is skipped;
// an error of the list ends the run.
func TestReconcileListErrors(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	keys := f.unknowns(2)
	unreadable := driver.Record{ID: newKey().RecordID()}
	f = f.over(yields{f.Store, []driver.Record{*record(t, f, keys[0]), unreadable, {}, *record(t, f, keys[1])}, []error{nil, errDown, errLost, nil}})
	report, err := kit.Reconcile(t.Context(), f.guard, answer(idempotent.Resolved("x")))
	if failed := (*idempotent.StoreError)(nil); !errors.As(err, &failed) || !errors.Is(err, errLost) ||
		failed.Op != driver.OpListDue || failed.RecordID != "" || report.Listed {
		t.Errorf("got error %v; listed %t", err, report.Listed)
	}
	if got := report.String(); got != "2 due, 1 completed, 1 failed" || record(t, f, keys[1]).State != driver.StateUnknown {
		t.Errorf("the report: %s; the record behind the error is %s", got, record(t, f, keys[1]).State)
	}
	var about []string
	for _, e := range f.events.Events() {
		if e.Kind == event.StoreError {
			about = append(about, e.KeyHash)
		}
	}
	if fmt.Sprint(about) != fmt.Sprint([]string{unreadable.ID.KeyHash(), ""}) {
		t.Errorf("events of failures about %q, want the record that cannot be read, and the list", about)
	}
	if _, err := idempotent.Reconciler(f.guard, nil)(t.Context()); !errors.Is(err, errLost) {
		t.Errorf("a Reconciler returned %v", err)
	}
}

// Evidence about a step is counted as such, and the record still waits: released
// under Resume, unknown under Reconcile. A settled record does not.
func TestReconcileStepEvidence(t *testing.T) {
	t.Parallel()
	x, y := idempotent.ResolvedStep("a", "x"), idempotent.CorrectedStep("a", "y")
	for name, c := range map[string]struct {
		recovery idempotent.Recovery
		evidence []idempotent.Resolution
		reports  []string
	}{
		"released": {idempotent.Resume, []idempotent.Resolution{x, y}, []string{"1 due, 1 released, 1 with a step recorded", "1 due, 1 with a step recorded"}},
		"unknown":  {idempotent.Reconcile, []idempotent.Resolution{x, x}, []string{"1 due, 1 marked unknown, 1 with a step recorded", "1 due, 1 postponed"}},
		"settled":  {idempotent.Reconcile, []idempotent.Resolution{idempotent.Resolved("x")}, []string{"1 due, 1 marked unknown, 1 completed"}},
	} {
		f := newFixture(t, func(o *idempotent.Options) { o.Recovery, o.Steps = c.recovery, []string{"a"} })
		f.dies(nil)
		want := map[string]time.Time{name: f.record().LeaseEnd}
		for i, evidence := range c.evidence {
			f.clock.Advance(2 * time.Hour)
			report := f.reconcile(answer(evidence))
			if got := report.String(); got != c.reports[i] || !report.Oldest.Equal(want["unknown"]) || !report.OldestReleased.Equal(want["released"]) {
				t.Errorf("%s, run %d: %s; oldest %s, oldest released %s", name, i, got, report.Oldest, report.OldestReleased)
			}
		}
	}
}

// A record that was released under Resume stays due, because its run may have
// died inside its first step. Evidence that nothing happened ends that, unless a
// finished step has to be continued. The resolver gets a copy of the record, and is not
// called if the record does not wait.
func TestReconcileReleased(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		leave   func(*fixture)
		reports []string
	}{
		"a step":    {func(f *fixture) { f.stepped() }, []string{"1 due, 1 released, 1 not executed", "1 due, 1 postponed"}},
		"no step":   {func(f *fixture) { f.dies(nil) }, []string{"1 due, 1 released, 1 not executed", "0 due"}},
		"no effect": {func(f *fixture) { f.dies(nil); f.change(func(r *driver.Record) { r.OpenSince = time.Time{} }) }, []string{"1 due, 1 released", "0 due"}},
	} {
		f := newFixture(t, resume("a"))
		c.leave(f)
		f = f.with(resume("a"))
		for i, want := range c.reports {
			f.clock.Advance(time.Hour)
			report := f.reconcile(func(_ context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
				stored := r.Stored()
				if v, found := stored.Step("a"); found != (name == "a step") || v.Finished != found {
					t.Errorf("%s: the resolver sees the steps %+v", name, stored.Steps)
				} else if found {
					stored.Steps[0].Result[0] ^= 0xff
				}
				return idempotent.ProvenNotExecuted(r.Token), nil
			})
			if got := report.String(); got != want || report.PendingReleased > 0 != (name == "a step") {
				t.Errorf("%s, run %d: %s, want %s; %d wait", name, i, got, want, report.PendingReleased)
			}
			if r, waits := f.record(), name == "a step"; r.State != driver.StateRetryable ||
				!r.OpenSince.IsZero() || r.Due.IsZero() == waits || r.Expires.IsZero() != waits {
				t.Errorf("%s: the record is %s, open since %s, due %s, expires %s", name, r.State, r.OpenSince, r.Due, r.Expires)
			}
		}
		if n := f.events.Count(event.Retryable); n != 1 {
			t.Errorf("%s: %d events of a release", name, n)
		}
		if name != "a step" {
			continue
		}
		if v, err := f.do(func(ctx context.Context) (string, error) { return idempotent.Step(ctx, "a", never[string]) }); v != "x" || err != nil {
			t.Errorf("the next run: %q, %v", v, err)
		}
	}
}

// A released record waits for a request, not for an operator: reconciliation
// gives it up by its age, without OnExhausted, and does not count it as unknown.
// A request can still continue it.
func TestReleasedIsGivenUpByAge(t *testing.T) {
	t.Parallel()
	f := newFixture(t, resume("a"))
	f.stepped()
	ended := f.record().LeaseEnd
	options := func(o *idempotent.ReconcileOptions) {
		o.GiveUpAfter, o.ReleasedFor = time.Minute, 8*time.Hour
		o.OnExhausted = func(context.Context, idempotent.PendingRecord) error {
			t.Error("OnExhausted was called for a released record")
			return nil
		}
	}
	for range 8 { // from the first run, which releases it
		f.clock.Advance(time.Hour + time.Minute)
		report := f.reconcile(answer(idempotent.Later(time.Hour)), options)
		if report.Postponed != 1 || !report.Oldest.IsZero() || !report.OldestReleased.Equal(ended) || report.PendingReleased != 1 {
			t.Fatalf("the report: %s; oldest %s, oldest released %s; want it postponed and waiting since %s", report, report.Oldest, report.OldestReleased, ended)
		}
	}
	f.clock.Advance(time.Hour)
	f.kinds()
	report := f.reconcile(answer(idempotent.Later(time.Hour)), options)
	if r, kinds := f.record(), f.kinds(); report.Exhausted != 1 || !r.Exhausted || r.State != driver.StateRetryable || kinds != "released_given_up" {
		t.Errorf("after 8 hours: %s; the record is %s, exhausted %v; events %s", report, r.State, r.Exhausted, kinds)
	}
	if v, err := f.do(func(ctx context.Context) (string, error) { return idempotent.Step(ctx, "a", never[string]) }); v != "x" || err != nil {
		t.Errorf("a request gets %q, %v; want it to continue", v, err)
	}
}

// The error of a resolver is a failure, except for those with which a predecessor
// answers too: the work is running elsewhere, so the record is not given up; or its
// outcome can no longer be found out, so a released record becomes unknown.
func TestWhatAnErrorOfTheResolverMeans(t *testing.T) {
	t.Parallel()
	running := fmt.Errorf("wrapped: %w", &idempotent.InProgressError{RetryAfter: 3 * time.Hour})
	gone := fmt.Errorf("wrapped: %w", idempotent.Unknown(errDown))
	released, unknown := resume("a"), func(*idempotent.Options) {}
	const settled = "released, gone, settled meanwhile"
	for name, c := range map[string]struct {
		options func(*idempotent.Options)
		err     error
		want    string
		state   driver.State
		due     time.Duration // after the question; 0: it is given up, -1: it is done
	}{
		"released, running": {released, running, "1 due, 1 postponed", driver.StateRetryable, 3 * time.Hour},
		"unknown, running":  {unknown, running, "1 due, 1 postponed", driver.StateUnknown, 3 * time.Hour},
		"released, gone":    {released, gone, "1 due, 1 marked unknown", driver.StateUnknown, time.Minute},
		"unknown, gone":     {unknown, gone, "1 due, 1 exhausted", driver.StateUnknown, 0},
		"released, failed":  {released, errDown, "1 due, 1 exhausted, 1 failed", driver.StateRetryable, 0},
		settled:             {released, gone, "1 due, 1 stale", driver.StateCompleted, -1},
	} {
		f := newFixture(t, c.options)
		f.stepped()
		f.clock.Advance(time.Hour)
		f.reconcile(answer(idempotent.Later(time.Hour)))
		f.clock.Advance(time.Hour)
		f.kinds()
		report := f.reconcile(func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
			if name == settled {
				f.mustResolve(idempotent.Resolved("x"))
			}
			return idempotent.Resolution{}, c.err
		}, func(o *idempotent.ReconcileOptions) { o.GiveUpAfter, o.ReleasedFor = ms, ms })
		if marked := f.events.Count(event.MarkedUnknown) == 1; marked != (report.MarkedUnknown == 1) || marked && report.Oldest.IsZero() {
			t.Errorf("%s: an event %t, and the oldest record that waits is of %s", name, marked, report.Oldest)
		}
		r := f.record()
		if due := r.Due.Sub(f.clock.Now()); report.String() != c.want || r.State != c.state || r.Exhausted != (c.due == 0) || c.due > 0 && due != c.due {
			t.Errorf("%s: %s; the record is %s, exhausted %t, due in %s", name, report, r.State, r.Exhausted, due)
		}
	}
}

// F41, G02: a resolver without an answer is called less and less often, and sees how often
// it was. When the record is too old, OnExhausted gets a copy of it, until that succeeds.
// The record then is no longer due. It stays unknown for clients, and evidence settles it.
func TestExhausted(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *idempotent.Options) { o.Steps = []string{"a"} })
	f.stepped()
	f.clock.Advance(time.Minute)
	var asked, handed int
	refuse := errDown
	options := func(o *idempotent.ReconcileOptions) {
		o.GiveUpAfter, o.Backoff, o.MaxBackoff = 9*time.Minute, time.Minute, 3*time.Minute
		o.OnExhausted = func(_ context.Context, r idempotent.PendingRecord) error {
			stored := r.Stored()
			if handed++; !stored.Exhausted || r.Asked != asked {
				t.Errorf("OnExhausted got %+v", r)
			}
			stored.Steps[0].Result[0] ^= 0xff
			return refuse
		}
	}
	resolve := func(_ context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
		if r.Asked != asked {
			t.Errorf("the resolver sees %d earlier calls, want %d", r.Asked, asked)
		}
		if asked++; asked == 2 { // an answer that comes with an error is ignored, except for its pause
			return idempotent.Later(2*time.Minute + time.Microsecond), errDown
		}
		if asked == 4 {
			return idempotent.Resolved("ch_1"), errDown
		}
		return idempotent.Later(0), nil
	}
	version := f.record().Version
	for i, pause := range []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute, 3 * time.Minute, 3 * time.Minute, 3 * time.Minute} {
		report := f.reconcile(resolve, options)
		if want := max(0, i-3); asked != i+1 || handed != want || report.Failed != min(1, want) && i != 1 && i != 3 || report.Postponed != 1 {
			t.Fatalf("called %d times, and OnExhausted %d times, want %d and %d: %s", asked, handed, i+1, want, report)
		}
		r := f.record()
		if left := r.Due.Sub(f.clock.Now()); left != pause || r.Exhausted || r.ReconcileAttempts != asked || r.Version == version {
			t.Errorf("after call %d it is due in %s, want %s; exhausted %t, %d attempts", i+1, left, pause, r.Exhausted, r.ReconcileAttempts)
		}
		version = r.Version
		f.clock.Advance(pause)
	}
	// A dry run does not call OnExhausted.
	if got := f.reconcile(answersError(errDown), options, func(o *idempotent.ReconcileOptions) { o.DryRun = true }).String(); got != "1 due, 1 exhausted, 1 failed" ||
		handed != 2 {
		t.Errorf("a dry run: %s, %d calls of OnExhausted", got, handed)
	}
	// A resolver that does not answer at all gives nothing up.
	if got := f.reconcile(answersError(fmt.Errorf("no: %w", &outage.Error{Err: errDown})), options).String(); got != "1 due, 1 postponed, 1 failed" || handed != 2 {
		t.Errorf("a resolver that is down: %s, %d calls of OnExhausted", got, handed)
	}
	asked++
	f.clock.Advance(3 * time.Minute)
	refuse = nil
	f.kinds()
	stale := *f.record()
	report := f.reconcile(resolve, options)
	r := f.record()
	s, _ := r.Step("a")
	if kinds := f.kinds(); report.Exhausted != 1 || handed != 3 || report.Pending != 0 ||
		kinds != "reconcile_exhausted" || !r.Exhausted || !r.Due.Equal(f.clock.Now()) || string(s.Result) != `"x"` {
		t.Errorf("the report: %s after %d calls of OnExhausted; events %s; the record is %+v", report, handed, kinds, r)
	}
	// The list still shows the record as it was; it has been given up meanwhile.
	if got := f.over(yields{f.Store, []driver.Record{stale}, []error{nil}}).reconcile(answer(idempotent.Resolved("y"))).String(); got != "1 due, 1 stale" {
		t.Errorf("a stale list: %s", got)
	}
	f.clock.Advance(time.Hour)
	if report := f.reconcile(resolve, options); report.Due != 0 {
		t.Errorf("an exhausted record is still due: %s", report)
	}
	for e, err := range f.Exhausted(t.Context()) {
		if err != nil || e.ID != f.key.RecordID() {
			t.Error(e, err)
		}
		handed++
	}
	if _, err := f.do(never[string]); handed != 4 || !errors.As(err, new(*idempotent.UnresolvedError)) {
		t.Errorf("%d records are listed as exhausted; a retry gets error %v", handed-3, err)
	}
	f.mustResolve(idempotent.Resolved("found"))
	if r := f.record(); r.Exhausted || !r.Due.IsZero() || r.ReconcileAttempts != 0 {
		t.Errorf("the settled record is still listed: %+v", r)
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

// A dry run counts what a run would do, and writes and reports nothing.
func TestReconcileDryRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.unknowns(1)
	f.key = newKey()
	f.dies(nil)
	f.clock.Advance(time.Minute)
	f.kinds()
	before := f.record().Version
	dry := func(o *idempotent.ReconcileOptions) { o.DryRun, o.GiveUpAfter = true, time.Minute }
	for want, resolution := range map[string]idempotent.Resolution{
		"2 due, 1 marked unknown, 2 completed":                        idempotent.Resolved("x"),
		"2 due, 1 marked unknown, 1 postponed, 1 exhausted":           idempotent.Later(time.Hour),
		"2 due, 1 marked unknown, 2 not executed":                     notExecuted,
		"2 due, 1 marked unknown, 1 postponed, 1 exhausted, 2 failed": idempotent.Resolved(make(chan int)), // it does not encode
	} {
		if report := f.reconcile(answer(resolution), dry); report.String() != want {
			t.Errorf("the report: %s, want %s", report, want)
		}
	}
	if after, kinds := f.record(), f.kinds(); after.Version != before || kinds != "" {
		t.Errorf("a dry run wrote: %s, events %q", after.State, kinds)
	}
}

func TestReconcileOptions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	later := kit.Resolver(answer(idempotent.Later(0)))
	refused := map[string]func(){
		`operation "charge" must not be nil`: func() { idempotent.Reconciler(f.guard, map[string]idempotent.ResolveFunc{"charge": nil}) },
		"the guard must not be nil":          func() { idempotent.Reconciler(nil, nil) },
		"driver.DueLister":                   func() { idempotent.Reconciler(f.over(struct{ driver.Store }{f.Store}).guard, later) },
	}
	for name, option := range map[string]func(*idempotent.ReconcileOptions){
		"GiveUpAfter":            func(o *idempotent.ReconcileOptions) { o.GiveUpAfter = -1 },
		"Concurrency":            func(o *idempotent.ReconcileOptions) { o.Concurrency = -1 },
		"Backoff":                func(o *idempotent.ReconcileOptions) { o.Backoff = 2 * time.Hour },
		"Timeout":                func(o *idempotent.ReconcileOptions) { o.Timeout = -1 },
		"ReleasedFor":            func(o *idempotent.ReconcileOptions) { o.ReleasedFor = -1 },
		"Backoff: at least":      func(o *idempotent.ReconcileOptions) { o.Backoff = time.Microsecond },
		"Timeout: want at least": func(o *idempotent.ReconcileOptions) { o.Timeout = time.Microsecond },
	} {
		refused[name] = func() { idempotent.Reconciler(f.guard, later, option) }
	}
	for name, construct := range refused {
		says, _, _ := strings.Cut(name, ":")
		if text := fmt.Sprint(panics(construct)); !strings.Contains(text, says) {
			t.Errorf("panic %q, want %q", text, says)
		}
	}
	idempotent.Reconciler(f.guard, later, func(o *idempotent.ReconcileOptions) {
		o.GiveUpAfter, o.ReleasedFor, o.Concurrency, o.Backoff, o.Timeout, o.MaxBackoff = 1, 1, 1, ms, ms, ms
	})
}

// F41: the handler calls the resolver of the record's operation. A record without
// a resolver is not lost: the end of its lease is processed, it is counted, and one
// line is logged.
func TestReconciler(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	f := newFixture(t, func(o *idempotent.Options) { o.Logger = slog.New(slog.NewTextHandler(&logged, nil)) })
	f.dies(nil)
	ended := f.record().LeaseEnd
	logged.Reset()
	refunds := idempotent.Reconciler(f.guard, map[string]idempotent.ResolveFunc{"refund": answer(idempotent.Resolved("x"))})
	for i, want := range []string{"1 due, 1 marked unknown", "0 due", "0 due"} {
		f.clock.Advance(time.Hour)
		report, err := refunds(t.Context())
		waiting := map[string]idempotent.Waiting{"charge": {Pending: 1, Oldest: ended, NoResolver: true}}
		if err != nil || report.String() != want || !reflect.DeepEqual(report.Operations, waiting) || report.Pending != 1 {
			t.Errorf("run %d: %s, %v; %+v", i, report, err, report.Operations)
		}
	}
	if text := logged.String(); strings.Count(text, "no resolver") != 1 || !strings.Contains(text, "operation=charge records=1") {
		t.Errorf("logged %s", text)
	}
	report, err := idempotent.Reconciler(f.guard, map[string]idempotent.ResolveFunc{
		"refund": answer(idempotent.Resolved("y")), "*": answer(idempotent.Resolved("x")), // of every other operation
	})(t.Context())
	if err != nil || report.String() != "1 due, 1 completed" || report.Operations != nil || report.Pending != 0 {
		t.Errorf("the report: %s, %v; %+v", report, err, report.Operations)
	}
	if v, err := f.do(never[string]); v != "x" || err != nil {
		t.Errorf("a retry gets %q, %v", v, err)
	}
}

// F40, F82: a sweep writes what follows from ended leases and calls no resolver,
// however often it runs. It misses no resolver, and counts all that is due.
func TestReconcileSweepOnly(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	f := newFixture(t, func(o *idempotent.Options) { o.Logger = slog.New(slog.NewTextHandler(&logged, nil)) })
	f.dies(nil)
	ended := f.record().LeaseEnd
	logged.Reset()
	f.clock.Advance(time.Minute)
	for run, want := range []string{"1 due, 1 marked unknown", "1 due, 1 marked unknown", "1 due"} {
		report, err := idempotent.Reconciler(f.guard, nil, sweepOnly, func(o *idempotent.ReconcileOptions) { o.DryRun, o.GiveUpAfter = run == 0, time.Minute })(t.Context())
		if err != nil || report.String() != want || !report.Oldest.Equal(ended) || report.Operations["charge"].NoResolver {
			t.Errorf("run %d: %s, %v, oldest %s; want %s, %s", run, report, err, report.Oldest, want, ended)
		}
		if run > 0 {
			f.clock.Advance(time.Hour)
		}
	}
	r := f.record()
	if n := f.events.Count(event.MarkedUnknown); n != 1 || r.State != driver.StateUnknown || r.ReconcileAttempts != 0 || r.Exhausted || logged.Len() > 0 {
		t.Errorf("%d events; the record is %s after %d attempts; logged %s", n, r.State, r.ReconcileAttempts, &logged)
	}
}

// The scheduled function fails if every record failed, and not if there is
// nothing to do or another party was faster. A record that fails twice in a run is one
// record, and one that the list cannot read has failed, too.
func TestReconcilerFails(t *testing.T) {
	t.Parallel()
	stale := func(f *fixture) driver.Store {
		was := *f.record()
		f.mustResolve(idempotent.Resolved("y"))
		return yields{f.Store, []driver.Record{was}, []error{nil}}
	}
	damaged := func(f *fixture) driver.Store { return damagedList{f.Store} }
	for name, c := range map[string]struct {
		records int
		store   func(*fixture) driver.Store // nil: as it is
		answers int                         // that are no error
		want    string
		fails   bool
	}{
		"nothing to do":          {0, nil, 0, "0 due", false},
		"one fails":              {1, nil, 0, "1 due, 1 postponed, 1 failed", true},
		"one of two fails":       {2, nil, 1, "2 due, 1 completed, 1 postponed, 1 failed", false},
		"both fail":              {2, nil, 0, "2 due, 2 postponed, 2 failed", true},
		"another party":          {1, stale, 0, "1 due, 1 stale", false},
		"one is damaged":         {1, damaged, 1, "2 due, 1 completed, 1 failed", false},
		"one fails, one damaged": {1, damaged, 0, "2 due, 1 postponed, 2 failed", true},
		"all are damaged":        {0, damaged, 0, "1 due, 1 failed", true},
	} {
		f := newFixture(t)
		f.unknowns(c.records)
		if c.store != nil {
			f = f.over(c.store(f))
		}
		calls := 0
		resolve := func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
			if calls++; calls <= c.answers {
				return idempotent.Resolved("x"), nil
			}
			return idempotent.Resolution{}, errDown
		}
		report, err := idempotent.Reconciler(f.guard, map[string]idempotent.ResolveFunc{"charge": resolve}, func(o *idempotent.ReconcileOptions) {
			o.Concurrency, o.GiveUpAfter = 1, ms
			o.OnExhausted = func(context.Context, idempotent.PendingRecord) error { return errDown }
		})(t.Context())
		if report.String() != c.want || errors.As(err, new(*outage.Error)) != c.fails || c.fails && !strings.Contains(err.Error(), "every record") {
			t.Errorf("%s: %s, %v", name, report, err)
		}
	}
}

// damagedList is a store whose list cannot read its first record.
type damagedList struct{ *memstore.Store }

func (d damagedList) Due(ctx context.Context, after time.Time) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		if yield(driver.Listed{ID: newKey().RecordID()}, errDown) {
			d.Store.Due(ctx, after)(yield)
		}
	}
}

// The report covers every record that waits, whenever it is due: F82.
func TestReportCoversAllThatWait(t *testing.T) {
	t.Parallel()
	later := answer(idempotent.Later(24 * time.Hour))
	f := newFixture(t)
	want := func(what string, report idempotent.Report, pending int, oldest time.Time) {
		t.Helper()
		if !report.Listed || report.Pending != pending || !report.Oldest.Equal(oldest) || report.PendingReleased != 0 {
			t.Errorf("%s: listed %v, %d pending, the oldest since %s; want %d since %s", what, report.Listed, report.Pending, report.Oldest, pending, oldest)
		}
	}
	f.dies(nil)
	first := f.record().LeaseEnd
	f.clock.Advance(time.Minute)
	want("asked for the first time", f.reconcile(later), 1, first)
	f.clock.Advance(time.Hour)
	f.key = newKey()
	f.dies(nil)
	second := f.record().LeaseEnd
	want("one is due tomorrow, and one is running", f.reconcile(later), 1, first)
	f.clock.Advance(time.Minute)
	want("two are due tomorrow", f.reconcile(later), 2, first)
	f.clock.Advance(time.Hour)
	report := f.reconcile(later)
	if want("nothing is due", report, 2, first); report.Due != 0 {
		t.Errorf("%s", report)
	}
	f.clock.Advance(24 * time.Hour)
	report, err := kit.Reconcile(f.clock.Invocation(t.Context(), 400*ms), f.guard, later)
	if want("no time for the resolver", report, 2, first); err == nil || !report.Incomplete || !strings.Contains(err.Error(), "a run needs at least 1s,") {
		t.Errorf("no time: %s, %v", report, err)
	}
	report = f.reconcile(later, func(o *idempotent.ReconcileOptions) { o.GiveUpAfter = 25*time.Hour + 30*time.Minute })
	want("one is given up", report, 1, second)
}

// What waits of other operations is neither counted nor a failure. The end of their
// leases is processed from the moment when it is due.
func TestReconcileListOfOtherOperations(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.unknowns(1)
	f.key = newKey()
	f.dies(nil)
	f.clock.Advance(f.record().Due.Sub(f.clock.Now()) - ms)
	f = f.over(damagedList{f.Store})
	for _, want := range []string{"0 due", "0 due, 1 of other operations processed after their lease"} {
		report := f.reconcile(answer(notExecuted), func(o *idempotent.ReconcileOptions) { o.Operations = []string{"refund"} })
		if report.String() != want || report.Pending != 0 || len(report.Operations) != 0 || f.events.Count(event.StoreError) != 0 {
			t.Errorf("%s, %d wait, %v; events %s; want %s", report, report.Pending, report.Operations, f.events.Kinds(), want)
		}
		f.clock.Advance(ms)
	}
}

// By default reconciliation gives up a record seven days after it became unknown,
// however often its resolver was called until then, and a released record after a
// day.
func TestDefaultAges(t *testing.T) {
	t.Parallel()
	for state, want := range map[driver.State]int{driver.StateUnknown: 7 * 24, driver.StateRetryable: 24} {
		f := newFixture(t)
		f.holds(driver.Record{State: state, Recovery: idempotent.Resume, Created: start.Add(-30 * 24 * time.Hour), Since: start, Due: start, OpenSince: start})
		hours := 0
		for ; !f.record().Exhausted && hours < 1000; hours++ {
			f.clock.Advance(time.Hour)
			f.reconcile(answer(idempotent.Later(time.Minute)))
		}
		if hours != want {
			t.Errorf("a record that is %s was given up after %d hours, want %d", state, hours, want)
		}
	}
}
