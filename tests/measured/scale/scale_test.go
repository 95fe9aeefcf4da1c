// SPDX-License-Identifier: Apache-2.0

package scale_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

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
