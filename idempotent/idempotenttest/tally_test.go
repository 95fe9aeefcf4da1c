package idempotenttest

import (
	"fmt"
	"strings"
	"testing"
)

// complaints collects the failures that a test would report.
type complaints struct {
	testing.TB
	of []string
}

func (c *complaints) Helper() {}
func (c *complaints) Errorf(format string, args ...any) {
	c.of = append(c.of, fmt.Sprintf(format, args...))
}

// INV-14: a run without any fault tests nothing, and fails.
func TestVacuousRunsFail(t *testing.T) {
	t.Parallel()
	full := tally{runs: 1000, struck: 1000, felt: 700, scripted: 300, entered: 900, replayed: 900, refused: 900, met: 900,
		faults: map[Fault]int{LostReply: 10}}
	for name, row := range map[string]struct {
		spoil func(*tally)
		want  string
	}{
		"everything covered":              {func(*tally) {}, ""},
		"a fault is missing":              {func(n *tally) { n.faults = nil }, "lost reply never happened"},
		"few runs were hit":               {func(n *tally) { n.struck = 800 }, "only 800 met one"},
		"no fault was felt":               {func(n *tally) { n.felt = 0 }, "only 0 felt"},
		"every fault was felt":            {func(n *tally) { n.felt = 1000 }, "only 0 did not feel"},
		"no run was as without faults":    {func(n *tally) { n.scripted = 0 }, "only 0 went on as without"},
		"every run was as without faults": {func(n *tally) { n.scripted = 1000 }, "only 0 went on otherwise"},
		"nothing executed":                {func(n *tally) { n.entered = 0 }, "only 0 executed"},
		"nothing replayed":                {func(n *tally) { n.replayed = 0 }, "only 0 replayed"},
		"nothing refused":                 {func(n *tally) { n.refused = 0 }, "only 0 refused"},
		"no overlapping requests":         {func(n *tally) { n.met = 0 }, "only 0 refused a request while another one ran"},
	} {
		n, c := newTally(), &complaints{TB: t}
		n.add(&full)
		row.spoil(n)
		n.check(c, []Fault{LostReply})
		if got := strings.Join(c.of, "; "); row.want == "" && got != "" || !strings.Contains(got, row.want) {
			t.Errorf("%s: got %q, want %q", name, got, row.want)
		}
	}
}
