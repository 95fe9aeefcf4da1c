// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"math"
	"strings"
)

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
