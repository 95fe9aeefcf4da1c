// SPDX-License-Identifier: Apache-2.0

package scale_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/faults"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/tests/measured/scale"
)

var update = flag.Bool("update", false, "write the tables and plots of docs/reports/scale.md")

// In the simulations, warm tables serve everything at once, and their quota does not
// limit them.
const ample = 10_000_000

var tables = []struct {
	name string
	scale.Table
}{
	{"new, default quota", scale.Table{}},
	{"new, quota raised", scale.Table{Quota: ample}},
	{"warm, quota raised", scale.Table{Quota: ample, Warm: ample}},
}

// outcome describes a simulation: what is served in the end, what limits it first,
// and when everything is served.
func outcome(seconds []scale.Second, served func(scale.Second) float64, want float64) string {
	first, all := scale.None, len(seconds)
	for i := len(seconds); i > 0 && served(seconds[i-1]) >= 0.999*want; i-- {
		all = i - 1
	}
	for _, s := range seconds {
		if s.Limit != scale.None {
			first = s.Limit
			break
		}
	}
	last := seconds[len(seconds)-1]
	switch {
	case first == scale.None:
		return "all"
	case all < len(seconds):
		return fmt.Sprintf("all after %d min; first: %s", (all+59)/60, first)
	case first == last.Limit:
		return fmt.Sprintf("%s; %s", scale.Grouped(served(last)), first)
	}
	return fmt.Sprintf("%s; %s, then %s", scale.Grouped(served(last)), first, last.Limit)
}

func first(s scale.Second) float64 { return s.First }

// The table of docs/reports/scale.md: what limits a number of first requests.
func TestFirstLimit(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("| first requests a second | table | serves |\n| --: | --- | --- |\n")
	for _, table := range tables {
		for _, rate := range []float64{1000, 10_000, 30_000, 100_000, 1_000_000} {
			fmt.Fprintf(&text, "| %s | %s | %s |\n", scale.Grouped(rate), table.name,
				outcome(scale.Simulate(scale.Load{First: rate, Unknown: 0.0001, Units: 1}, table.Table, 5*time.Hour), first, rate))
		}
	}
	kit.Part(t, "../../../docs/reports/scale.md", "limits", text.String(), *update)
}

// While the provider is down, the outcome of every request is unknown and enters the
// index.
func TestOutage(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("| first requests a second, all unknown | serves |\n| --: | --- |\n")
	for _, rate := range []float64{10_000, 30_000, 60_000, 100_000} {
		fmt.Fprintf(&text, "| %s | %s |\n", scale.Grouped(rate),
			outcome(scale.Simulate(scale.Load{First: rate, Unknown: 1, Units: 1}, scale.Table{Quota: ample, Warm: ample}, time.Hour), first, rate))
	}
	kit.Part(t, "../../../docs/reports/scale.md", "outage", text.String(), *update)
}

// The table of docs/reports/scale.md: how long an outage of ten minutes with 10,000 requests a
// second takes to settle. One reconciler with the defaults needs less than 30 hours.
func TestMillions(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("| waiting | reconcilers | `Concurrency` | time for an entry | settled after | calls of the provider a second |\n| --: | --: | --: | --: | --: | --: |\n")
	for i, b := range []scale.Backlog{
		{Records: 6_000_000, Reconcilers: 1, Concurrency: 8, Entry: 5 * time.Microsecond},
		{Records: 6_000_000, Reconcilers: 1, Concurrency: 8, Entry: 50 * time.Microsecond},
		{Records: 6_000_000, Reconcilers: 1, Concurrency: 64, Entry: 5 * time.Microsecond},
		{Records: 6_000_000, Reconcilers: 4, Concurrency: 64, Entry: 5 * time.Microsecond},
		{Records: 1_000_000, Reconcilers: 1, Concurrency: 8, Entry: 5 * time.Microsecond},
		{Records: 100_000, Reconcilers: 1, Concurrency: 8, Entry: 5 * time.Microsecond},
	} {
		b.Provider, b.Call, b.Timeout, b.Interval = 80*time.Millisecond, 5*time.Millisecond, time.Minute, time.Minute
		after, _ := b.Settle()
		if i < 2 && after > 30*time.Hour {
			t.Errorf("%+v takes %s", b, after)
		}
		took := fmt.Sprintf("%.1f h", after.Hours())
		if after < 2*time.Hour {
			took = fmt.Sprintf("%.0f min", after.Minutes())
		}
		fmt.Fprintf(&text, "| %s | %d | %d | %d µs | %s | %s |\n", scale.Grouped(float64(b.Records)), b.Reconcilers, b.Concurrency, b.Entry.Microseconds(), took, scale.Grouped(b.Rate()))
	}
	kit.Part(t, "../../../docs/reports/scale.md", "millions", text.String(), *update)
}

// Repetitions of one request write to one key, whatever the table.
func TestOneKey(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("| repetitions a second | record | answered from the table | other requests |\n| --: | --: | --- | --- |\n")
	for _, l := range []scale.Load{
		{First: 300, Hot: 900, Units: 1}, {First: 300, Hot: 5000, Units: 1}, {First: 300, Hot: 5000, Units: 4},
	} {
		seconds := scale.Simulate(l, scale.Table{}, time.Hour)
		fmt.Fprintf(&text, "| %s | %g KB | %s | %s |\n", scale.Grouped(l.Hot), l.Units,
			outcome(seconds, func(s scale.Second) float64 { return s.Hot }, l.Hot), outcome(seconds, first, l.First))
		if got, want := seconds[len(seconds)-1].Hot, min(l.Hot, 1000/l.Units); got != want {
			t.Errorf("%v: %v repetitions are answered, by the formula %v", l, got, want)
		}
	}
	kit.Part(t, "../../../docs/reports/scale.md", "one-key", text.String(), *update)
}

// A table never serves more than a limit that AWS publishes, and the index at most
// its keys.
func TestLimitsHold(t *testing.T) {
	t.Parallel()
	for _, table := range tables {
		for _, l := range []scale.Load{{First: 7000, Units: 1}, {First: 90_000, Units: 1, Unknown: 1}, {First: 500, Hot: 3000, Units: 2}} {
			quota := cmp.Or(table.Quota, 40_000)
			for i, s := range scale.Simulate(l, table.Table, 2*time.Hour) {
				writes := (2*s.First + s.Hot) * l.Units
				saved := 0.0 // unused throughput may be used later
				if i < 600 {
					saved = 300_000
				}
				switch {
				case writes > quota+1:
					t.Fatalf("%v on %v serves %v writes in second %d", l, table, writes, i)
				case table.Warm == 0 && i < 1800 && writes > 4000+1:
					t.Fatalf("%v on %v serves %v writes in second %d of a new table", l, table, writes, i)
				case s.First*l.Unknown > scale.Shards*(1000+saved)+1:
					t.Fatalf("%v on %v writes %v units to the index in second %d", l, table, s.First*l.Unknown, i)
				}
			}
		}
	}
}

// The plots of docs/reports/scale.md.
func TestPlots(t *testing.T) {
	t.Parallel()
	hours := scale.Axis{Title: "minutes after the first request", Marks: []float64{0, 30, 60, 90, 120, 150, 180, 210, 240}}
	growing := func(warm float64) []scale.Second {
		return scale.Simulate(scale.Load{First: 50_000, Units: 1}, scale.Table{Quota: ample, Warm: warm}, 4*time.Hour)
	}
	plot(t, "growth", scale.SVG("What a new table serves of 50,000 first requests a second",
		hours, scale.Axis{Title: "first requests served a second", Marks: []float64{0, 10_000, 20_000, 30_000, 40_000, 50_000}},
		scale.Served("new table", growing(0)), scale.Served("warm throughput of 100,000 write units", growing(100_000))))
}

// plot compares a plot with the file in docs.
func plot(t *testing.T, name, want string) {
	t.Helper()
	file := "../../../docs/reports/scale-" + name + ".svg"
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s differs (%v): update it with go test ./tests/measured/scale -update", file, err)
	}
}

// service is a function and its reconciler in a synctest bubble: real guards and
// stores over DynamoDB in memory.
type service struct {
	t        *testing.T
	db       *dynamotest.DB
	requests int
}

// request is what a process does with a request: it works for some time without a look
// at its context. Lambda kills it at its time-out.
type request struct {
	timeout, works time.Duration
	exits          time.Duration // when its process ends without a warning; 0: not
	err            error         // that it returns
}

var (
	killed   = request{timeout: 10 * time.Second, works: time.Minute}
	crashes  = request{timeout: 15 * time.Minute, works: time.Minute, exits: time.Second}
	returned = request{timeout: 10 * time.Second, works: time.Second}
	failed   = request{timeout: 10 * time.Second, works: time.Second, err: idempotent.NotExecuted(errors.New("no connection"))}
)

func (s *service) guard(client dynamostore.Client) (*dynamostore.Store, *idempotent.Guard) {
	store, err := dynamostore.New(client, "records")
	if err != nil {
		s.t.Fatal(err)
	}
	g, err := idempotent.New(store, func(o *idempotent.Options) { o.Recovery = idempotent.Reconcile })
	if err != nil {
		s.t.Fatal(err)
	}
	return store, g
}

// send sends a request to a new process.
func (s *service) send(r request) {
	s.requests++
	key := idempotent.Key{Operation: "charge", Scope: "acme", ID: fmt.Sprint(s.requests), Fingerprint: idempotent.FingerprintBytes(nil)}
	var dead atomic.Bool
	end := r.timeout
	if r.exits > 0 {
		end = r.exits
	}
	time.AfterFunc(end, func() { dead.Store(true) })
	_, g := s.guard(dynamotest.Intercept(s.db, func(ctx context.Context, c *dynamotest.Call) {
		if c.Err = faults.ErrInjected; !dead.Load() {
			c.Do(ctx)
		}
	}))
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), r.timeout)
		defer cancel()
		idempotent.Do(ctx, g, key, func(context.Context) (string, error) {
			time.Sleep(r.works)
			return "ok", r.err
		})
	}()
}

// night is what a reconciler does that runs once a minute, until a time after the start.
type night struct {
	waited []time.Duration // from the end of each abandoned run's lease until the reconciler has found it
	ended  []time.Time     // the scans
}

// watch runs the reconciler. It calls meanwhile before each run, with the minute.
func (s *service) watch(until time.Duration, meanwhile func(minute int)) (n night) {
	store, g := s.guard(s.db)
	reconcile := idempotent.Reconciler(g, map[string]idempotent.ResolveFunc{
		"charge": func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
			return idempotent.Later(time.Hour), nil
		},
	})
	for minute := range int(until / time.Minute) {
		meanwhile(minute)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		report, err := reconcile(ctx)
		cancel()
		if err != nil {
			s.t.Fatal(report, err)
		}
		if e := report.Scan.Ended; len(n.ended) == 0 || e.After(n.ended[len(n.ended)-1]) {
			n.ended = append(n.ended, e)
		}
		time.Sleep(time.Minute - time.Since(time.Now().Truncate(time.Minute)))
	}
	for r, err := range store.Scan(context.Background()) {
		switch {
		case err != nil || r.State == driver.StateInProgress:
			s.t.Errorf("%s was not found: %v", r.ID, err)
		case r.State == driver.StateUnknown:
			n.waited = append(n.waited, r.Since.Sub(r.LeaseEnd))
		}
	}
	return n
}

// Abandoned runs are found within the times that docs/deploy.md promises. Each begins
// just after the end of a scan, which is the worst case.
func TestAbandonedRuns(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	each := func(first, last, every int, r request) func(*service, int) {
		return func(s *service, minute int) {
			if minute >= first && minute <= last && (minute-first)%every == 0 {
				s.send(r)
			}
		}
	}
	long := killed
	long.timeout, long.works = 15*time.Minute, 20*time.Minute
	var text strings.Builder
	text.WriteString("| what happens | abandoned runs | found after the end of the lease, at most |\n| --- | --: | --: |\n")
	for _, row := range []struct {
		name    string
		hours   int
		happens func(*service, int)
		found   int
		within  time.Duration
		scans   int // at most, after the one before
	}{
		{"one run is killed at its time-out of 10 s", 1, each(1, 1, 1, killed), 1, 2 * time.Minute, 0},
		{"one run is killed at its time-out of 15 min", 1, each(1, 1, 1, long), 1, 2 * time.Minute, 0},
		{"ten runs are killed in an hour", 2, each(1, 60, 6, killed), 10, 2 * time.Minute, 0},
		{"for three hours, each request is killed", 4, each(1, 180, 1, killed), 180, 2 * time.Minute, 0},
		{"for three hours, each handler returns an error in time", 4, each(1, 180, 1, failed), 0, 0, 0},
		{"a process ends without a warning, early in a time-out of 15 min", 25, each(1, 1, 1, crashes), 1, day, 1},
		{"the same, and an operator calls `once scan` after half an hour", 2, func(s *service, minute int) {
			each(1, 1, 1, crashes)(s, minute)
			if minute == 30 {
				store, _ := s.guard(s.db)
				if begins, err := store.BeginScan(context.Background(), time.Now()); !begins || err != nil {
					t.Errorf("the scan begins: %t, %v", begins, err)
				}
			}
		}, 1, 15 * time.Minute, 2},
		{"ten processes end without a warning in an hour", 25, each(1, 60, 6, crashes), 10, day, 1},
		{"one does each hour", 48, each(1, 46*60, 60, crashes), 46, day, 24},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &service{t: t, db: dynamotest.New("records")}
			n := s.watch(time.Duration(row.hours)*time.Hour, func(minute int) { row.happens(s, minute); each(0, 1<<30, 60, returned)(s, minute) })
			longest := time.Duration(0)
			for _, waited := range n.waited {
				longest = max(longest, waited)
			}
			if len(n.waited) != row.found || longest > row.within || len(n.ended)-1 > row.scans {
				t.Errorf("%s: %d runs were found within %s, in %d scans; want %d within %s, in at most %d", row.name, len(n.waited), longest, len(n.ended)-1, row.found, row.within, row.scans)
			}
			words := "–"
			if row.found > 0 {
				words = fmt.Sprintf("%.0f min", longest.Minutes())
			}
			fmt.Fprintf(&text, "| %s | %d | %s |\n", row.name, row.found, words)
		})
	}
	kit.Part(t, "../../../docs/reports/scale.md", "abandoned", text.String(), *update)
}
