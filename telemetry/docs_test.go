// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/doctest"
	"github.com/once-lambda/once/telemetry"
)

var update = flag.Bool("update", false, "write the generated parts of the documents")

// meanings returns the documentation in package event of each kind of fact.
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

// The table of metrics in docs/observe.md matches the code.
func TestDocs(t *testing.T) {
	t.Parallel()
	says := meanings(t)
	var table strings.Builder
	table.WriteString("| metric | the fact | |\n| --- | --- | --- |\n")
	for _, m := range telemetry.Metrics() {
		if says[m.Kind] == "" {
			t.Errorf("%s has no description", m.Kind)
		}
		fmt.Fprintf(&table, "| `%s` | `%s` | %s |\n", m.Name, m.Kind, says[m.Kind])
	}
	doctest.Part(t, "../docs/observe.md", "metrics", table.String(), *update)
	// The metrics of the page's alarms exist.
	for _, name := range []string{
		"store.error", "reconcile.exhausted", "complete.contradicted", "zombie_key", "complete.failed", "complete.lease_lost", "complete.late", "reserve.key_misuse", "reserve.replay",
	} {
		if !strings.Contains(table.String(), "`api.idempotency."+name+".count`") {
			t.Errorf("there is no metric %s to alarm on", name)
		}
	}
}
