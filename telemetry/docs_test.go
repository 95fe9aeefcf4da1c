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

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/logs"
	"github.com/once-lambda/once/telemetry"
	"github.com/once-lambda/once/telemetry/audit"
	"github.com/once-lambda/once/telemetry/emf"
)

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
