// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/telemetry"
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
