// SPDX-License-Identifier: Apache-2.0

// Package waiting settles many records with the real reconciler, and compares the
// time with the simulation of package scale. Some thousand records take seconds on
// DynamoDB Local; make measure-waiting settles 200,000.
package waiting

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"iter"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/tests/measured/scale"
)

var records = flag.Int("records", 2000, "how many records are settled on DynamoDB Local")

// The real reconciler takes the time of the simulation: on a clock that takes no time,
// within 5 %.
func TestSettlesAsSimulated(t *testing.T) {
	t.Parallel()
	for _, b := range []scale.Backlog{
		{Records: 10_000, Reconcilers: 1, Concurrency: 8, Entry: 500 * time.Microsecond, Interval: time.Minute},
		{Records: 120_000, Reconcilers: 1, Concurrency: 64, Entry: 50 * time.Microsecond, Interval: time.Minute},
		{Records: 6_000, Reconcilers: 2, Concurrency: 8, Entry: 500 * time.Microsecond, Interval: time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			b.Provider, b.Call, b.Timeout = 80*time.Millisecond, 5*time.Millisecond, time.Minute
			if result, ok := settles(t, &slow{memstore.New(), b}, b, 0.05); !ok {
				t.Error(result)
			}
		})
	}
}

// On DynamoDB Local it does so within 20 %, with the times for a call and for an entry
// that are measured meanwhile.
func TestSettlesOnDynamoDBLocal(t *testing.T) {
	t.Parallel()
	endpoint, stop, err := engine.DynamoDBLocal()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	kit.Within(t, func() (string, bool) {
		store, err := dynamostore.New(dynamostore.NewClient(engine.Config(endpoint)), "once-"+strings.ToLower(rand.Text()))
		if err != nil {
			t.Fatal(err)
		}
		if err := store.CreateTable(t.Context()); err != nil {
			t.Fatal(err)
		}
		return settles(t, store, scale.Backlog{Records: *records, Reconcilers: 1, Concurrency: 16, Provider: 40 * time.Millisecond, Timeout: time.Minute}, 0.2)
	})
}

// While the provider is down and six million records wait, each run works within a
// second, has gauges, and holds little of the list. From the second run on, the gauges
// are right within 2 %.
func TestGaugesOfMillions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 6_000_000
		s := &millions{n: n, since: time.Now()}
		time.Sleep(time.Hour)
		guard, err := idempotent.New(s, func(o *idempotent.Options) { o.Logger = slog.New(slog.DiscardHandler) })
		if err != nil {
			t.Fatal(err)
		}
		heap := func() uint64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		var began time.Time
		var mu sync.Mutex
		calls, empty := 0, heap()
		reconcile := idempotent.Reconciler(guard, map[string]idempotent.ResolveFunc{
			"charge": func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
				mu.Lock()
				defer mu.Unlock()
				if calls++; calls%5 == 1 {
					if late, held := time.Since(began), heap()-empty; late > time.Second || held > 64<<20 {
						t.Errorf("the first call of a run after %s, with %d MB of the list", late, held>>20)
					}
				}
				return idempotent.Resolution{}, errors.New("the provider is down")
			},
		})
		for run := 1; run <= 4; run++ {
			began = time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			report, err := reconcile(ctx)
			cancel()
			least, most := n-n/50, n+n/50
			if run == 1 { // a quarter of its time: 15 s of 30 for the list
				least, most = n/2-n/50, n/2+n/50
			}
			if err == nil || !report.Listed || report.Pending < least || report.Pending > most || !report.Oldest.Equal(s.since) || calls != 5*run {
				t.Errorf("run %d: listed %t, %d pending since %s, %d calls; %v", run, report.Listed, report.Pending, report.Oldest, calls, err)
			}
			time.Sleep(time.Until(began.Add(time.Minute)))
		}
	})
}

// millions is a store of n unknown records, which it makes when they are read. An entry
// of its list takes 5 µs.
type millions struct {
	driver.Store
	n     int
	since time.Time
}

const apart = 100 * time.Microsecond // the records are due

func (s *millions) Get(_ context.Context, id driver.RecordID) (*driver.Record, error) {
	return &driver.Record{ID: id, State: driver.StateUnknown, Attempt: 1, Since: s.since, LeaseEnd: s.since, Due: s.since}, nil
}

func (s *millions) Replace(context.Context, driver.Record, driver.Version) (*driver.Record, error) {
	return nil, nil
}

func (s *millions) Exhausted(context.Context) iter.Seq2[driver.Listed, error] {
	return func(func(driver.Listed, error) bool) {}
}

func (s *millions) Due(ctx context.Context, after time.Time) iter.Seq2[driver.Listed, error] {
	if after.IsZero() {
		after = s.since
	}
	return func(yield func(driver.Listed, error) bool) {
		hash := strings.Repeat("A", 43-7)
		for i := int(after.Sub(s.since)/apart) + 1; i <= s.n; i++ {
			if i%200 == 0 {
				time.Sleep(time.Millisecond)
			}
			due := s.since.Add(time.Duration(i) * apart)
			if !yield(driver.Listed{ID: driver.RecordID(fmt.Sprintf("charge#%s%07d", hash, i)), State: driver.StateUnknown, Since: s.since, LeaseEnd: s.since, Due: due}, nil) {
				return
			}
		}
	}
}

// slow is a store whose calls take the times of a backlog.
type slow struct {
	*memstore.Store
	scale.Backlog
}

func (s *slow) Get(ctx context.Context, id driver.RecordID) (*driver.Record, error) {
	time.Sleep(s.Call)
	return s.Store.Get(ctx, id)
}

func (s *slow) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	time.Sleep(s.Call)
	return s.Store.Replace(ctx, r, was)
}

func (s *slow) Due(ctx context.Context, after time.Time) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		for e, err := range s.Store.Due(ctx, after) {
			if time.Sleep(s.Entry); !yield(e, err) {
				return
			}
		}
	}
}

// timed is a store that measures its calls, and how long a run reads before it works.
type timed struct {
	driver.DueLister
	driver.Store

	mu      sync.Mutex
	calls   int
	calling time.Duration
	entries int
	reading time.Duration
}

func (s *timed) Get(ctx context.Context, id driver.RecordID) (*driver.Record, error) {
	defer s.took(time.Now())
	return s.Store.Get(ctx, id)
}

func (s *timed) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	defer s.took(time.Now())
	return s.Store.Replace(ctx, r, was)
}

func (s *timed) took(began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.calling += time.Since(began)
}

func (s *timed) Due(ctx context.Context, after time.Time) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		began, read := time.Now(), 0
		measured := func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.entries, s.reading = s.entries+read, s.reading+time.Since(began)
		}
		for e, err := range s.DueLister.Due(ctx, after) {
			if read++; read == 100_000 {
				measured()
			}
			if !yield(e, err) {
				return
			}
		}
		if read < 100_000 {
			measured()
		}
	}
}

// settles runs reconcilers until no record of b waits in the store, and reports whether
// that took the time of the simulation. It measures the times for a call of either side
// and for an entry.
func settles(t *testing.T, store interface {
	driver.Store
	driver.DueLister
}, b scale.Backlog, within float64,
) (result string, ok bool) {
	t.Helper()
	fill(t, store, b.Records)
	s := &timed{DueLister: store, Store: store}
	guard, err := idempotent.New(s, func(o *idempotent.Options) { o.Logger = slog.New(slog.DiscardHandler) })
	if err != nil {
		t.Fatal(err)
	}
	var asked sync.Map
	var asking atomic.Int64
	settled := 0
	reconcile := idempotent.Reconciler(guard, map[string]idempotent.ResolveFunc{
		"charge": func(_ context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
			began := time.Now()
			time.Sleep(b.Provider)
			asking.Add(int64(time.Since(began)))
			if _, twice := asked.LoadOrStore(r.ID, true); twice {
				t.Errorf("%s was asked about twice", r.ID)
			}
			return idempotent.ResolvedWithoutResult(), nil
		},
	}, func(o *idempotent.ReconcileOptions) { o.Concurrency = b.Concurrency })
	began, runs := time.Now(), 0
	for next := began; settled < b.Records && runs < 1000; runs++ {
		time.Sleep(time.Until(next))
		next = time.Now().Add(b.Interval)
		reports := make(chan idempotent.Report, b.Reconcilers)
		for range b.Reconcilers {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), b.Timeout)
				defer cancel()
				report, err := reconcile(ctx)
				if err != nil || !report.Listed {
					t.Errorf("%s, %v; listed %t", report, err, report.Listed)
				}
				reports <- report
			}()
		}
		for range b.Reconcilers {
			report := <-reports
			settled += report.Completed
			if b.Reconcilers == 1 && report.Pending != b.Records-settled {
				t.Errorf("%d records wait by the report, want %d", report.Pending, b.Records-settled)
			}
		}
	}
	took := time.Since(began)
	b.Provider = time.Duration(asking.Load()) / time.Duration(b.Records)
	b.Call, b.Entry = s.calling/time.Duration(s.calls), s.reading/time.Duration(max(1, s.entries))
	want, of := b.Settle()
	ratio := float64(took) / float64(want)
	return fmt.Sprintf("%d records, %s for a call of the store, %s of the provider, %s for an entry: %s in %d runs; simulated: %s in %d",
		b.Records, b.Call, b.Provider, b.Entry, took, runs, want, of), ratio > 1-within && ratio < 1+within
}

// fill inserts n unknown records that are due.
func fill(t *testing.T, store driver.Store, n int) {
	t.Helper()
	due := time.Now().UTC().Truncate(time.Millisecond)
	var writers sync.WaitGroup
	for w := range 16 {
		writers.Go(func() {
			for i := w; i < n; i += 16 {
				r := driver.Record{
					ID:    idempotent.Key{Operation: "charge", Scope: "acme", ID: fmt.Sprint(i)}.RecordID(),
					State: driver.StateUnknown, Recovery: idempotent.Reconcile, Attempt: 1, Created: due, Since: due, LeaseEnd: due, Due: due,
				}
				binary.BigEndian.PutUint64(r.Version[:], uint64(i)+1)
				if met, err := store.Insert(t.Context(), r, due); met != nil || err != nil {
					t.Error(met, err)
					return
				}
			}
		})
	}
	writers.Wait()
}
