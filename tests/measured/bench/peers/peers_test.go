// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/once-lambda/once/internal/kit"
)

const (
	page = "../../../../docs/reports/benchmarks.md"
	plot = "../../../../docs/reports/benchmarks.svg"
)

var update = flag.Bool("update", false, "write the tables and the plot of docs/reports/benchmarks.md from results.json")

// The figures of the page are those of the committed run.
func TestPage(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("results.json")
	if err != nil {
		t.Fatal(err)
	}
	var r Results
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		t.Fatal(err)
	}
	if text, err := r.Encode(); err != nil || !bytes.Equal(text, data) {
		t.Errorf("results.json is not what Encode returns (%v)", err)
	}
	for name, want := range r.Page() {
		kit.Part(t, page, name, want, *update)
	}
	if *update {
		if err := os.WriteFile(plot, []byte(r.Plot()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(plot)
	if err != nil || string(got) != r.Plot() {
		t.Errorf("%s is not the plot of results.json (%v): go test -run TestPage -update", plot, err)
	}
}

// The harness works, and all clients written in Go make the same calls: two for a
// first request, and one for a replay or a refusal.
func TestShortRun(t *testing.T) {
	t.Parallel()
	r, err := Measure(t.Context(), Options{Runs: 1, Rounds: 1, Starts: 1, Short: true, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Sides) != 3 || len(r.Runs) != 1 || len(r.Runs[0].Costs) != len(works) || len(r.Ready) != 3 {
		t.Fatalf("%d sides, %d runs, %d starts", len(r.Sides), len(r.Runs), len(r.Ready))
	}
	for _, side := range r.Sides {
		for _, w := range works {
			if c := r.Runs[0].Costs[w.name][side]; c.Wall <= 0 || c.CPU <= 0 {
				t.Errorf("%s, %s: cost %+v", side, w.name, c)
			}
		}
		for work, calls := range map[string]float64{"first": 2, "replay": 1, "steps-20": 22} {
			if at := r.Runs[0].Costs[work][side].Billed; at < calls*5000 {
				t.Errorf("%s, %s: %g calls of 5 ms took %g µs", side, work, calls, at)
			}
		}
		for work, want := range map[string]float64{"first": 2, "replay": 1, "in-progress": 1, "steps-1": 3, "steps-20": 22, "batch-10": 20} {
			if calls := r.Traffic[work][side].Calls; calls != want {
				t.Errorf("%s, %s: %g calls, want %g", side, work, calls, want)
			}
		}
		if r.Memory[side] <= 0 {
			t.Errorf("%s has no memory", side)
		}
	}
}

// A ratio compares the turns of one round, and a spread has the quartiles.
func TestRatios(t *testing.T) {
	t.Parallel()
	run := Run{Costs: map[string]map[string]Cost{}}
	turns := [][]turn{{{Wall: 1000, CPU: 100}, {Wall: 2000, CPU: 300}, {Wall: 4000, CPU: 500}}, {{Wall: 2000, CPU: 100}, {Wall: 5000, CPU: 300}, {Wall: 12_000, CPU: 1000}}}
	run.add(works[0], []side{{Contestant: bare, Table: plain}, {Contestant: rerun, Table: plain}}, turns)
	if got, want := run.Costs["first"]["once, Rerun/plain"], (Cost{Wall: 5, CPU: 0.3}); got != want {
		t.Errorf("cost %+v, want %+v", got, want)
	}
	if len(run.Ratios) != 1 || run.Ratios[0].Wall != (Spread{2.5, 2.25, 2.75}) || run.Ratios[0].CPU != (Spread{1, 1, 1.5}) {
		t.Errorf("ratios %+v", run.Ratios)
	}
}

// A price has the request, the time with half a GB, and both kinds of units.
func TestPrice(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		micros float64
		units  Traffic
		want   float64
	}{
		{0, Traffic{}, 0.20},
		{12_000, Traffic{Writes: 2}, 1.5300004},             // 0.20 + 12,000 s × 0.5 GB × 0.0000133334 + 2 × 0.625
		{30_000, Traffic{Writes: 1, Reads: 18.5}, 3.337501}, // 0.20 + 0.200001 + 0.625 + 18.5 × 0.125
	} {
		if got := price(row.micros, row.units); math.Abs(got-row.want) > 1e-9 {
			t.Errorf("%g µs and %+v cost %.9f, want %.9f", row.micros, row.units, got, row.want)
		}
	}
}

// A goal is missed if the median of the runs misses it, and the missed goals come first.
func TestGoals(t *testing.T) {
	t.Parallel()
	r := Results{Traffic: map[string]map[string]Traffic{}}
	contestants := []string{bare, rerun, python, typescript}
	for _, w := range works {
		r.Traffic[w.name] = map[string]Traffic{}
		for _, c := range contestants {
			r.Traffic[w.name][c+"/"+plain] = Traffic{Writes: 2}
		}
	}
	r.Traffic["replay"][typescript+"/"+plain] = Traffic{Writes: 1} // $0.891667 instead of $1.516667
	for i, time := range []float64{1.2, 1.11, 1.0, 1.3, 1.05} {
		run := Run{Costs: map[string]map[string]Cost{}}
		for _, w := range works {
			run.Costs[w.name] = map[string]Cost{}
			for _, c := range contestants {
				run.Costs[w.name][c+"/"+plain] = Cost{Billed: 10_000}
			}
			ratio := Ratio{Work: w.name, Of: rerun + "/" + plain, To: bare + "/" + plain, Wall: Spread{Median: 1}}
			switch {
			case w.name == "first":
				ratio.Wall.Median = time
			case w.name == "batch-10" && i > 2: // the last two of five
				ratio.Wall.Median = 9
			}
			run.Ratios = append(run.Ratios, ratio)
		}
		r.Runs = append(r.Runs, run)
	}
	var got []string
	for row := range strings.Lines(r.goals()) {
		got = append(got, strings.TrimSpace(row))
	}
	want := []string{
		"| price at most that of Powertools TypeScript | replay | 1.701 1.701 1.701 1.701 1.701 | **missed** |",
		"| up to 1 KB: time at most 1.10 × that of the bare SDK | first request | 1.200 1.110 1.000 1.300 1.050 | **missed** |",
		"| price at most that of Powertools Python | works: 17 | at most 1.000 | met |",
	}
	if len(got) < 5 || !slices.Equal(got[2:5], want) {
		t.Errorf("goals:\n%s\nwant first:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The meter counts what DynamoDB charges, also for a refusal, and returns the
// answer without it.
func TestMeterCountsUnits(t *testing.T) {
	t.Parallel()
	var m meter
	for _, row := range []struct{ operation, answer, want string }{
		{"PutItem", `{"ConsumedCapacity":{"TableName":"t","CapacityUnits":3.0}}`, `{}`},
		{"BatchGetItem", `{"ConsumedCapacity":[{"CapacityUnits":2.5},{"CapacityUnits":1}],"Responses":{}}`, `{"Responses":{}}`},
		// pk, b and four digits have 2+1000+1+3+3 bytes, and the list and the map
		// 1+3+1+3+1+1+15.
		{"PutItem", `{"Item":{"pk":{"S":"` + string(bytes.Repeat([]byte("x"), 1000)) + `"},"b":{"B":"AAA="},"n":{"N":"1234"},"l":{"L":[{"M":{"k":{"S":"123456789012345"}}}]}}}`, ""},
	} {
		got, err := m.count(row.operation, []byte(row.answer))
		if want := row.want; err != nil || want != "" && string(got) != want || want == "" && string(got) != row.answer {
			t.Errorf("%s: %s and error %v", row.operation, got, err)
		}
	}
	if _, err := m.count("PutItem", []byte(`{}`)); err == nil {
		t.Error("an answer without units was accepted")
	}
	got, err := m.take(nil)
	if want := (Traffic{Calls: 3, Writes: 5, Reads: 3.5}); got != want || err != nil {
		t.Errorf("counted %+v and error %v, want %+v", got, err, want)
	}
}
