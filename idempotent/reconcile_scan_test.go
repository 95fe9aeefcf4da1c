// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
)

// scanned is a store whose Due does not list records in progress. Its scan passes
// them in pages of two.
type scanned struct {
	*memstore.Store
	err     error          // of the scan
	result  driver.Scanned // of the scan
	lag     bool           // lists do not show what the run wrote
	scans   int
	left    time.Duration // until the deadline of the scan
	refused bool          // a page was refused
}

var _ driver.AbandonedLister = (*scanned)(nil)

func (s *scanned) Due(ctx context.Context, after time.Time) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		for e, err := range s.Store.Due(ctx, after) {
			if (err != nil || e.State != driver.StateInProgress && !s.lag) && !yield(e, err) {
				return
			}
		}
	}
}

func (s *scanned) Running(ctx context.Context) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		if s.err != nil {
			yield(driver.Listed{}, s.err)
			return
		}
		for e, err := range s.Store.Due(ctx, time.Time{}) {
			if (err != nil || e.State == driver.StateInProgress) && !yield(e, err) {
				return
			}
		}
	}
}

func (s *scanned) Abandoned(ctx context.Context, now time.Time, handle func([]driver.Listed) bool) (driver.Scanned, error) {
	s.scans++
	if deadline, ok := ctx.Deadline(); ok {
		s.left = time.Until(deadline)
	}
	if s.err != nil {
		return driver.Scanned{}, s.err
	}
	var page []driver.Listed
	for e, err := range s.Running(ctx) {
		if err != nil {
			return driver.Scanned{}, err
		}
		if e.Due.After(now) {
			continue
		}
		if page = append(page, e); len(page) == 2 {
			if s.refused = !handle(page); s.refused {
				return s.result, nil
			}
			page = nil
		}
	}
	s.refused = len(page) > 0 && !handle(page)
	return s.result, nil
}

// newScanned returns a store with n abandoned runs of each operation, and a fixture over it.
func newScanned(t *testing.T, n int, operations ...string) (*scanned, *fixture) {
	t.Helper()
	f := newFixture(t)
	scan := &scanned{Store: f.Store}
	f = f.over(scan)
	for _, operation := range operations {
		for range n {
			f.key = newKey()
			f.key.Operation = operation
			f.dies(nil)
		}
	}
	f.kinds()
	return scan, f
}

// states counts the records of a store by their states.
func (s *scanned) states(t *testing.T) map[driver.State]int {
	t.Helper()
	states := map[driver.State]int{}
	for e, err := range s.Store.Due(t.Context(), time.Time{}) {
		if err != nil {
			t.Fatal(err)
		}
		states[e.State]++
	}
	return states
}

// The scan processes ended leases without a resolver. What it found is counted
// once, whether the list shows it already or not.
func TestReconcileScans(t *testing.T) {
	t.Parallel()
	for _, lag := range []bool{false, true} {
		scan, s := newScanned(t, 5, "charge", "refund")
		s.clock.Advance(time.Minute)
		scan.lag = lag
		scan.result = driver.Scanned{Items: 10, ReadUnits: 5, Began: s.clock.Now()}
		reconcile := idempotent.Reconciler(s.guard, map[string]idempotent.ResolveFunc{"charge": answer(idempotent.Resolved("x"))})
		report, err := reconcile(s.clock.Invocation(t.Context(), time.Minute))
		if err != nil || report.String() != "10 due, 10 marked unknown" || report.Pending != 10 ||
			report.Oldest.IsZero() || report.Operations["refund"].Pending != 5 || !report.Listed {
			t.Errorf("%s, %d wait (%v), %v", report, report.Pending, report.Operations, err)
		}
		if report.Scan != scan.result {
			t.Errorf("the scan is reported as %+v", report.Scan)
		}
		if states := scan.states(t); states[driver.StateUnknown] != 10 {
			t.Errorf("the records are %v", states)
		}
		if s.events.Count(event.MarkedUnknown) != 10 {
			t.Errorf("%d events", s.events.Count(event.MarkedUnknown))
		}
		// Half of the run, so that the other half is left for resolvers.
		if scan.left < 25*time.Second || scan.left > 30*time.Second {
			t.Errorf("the scan got %s of a minute", scan.left)
		}
		scan.lag = false
		s.clock.Advance(time.Minute)
		report, err = reconcile(s.clock.Invocation(t.Context(), time.Minute))
		if err != nil || report.Completed != 5 || report.Pending != 5 {
			t.Errorf("a minute later: %s, %d wait, %v", report, report.Pending, err)
		}
	}
}

// A run for one operation processes the ended leases of all, because the scan does
// not come to a record again before its next pass. It asks about and counts its own
// operation only. A store that lists records in progress needs no scan for that.
func TestReconcileScan_Operations(t *testing.T) {
	t.Parallel()
	for _, lists := range []bool{false, true} {
		scan, s := newScanned(t, 3, "charge", "refund")
		if lists {
			s = s.over(scan.Store)
		}
		s.clock.Advance(time.Minute)
		want := "3 due, 3 marked unknown, 3 of other operations processed after their lease"
		if lists {
			want = "3 due, 3 marked unknown, 3 postponed, 3 of other operations processed after their lease"
		}
		resolve := func(_ context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
			if r.ID.Operation() != "refund" {
				t.Errorf("lists %t: asked about %s", lists, r.ID.Operation())
			}
			return idempotent.Later(time.Hour), nil
		}
		report := s.reconcile(resolve, func(o *idempotent.ReconcileOptions) { o.Operations = []string{"refund"} })
		if states := scan.states(t); report.String() != want || report.Pending != 3 || len(report.Operations) != 1 || states[driver.StateUnknown] != 6 {
			t.Errorf("lists %t: %s, %d wait, %v; the records are %v", lists, report, report.Pending, report.Operations, states)
		}
	}
}

// A record that the scan found is counted once, although the list shows it as due, too: the
// scan took longer than the first pause of one of the two.
func TestReconcileScan_CountsOnce(t *testing.T) {
	t.Parallel()
	for sweeps, want := range map[bool]string{true: "2 due, 2 marked unknown", false: "2 due, 2 marked unknown, 1 completed"} {
		_, f := newScanned(t, 2, "charge")
		f.clock.Advance(time.Minute)
		f.on(driver.OpGet, slow(2*time.Minute))
		report, err := kit.Reconcile(t.Context(), f.guard, answer(idempotent.Resolved("x")), func(o *idempotent.ReconcileOptions) { o.SweepOnly, o.Concurrency = sweeps, 1 })
		if err != nil || report.String() != want {
			t.Errorf("%s, %v; want %s", report, err, want)
		}
	}
}

// A slow store does not let the scan use the time of the records that are due. Without time
// for all records of a page, the page is refused, so the store passes it again.
func TestReconcileScan_LeavesTime(t *testing.T) {
	t.Parallel()
	one := func(o *idempotent.ReconcileOptions) { o.Concurrency = 1 }
	_, f := newScanned(t, 0)
	f.unknowns(20)
	for range 100 {
		f.key = newKey()
		f.dies(nil)
	}
	f.clock.Advance(time.Hour)
	f.on(driver.OpGet, slow(100*ms))
	report, err := kit.Reconcile(f.invocation(), f.guard, answer(idempotent.Resolved("x")), one)
	if err != nil || report.Completed != 20 || report.MarkedUnknown < 40 || report.MarkedUnknown > 50 || report.Failed > 0 || f.events.Count(event.StoreError) > 0 {
		t.Errorf("%s, %v", report, err)
	}

	scan, f := newScanned(t, 4, "charge")
	f.clock.Advance(time.Minute)
	f.on(driver.OpGet, slow(20*time.Second))
	report, err = kit.Reconcile(f.clock.Invocation(t.Context(), time.Minute), f.guard, answer(idempotent.Later(time.Hour)), one)
	if err != nil || !scan.refused || report.MarkedUnknown != 2 || !report.Incomplete || report.Pending != 4 {
		t.Errorf("%s, %v; the last page was refused: %t", report, err, scan.refused)
	}
}

// What the end of the scan's time cuts off is no failure of the store: the record is
// found again.
func TestReconcileScan_IsCutOff(t *testing.T) {
	t.Parallel()
	for _, op := range []driver.Op{driver.OpGet, driver.OpReplace} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t)
			f.dies(nil)
			f.clock.Advance(time.Minute)
			f = f.over(&scanned{Store: f.Store}, fixed(f.clock.Now()))
			f.on(op, func(c *call) {
				<-c.ctx.Done()
				c.Err = c.ctx.Err()
			})
			began := time.Now()
			report, err := kit.Reconcile(f.clock.Invocation(t.Context(), time.Minute), f.guard, answer(notExecuted))
			if kinds := f.kinds(); err != nil || report.Failed > 0 || !report.Incomplete || report.Pending != 1 || kinds != "" {
				t.Errorf("%s: %s, %d wait, %v, events %s", op, report, report.Pending, err, kinds)
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("%s: the run took %s", op, took)
			}
		})
	}
}

// damagedScan is a store whose scan cannot read its first record.
type damagedScan struct{ *scanned }

func (d damagedScan) Running(ctx context.Context) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		if yield(driver.Listed{ID: newKey().RecordID()}, errDown) {
			d.scanned.Running(ctx)(yield)
		}
	}
}

// A dry run scans without a trace and writes nothing. It counts a record that cannot be
// read, goes on with the others, and ends with its time.
func TestReconcileScan_DryRun(t *testing.T) {
	t.Parallel()
	scan, f := newScanned(t, 6, "charge")
	dry := func(f *fixture, left time.Duration) (idempotent.Report, error) {
		return kit.Reconcile(f.clock.Invocation(t.Context(), left), f.guard, nil, sweepOnly, func(o *idempotent.ReconcileOptions) { o.DryRun, o.Concurrency = true, 1 })
	}
	if report, err := dry(f, time.Minute); report.Due != 0 || err != nil {
		t.Errorf("before the lease ends: %s, %v", report, err)
	}
	f.clock.Advance(time.Minute)
	report, err := dry(f, time.Minute)
	if states := scan.states(t); err != nil || report.MarkedUnknown != 6 || report.Pending != 6 || states[driver.StateInProgress] != 6 || scan.scans != 0 {
		t.Errorf("%s, %d wait, %v; the records are %v; %d scans that the store remembers", report, report.Pending, err, states, scan.scans)
	}
	if report, err := dry(f.over(damagedScan{scan}), time.Minute); err != nil || report.String() != "7 due, 6 marked unknown, 1 stale" {
		t.Errorf("with one that cannot be read: %s, %v", report, err)
	}
	f.on(driver.OpGet, slow(20*time.Second))
	if report, err := dry(f, 100*time.Second); err != nil || report.Due != 4 || report.MarkedUnknown != 3 {
		t.Errorf("with time for three in the first half: %s, %v; want the fourth to end the scan", report, err)
	}
	scan.err = errDown
	if _, err := dry(f, time.Minute); !errors.Is(err, errDown) {
		t.Errorf("a scan that fails: %v", err)
	}
}

// A scan that fails does not stop the work on what is listed, and its error is
// returned and reported.
func TestReconcileScan_Fails(t *testing.T) {
	t.Parallel()
	scan, f := newScanned(t, 2, "charge")
	f.clock.Advance(time.Minute)
	f.reconcile(answer(idempotent.Resolved("x"))) // marks them
	f.clock.Advance(time.Minute)
	scan.err = errDown
	report, err := kit.Reconcile(t.Context(), f.guard, answer(idempotent.Resolved("x")))
	if failed := (*idempotent.StoreError)(nil); !errors.As(err, &failed) || failed.Op != driver.OpListDue ||
		!errors.Is(err, errDown) || report.Completed != 2 || !report.Listed || f.events.Count(event.StoreError) != 1 {
		t.Errorf("%s, %v; events %s", report, err, f.events.Kinds())
	}
}

// A position of the scan that was replaced is reported each time, as an event and in
// the log. A scan that is late is logged once.
func TestReconcileScan_IsLogged(t *testing.T) {
	t.Parallel()
	scan, f := newScanned(t, 0)
	var log bytes.Buffer
	f = f.over(scan, func(o *idempotent.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	reconcile := idempotent.Reconciler(f.guard, map[string]idempotent.ResolveFunc{"charge": answer(notExecuted)})
	for run, result := range []driver.Scanned{{}, {Replaced: "its pass began in the future", Late: true}, {Replaced: "its pass began in the future", Late: true}} {
		scan.result = result
		if report, err := reconcile(t.Context()); err != nil || report.Scan != result {
			t.Errorf("%+v, %v", report.Scan, err)
		}
		replaced, late := strings.Count(log.String(), "its pass began in the future"), strings.Count(log.String(), "takes longer than its interval")
		if replaced != run || f.events.Count(event.StoreError) != run || late != min(1, run) {
			t.Errorf("after run %d: events %s, logged %q", run, f.events.Kinds(), log.String())
		}
	}
}

// reports is an observer that receives the reports of reconciliations.
type reports struct {
	event.Observer
	all []idempotent.Report
}

func (r *reports) Reconciled(_ context.Context, report idempotent.Report) {
	if r.all = append(r.all, report); report.Pending > 0 {
		panic("observer")
	}
}

// The observer of the guard, and each part of it, receives the report of every run
// but a rehearsal, also of one that fails. A panic of the observer is only logged.
func TestObserverReceivesReports(t *testing.T) {
	t.Parallel()
	alone, part, quiet := &reports{}, &reports{}, event.ObserverFunc(func(context.Context, event.Event) {})
	for _, row := range []struct {
		observer event.Observer
		got      *reports
	}{{alone, alone}, {event.Observers(quiet, event.Observers(part)), part}} {
		row.got.Observer = quiet
		failing := false
		store := idempotenttest.Intercept(memstore.New(), func(ctx context.Context, c *idempotenttest.StoreCall) {
			if c.Do(ctx); failing && c.Op == driver.OpListDue {
				c.Err = errLost
			}
		})
		var log bytes.Buffer
		g, _ := newGuardOver(t, store, func(o *idempotent.Options) {
			o.Observer, o.Logger = row.observer, slog.New(slog.NewTextHandler(&log, nil))
		})
		idempotent.Do(t.Context(), g, newKey(), func(context.Context) (int, error) { return 0, idempotent.Unknown(errLost) })
		reconcile := idempotent.Reconciler(g, nil)
		want := []idempotent.Report{}
		for _, failing = range []bool{false, true} {
			report, _ := reconcile(t.Context())
			want = append(want, report)
		}
		if _, err := kit.Reconcile(t.Context(), g, nil, func(o *idempotent.ReconcileOptions) { o.DryRun, o.SweepOnly = true, true }); err == nil {
			t.Error("the list did not fail")
		}
		if !reflect.DeepEqual(row.got.all, want) || want[0].Pending != 1 {
			t.Errorf("the observer received %+v, want %+v", row.got.all, want)
		}
		if text := log.String(); strings.Count(text, "the observer panicked") != len(want) || !strings.Contains(text, `report="0 due"`) {
			t.Errorf("logged %s", text)
		}
	}
}

// slowList is a store with a long list. It calls read before each entry.
type slowList struct {
	*memstore.Store
	read func()
}

func (s *slowList) Due(context.Context, time.Time) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		for range 20 {
			if s.read(); !yield(driver.Listed{ID: newKey().RecordID(), State: driver.StateUnknown}, nil) {
				return
			}
		}
	}
}

// A list takes at most half of the time, by the clock of the guard.
func TestReconcileListEndsByTheClock(t *testing.T) {
	t.Parallel()
	f, read := newFixture(t), 0
	f = f.over(&slowList{f.Store, func() { f.clock.Advance(time.Second); read++ }})
	report, err := kit.Reconcile(f.invocation(), f.guard, answer(notExecuted))
	if !report.Incomplete || err == nil || read != 5 {
		t.Errorf("%s, %v; %d entries were read", report, err, read)
	}
}

// A run whose time is over before its list begins fails, although it has counted nothing:
// it cannot know whether records are due.
func TestReconcileWithoutTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, ctx := range map[string]context.Context{"at the deadline": f.clock.Invocation(t.Context(), 0), "after an interruption": ended} {
		report, err := kit.Reconcile(ctx, f.guard, nil)
		if !report.Incomplete || err == nil || !strings.Contains(err.Error(), "the time ended before the first record") {
			t.Errorf("%s: %s, %v", name, report, err)
		}
	}
	if slices.Contains(f.calls, string(driver.OpListDue)) {
		t.Errorf("the store got the calls %q, want no list", f.calls)
	}
}
