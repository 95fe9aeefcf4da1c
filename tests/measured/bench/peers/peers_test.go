// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
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
