// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"testing"

	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/telemetry"
)

// kinds returns every kind of fact that package event declares.
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

// Every kind of fact has one metric, and no two share a name.
func TestEveryFactHasAMetric(t *testing.T) {
	t.Parallel()
	all := kinds(t)
	metrics := telemetry.Metrics()
	if len(all) < 20 || len(metrics) != len(all) {
		t.Errorf("%d kinds of fact and %d metrics", len(all), len(metrics))
	}
	for _, kind := range all {
		if i := telemetry.Index(kind); i < 0 || metrics[i].Kind != kind {
			t.Errorf("%s has no metric", kind)
		}
	}
	if i := telemetry.Index("of a later version"); i != -1 {
		t.Errorf("an unknown kind has index %d", i)
	}
	wellFormed := regexp.MustCompile(`^api\.idempotency(\.[a-z_]+)+\.count$`)
	seen := map[string]bool{}
	for _, m := range metrics {
		if seen[m.Name] || !wellFormed.MatchString(m.Name) {
			t.Errorf("%s is not a valid name, or is used twice", m.Name)
		}
		seen[m.Name] = true
	}
	metrics[0].Name = "changed"
	if telemetry.Metrics()[0].Name == "changed" {
		t.Error("a caller can change the names")
	}
}

// F81, F82: the names of the metrics do not change, because dashboards use them.
func TestNamesStand(t *testing.T) {
	t.Parallel()
	names := map[event.Kind]string{}
	for _, m := range telemetry.Metrics() {
		names[m.Kind] = m.Name
	}
	for kind, want := range map[event.Kind]string{
		event.Reserved: "reserve.created", event.Replayed: "reserve.replay", event.InProgress: "reserve.in_progress",
		event.Mismatch: "reserve.key_misuse", event.TakenOver: "reserve.failed_retry", event.Unresolved: "reserve.unknown",
		event.StoreError: "store.error", event.MarkedUnknown: "zombie_key", event.ExpiredReplaced: "ttl_pruned",
		event.ReconcileScheduled: "reconcile.scheduled", event.Resolved: "reconcile.resolved", event.ReconcileFailed: "reconcile.failed",
	} {
		if got := names[kind]; got != "api.idempotency."+want+".count" {
			t.Errorf("%s is counted as %q, want api.idempotency.%s.count", kind, got, want)
		}
	}
}
