// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// goal is a limit that was set before the measurement. The median of all runs has to
// meet it, as it is printed.
type goal struct {
	work    string
	against string  // the contestant by whom once is measured, or who is measured by once
	wall    float64 // the limit of the ratio of times; zero: none
	cpu     float64 // of processor times
}

// goals are ratios of once to the bare SDK, at most; or of a peer to once, at least 1.
var goals = func() (all []goal) {
	all = []goal{
		{"first", bare, 1.05, 1.07},
		{"replay", bare, 1.02, 1.00},
		{"first-16", bare, 0, 1.07},
		{"replay-16", bare, 0, 1.07},
		{"first-result-20KB", bare, 0, 1.25},
		{"first-result-300KB", bare, 1.5, 2.5},
	}
	for _, w := range works {
		for _, peer := range []string{python, typescript} {
			if (side{Contestant: peer, Table: plain}).takes(w) {
				all = append(all, goal{w.name, peer, 1, 1})
			}
		}
	}
	return all
}()

const (
	readyGoal = 5.0  // milliseconds
	unitsGoal = 73.0 // write units of a first request with a result of 300 KB, when these goals were set
)

// Page returns the generated parts of docs/reports/benchmarks.md, by name.
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
	var loads []string
	for _, run := range r.Runs {
		loads = append(loads, fmt.Sprintf("%.1f to %.1f", run.Load[0], run.Load[1]))
	}
	return fmt.Sprintf("**%s**: %d runs of %d rounds on %d × %s, with Go %s, Python %s, Node %s. Processes ready to run, from the\n"+
		"beginning to the end of each run: %s.\n",
		r.Run, len(r.Runs), r.Rounds, r.Processors, r.Processor, r.Versions["Go"], r.Versions["Python"], r.Versions["Node"], strings.Join(loads, "; "))
}

// series has a figure of each run.
type series []float64

func (v series) median() float64 { return spreadOf(v).Median }

// String returns the median, the least and the largest figure.
func (v series) String() string {
	if len(v) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", v.median(), slices.Min(v), slices.Max(v))
}

// all returns all figures.
func (v series) all() string {
	var texts []string
	for _, x := range v {
		texts = append(texts, fmt.Sprintf("%.2f", x))
	}
	return strings.Join(texts, " ")
}

// ratio returns the ratios of two contestants at a work.
func (r *Results) ratio(work, of, to, table string) (wall, cpu series) {
	for _, run := range r.Runs {
		for _, q := range run.Ratios {
			if q.Work == work && q.Of == of+"/"+table && q.To == to+"/"+table {
				wall, cpu = append(wall, q.Wall.Median), append(cpu, q.CPU.Median)
			}
		}
	}
	return wall, cpu
}

// goals returns the goals that were missed, and then the others.
func (r *Results) goals() string {
	var missed, met []string
	row := func(isMet bool, goal, measured string) {
		if isMet {
			met = append(met, fmt.Sprintf("| %s | %s | met |\n", goal, measured))
		} else {
			missed = append(missed, fmt.Sprintf("| %s | %s | **missed** |\n", goal, measured))
		}
	}
	for _, w := range works[:2] {
		limit, own := r.Traffic[w.name][bare+"/"+plain].Calls, r.Traffic[w.name][rerun+"/"+plain].Calls
		row(own == limit, w.title+": as many calls as the bare SDK", fmt.Sprintf("%g and %g", own, limit))
	}
	least, rows := map[string]float64{}, map[string]int{} // of the goals that are met, by peer
	for _, w := range works {
		for _, g := range goals {
			if g.work != w.name {
				continue
			}
			of, to, word, sign := rerun, bare, "at most", 1.0
			if g.against != bare {
				of, to, word, sign = g.against, rerun, "at least", -1.0
			}
			wall, cpu := r.ratio(w.name, of, to, plain)
			for _, kind := range []struct {
				name  string
				limit float64
				v     series
			}{{"time", g.wall, wall}, {"processor time", g.cpu, cpu}} {
				if kind.limit == 0 {
					continue
				}
				v := math.Round(kind.v.median()*100) / 100
				isMet := sign*(v-kind.limit) <= 0
				if isMet && g.against != bare {
					if rows[of]++; rows[of] == 1 || v < least[of] {
						least[of] = v
					}
					continue
				}
				row(isMet,
					fmt.Sprintf("%s: %s %s %.2f × that of %s", w.title, kind.name, word, kind.limit, shortName(of, to)), kind.v.all())
			}
		}
	}
	for _, peer := range []string{python, typescript} {
		row(true, fmt.Sprintf("time and processor time of %s at least 1.00 × that of once: the other %d comparisons", peer, rows[peer]), fmt.Sprintf("at least %.2f", least[peer]))
	}
	units := r.Traffic["first-result-300KB"][rerun+"/"+plain].Writes
	row(units <= unitsGoal, fmt.Sprintf("first request, result of 300 KB: at most %g write units", unitsGoal), number(units))
	ready, alone := r.Ready[rerun], r.Ready["SDK for Go"]
	row(ready.Median-alone.Median <= readyGoal, fmt.Sprintf("ready at most %g ms after the bare SDK", readyGoal),
		fmt.Sprintf("%+.1f ms; the quartiles are %.1f to %.1f ms, and %.1f to %.1f ms", ready.Median-alone.Median, ready.Low, ready.High, alone.Low, alone.High))
	return "| goal | measured, run by run | |\n| --- | --- | --- |\n" + strings.Join(missed, "") + strings.Join(met, "")
}

// shortName says what a ratio is measured by.
func shortName(of, to string) string {
	if of == rerun {
		return "the " + to + " SDK"
	}
	return "once, for " + of
}

// cost returns the median cost of a side in microseconds.
func (r *Results) cost(work, contestant, table string) string {
	var wall, cpu series
	for _, run := range r.Runs {
		if c, ok := run.Costs[work][contestant+"/"+table]; ok {
			wall, cpu = append(wall, c.Wall), append(cpu, c.CPU)
		}
	}
	if len(wall) == 0 {
		return "–"
	}
	return fmt.Sprintf("%s (%s)", whole(wall.median()), whole(cpu.median()))
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
		if !(side{Contestant: bare, Table: table}).takes(w) {
			continue
		}
		oneWall, oneCPU := r.ratio(w.name, rerun, bare, table)
		otherWall, otherCPU := r.ratio(w.name, reconcile, bare, table)
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", w.title, r.cost(w.name, bare, table), oneWall, oneCPU, otherWall, otherCPU)
	}
	return b.String()
}

func (r *Results) besidePeers() string {
	var b strings.Builder
	b.WriteString("| | once, µs | Python: time | processor | TypeScript: time | processor |\n| --- | --: | --: | --: | --: | --: |\n")
	for _, w := range works {
		if !(side{Contestant: python, Table: plain}).takes(w) {
			continue
		}
		pythonWall, pythonCPU := r.ratio(w.name, python, rerun, plain)
		typeWall, typeCPU := r.ratio(w.name, typescript, rerun, plain)
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", w.title, r.cost(w.name, rerun, plain), pythonWall, pythonCPU, typeWall, typeCPU)
	}
	return b.String()
}

func (r *Results) traffic() string {
	var b strings.Builder
	b.WriteString("| calls, bytes sent + received, units | bare SDK | `Rerun` | `Reconcile`, with the index | Python | TypeScript |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, w := range works {
		fmt.Fprintf(&b, "| %s |", w.title)
		for _, side := range []string{bare + "/" + plain, rerun + "/" + plain, reconcile + "/" + indexed, python + "/" + plain, typescript + "/" + plain} {
			t, ok := r.Traffic[w.name][side]
			if !ok {
				b.WriteString(" – |")
				continue
			}
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
