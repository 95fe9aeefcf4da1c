// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
)

// Reconciliation of many records, by several reconcilers, with resolvers that are
// down, slow or broken. All of it runs in synctest bubbles, whose clock takes no
// time.

// workload has records that wait, in a store whose calls take time, and the provider
// that reconcilers ask about them.
type workload struct {
	*memstore.Store
	latency time.Duration // of each call of the store
	takes   time.Duration // of each call of the provider
	back    time.Time     // until then the provider's calls fail

	mu        sync.Mutex
	asking    map[idempotent.RecordID]bool // now
	answered  map[idempotent.RecordID]bool
	calls     int
	failed    int
	double    int // calls about a record while another call was about it, or after it was answered
	conflicts int // writes that were refused
}

func newWorkload() *workload {
	return &workload{
		Store: memstore.New(), latency: 5 * time.Millisecond, takes: 80 * time.Millisecond, back: time.Now(),
		asking: map[idempotent.RecordID]bool{}, answered: map[idempotent.RecordID]bool{},
	}
}

// unknown adds n records that are unknown since now and due in a minute.
func (b *workload) unknown(t *testing.T, operation string, n int) (last idempotent.RecordID) {
	t.Helper()
	for range n {
		last = b.add(t, operation, func(*driver.Record) {})
	}
	return last
}

// add inserts a record that differs from an unknown one, which is due in a minute.
func (b *workload) add(t *testing.T, operation string, change func(*driver.Record)) driver.RecordID {
	t.Helper()
	key := newKey()
	key.Operation = operation
	r := driver.Record{ID: key.RecordID(), State: driver.StateUnknown, Attempt: 1, Created: now(), Since: now(), LeaseEnd: now(), Due: now().Add(time.Minute)}
	change(&r)
	if met, err := b.Insert(t.Context(), r, now()); met != nil || err != nil {
		t.Fatal(met, err)
	}
	return r.ID
}

func (b *workload) Get(ctx context.Context, id idempotent.RecordID) (*driver.Record, error) {
	time.Sleep(b.latency)
	return b.Store.Get(ctx, id)
}

func (b *workload) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	time.Sleep(b.latency)
	met, err := b.Store.Replace(ctx, r, was)
	if met != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.conflicts++
	}
	return met, err
}

// resolve is a resolver that asks the provider.
func (b *workload) resolve(_ context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
	b.mu.Lock()
	b.calls++
	if b.asking[r.ID] || b.answered[r.ID] {
		b.double++
	}
	b.asking[r.ID] = true
	b.mu.Unlock()
	time.Sleep(b.takes)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.asking, r.ID)
	if time.Now().Before(b.back) {
		b.failed++
		return idempotent.Resolution{}, errDown
	}
	b.answered[r.ID] = true
	return idempotent.Resolved("x"), nil
}

// waiting returns how many records wait for evidence, and how many were given up.
func (b *workload) waiting(t *testing.T) (due, exhausted int) {
	t.Helper()
	for _, err := range b.Due(t.Context(), time.Time{}) {
		if err != nil {
			t.Fatal(err)
		}
		due++
	}
	for range b.Exhausted(t.Context()) {
		exhausted++
	}
	return due, exhausted
}

func (b *workload) guard(t *testing.T) *idempotent.Guard {
	t.Helper()
	g, _ := newGuardOver(t, b)
	return g
}

// schedule runs n reconcilers at once, with a time-out of a minute, at the given
// interval, until stop returns true after a run.
func (b *workload) schedule(t *testing.T, n int, every time.Duration, stop func() bool) {
	t.Helper()
	reconcile := idempotent.Reconciler(b.guard(t), map[string]idempotent.ResolveFunc{"charge": b.resolve})
	for {
		next := time.Now().Add(every)
		var runs sync.WaitGroup
		for range n {
			runs.Go(func() {
				ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(time.Minute))
				defer cancel()
				_, _ = reconcile(ctx)
			})
		}
		runs.Wait()
		if stop() {
			return
		}
		time.Sleep(time.Until(next))
	}
}

// settled reports whether no record waits.
func (b *workload) settled(t *testing.T) func() bool {
	return func() bool {
		if time.Now().Before(b.back) {
			return false
		}
		due, _ := b.waiting(t)
		return due == 0
	}
}

// settling is the formula of docs/recovery.md: how long n records take after an
// outage, if r reconcilers with a time-out of a minute run every minute, and a
// record takes t.
func settling(pause time.Duration, n, r int, t time.Duration) time.Duration {
	const concurrency, share = 8, 48.0 / 60 // of a minute, because a run begins no record in its last 12 s
	work := float64(n) * t.Seconds() / float64(concurrency*r) / share
	return pause + time.Minute + time.Duration(work*float64(time.Second))
}

// After an outage of six hours, four reconcilers settle 100,000 records in the
// time that the formula gives. They ask about no record twice, and give up none. It
// runs without the race detector, which makes it twelve times as slow: make test-cost.
func TestLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const records, reconcilers, outage = 100_000, 4, 6 * time.Hour
		b := newWorkload()
		b.unknown(t, "charge", records)
		b.back = time.Now().Add(outage)
		runs := 0
		// Every half hour, only because a list of this length takes real time.
		b.schedule(t, reconcilers, 30*time.Minute, func() bool { runs += reconcilers; return !time.Now().Add(30 * time.Minute).Before(b.back) })
		if b.failed == 0 || b.failed > 5*runs {
			t.Errorf("%d calls in %d runs during the outage, want at most 5 in each", b.failed, runs)
		}
		time.Sleep(time.Until(b.back))
		b.schedule(t, reconcilers, time.Minute, b.settled(t))
		took := time.Since(b.back)
		limit := settling(time.Minute, records, reconcilers, b.takes+3*b.latency)
		t.Logf("%d calls during the outage; then %d records in %s, by the formula %s; %d refused writes", b.failed, records, took, limit, b.conflicts)
		if took > limit || took < limit/2 {
			t.Errorf("the records were settled after %s, want %s or somewhat less", took, limit)
		}
		if _, exhausted := b.waiting(t); exhausted > 0 || b.double > 0 || b.calls != records+b.failed {
			t.Errorf("%d records were given up, %d calls were about a record that was asked about or settled, and %d calls were made for %d records", exhausted, b.double, b.calls-b.failed, records)
		}
	})
}

// A resolver that never returns, ignores its context and is asked about many
// records delays neither other operations nor the end of the run, even if the run
// is short.
func TestReconcileHangs(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{3 * time.Second, 10 * time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			b := newWorkload()
			b.unknown(t, "refund", 100) // these have been due for longer
			time.Sleep(time.Minute)
			b.unknown(t, "charge", 100)
			time.Sleep(time.Minute)
			leave := make(chan struct{})
			defer close(leave)
			hung := 0
			reconcile := idempotent.Reconciler(b.guard(t), map[string]idempotent.ResolveFunc{
				"charge": b.resolve,
				"refund": func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
					b.mu.Lock()
					hung++
					b.mu.Unlock()
					<-leave
					return idempotent.Resolved("too late"), nil
				},
			}, func(o *idempotent.ReconcileOptions) { o.Concurrency = 16 })
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			report, err := reconcile(ctx)
			took := time.Since(began)
			if report.Completed != 100 || hung != 5 || report.Failed != 5 || report.Skipped != 95 || report.Operations["refund"].Pending != 100 {
				t.Errorf("in %s: %s; %d calls hang", timeout, report, hung)
			}
			if err == nil || !strings.Contains(err.Error(), `the resolver for "refund"`) {
				t.Errorf("in %s: got error %v", timeout, err)
			}
			if took > timeout/2+time.Second || took > 12*time.Second {
				t.Errorf("in %s: the run took %s", timeout, took)
			}
		})
	}
}

// One resolver that panics, ends its goroutine, hangs or is slow, or evidence that
// panics, costs only its own record.
func TestReconcileBrokenResolver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		resolve func(context.Context) (idempotent.Resolution, error)
		report  string
		says    string // part of the event's error
		takes   time.Duration
	}{
		"panics": {func(context.Context) (idempotent.Resolution, error) { panic("no such customer") },
			"8 due, 7 completed, 1 postponed, 1 failed", "panicked with a string", time.Second},
		"ends its goroutine": {func(context.Context) (idempotent.Resolution, error) {
			runtime.Goexit()
			return idempotent.Resolution{}, nil
		},
			"8 due, 7 completed, 1 postponed, 1 failed", "ended its goroutine", time.Second},
		"hangs": {func(context.Context) (idempotent.Resolution, error) {
			time.Sleep(time.Hour)
			return idempotent.Resolved("x"), nil
		},
			"8 due, 7 completed, 1 postponed, 1 failed", "did not return although its context had ended after at most 10s", 12 * time.Second},
		"ends with its context": {func(ctx context.Context) (idempotent.Resolution, error) {
			<-ctx.Done()
			return idempotent.Resolution{}, ctx.Err()
		},
			"8 due, 7 completed, 1 postponed, 1 failed", "deadline exceeded", 11 * time.Second},
		"answers soon after its context has ended": {func(ctx context.Context) (idempotent.Resolution, error) {
			<-ctx.Done()
			time.Sleep(900 * time.Millisecond)
			return idempotent.Resolved("x"), nil
		}, "8 due, 8 completed", "", 12 * time.Second},
		"is slow": {func(context.Context) (idempotent.Resolution, error) {
			time.Sleep(9 * time.Second)
			return idempotent.Resolved("x"), nil
		},
			"8 due, 8 completed", "", 10 * time.Second},
		"answers with evidence that panics": {func(context.Context) (idempotent.Resolution, error) { return idempotent.Resolved(explosive{}), nil },
			"8 due, 7 completed, 1 postponed, 1 failed", `the codec "json" panicked`, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newWorkload()
				b.unknown(t, "charge", 3)
				broken := b.unknown(t, "charge", 1)
				b.unknown(t, "charge", 4)
				time.Sleep(time.Minute)
				g, events := newGuardOver(t, b)
				began := time.Now()
				report, err := kit.Reconcile(t.Context(), g, func(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
					if r.ID == broken {
						return c.resolve(ctx)
					}
					return b.resolve(ctx, r)
				})
				took := time.Since(began)
				if err != nil || report.String() != c.report || took > c.takes || report.Pending != 8-report.Completed {
					t.Errorf("%s after %s, %v; %d pending", report, took, err, report.Pending)
				}
				said := ""
				for _, e := range events.Events() {
					if e.Kind == event.ReconcileFailed {
						said += e.Err.Error()
					}
				}
				if !strings.Contains(said, c.says) || c.says == "" && said != "" || strings.Contains(said, "customer") {
					t.Errorf("the events say %q, want %q", said, c.says)
				}
				time.Sleep(2 * time.Hour) // a call that was left behind returns, and nothing follows
				r, err := b.Store.Get(t.Context(), broken)
				if waits := report.Completed < 8; err != nil || (r.State == driver.StateUnknown) != waits || waits && !r.Due.After(began) {
					t.Errorf("the record is %s, due %s, %v", r.State, r.Due, err)
				}
			})
		})
	}
}

// explosive is a value that cannot be encoded.
type explosive struct{}

func (explosive) MarshalJSON() ([]byte, error) { panic("no such customer") }

// A run in which the provider goes down stops soon, and a run in which it is back
// works at full speed.
func TestReconcileStopsAndRecovers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newWorkload()
		b.unknown(t, "charge", 1000)
		time.Sleep(time.Minute)
		reconcile := idempotent.Reconciler(b.guard(t), map[string]idempotent.ResolveFunc{"charge": b.resolve})
		run := func() (idempotent.Report, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return reconcile(ctx)
		}
		down := time.AfterFunc(time.Second, func() {
			b.mu.Lock()
			b.back = time.Now().Add(30 * time.Second)
			b.mu.Unlock()
		})
		defer down.Stop()
		report, err := run()
		// Eight calls were under way when the first one failed.
		if err == nil || report.Completed < 50 || report.Failed < 5 || report.Failed > 8 || report.Completed+report.Failed+report.Skipped != 1000 {
			t.Errorf("while it goes down: %s, %v", report, err)
		}
		report, err = run()
		if err == nil || report.Completed > 0 || report.Failed != 5 || report.Postponed != 5 {
			t.Errorf("while it is down: %s, %v", report, err)
		}
		time.Sleep(30 * time.Second)
		left, began := report.Skipped, time.Now()
		report, err = run()
		if took, full := time.Since(began), time.Duration(left)*(b.takes+3*b.latency)/8; err != nil || report.Completed != left || took > full+time.Second {
			t.Errorf("when it is back: %s, %v, in %s; want %d in %s", report, err, took, left, full)
		}
	})
}

// A single failure between answers does not stop a run, however many there are.
func TestReconcileSingleFailures(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.unknowns(50)
	asked := 0
	resolve := func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
		if asked++; asked%5 != 0 {
			return idempotent.Resolution{}, errDown
		}
		return idempotent.Later(0), nil
	}
	report := f.reconcile(resolve, func(o *idempotent.ReconcileOptions) { o.Concurrency = 1 })
	if got := report.String(); got != "50 due, 50 postponed, 40 failed" {
		t.Errorf("the report: %s", got)
	}
}

// Functions with a short time-out work. A run in which nothing could be done fails.
func TestReconcileShortTimeouts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		timeout, takes time.Duration
		works          bool
	}{
		{time.Second, 200 * time.Millisecond, true},
		{3 * time.Second, time.Second, true},
		{10 * time.Second, 3 * time.Second, true},
		{12 * time.Second, 4 * time.Second, true},
		{400 * time.Millisecond, time.Millisecond, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newWorkload()
			b.takes = c.takes
			b.unknown(t, "charge", 100)
			time.Sleep(time.Minute)
			ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
			defer cancel()
			report, err := kit.Reconcile(ctx, b.guard(t), b.resolve)
			if ctx.Err() != nil {
				t.Errorf("in %s: the run did not end in time", c.timeout)
			}
			if !report.Incomplete || report.Pending != 100-report.Completed || !report.Listed || report.Failed > 0 {
				t.Errorf("in %s: %s; %d pending", c.timeout, report, report.Pending)
			}
			if c.works && (err != nil || report.Completed < 5) {
				t.Errorf("in %s: %s, %v; want some records completed", c.timeout, report, err)
			}
			if !c.works && (err == nil || !strings.Contains(err.Error(), "longer time-out") || report.Due != 100) {
				t.Errorf("in %s: %s, %v", c.timeout, report, err)
			}
		})
	}
}

// With little time, the resolver gets part of it, and its answer is still written.
func TestReconcileTimeOfResolver(t *testing.T) {
	t.Parallel()
	for left, want := range map[time.Duration]time.Duration{
		0: 10 * time.Second, time.Minute: 10 * time.Second, 24 * time.Second: 10 * time.Second, 12 * time.Second: 5 * time.Second, 3 * time.Second: 1250 * time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newWorkload()
			b.unknown(t, "charge", 1)
			time.Sleep(time.Minute)
			ctx := t.Context()
			if left > 0 {
				limited, cancel := context.WithTimeout(ctx, left)
				defer cancel()
				ctx = limited
			}
			var got time.Duration
			report, err := kit.Reconcile(ctx, b.guard(t), func(ctx context.Context, _ idempotent.PendingRecord) (idempotent.Resolution, error) {
				deadline, _ := ctx.Deadline()
				got = time.Until(deadline)
				<-ctx.Done()
				return idempotent.Resolved("x"), nil
			})
			if err != nil || report.Completed != 1 || got != want {
				t.Errorf("with %s: the resolver got %s, want %s; %s, %v", left, got, want, report, err)
			}
		})
	}
}

// While a record is asked about, and for its pause afterwards, it is not due.
func TestReconcileClaims(t *testing.T) {
	t.Parallel()
	for pause, want := range map[time.Duration]struct{ during, after time.Duration }{
		time.Minute: {time.Minute, 58 * time.Second},        // from the claim on
		time.Second: {12 * time.Second, time.Second},        // at least the time for a record
		time.Hour:   {time.Hour, time.Hour - 2*time.Second}, // MaxBackoff
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newWorkload()
			b.latency = 0
			id := b.unknown(t, "charge", 1)
			time.Sleep(time.Minute)
			dueIn := func() time.Duration {
				r, err := b.Store.Get(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				return time.Until(r.Due)
			}
			report, err := kit.Reconcile(t.Context(), b.guard(t), func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
				if got := dueIn(); got != want.during {
					t.Errorf("with pauses of %s, it is due in %s while it is asked about, want %s", pause, got, want.during)
				}
				time.Sleep(2 * time.Second)
				return idempotent.Later(0), nil
			}, func(o *idempotent.ReconcileOptions) { o.Backoff = pause })
			if got := dueIn(); err != nil || report.Postponed != 1 || got != want.after {
				t.Errorf("with pauses of %s: %s, %v; it is due in %s, want %s", pause, report, err, got, want.after)
			}
		})
	}
}

// A list that takes longer than half of the time is cut off: the run works on what
// it has read, and does not claim that it knows all.
func TestReconcileLongList(t *testing.T) {
	t.Parallel()
	for each, listed := range map[time.Duration]bool{100 * time.Millisecond: true, time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			b := newWorkload()
			b.unknown(t, "charge", 100)
			time.Sleep(time.Minute)
			g, _ := newGuardOver(t, &observed{workload: b, list: func(int, driver.Listed) error {
				time.Sleep(each)
				return nil
			}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			report, err := kit.Reconcile(ctx, g, b.resolve)
			want := 100
			if !listed {
				want = 30 // in half of a minute
			}
			if err != nil || report.Listed != listed || report.Incomplete == listed || report.Completed < want-1 || report.Completed > want {
				t.Errorf("%s for each entry: %s, %v; listed %t; want %d completed", each, report, err, report.Listed, want)
			}
		})
	}
}

// While one operation has more records than a run has time to read, each run works
// before it has read the list, and has gauges. The runs come to the records of the other
// operation, and then know how many wait.
func TestReconcileContinuesLongLists(t *testing.T) {
	t.Parallel()
	const (
		first, charges, refunds = 100, 1000, 5
		each                    = 50 * time.Millisecond // for an entry: 300 in a quarter of a minute
	)
	down := func(b *workload) { b.back = time.Now().Add(time.Hour) }
	for name, c := range map[string]struct {
		harm  func(*workload)
		asked int // charges, in each run at most
		moved int // charges that several runs settle or postpone
	}{
		"the provider is down": {down, 5, 5 * 5},
		"the provider is slow": {func(b *workload) { b.takes = 9 * time.Second }, 48, 8 * 48},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newWorkload()
			c.harm(b)
			since := now()
			for i := range charges + refunds {
				operation := "charge"
				if i >= charges {
					operation = "refund"
				}
				b.add(t, operation, func(r *driver.Record) { r.Due = r.Due.Add(time.Duration(i) * time.Millisecond) })
			}
			time.Sleep(2 * time.Minute)
			o := &observed{workload: b, list: func(int, driver.Listed) error { time.Sleep(each); return nil }}
			g, _ := newGuardOver(t, o)
			var asked time.Time // first
			reconcile := idempotent.Reading(first).Reconciler(g, map[string]idempotent.ResolveFunc{
				"charge": func(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
					b.mu.Lock()
					if asked.IsZero() {
						asked = time.Now()
					}
					b.mu.Unlock()
					return b.resolve(ctx, r)
				},
				"refund": answer(idempotent.Resolved("x")),
			})
			for run := 1; run <= 8; run++ {
				began, calls := time.Now(), b.calls
				asked = time.Time{}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				report, _ := reconcile(ctx)
				cancel()
				waits, _ := b.waiting(t)
				// The first entries, and 200 behind them in each run until the list ends.
				least, most := first+200*run, first+200*run
				if run >= 5 {
					least, most = waits, waits // when the runs read them
				}
				if !report.Listed || report.Pending < least-c.moved || report.Pending > most+c.moved || !report.Oldest.Equal(since) {
					t.Errorf("%s, run %d: listed %t, %d pending since %s; %d wait", name, run, report.Listed, report.Pending, report.Oldest, waits)
				}
				if after, n := asked.Sub(began), b.calls-calls; after > first*each+time.Second || n == 0 || n > c.asked {
					t.Errorf("%s, run %d: %d calls, the first after %s", name, run, n, after)
				}
				time.Sleep(time.Until(began.Add(time.Minute)))
			}
			for e := range b.Due(t.Context(), time.Time{}) {
				if e.ID.Operation() == "refund" {
					t.Errorf("%s: a refund is left", name)
				}
			}
		})
	}
}

// The runs of a handler continue a long list where the last one ended. They skip no
// entry, count none twice, and fail if the list fails from there on.
func TestReconcileContinuesExactly(t *testing.T) {
	t.Parallel()
	const first, behind = 32, 5
	synctest.Test(t, func(t *testing.T) {
		b := newWorkload()
		start := now()
		add := func(operation string, place int) {
			b.add(t, operation, func(r *driver.Record) { r.Due = start.Add(time.Duration(place) * time.Millisecond) })
		}
		for i := range first + behind {
			add("mail", i) // without a resolver, so it stays
		}
		time.Sleep(time.Minute)
		var ends func() error
		stop := time.Time{}
		g, _ := newGuardOver(t, &observed{workload: b, list: func(_ int, e driver.Listed) error {
			if e.Due.Equal(stop) {
				return ends()
			}
			return nil
		}})
		quarter := func() error { time.Sleep(15 * time.Second); return nil } // exactly, of a minute
		fails := func() error { return errLost }
		reconcile := idempotent.Reading(first).Reconciler(g, map[string]idempotent.ResolveFunc{"refund": answer(idempotent.Resolved("x"))})
		for i, run := range []struct {
			before    func()
			stop      int // the place of the entry before which the run ends
			ends      func() error
			pending   int
			completed int
		}{
			{func() {}, first + 1, quarter, first + 1, 0},
			{func() { add("refund", first) }, first + 2, quarter, first + 2, 1}, // due when the last entry was due
			{func() {}, first + 4, fails, first, 0},
			{func() {}, first + 4, quarter, first + 4, 0},
			{func() {}, first + behind, nil, first + behind, 0},
			{func() {}, first + 1, quarter, first + behind, 0}, // begins anew
		} {
			run.before()
			ends, stop = run.ends, start.Add(time.Duration(run.stop)*time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			report, err := reconcile(ctx)
			cancel()
			failed := run.pending == first
			if errors.Is(err, errLost) != failed || report.Listed == failed || report.Pending != run.pending || report.Completed != run.completed {
				t.Errorf("run %d: %s, %v; listed %t, %d pending; want %d completed and %d pending", i+1, report, err, report.Listed, report.Pending, run.completed, run.pending)
			}
			time.Sleep(time.Minute)
		}
	})
}

// Behind the first entries, a run works on a sixteenth of their number of each
// operation, from when it has read them, and counts those of its operations.
func TestReconcileBehindTheFirstEntries(t *testing.T) {
	t.Parallel()
	const first = 32
	synctest.Test(t, func(t *testing.T) {
		b := newWorkload()
		b.takes = 9900 * time.Millisecond // so that no time is left for another list
		place := 0
		add := func(n int, operation string, change func(*driver.Record)) {
			for range n {
				place++
				b.add(t, operation, func(r *driver.Record) { r.Due = r.LeaseEnd.Add(time.Duration(place) * time.Millisecond); change(r) })
			}
		}
		as := func(*driver.Record) {}
		add(60, "charge", as)
		add(5, "refund", as)
		add(3, "mail", as)
		add(3, "ship", func(r *driver.Record) { r.State = driver.StateInProgress })
		add(2, "ship", as)
		add(1, "refund", func(r *driver.Record) { r.Due = r.Due.Add(time.Hour) })
		time.Sleep(time.Minute)
		read := 0
		var asked []int // entries that were read when a refund was asked about
		o := &observed{workload: b, list: func(int, driver.Listed) error {
			time.Sleep(50 * time.Millisecond)
			b.mu.Lock()
			defer b.mu.Unlock()
			read++
			return nil
		}}
		g, _ := newGuardOver(t, o)
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Second)
		defer cancel()
		report, err := idempotent.Reading(first).Reconciler(g, map[string]idempotent.ResolveFunc{
			"charge": func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
				return idempotent.Resolution{}, errDown
			},
			"refund": func(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
				b.mu.Lock()
				asked = append(asked, read)
				b.mu.Unlock()
				return b.resolve(ctx, r)
			},
			"ship": b.resolve,
		}, func(o *idempotent.ReconcileOptions) { o.Operations = []string{"charge", "refund", "mail"} })(ctx)
		if err == nil || report.Completed != first/16 || report.Other != first/16 || report.Failed != 5 || !report.Listed || o.lists != 1 {
			t.Errorf("%s, %v; listed %t, %d lists", report, err, report.Listed, o.lists)
		}
		if want := []int{61, 62}; !slices.Equal(asked, want) {
			t.Errorf("the run asked about refunds when it had read %d entries, want %d", asked, want)
		}
		pending := map[string]int{}
		for operation, w := range report.Operations {
			pending[operation] = w.Pending
		}
		if want := map[string]int{"charge": 60, "refund": 4, "mail": 3}; !maps.Equal(pending, want) {
			t.Errorf("counted %v, want %v", pending, want)
		}
	})
}

// A run takes a limited number of records from one list, and lists again.
func TestReconcileListsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newWorkload()
		b.unknown(t, "charge", 10_000)
		b.unknown(t, "refund", 3)
		time.Sleep(time.Minute)
		// A dry run, which changes nothing, does not.
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		report, err := reading.Reconciler(b.guard(t), kit.Resolver(answer(idempotent.Resolved("x"))), func(o *idempotent.ReconcileOptions) { o.DryRun = true })(ctx)
		if err != nil || report.Due != 10_003 || report.Completed < oneList || report.Completed > oneList+3 {
			t.Errorf("a dry run: %s, %v", report, err)
		}
		report, err = reading.Reconciler(b.guard(t), kit.Resolver(b.resolve))(t.Context())
		if err != nil || report.String() != "10003 due, 10003 completed" || report.Pending != 0 || !report.Listed || b.double > 0 {
			t.Errorf("the report: %s, %v; %d pending, %d asked twice", report, err, report.Pending, b.double)
		}
		// With time for some, the others still wait.
		b.unknown(t, "charge", 10_000)
		time.Sleep(time.Minute)
		ctx, cancel = context.WithTimeout(t.Context(), 84*time.Second)
		defer cancel()
		report, err = reading.Reconciler(b.guard(t), kit.Resolver(b.resolve))(ctx)
		if err != nil || report.Due != 10_000 || report.Completed < 5000 || report.Completed > 7000 || !report.Incomplete || report.Pending != 10_000-report.Completed {
			t.Errorf("in 84 s: %s, %v; %d pending", report, err, report.Pending)
		}
	})
}

// frozenList is a store whose list does not change.
type frozenList struct {
	*workload
	entries []driver.Listed
}

func (f frozenList) Due(context.Context, time.Time) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		for _, e := range f.entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// OnExhausted that panics, ends its goroutine or hangs costs only its own record,
// which stays due.
func TestReconcileBrokenOnExhausted(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]func(){
		"panics":             func() { panic("no such queue") },
		"ends its goroutine": runtime.Goexit,
		"hangs":              func() { time.Sleep(time.Hour) },
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newWorkload()
			b.unknown(t, "charge", 2)
			id := b.unknown(t, "charge", 1)
			time.Sleep(time.Hour)
			g, events := newGuardOver(t, b)
			began := time.Now()
			report, err := kit.Reconcile(t.Context(), g, answer(idempotent.Later(time.Minute)), func(o *idempotent.ReconcileOptions) {
				o.GiveUpAfter = time.Minute
				o.OnExhausted = func(_ context.Context, r idempotent.PendingRecord) error {
					if r.ID == id {
						broken()
					}
					return nil
				}
			})
			took := time.Since(began)
			time.Sleep(2 * time.Hour) // a call that was left behind returns
			r, getErr := b.Store.Get(t.Context(), id)
			if err != nil || getErr != nil || report.String() != "3 due, 1 postponed, 2 exhausted, 1 failed" || r.Exhausted || !r.Due.After(began) || took > 12*time.Second {
				t.Errorf("%s: %s after %s, %v, %v; exhausted %t, due %s", name, report, took, err, getErr, r.Exhausted, r.Due)
			}
			if n := events.Count(event.ReconcileFailed); n != 1 {
				t.Errorf("%s: %d events", name, n)
			}
		})
	}
}

// Each operation is counted, and those without a resolver are named in the log
// once, whatever the number of runs.
func TestReconcilerCountsOperations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		b := newWorkload()
		g, _ := newGuardOver(t, b, func(o *idempotent.Options) { o.Logger = slog.New(slog.NewTextHandler(io.Writer(&log), nil)) })
		first := now()
		b.unknown(t, "charge", 2)
		b.unknown(t, "mail", 1)
		time.Sleep(time.Hour)
		b.unknown(t, "refund", 3)
		second := now()
		reconcile := idempotent.Reconciler(g, map[string]idempotent.ResolveFunc{"charge": answer(idempotent.Later(24 * time.Hour))})
		want := map[string]idempotent.Waiting{
			"charge": {Pending: 2, Oldest: first}, "mail": {Pending: 1, Oldest: first, NoResolver: true}, "refund": {Pending: 3, Oldest: second, NoResolver: true},
		}
		for range 3 {
			report, err := reconcile(t.Context())
			if err != nil || !maps.Equal(report.Operations, want) || report.Pending != 6 || !report.Oldest.Equal(first) {
				t.Errorf("the report: %+v, %v", report, err)
			}
			time.Sleep(time.Minute)
		}
		if text := log.String(); strings.Count(text, "no resolver") != 2 || strings.Count(text, "operation=mail") != 1 || strings.Count(text, "operation=refund records=3") != 1 {
			t.Errorf("logged %s", text)
		}
	})
}

// How a run lists, what it counts, and when it ends, to the moment. All of it runs
// in synctest bubbles, whose clock only moves when a test sleeps.
