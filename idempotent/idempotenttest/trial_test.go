package idempotenttest

import (
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// A failure of the run itself is reported with the run, and ends nothing else.
func TestTrialsTellEverything(t *testing.T) {
	t.Parallel()
	works := sound["memstore"]
	for name, row := range map[string]struct {
		fixture Fixture
		run     func(*lab)
		want    string
	}{
		"panic":   {works, func(*lab) { panic("boom") }, "panic: boom"},
		"failure": {works, func(l *lab) { l.Fatal("not", "so") }, "not so"},
		"Open":    {Fixture{Open: func(t testing.TB) driver.Store { t.Fatalf("no %s", "table"); return nil }}, func(*lab) {}, "no table"},
		"effects": {works, func(l *lab) { l.effects.Add(2) }, "the provider saw 3 effects, and 1 are allowed"},
		"a late wrong result": {works, func(l *lab) {
			out, err := l.worker().do(l.charge("ch_a"))
			l.must(err)
			l.history.answered(l.history.asks(l.worker(), l.key), idempotent.Outcome[string]{Value: out.Value + "!", Replayed: true}, nil)
		}, "INV-3"},
	} {
		trial := scenario{name, row.run}.trial(t, row.fixture, storeFaults, nil, 0)
		c := &complaints{TB: t}
		trial.report(c, "seed 17")
		if got := strings.Join(c.of, "; "); !strings.HasPrefix(got, "seed 17: ") || !strings.Contains(got, row.want) {
			t.Errorf("%s: got %q, want %q", name, got, row.want)
		}
		newTally().count(trial)
	}
}
