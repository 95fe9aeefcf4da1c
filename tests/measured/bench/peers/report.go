// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// goal is a limit for a cost of once, under Rerun, relative to another contestant. The
// median of all runs has to meet it, at each of its works.
type goal struct {
	text  string
	limit float64
	isFor func(work) bool
	ratio func(*Results, string) series // at the work of that name
}

var goals = []goal{
	{"price at most that of Powertools Python", 1, side{Contestant: python}.takes, priceBy(python)},
	{"price at most that of Powertools TypeScript", 1, side{Contestant: typescript}.takes, priceBy(typescript)},
	{"compressed: price at most that of the bare SDK, which does not compress", 1, work.isCompressed, priceBy(bare)},
	{"up to 1 KB: time at most 1.10 × that of the bare SDK", 1.10, func(w work) bool { return w.isSmall() && w.task.Steps == 0 }, timeBy(bare)},
	{"twenty steps: time at most 1.40 × that of the bare SDK", 1.40, func(w work) bool { return w.task.Steps == 20 }, timeBy(bare)},
}

func priceBy(to string) func(*Results, string) series {
	return func(r *Results, work string) (v series) {
		theirs := r.bill(work, to)
		for i, ours := range r.bill(work, rerun) {
			v = append(v, ours/theirs[i])
		}
		return v
	}
}

func timeBy(to string) func(*Results, string) series {
	return func(r *Results, work string) series {
		wall, _ := r.ratio(work, rerun, to, plain)
		return wall
	}
}

// Page returns the generated parts of docs/reports/benchmarks.md, by name.
func (r *Results) Page() map[string]string {
	return map[string]string{
		"run":       r.run(),
		"list":      r.list(),
		"goals":     r.goals(),
		"prices":    r.prices(),
		"packed":    r.packed(),
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
		texts = append(texts, fmt.Sprintf("%.3f", x))
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

// goals returns the goals that were missed, each with its work, and then at how many works
// they were met, with the largest median there.
func (r *Results) goals() string {
	var missed, met string
	for _, g := range goals {
		rows, largest := 0, 0.0
		for _, w := range works {
			if !g.isFor(w) {
				continue
			}
			v := g.ratio(r, w.name)
			if m := v.median(); m <= g.limit {
				rows, largest = rows+1, max(largest, m)
				continue
			}
			missed += fmt.Sprintf("| %s | %s | %s | **missed** |\n", g.text, w.title, v.all())
		}
		if rows > 0 {
			met += fmt.Sprintf("| %s | works: %d | at most %.3f | met |\n", g.text, rows, largest)
		}
	}
	return "| goal | work | measured ratio, run by run | |\n| --- | --- | --- | --- |\n" + missed + met
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

// prices returns the dollars for a million operations, and the milliseconds of one.
func (r *Results) prices() string {
	var b strings.Builder
	b.WriteString("| $ for a million (ms of one) | bare SDK | `Rerun` | `Reconcile` | Python | TypeScript |\n| --- | --: | --: | --: | --: | --: |\n")
	for _, w := range works {
		fmt.Fprintf(&b, "| %s |", w.title)
		for _, c := range []string{bare, rerun, reconcile, python, typescript} {
			if !(side{Contestant: c}).takes(w) {
				b.WriteString(" – |")
				continue
			}
			fmt.Fprintf(&b, " %.3f (%.1f) |", r.bill(w.name, c).median(), r.billed(w.name, c))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// packed returns what compression costs and saves, beside a client that does not compress.
func (r *Results) packed() string {
	var b strings.Builder
	b.WriteString("| | write units saved | read units added | milliseconds added | $ saved, for a million |\n| --- | --: | --: | --: | --: |\n")
	for _, w := range works {
		if !w.isCompressed() {
			continue
		}
		added := r.Traffic[w.name][rerun+"/"+plain].minus(r.Traffic[w.name][bare+"/"+plain])
		fmt.Fprintf(&b, "| %s | %s | %s | %.1f | %.2f |\n", w.title, number(-added.Writes), number(added.Reads),
			r.billed(w.name, rerun)-r.billed(w.name, bare), r.bill(w.name, bare).median()-r.bill(w.name, rerun).median())
	}
	return b.String()
}

// billed returns the milliseconds of an operation that Lambda would bill.
func (r *Results) billed(work, contestant string) float64 {
	var all series
	for _, run := range r.Runs {
		all = append(all, run.Costs[work][contestant+"/"+plain].Billed/1e3)
	}
	return all.median()
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

// The measures of the plot, in pixels.
const (
	plotWidth = 760
	labels    = 180 // the width of the names
	barHeight = 16
	barGap    = 4
	groupGap  = 26
	top       = 30
)

// Plot returns an SVG with the medians of a first request and of a replay.
func (r *Results) Plot() string {
	contestants := []string{bare, rerun, reconcile, python, typescript}
	largest := 0.0
	for _, w := range works[:2] {
		for _, c := range contestants {
			largest = max(largest, r.median(w.name, c).Wall)
		}
	}
	var b strings.Builder
	height := top + 2*(groupGap+len(contestants)*(barHeight+barGap)) + 6
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n",
		plotWidth, height, plotWidth, height)
	fmt.Fprintf(&b, `<title>Microseconds for a first request and a replay, run %s</title>`+"\n", r.Run)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", plotWidth, height)
	fmt.Fprintf(&b, `<text x="8" y="18">Microseconds per operation, table without an index: time on the clock, and processor time of the client (dark)</text>`+"\n")
	y := top
	for _, w := range works[:2] {
		fmt.Fprintf(&b, `<text x="8" y="%d" font-weight="bold">%s</text>`+"\n", y+14, w.title)
		y += groupGap - barGap
		for _, c := range contestants {
			cost := r.median(w.name, c)
			length := func(v float64) int { return int(math.Round(v / largest * (plotWidth - labels - 110))) }
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", labels-8, y+12, c)
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="#9ec3e6"/>`+"\n", labels, y, length(cost.Wall), barHeight)
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="#1f5f99"/>`+"\n", labels, y, length(cost.CPU), barHeight)
			fmt.Fprintf(&b, `<text x="%d" y="%d">%s (%s)</text>`+"\n", labels+length(cost.Wall)+6, y+12, whole(cost.Wall), whole(cost.CPU))
			y += barHeight + barGap
		}
		y += barGap
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// median returns the median cost of a contestant on the table without an index.
func (r *Results) median(work, contestant string) Cost {
	var wall, cpu series
	for _, run := range r.Runs {
		c := run.Costs[work][contestant+"/"+plain]
		wall, cpu = append(wall, c.Wall), append(cpu, c.CPU)
	}
	return Cost{Wall: wall.median(), CPU: cpu.median()}
}

// memory is that of the function, in GB.
const memory = 0.5

// prices are list prices in dollars: on demand, us-east-1, the first tier, without a free tier.
var prices = struct{ request, gbSecond, writeUnit, readUnit float64 }{
	request:   0.20e-6,      // https://aws.amazon.com/lambda/pricing/
	gbSecond:  0.0000133334, // on ARM, from the same page
	writeUnit: 0.625e-6,     // https://aws.amazon.com/dynamodb/pricing/on-demand/
	readUnit:  0.125e-6,     // from the same page
}

// price returns the dollars for a million operations, if each is an invocation of so many microseconds.
func price(micros float64, t Traffic) float64 {
	one := prices.request + micros/1e6*memory*prices.gbSecond + t.Writes*prices.writeUnit + t.Reads*prices.readUnit
	return 1e6 * one
}

// bill returns the prices of a work, run by run.
func (r *Results) bill(work, contestant string) (all series) {
	for _, run := range r.Runs {
		if c, ok := run.Costs[work][contestant+"/"+plain]; ok {
			all = append(all, price(c.Billed, r.Traffic[work][contestant+"/"+plain]))
		}
	}
	return all
}

func (r *Results) list() string {
	return fmt.Sprintf("A million requests of Lambda cost $%.2f, a GB-second on ARM $%.10f ([AWS](https://aws.amazon.com/lambda/pricing/)), a\n"+
		"million write units $%.3f, and a million read units $%.3f\n([AWS](https://aws.amazon.com/dynamodb/pricing/on-demand/)).\n",
		1e6*prices.request, prices.gbSecond, 1e6*prices.writeUnit, 1e6*prices.readUnit)
}
