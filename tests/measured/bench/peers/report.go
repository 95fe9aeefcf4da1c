// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// The goals. The first four are ratios to the bare SDK, the next two are by how
// much once is cheaper than the others, and the last is in milliseconds.
const (
	wallGoal      = 1.07
	cpuGoal       = 1.10
	peersWallGoal = 1.8
	peersCPUGoal  = 3.0
	readyGoal     = 5.0
)

// Page returns the generated parts of docs/benchmarks.md, by name.
func (r *Results) Page() map[string]string {
	return map[string]string{
		"run":       r.run(),
		"goals":     r.goals(),
		"peers":     r.besidePeers(),
		"plain":     r.besideBare(plain),
		"indexed":   r.besideBare(indexed),
		"traffic":   r.traffic(),
		"processes": r.processes(),
		"promises":  r.promises(),
	}
}

func (r *Results) run() string {
	return fmt.Sprintf("Run **%s**: %d rounds on %d × %s, with Go %s, Python %s, Node %s.\n",
		r.Run, r.Rounds, r.Processors, r.Processor, r.Versions["Go"], r.Versions["Python"], r.Versions["Node"])
}

// ratio returns the ratio of two contestants at a work.
func (r *Results) ratio(work, of, to, table string) Ratio {
	i := slices.IndexFunc(r.Ratios, func(q Ratio) bool {
		return q.Work == work && q.Of == of+"/"+table && q.To == to+"/"+table
	})
	if i < 0 {
		return Ratio{}
	}
	return r.Ratios[i]
}

func (r *Results) goals() string {
	var b strings.Builder
	row := func(goal, measured string, met bool) {
		verdict := "met"
		if !met {
			verdict = "**missed**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", goal, measured, verdict)
	}
	b.WriteString("| goal | measured | |\n| --- | --- | --- |\n")
	for _, w := range works[:2] {
		limit, own := r.Traffic[w.name][bare+"/"+plain].Calls, r.Traffic[w.name][rerun+"/"+plain].Calls
		row(fmt.Sprintf("%s: as many calls as the bare SDK", w.title), fmt.Sprintf("%g and %g", own, limit), own == limit)
	}
	for _, w := range works[:2] {
		for _, kind := range []struct {
			name string
			goal float64
			of   func(Ratio) Spread
		}{{"time", wallGoal, wallOf}, {"processor time", cpuGoal, cpuOf}} {
			var measured []string
			worst := 0.0
			for _, table := range []string{plain, indexed} {
				for _, promise := range []string{rerun, reconcile} {
					v := kind.of(r.ratio(w.name, promise, bare, table)).Median
					worst = max(worst, v)
					measured = append(measured, fmt.Sprintf("%.2f", v))
				}
			}
			row(fmt.Sprintf("%s: %s at most %.2f × the bare SDK's", w.title, kind.name, kind.goal),
				fmt.Sprintf("`Rerun` %s, `Reconcile` %s; with the index %s, %s", measured[0], measured[1], measured[2], measured[3]), worst < kind.goal+0.005) // as it is printed
		}
	}
	for _, w := range works[:2] {
		for _, peer := range []string{python, typescript} {
			q := r.ratio(w.name, peer, rerun, plain)
			limit, other := r.Costs[w.name][bare+"/"+plain], r.Costs[w.name][peer+"/"+plain]
			row(fmt.Sprintf("%s: %.1f × faster than %s, for a third of its processor time", w.title, peersWallGoal, peer),
				fmt.Sprintf("%.2f × faster, %.2f × less; the bare SDK itself %.2f × and %.2f ×",
					q.Wall.Median, q.CPU.Median, other.Wall/limit.Wall, other.CPU/limit.CPU),
				q.Wall.Median >= peersWallGoal && q.CPU.Median >= peersCPUGoal)
		}
	}
	ready, alone := r.Ready[rerun], r.Ready["SDK for Go"]
	row(fmt.Sprintf("ready at most %g ms after the bare SDK", readyGoal),
		fmt.Sprintf("%+.1f ms; the quartiles are %.1f to %.1f ms, and %.1f to %.1f ms", ready.Median-alone.Median, ready.Low, ready.High, alone.Low, alone.High),
		ready.Median-alone.Median <= readyGoal)
	return b.String()
}

func wallOf(q Ratio) Spread { return q.Wall }
func cpuOf(q Ratio) Spread  { return q.CPU }

func (s Spread) String() string { return fmt.Sprintf("%.2f (%.2f–%.2f)", s.Median, s.Low, s.High) }

// cost returns the cost of a side in microseconds.
func (r *Results) cost(work, contestant, table string) string {
	c := r.Costs[work][contestant+"/"+table]
	return fmt.Sprintf("%s (%s)", whole(c.Wall), whole(c.CPU))
}

// whole returns a number with separators of thousands.
func whole(v float64) string {
	n := int(math.Round(v))
	if n < 10_000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

func (r *Results) besideBare(table string) string {
	var b strings.Builder
	b.WriteString("| | bare SDK, µs | `Rerun`: time | processor | `Reconcile`: time | processor |\n| --- | --: | --: | --: | --: | --: |\n")
	for _, w := range works {
		one, other := r.ratio(w.name, rerun, bare, table), r.ratio(w.name, reconcile, bare, table)
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", w.title, r.cost(w.name, bare, table), one.Wall, one.CPU, other.Wall, other.CPU)
	}
	return b.String()
}

func (r *Results) besidePeers() string {
	var b strings.Builder
	b.WriteString("| | once, µs | Python: time | processor | TypeScript: time | processor |\n| --- | --: | --: | --: | --: | --: |\n")
	for _, w := range works {
		p, t := r.ratio(w.name, python, rerun, plain), r.ratio(w.name, typescript, rerun, plain)
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", w.title, r.cost(w.name, rerun, plain), p.Wall, p.CPU, t.Wall, t.CPU)
	}
	return b.String()
}

func (r *Results) traffic() string {
	var b strings.Builder
	b.WriteString("| calls, bytes sent + received, units | bare SDK | `Rerun` | `Reconcile`, with the index | Python | TypeScript |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, w := range works {
		fmt.Fprintf(&b, "| %s |", w.title)
		for _, side := range []string{bare + "/" + plain, rerun + "/" + plain, reconcile + "/" + indexed, python + "/" + plain, typescript + "/" + plain} {
			t := r.Traffic[w.name][side]
			fmt.Fprintf(&b, " %s, %s + %s, %sw", number(t.Calls), whole(t.Sent), whole(t.Received), number(t.Writes))
			if t.Reads > 0 {
				fmt.Fprintf(&b, " %sr", number(t.Reads))
			}
			b.WriteString(" |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// number returns a number with one digit after the point, if it is not whole.
func number(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }

func (r *Results) processes() string {
	var b strings.Builder
	b.WriteString("| | ready after, ms | than its SDK alone | largest memory, MB |\n| --- | --: | --: | --: |\n")
	for _, row := range []struct{ contestant, sdk string }{
		{rerun, "SDK for Go"}, {python, "SDK for Python"}, {typescript, "SDK for JavaScript"},
	} {
		ready, alone := r.Ready[row.contestant], r.Ready[row.sdk]
		fmt.Fprintf(&b, "| %s | %.1f (%.1f–%.1f) | %+.1f | %.0f |\n", row.contestant, ready.Median, ready.Low, ready.High,
			ready.Median-alone.Median, r.Memory[row.contestant+"/"+plain])
	}
	fmt.Fprintf(&b, "| bare SDK for Go | %.1f (%.1f–%.1f) | | %.0f |\n", r.Ready["SDK for Go"].Median, r.Ready["SDK for Go"].Low,
		r.Ready["SDK for Go"].High, r.Memory[bare+"/"+plain])
	return b.String()
}

func (r *Results) promises() string {
	var b strings.Builder
	b.WriteString("| | `Reconcile` | `Rerun` | bare SDK | Python | TypeScript |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, c := range scenarios {
		said := r.Behaviour[c.name]
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", c.name, said[reconcile], said[rerun], said[bare], said[python], said[typescript])
	}
	return b.String()
}
