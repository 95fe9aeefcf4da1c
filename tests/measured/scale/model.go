// SPDX-License-Identifier: Apache-2.0

// Package scale simulates how many requests a second a table of records can serve,
// and what limits it first. docs/reports/scale.md has its tables and plots.
//
// The model follows what AWS publishes: 1,000 write units a second for each partition
// and for each key, a reserve of 300 seconds of unused throughput, on-demand
// tables that serve twice their earlier peak and update that peak every 30 minutes,
// a quota for each table, and indexes that slow down the writes of their table. AWS
// does not publish when a partition is split because it is busy: the model assumes
// after 10 minutes, and never if all of its writes are at one key, or at the end of
// one key's range.
package scale

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Load is what the clients of a service send. The numbers are per second.
type Load struct {
	First   float64 // first requests with a key
	Hot     float64 // repetitions of one request, all with one key
	Unknown float64 // share of the first requests whose outcome is unknown
	Units   float64 // write units of a record: 1 up to 1 KB
}

// Table is how a table is set up.
type Table struct {
	Warm  float64 // write units a second from the beginning; 4,000 if 0
	Quota float64 // write units a second; 40,000 if 0
}

// Shards is the number of keys of the index.
const Shards = 64

// tableWrites and indexWrites are the write units of a first request.
func (l Load) tableWrites() float64 { return 2 * l.Units }

func (l Load) indexWrites() float64 { return l.Unknown }

// The names of what limits a load.
const (
	None   = "–"
	Growth = "growth of an on-demand table"
	Quota  = "quota of the table"
	Heat   = "a busy partition"
	HotKey = "one key"
	Index  = "keys of the index"
)

// Second is what a table served in one second.
type Second struct {
	First float64 // first requests served
	Hot   float64 // repetitions served
	Limit string  // what refused the others
}

// Simulate returns the seconds of a load that begins at once.
func Simulate(l Load, t Table, length time.Duration) []Second {
	warm, quota := t.Warm, t.Quota
	if warm == 0 {
		warm = initial
	}
	if quota == 0 {
		quota = 40_000
	}
	table, index := newSpace(warm, quota, math.Inf(1)), newSpace(warm, quota, Shards)
	seconds := make([]Second, 0, length/time.Second)
	for s := range int(length / time.Second) {
		table.second, index.second = s, s
		share, limit := 1.0, None
		if writes := l.indexWrites(); writes > 0 {
			// A write of the table that the index cannot follow is refused.
			if share, limit = index.offer(l.First*writes, 0); limit == Heat || limit == HotKey {
				limit = Index
			}
		}
		served, by := table.offer(l.First*l.tableWrites(), l.Hot*l.Units)
		if served < share {
			share, limit = served, by
		}
		table.take(share*l.First*l.tableWrites(), l.Hot*l.Units)
		index.take(share*l.First*l.indexWrites(), 0)
		hot := min(l.Hot, table.hot/l.Units)
		if limit == None && hot < l.Hot {
			limit = HotKey
		}
		seconds = append(seconds, Second{First: share * l.First, Hot: hot, Limit: limit})
	}
	return seconds
}

const (
	initial      = 4000 // write units a second of a new on-demand table
	perPartition = 1000 // write units a second
	reserve      = 300  // seconds of unused throughput that a partition keeps
	learns       = 1800 // seconds until a table has learned its peak
	splitAfter   = 600  // busy seconds until a partition is split; assumed
)

// space is the partitions of a table or an index. Its keys are spread evenly, so the
// partitions differ only in the hot key, which is in the first one.
type space struct {
	second int
	quota  float64
	keys   float64 // that are written to at a time; a partition has at least one

	partitions float64
	learned    float64 // highest rate of the earlier periods
	peak       float64 // highest rate of this period

	cold, first bucket // of one of the other partitions, and of the first
	alone       bool   // the first partition has only the hot key
	hot         float64
}

// bucket is the unused throughput of a partition, and for how long it was busy.
type bucket struct {
	unused float64
	busy   int
}

func newSpace(warm, quota, keys float64) *space {
	s := &space{quota: quota, keys: keys, learned: warm / 2}
	s.partitions = s.most(math.Ceil(warm / perPartition))
	return s
}

func (s *space) most(partitions float64) float64 { return min(partitions, s.keys) }

// offer returns which share of the evenly spread writes can be served, and what
// refuses the others.
func (s *space) offer(even, hot float64) (share float64, limit string) {
	share, limit = 1, None
	lower := func(served float64, by string) {
		if part := served / even; part < share {
			share, limit = part, by
		}
	}
	lower(s.quota-min(hot, perPartition), Quota)
	lower(2*s.learned-min(hot, perPartition), Growth)
	by := Heat
	if s.partitions == s.keys {
		by = HotKey
	}
	lower((perPartition+s.cold.unused)*s.partitions, by)
	if hot > 0 && !s.alone {
		// The first partition serves its share of both.
		want := even/s.partitions + hot
		if can := perPartition + s.first.unused; want > can {
			refused := even / s.partitions * (1 - can/want)
			lower(even-refused, Heat)
		}
	}
	return share, limit
}

// take uses what a second serves.
func (s *space) take(even, hot float64) {
	each := even / s.partitions
	s.cold.use(each)
	if s.hot = 0; hot > 0 {
		room := perPartition + s.first.unused
		if !s.alone {
			room *= hot / (hot + each)
		}
		s.hot = min(hot, room)
		s.first.use(min(each+hot, room+each))
		if s.first.busy >= splitAfter {
			s.alone, s.first.busy = true, 0
		}
	}
	if s.cold.busy >= splitAfter {
		s.partitions, s.cold.busy = s.most(2*s.partitions), 0
	}
	s.peak = max(s.peak, even+s.hot)
	if (s.second+1)%learns == 0 {
		s.learned, s.peak = max(s.learned, s.peak), 0
		s.partitions = max(s.partitions, s.most(math.Ceil(2*s.learned/perPartition)))
	}
}

// use takes units of one second from a partition.
func (b *bucket) use(units float64) {
	b.unused = max(0, min(reserve*perPartition, b.unused+perPartition-units))
	if units >= 0.9*perPartition {
		b.busy++
	} else {
		b.busy = 0
	}
}

// Backlog is a number of records that wait for evidence, and what settles them: one
// or several reconcilers, whose runs begin together.
type Backlog struct {
	Records     int
	Reconcilers int
	Concurrency int
	Provider    time.Duration // of a call of the resolver
	Call        time.Duration // of a call of the store; a record needs three
	Entry       time.Duration // for an entry of the list

	Timeout  time.Duration // of the function: at least 24 s
	Interval time.Duration // from the beginning of a run to the next one, which waits for the last run
	Scan     time.Duration // of a run's time: for a part of the scan for abandoned runs; at most half
}

const (
	// firstEntries is how many entries a run reads before it works.
	firstEntries = 100_000
	// perRecord is the time that a run needs to begin a record.
	perRecord = 12 * time.Second
)

// Rate returns how many records are settled a second while the runs work.
func (b Backlog) Rate() float64 {
	// Each reconciler also reads what the others have claimed.
	each := b.Provider + time.Duration(3+b.Reconcilers-1)*b.Call
	return float64(b.Reconcilers*b.Concurrency) / each.Seconds()
}

// Settle returns after what time no record waits, if the provider answers, and how
// many runs each reconciler needs.
func (b Backlog) Settle() (after time.Duration, runs int) {
	left, rate := float64(b.Records), b.Rate()
	for {
		runs++
		run := b.Scan
		for run < b.Timeout-perRecord {
			held := min(left, firstEntries)
			run += time.Duration(held * float64(b.Entry))
			settled := min(held, rate*(b.Timeout-perRecord-run).Seconds())
			run += time.Duration(settled / rate * float64(time.Second))
			if left -= settled; left < 1 {
				return after + run, runs
			}
		}
		after += max(b.Interval, run)
	}
}

// Line is a line of a plot.
type Line struct {
	Name   string
	Points []Point
}

// Point is a point of a line. X is in units of the plot's axis.
type Point struct{ X, Y float64 }

// Axis is an axis of a plot, with its marks.
type Axis struct {
	Title string
	Marks []float64
}

// The colours can be read on a light and on a dark page.
var colours = []string{"#2f81f7", "#d4762c", "#2ea043"}

const width, height, left, bottom, top, right = 720.0, 360.0, 84.0, 52.0, 20.0, 36.0

// at returns where a value is on the axis, from 0 to 1.
func (a Axis) at(v float64) float64 {
	first, last := a.Marks[0], a.Marks[len(a.Marks)-1]
	return (v - first) / (last - first)
}

// SVG returns a plot of the lines.
func SVG(description string, x, y Axis, lines ...Line) string {
	var b strings.Builder
	px := func(v float64) float64 { return left + x.at(v)*(width-left-right) }
	py := func(v float64) float64 { return height - bottom - y.at(v)*(height-bottom-top) }
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img" font-family="sans-serif" font-size="13" fill="#808080">`+"\n", width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n", description)
	for _, m := range y.Marks {
		fmt.Fprintf(&b, `<path d="M%g %.1fH%g" stroke="#808080" stroke-opacity=".25"/><text x="%g" y="%.1f" text-anchor="end">%s</text>`+"\n", left, py(m), width-right, left-8, py(m)+4, Grouped(m))
	}
	for _, m := range x.Marks {
		fmt.Fprintf(&b, `<text x="%.1f" y="%g" text-anchor="middle">%s</text>`+"\n", px(m), height-bottom+20, Grouped(m))
	}
	fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="middle">%s</text>`+"\n", (left+width-right)/2, height-10, x.Title)
	fmt.Fprintf(&b, `<text transform="translate(16 %g) rotate(-90)" text-anchor="middle">%s</text>`+"\n", (top+height-bottom)/2, y.Title)
	for i, l := range lines {
		points := make([]string, 0, len(l.Points))
		for _, p := range l.Points {
			points = append(points, fmt.Sprintf("%.1f,%.1f", px(p.X), py(p.Y)))
		}
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="2.5" points="%s"/>`+"\n", colours[i], strings.Join(points, " "))
		fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="end" fill="%s">%s</text>`+"\n", width-right-16, height-bottom-16-20*float64(i), colours[i], l.Name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// Grouped returns a whole number with commas.
func Grouped(v float64) string {
	text := fmt.Sprintf("%.0f", v)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Served returns the line of what was served, with a point for each minute.
func Served(name string, seconds []Second) Line {
	l := Line{Name: name}
	for i := 0; i < len(seconds); i += int(time.Minute / time.Second) {
		l.Points = append(l.Points, Point{float64(i / 60), seconds[i].First})
	}
	return l
}
