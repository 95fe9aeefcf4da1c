// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/logs"
	"github.com/once-lambda/once/telemetry"
	"github.com/once-lambda/once/telemetry/audit"
	"github.com/once-lambda/once/telemetry/emf"
)

// kinds returns every kind of event that package event declares.
func kinds(t *testing.T) (all []event.Kind) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../idempotent/event/event.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "Kind" {
				name, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, event.Kind(name))
			}
		}
		return true
	})
	return all
}

// Every kind of event has one metric, named after it.
func TestEveryKindHasAMetric(t *testing.T) {
	t.Parallel()
	all := kinds(t)
	metrics := telemetry.Metrics()
	if len(all) < 20 || len(metrics) != len(all) {
		t.Errorf("%d kinds of event and %d metrics", len(all), len(metrics))
	}
	for _, kind := range all {
		i := telemetry.Index(kind)
		if i < 0 || metrics[i].Kind != kind || metrics[i].Name != "once."+string(kind) {
			t.Errorf("%s has no metric", kind)
		}
	}
	if i := telemetry.Index("of a later version"); i != -1 {
		t.Errorf("an unknown kind has index %d", i)
	}
	wellFormed := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	for _, kind := range all {
		if !wellFormed.MatchString(string(kind)) {
			t.Errorf("%s is not a valid name", kind)
		}
	}
	metrics[0].Name = "changed"
	if telemetry.Metrics()[0].Name == "changed" {
		t.Error("a caller can change the names")
	}
}

// A record without a time, or from a clock that is ahead, has no age.
func TestAge(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(100_000)
	for since, want := range map[time.Time]time.Duration{{}: 0, now.Add(-time.Minute): time.Minute, now.Add(time.Second): 0} {
		if got := telemetry.Age(since, now); got != want {
			t.Errorf("since %s: got %s, want %s", since, got, want)
		}
	}
}

// F81, F82: the names of the metrics do not change, because alarms and dashboards
// use them. Conflicts, misuse of keys, failures of the store and records that lost
// their owner have separate metrics.
func TestNamesStand(t *testing.T) {
	t.Parallel()
	names := map[event.Kind]string{}
	for _, m := range telemetry.Metrics() {
		names[m.Kind] = m.Name
	}
	for kind, want := range map[event.Kind]string{
		event.InProgress: "once.in_progress", event.Mismatch: "once.mismatch", event.StoreError: "once.store_error",
		event.MarkedUnknown: "once.marked_unknown", event.Reserved: "once.reserved", event.Replayed: "once.replayed",
		event.TakenOver: "once.taken_over", event.Unresolved: "once.unresolved", event.ExpiredReplaced: "once.expired_replaced",
		event.ReconcileScheduled: "once.reconcile_scheduled", event.Resolved: "once.resolved", event.ReconcileFailed: "once.reconcile_failed",
		event.RequestEnded: "once.request_ended",
	} {
		if got := names[kind]; got != want {
			t.Errorf("%s is counted as %q, want %s", kind, got, want)
		}
	}
}

var update = flag.Bool("update", false, "write the generated parts of the documents")

// meanings returns the documentation in package event of each kind.
func meanings(t *testing.T) map[event.Kind]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../idempotent/event/event.go", nil, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	all := map[event.Kind]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && spec.Comment != nil && len(spec.Values) == 1 {
			name, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all[event.Kind(name)] = strings.TrimSpace(spec.Comment.Text())
		}
		return true
	})
	return all
}

// The table of metrics in docs/reports/limits.md matches the code.
func TestDocs(t *testing.T) {
	t.Parallel()
	says := meanings(t)
	var table strings.Builder
	table.WriteString("| metric | counts how often |\n| --- | --- |\n")
	for _, m := range telemetry.Metrics() {
		if says[m.Kind] == "" {
			t.Errorf("%s has no description", m.Kind)
		}
		fmt.Fprintf(&table, "| `%s` | %s |\n", m.Name, says[m.Kind])
	}
	kit.Part(t, "../docs/reports/limits.md", "metrics", table.String(), *update)
}

// docs/observe.md has the names of the gauges and histograms, and the table of words in
// docs/reports/limits.md has every field of a line: of the log, of the audit, and of the
// metrics.
func TestWords(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../docs/observe.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	for _, name := range []string{
		telemetry.UnknownRecords, telemetry.UnknownOldestAge, telemetry.ReleasedRecords, telemetry.ReleasedOldestAge,
		telemetry.ClaimDuration, telemetry.HandlerDuration, telemetry.SettleDuration,
	} {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("the page does not name %s", name)
		}
	}
	words := map[string]bool{"time": true, "timestamp": true, "level": true, "msg": true, "_aws": true} // of slog, and of the format of metrics
	limits, err := os.ReadFile("../docs/reports/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(limits), "<!-- words -->\n")
	table, _, _ = strings.Cut(table, "<!-- /words -->")
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(table, -1) {
		words[row[1]] = true
	}
	if len(words) < 16 {
		t.Fatalf("the table has the words %v", words)
	}
	var w bytes.Buffer
	metrics, err := emf.New(&w, "Charges")
	if err != nil {
		t.Fatal(err)
	}
	all := event.Observers(metrics, audit.New(&w), event.LogObserver(slog.New(slog.NewJSONHandler(&w, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	for _, kind := range kinds(t) {
		all.Observe(t.Context(), event.Event{
			Kind: kind, Operation: "charge", KeyHash: "h", RequestID: "r", Attempt: 1, Reason: driver.ReasonResult, Step: "s",
			Err: logs.Error("x"), Durations: event.Durations{Claim: 1, Handler: 1, Settle: 1},
		})
	}
	if err := metrics.Flush(); err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(w.Bytes()) {
		var fields map[string]any
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatal(err)
		}
		for name := range fields {
			if !words[name] && !strings.HasPrefix(name, telemetry.Prefix) {
				t.Errorf("the table has no word %q, of the line %s", name, line)
			}
		}
	}
}
