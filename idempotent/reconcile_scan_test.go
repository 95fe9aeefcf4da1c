// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/memstore"
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

func (s *scanned) Due(ctx context.Context) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		for e, err := range s.Store.Due(ctx) {
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
		for e, err := range s.Store.Due(ctx) {
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

// newScanned returns a store with n abandoned runs of each operation.
func newScanned(t *testing.T, n int, operations ...string) (*scanned, *stranded) {
	t.Helper()
	s := newStranded(t)
	scan := &scanned{Store: s.Store}
	s.guard, s.events = newGuardOver(t, scan, func(o *idempotent.Options) { o.Now = s.clock.Now })
	for _, operation := range operations {
		for i := range n {
			key := newKey()
			key.Operation, key.ID = operation, fmt.Sprint(operation, i)
			var left *driver.Record
			_, _ = idempotent.Do(s.clock.Invocation(t.Context(), 10*time.Second), s.guard, key, func(context.Context) (string, error) {
				left = record(t, s, key)
				return "", nil
			})
			if met, err := s.Replace(t.Context(), *left, record(t, s, key).Version); met != nil || err != nil {
				t.Fatal(met, err)
			}
		}
	}
	return scan, s
}

// states counts the records of a store by their states.
func (s *scanned) states(t *testing.T) map[driver.State]int {
	t.Helper()
	states := map[driver.State]int{}
	for e, err := range s.Store.Due(t.Context()) {
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
		if err != nil || report.String() != "10 due, 10 marked unknown" || report.Pending != 10 || report.Oldest.IsZero() || report.Operations["refund"].Pending != 5 || !report.Listed {
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

func TestReconcileScan_Operations(t *testing.T) {
	t.Parallel()
	scan, s := newScanned(t, 3, "charge", "refund")
	s.clock.Advance(time.Minute)
	report := s.reconcile(t, answer(idempotent.Later(time.Hour)), func(o *idempotent.ReconcileOptions) { o.Operations = []string{"refund"} })
	if states := scan.states(t); report.MarkedUnknown != 3 || report.Due != 3 || states[driver.StateInProgress] != 3 {
		t.Errorf("%s; the records are %v", report, states)
	}
}

// A dry run scans without a trace and writes nothing.
func TestReconcileScan_DryRun(t *testing.T) {
	t.Parallel()
	scan, s := newScanned(t, 3, "charge")
	dry := func() (idempotent.Report, error) {
		return idempotent.ReconcileDue(t.Context(), s.guard, nil, func(o *idempotent.ReconcileOptions) { o.DryRun, o.SweepOnly = true, true })
	}
	if report, err := dry(); report.Due != 0 || err != nil {
		t.Errorf("before the lease ends: %s, %v", report, err)
	}
	s.clock.Advance(time.Minute)
	report, err := dry()
	if states := scan.states(t); err != nil || report.MarkedUnknown != 3 || report.Pending != 3 || states[driver.StateInProgress] != 3 || scan.scans != 0 {
		t.Errorf("%s, %d wait, %v; the records are %v; %d scans that the store remembers", report, report.Pending, err, states, scan.scans)
	}
	scan.err = errDown
	if _, err := dry(); !errors.Is(err, errDown) {
		t.Errorf("a scan that fails: %v", err)
	}
}

// A scan that fails does not stop the work on what is listed, and its error is
// returned and reported.
func TestReconcileScan_Fails(t *testing.T) {
	t.Parallel()
	scan, s := newScanned(t, 2, "charge")
	s.clock.Advance(time.Minute)
	s.reconcile(t, answer(idempotent.Resolved("x"))) // marks them
	s.clock.Advance(time.Minute)
	scan.err = errDown
	report, err := idempotent.ReconcileDue(t.Context(), s.guard, answer(idempotent.Resolved("x")))
	if failed := (*idempotent.StoreError)(nil); !errors.As(err, &failed) || failed.Op != driver.OpListDue || !errors.Is(err, errDown) || report.Completed != 2 || !report.Listed {
		t.Errorf("%s, %v", report, err)
	}
	if s.events.Count(event.StoreError) != 1 {
		t.Errorf("%d events of store errors", s.events.Count(event.StoreError))
	}
}

// Without time for all records of a page, the page is refused, so the store passes
// it again.
func TestReconcileScan_OutOfTime(t *testing.T) {
	t.Parallel()
	scan, s := newScanned(t, 4, "charge")
	s.clock.Advance(time.Minute)
	ctx := s.clock.Invocation(t.Context(), time.Minute)
	slow := &slowStore{scanned: scan, clock: func() { s.clock.Advance(20 * time.Second) }}
	g, _ := newGuardOver(t, slow, func(o *idempotent.Options) { o.Now = s.clock.Now })
	report, err := idempotent.ReconcileDue(ctx, g, answer(idempotent.Later(time.Hour)), func(o *idempotent.ReconcileOptions) { o.Concurrency = 1 })
	if err != nil || !scan.refused || report.MarkedUnknown != 3 || !report.Incomplete {
		t.Errorf("%s, %v; the last page was refused: %t", report, err, scan.refused)
	}
}

// slowStore takes time for each read.
type slowStore struct {
	*scanned
	clock func()
}

func (s *slowStore) Get(ctx context.Context, id driver.RecordID) (*driver.Record, error) {
	s.clock()
	return s.scanned.Get(ctx, id)
}

// A scan that is late is logged once.
func TestReconciler_LogsALateScan(t *testing.T) {
	t.Parallel()
	scan, s := newScanned(t, 0)
	var log bytes.Buffer
	g, _ := newGuardOver(t, scan, func(o *idempotent.Options) {
		o.Now, o.Logger = s.clock.Now, slog.New(slog.NewTextHandler(&log, nil))
	})
	reconcile := idempotent.Reconciler(g, map[string]idempotent.ResolveFunc{"charge": answer(notExecuted)})
	for run, late := range []bool{false, true, true} {
		scan.result.Late = late
		if _, err := reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "takes longer than its interval"); n != min(1, run) {
			t.Errorf("after run %d the log has %d lines", run, n)
		}
	}
}
