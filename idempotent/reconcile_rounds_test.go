// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"errors"
	"iter"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/outage"
)

// observed is a workload whose lists and reads a test sees and can change.
type observed struct {
	*workload
	lists int
	list  func(list int, e driver.Listed) error // called before each entry; its error is the entry's, and fails the list without an id
	get   func(id driver.RecordID) error        // called before each read
}

func (o *observed) Due(ctx context.Context, after time.Time) iter.Seq2[driver.Listed, error] {
	o.lists++
	list := o.lists
	return func(yield func(driver.Listed, error) bool) {
		for e, err := range o.workload.Due(ctx, after) {
			if o.list != nil && err == nil {
				if err = o.list(list, e); errors.Is(err, errLost) {
					yield(driver.Listed{}, err)
					return
				}
			}
			if err != nil {
				e = driver.Listed{ID: e.ID}
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func (o *observed) Get(ctx context.Context, id driver.RecordID) (*driver.Record, error) {
	if o.get != nil {
		if err := o.get(id); err != nil {
			return nil, err
		}
	}
	return o.workload.Get(ctx, id)
}

const oneList = 4096 // entries that a run reads before it works

var reading = idempotent.Reading(oneList)

// The counts of the second list replace those of the first.
func TestReconcileRoundsCountOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newWorkload()
		o := &observed{workload: b}
		b.unknown(t, "charge", oneList)
		later := func(r *driver.Record) { r.Due = r.Due.Add(time.Second) } // after those that fit
		b.add(t, "charge", later)
		b.add(t, "charge", func(r *driver.Record) { later(r); r.State, r.Recovery = driver.StateRetryable, driver.Resume })
		damaged := b.add(t, "refund", later)
		o.list = func(_ int, e driver.Listed) error {
			if e.ID == damaged {
				return errDown
			}
			return nil
		}
		time.Sleep(2 * time.Minute)
		g, _ := newGuardOver(t, o)
		report, err := reading.Reconciler(g, kit.Resolver(b.resolve))(t.Context())
		if err != nil || report.String() != "4099 due, 4098 completed, 1 failed" || o.lists != 2 {
			t.Errorf("%s, %v; %d lists", report, err, o.lists)
		}
		if !report.Listed || report.Pending != 0 || !report.Oldest.IsZero() || report.PendingReleased != 0 || !report.OldestReleased.IsZero() || report.Operations != nil {
			t.Errorf("after all are settled, the report has %+v", report)
		}
	})
}

// If the second list fails, the run returns the error and does not claim that it
// knows all.
func TestReconcileSecondListFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newWorkload()
		o := &observed{workload: b, list: func(list int, _ driver.Listed) error {
			if list == 2 {
				return errLost
			}
			return nil
		}}
		b.unknown(t, "charge", oneList+1)
		time.Sleep(time.Minute)
		g, _ := newGuardOver(t, o)
		report, err := reading.Reconciler(g, map[string]idempotent.ResolveFunc{"charge": b.resolve})(t.Context())
		if !errors.Is(err, errLost) || report.Listed || report.Completed != oneList {
			t.Errorf("%s, %v; listed %t", report, err, report.Listed)
		}
	})
}

// A run lists again only for work that it can do: it has time, and the resolver
// does not keep failing.
func TestReconcileListsNoMore(t *testing.T) {
	t.Parallel()
	const share = 12 * time.Second // for one record
	for name, c := range map[string]struct {
		left       time.Duration // until the deadline
		last       time.Duration // how long the last read of the first list takes
		down       bool
		lists      int
		completed  int
		incomplete bool
	}{
		"time for another list":                   {2 * share, share, false, 2, oneList + 1, false},
		"the time ends with the last record":      {2 * share, share + 1, false, 1, oneList, true},
		"the resolver keeps failing":              {time.Hour, 0, true, 1, 0, false},
		"no deadline, the resolver keeps failing": {0, 0, true, 1, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newWorkload()
			b.latency, b.takes = 0, 0
			b.unknown(t, "charge", oneList+1)
			if c.down {
				b.back = time.Now().Add(time.Hour)
			}
			time.Sleep(time.Minute)
			reads := 0
			o := &observed{workload: b, get: func(driver.RecordID) error {
				if reads++; reads == oneList {
					time.Sleep(c.last)
				}
				return nil
			}}
			ctx, cancel := t.Context(), func() {}
			if c.left > 0 {
				ctx, cancel = context.WithTimeout(ctx, c.left)
			}
			defer cancel()
			g, _ := newGuardOver(t, o)
			report, err := reading.Reconciler(g, kit.Resolver(b.resolve), func(o *idempotent.ReconcileOptions) { o.Concurrency = 1 })(ctx)
			if (err == nil) != (report.Failed == 0) || o.lists != c.lists || report.Completed != c.completed || report.Incomplete != c.incomplete || report.Pending != oneList+1-c.completed {
				t.Errorf("%s: %s, %v; %d lists, %d pending", name, report, err, o.lists, report.Pending)
			}
			if c.incomplete != strings.HasSuffix(report.String(), "; incomplete: the time ended before every due record was worked on") {
				t.Errorf("%s: the report says %q", name, report)
			}
		})
	}
}

// A resolver that kept failing is not called again for what the next list shows.
func TestReconcileLeavesBrokenResolvers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newWorkload()
		b.unknown(t, "charge", oneList+1)
		b.unknown(t, "mail", 20)
		b.unknown(t, "refund", 20)
		time.Sleep(time.Minute)
		var calls atomic.Int64
		broken := func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
			calls.Add(1)
			return idempotent.Resolution{}, errDown
		}
		report, err := reading.Reconciler(b.guard(t), map[string]idempotent.ResolveFunc{"charge": b.resolve, "mail": broken, "refund": broken},
			func(o *idempotent.ReconcileOptions) { o.Concurrency = 1 })(t.Context())
		if calls.Load() != 10 || report.Completed != oneList+1 || report.Skipped != 30 || report.Pending != 40 {
			t.Errorf("%d calls of two broken resolvers: %s", calls.Load(), report)
		}
		if !errors.As(err, new(*outage.Error)) || !strings.Contains(err.Error(), `for "mail" and "refund" failed; 30 due records wait`) {
			t.Errorf("got error %v", err)
		}
	})
}

// The list ends when half of the time has passed: the entry of that moment is left.
func TestReconcileListsForHalfOfTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newWorkload()
		b.unknown(t, "charge", 5)
		time.Sleep(time.Minute)
		entries := 0
		o := &observed{workload: b, list: func(int, driver.Listed) error {
			if entries++; entries > 1 {
				time.Sleep(15 * time.Second)
			}
			return nil
		}}
		g, _ := newGuardOver(t, o)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		report, err := kit.Reconcile(ctx, g, b.resolve)
		if err != nil || report.String() != "2 due, 2 completed; incomplete: the time ended before every due record was worked on" || report.Listed {
			t.Errorf("%s, %v", report, err)
		}
	})
}

// The last record begins if exactly the time for one record is left, and none
// begins once the context has ended.
func TestReconcileBeginsWhatFits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		short     time.Duration // of the time for the second record
		ends      bool          // the context, while the first record is read
		completed int
	}{"exactly enough": {0, false, 2}, "too little": {1, false, 1}, "an ended context": {0, true, 0}} {
		synctest.Test(t, func(t *testing.T) {
			b := newWorkload()
			b.latency, b.takes = 0, 0
			b.unknown(t, "charge", 2)
			time.Sleep(time.Minute)
			const share = 12 * time.Second
			ctx, cancel := context.WithTimeout(t.Context(), 2*share)
			defer cancel()
			reads := 0
			g, _ := newGuardOver(t, &observed{workload: b, get: func(driver.RecordID) error {
				if reads++; reads == 1 && c.ends {
					cancel()
				} else if reads == 1 {
					time.Sleep(share + c.short)
				}
				return nil
			}})
			report, err := kit.Reconcile(ctx, g, func(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
				if ctx.Err() != nil {
					return idempotent.Resolution{}, ctx.Err()
				}
				return b.resolve(ctx, r)
			}, func(o *idempotent.ReconcileOptions) { o.Concurrency = 1 })
			if report.Completed != c.completed || reads != max(1, c.completed) || report.Incomplete != (c.completed < 2) || err != nil {
				t.Errorf("%s: %s, %v, %d reads", name, report, err, reads)
			}
		})
	}
}

// Without resolvers, the ended leases of all operations are processed by as many
// workers as Concurrency says.
func TestReconcileSweepsWithAllWorkers(t *testing.T) {
	t.Parallel()
	for _, concurrency := range []int{1, 8} {
		synctest.Test(t, func(t *testing.T) {
			b := newWorkload()
			for _, operation := range []string{"charge", "mail", "refund", "ship"} {
				for range 10 {
					b.add(t, operation, func(r *driver.Record) { r.State, r.Due = driver.StateInProgress, r.LeaseEnd })
				}
			}
			time.Sleep(time.Minute)
			var mu sync.Mutex
			reading, most := 0, 0
			g, _ := newGuardOver(t, &observed{workload: b, get: func(driver.RecordID) error {
				mu.Lock()
				reading++
				most = max(most, reading)
				mu.Unlock()
				time.Sleep(time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				reading--
				return nil
			}})
			report, err := kit.Reconcile(t.Context(), g, nil, func(o *idempotent.ReconcileOptions) { o.SweepOnly, o.Concurrency = true, concurrency })
			if err != nil || report.MarkedUnknown != 40 || most != concurrency {
				t.Errorf("%s, %v; %d reads at a time, want %d", report, err, most, concurrency)
			}
		})
	}
}

// What a read of a listed record finds decides what is counted.
func TestReconcileReads(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		get     error // of the first record
		report  string
		pending int
		events  int
	}{
		"it is gone":      {idempotent.ErrNoRecord, "2 due, 1 completed, 1 stale", 0, 0},
		"the store fails": {errDown, "2 due, 1 completed, 1 failed", 1, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newWorkload()
			first := b.unknown(t, "charge", 1)
			b.unknown(t, "charge", 1)
			time.Sleep(time.Minute)
			g, events := newGuardOver(t, &observed{workload: b, get: func(id driver.RecordID) error {
				if id == first {
					return c.get
				}
				return nil
			}})
			report, err := idempotent.Reconciler(g, map[string]idempotent.ResolveFunc{"charge": b.resolve})(t.Context())
			if err != nil || report.String() != c.report || report.Pending != c.pending || events.Count(event.StoreError) != c.events {
				t.Errorf("%s: %s, %v; %d pending, events %s", name, report, err, report.Pending, events.Kinds())
			}
		})
	}
}

// A list can show a record as it was. What another run wrote meanwhile counts.
func TestReconcileOutdatedEntries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		due       time.Duration // when it is due in truth, from now on
		sweepOnly bool
		report    string
	}{
		"another run has postponed it":    {time.Hour, false, "1 due, 1 stale"},
		"another run has swept its lease": {0, true, "1 due"},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newWorkload()
			id := b.unknown(t, "charge", 1)
			since := now()
			time.Sleep(time.Minute)
			r, err := b.Store.Get(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			listed := r.Listed()
			if c.sweepOnly {
				listed.State = driver.StateInProgress
			}
			was := r.Version
			r.Version, r.Due = driver.Version{7}, now().Add(c.due)
			if met, err := b.Store.Replace(t.Context(), *r, was); met != nil || err != nil {
				t.Fatal(met, err)
			}
			g, _ := newGuardOver(t, frozenList{b, []driver.Listed{listed}})
			report, err := kit.Reconcile(t.Context(), g, b.resolve, func(o *idempotent.ReconcileOptions) { o.SweepOnly = c.sweepOnly })
			if err != nil || report.String() != c.report || report.Pending != 1 || !report.Oldest.Equal(since) || b.calls != 0 {
				t.Errorf("%s: %s, %v; %d pending since %s, %d calls", name, report, err, report.Pending, report.Oldest, b.calls)
			}
			if after, err := b.Store.Get(t.Context(), id); err != nil || after.Version != r.Version {
				t.Errorf("%s: the record was written, %v", name, err)
			}
		})
	}
}

// The claim is stored in whole milliseconds, an answer that names a pause is
// followed, and a pause that the claim already holds costs no other write.
func TestReconcilePauses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		backoff, later time.Duration
		due            time.Duration // after the run
		writes         int
	}{
		"the pause is shorter than the claim": {time.Second, 0, time.Second, 2},
		"the pause is as long as the claim":   {12 * time.Second, 0, 12 * time.Second, 1},
		"the answer names a longer one":       {time.Second, time.Hour, time.Hour, 2},
		"a part of a millisecond":             {time.Minute + time.Microsecond, 0, time.Minute, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newWorkload()
			b.latency = 0
			id := b.unknown(t, "charge", 1)
			time.Sleep(time.Minute)
			writes := 0
			g, _ := newGuardOver(t, idempotenttest.Intercept(b.Store, func(ctx context.Context, c *idempotenttest.StoreCall) {
				if c.Do(ctx); c.Op == driver.OpReplace {
					writes++
				}
			}))
			report, err := kit.Reconcile(t.Context(), g, answer(idempotent.Later(c.later)), func(o *idempotent.ReconcileOptions) { o.Backoff = c.backoff })
			r, getErr := b.Store.Get(t.Context(), id)
			if err != nil || getErr != nil || report.Postponed != 1 || writes != c.writes || time.Until(r.Due) != c.due {
				t.Errorf("%s: %s, %v, %v; %d writes; due in %s", name, report, err, getErr, writes, time.Until(r.Due))
			}
		})
	}
}

// Oldest is the earliest moment at which a waiting record became unknown: before
// the end of its lease if its handler said so, whatever the order of the list.
func TestReportOldest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newWorkload()
		said := now().Add(time.Second)
		b.add(t, "charge", func(r *driver.Record) { // due last
			r.Since, r.LeaseEnd, r.Due = said, r.LeaseEnd.Add(time.Minute), r.Due.Add(48*time.Hour)
		})
		b.add(t, "charge", func(r *driver.Record) {
			r.Since, r.LeaseEnd, r.Due = said.Add(time.Hour), r.LeaseEnd.Add(time.Minute), r.Due.Add(24*time.Hour)
		})
		report, err := kit.Reconcile(t.Context(), b.guard(t), b.resolve)
		want := map[string]idempotent.Waiting{"charge": {Pending: 2, Oldest: said}}
		if err != nil || !report.Oldest.Equal(said) || !maps.Equal(report.Operations, want) {
			t.Errorf("the oldest since %s, %+v, %v; want %s", report.Oldest, report.Operations, err, said)
		}
	})
}

// At the very moment at which its lease ends, a record is due, and counts as one
// that waits if it cannot be read.
func TestReconcileAtTheEndOfTheLease(t *testing.T) {
	t.Parallel()
	for name, dry := range map[string]bool{"a list": false, "a scan in a dry run": true} {
		synctest.Test(t, func(t *testing.T) {
			b := newWorkload()
			ended := now().Add(time.Minute)
			b.add(t, "charge", func(r *driver.Record) {
				r.State, r.Since, r.LeaseEnd, r.Due = driver.StateInProgress, time.Time{}, ended, ended
			})
			time.Sleep(time.Minute)
			var store driver.Store = &observed{workload: b, get: func(driver.RecordID) error { return errDown }}
			if dry {
				store = &scanned{Store: b.Store}
			}
			g, _ := newGuardOver(t, store)
			report, err := kit.Reconcile(t.Context(), g, nil, func(o *idempotent.ReconcileOptions) { o.SweepOnly, o.DryRun = true, dry })
			if err != nil || report.Due != 1 || report.Pending != 1 || !report.Oldest.Equal(ended) {
				t.Errorf("%s: %s, %v; %d pending since %s", name, report, err, report.Pending, report.Oldest)
			}
		})
	}
}
