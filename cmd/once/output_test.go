// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/cmd/once/internal/output"
	"github.com/once-lambda/once/dynamostore"
)

func TestSpan(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", 59999 * time.Millisecond: "59s", time.Minute: "1m", 59*time.Minute + 59*time.Second: "59m",
		time.Hour: "1h", 99*time.Hour + 59*time.Minute: "99h", 100 * time.Hour: "4d", 999 * 24 * time.Hour: "999d", -90 * time.Second: "1m",
	} {
		if got := output.Span(d); got != want {
			t.Errorf("%s is printed as %q, want %q", d, got, want)
		}
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{
		0: "0 B", 999: "999 B", 1000: "1.0 KB", 999_949: "999.9 KB", 999_950: "1.0 MB", 6 << 20: "6.3 MB", 5e12: "5.0 TB", 9e15: "9000.0 TB",
	} {
		if got := output.Size(n); got != want {
			t.Errorf("%d is printed as %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := output.Grouped(n); got != want {
			t.Errorf("%d is printed as %q, want %q", n, got, want)
		}
	}
}

// A value is broken between two words where its line, with the longest label, would have
// more than 80 columns.
func TestFolded(t *testing.T) {
	t.Parallel()
	word := func(columns int) string { return strings.Repeat("é", columns) }
	for value, want := range map[string]string{
		word(36) + " " + word(36):                  word(36) + " " + word(36),
		word(36) + " " + word(37):                  word(36) + "\n" + word(37),
		word(30) + " " + word(30) + " " + word(20): word(30) + " " + word(30) + "\n" + word(20),
		word(70) + " " + word(5) + " " + word(60):  word(70) + "\n" + word(5) + " " + word(60),
		word(90) + " " + word(1):                   word(90) + "\n" + word(1),
		"":                                         "",
	} {
		got := output.Folded([][2]string{{"in", "x"}, {word(5), "y"}, {"is", value}})
		if len(got) != 3 || got[2] != [2]string{"is", want} {
			t.Errorf("%q is folded as %q, want %q", value, got, want)
		}
	}
}

// A table that is too wide loses its last columns.
func TestTable_Fits(t *testing.T) {
	t.Parallel()
	for width, want := range map[int]string{
		0:  "RECORD         N    NOTE\noperation#abc  1    ünïcödé\nop#abc         100  -\n",
		27: "RECORD         N    NOTE\noperation#abc  1    ünïcödé\nop#abc         100  -\n",
		26: "RECORD         N\noperation#abc  1\nop#abc         100\n",
		1:  "RECORD         N\noperation#abc  1\nop#abc         100\n", // not less
	} {
		var b strings.Builder
		table := &output.Table{W: &b, Width: width, Titles: []string{"RECORD", "N", "NOTE"}, Spare: 1}
		for _, row := range [][]string{{"operation#abc", "1", "ünïcödé"}, {"op#abc", "100", ""}} {
			table.Add(nil, row...)
		}
		if err := table.Flush(); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); got != want {
			t.Errorf("width %d: got\n%swant\n%s", width, got, want)
		}
	}
}

// The pages of a long table have one title, unless their columns differ.
func TestTable_Pages(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	table := &output.Table{W: &b, Width: 12, Titles: []string{"A", "B"}, Spare: 1}
	const rows = 100 // of a page
	for i := range 3 * rows {
		note := "short"
		if i >= 2*rows {
			note = "a long note"
		}
		table.Add(nil, "a", note)
	}
	want := "A  B\n" + strings.Repeat("a  short\n", 2*rows) + "A\n" + strings.Repeat("a\n", rows)
	if got := b.String(); got != want {
		t.Errorf("got\n%s", got)
	}
}

// On a terminal the progress of long work is one line, which is removed before anything
// else is printed. Elsewhere it is a line each ten seconds.
func TestMeter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 3, 12, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	var out strings.Builder
	read := func(screen *output.Screen, w io.Writer, about int) string {
		out.Reset()
		m := output.NewMeter(screen, w, clock, "reading", "items", about)
		for i := range 100 {
			now = now.Add(100 * time.Millisecond)
			m.Read(dynamostore.ScanProgress{Items: (i + 1) * 100, ReadUnits: float64(i+1) / 2})
		}
		if p := m.Amount(); p.Items != 10_000 {
			t.Errorf("read %d items", p.Items)
		}
		if screen != nil {
			screen.Over(io.Discard).Write(nil)
		}
		return out.String()
	}
	screen := output.NewScreen(&out)
	if got := read(screen, &out, 0); !strings.HasPrefix(got, "\rreading: 200 items, 1,000 a second, 1.0 read units\rreading: 400 items, 1,000 a second, 2.0 read units") {
		t.Errorf("got %q", got)
	}
	got := read(screen, &out, 12_000)
	if !strings.Contains(got, "\rreading: 9,800 of about 12,000 items, 1,000 a second, 2s left, 49.0 read units") || strings.Contains(got, "\n") || !strings.HasSuffix(got, "\r"+strings.Repeat(" ", 79)+"\r") {
		t.Errorf("got %q", got)
	}
	if got := read(nil, &out, 0); got != "once: reading: 10,000 items, 1,000 a second, 50.0 read units\n" {
		t.Errorf("without a terminal: got %q", got)
	}
	if got := read(nil, nil, 0); got != "" {
		t.Errorf("without an output: got %q", got)
	}

	out.Reset()
	var stdout strings.Builder
	m := output.NewMeter(screen, &out, clock, "writing", "records", 3)
	m.Add(0)
	now = now.Add(time.Second)
	m.Add(1)
	fmt.Fprintln(screen.Over(&stdout), "a row")
	now = now.Add(time.Second)
	m.Add(2)
	fmt.Fprintln(screen.Over(&stdout), "a sum")
	if stdout.String() != "a row\na sum\n" {
		t.Errorf("standard output is %q", stdout.String())
	}
	first, last := "writing: 1 of about 3 records, 1.0 a second, 2s left", "writing: 3 records, 1.5 a second"
	if want := "\r" + first + "\r" + strings.Repeat(" ", len(first)) + "\r\r" + last + "\r" + strings.Repeat(" ", len(last)) + "\r"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// The price of a million requests is the one that docs/reports/cost.md measures.
func TestCostAgreesWithMeasurements(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reports/cost.md")
	if err != nil {
		t.Fatal(err)
	}
	measured := func(request, declared string) float64 {
		row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(request) + ` \| ` + regexp.QuoteMeta(declared) + ` \|.* ([0-9.]+) \|$`).FindSubmatch(page)
		if row == nil {
			t.Fatalf("docs/reports/cost.md has no row %q, %q", request, declared)
		}
		v, err := strconv.ParseFloat(string(row[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	price := func(s service) (usd float64) {
		s.Requests = 1e6
		for _, p := range s.bill() {
			if !strings.HasPrefix(p.What, "storage") {
				usd += p.USD
			}
		}
		return usd
	}
	retried := func(s service) float64 {
		with := s
		with.Retries = 1
		return price(with) - price(s)
	}
	for _, c := range []struct {
		request, declared string
		computed          float64
	}{
		{"first request", "any", price(service{})},
		{"replay", "either", retried(service{})},
		{"first request, result of 4 KB", "`Rerun`", price(service{Result: 4096})},
		{"replay of 4 KB", "either", retried(service{Result: 4096})},
		{"first request, result of 300 KB", "`Rerun`", price(service{Result: 300 << 10})},
		{"replay of 300 KB", "either", retried(service{Result: 300 << 10})},
		{"first request, result of 6 MB", "`Rerun`", price(service{Result: 6 << 20})},
		{"replay of 6 MB", "`Rerun`", retried(service{Result: 6 << 20})},
		{"each `Step`, while the record has less than 1 KB", "`Resume`", price(service{Steps: 1}) - price(service{})},
		{"first request, `Commit` with one item", "any", price(service{Commit: 1})},
		{"a run of `Reconciler`, nothing due", "`Reconcile`", price(service{Reconcile: month / 1e6}) - price(service{})},
	} {
		if want := measured(c.request, c.declared); math.Abs(c.computed-want) > 0.005*want {
			t.Errorf("%s, %s: computed $%.3f, measured $%.3f", c.request, c.declared, c.computed, want)
		}
	}
	unknown := price(service{Unknown: 1}) - price(service{})
	if want := measured("first request that ends unknown", "any") - measured("first request", "any") +
		measured("and each unknown record that it resolves", "`Reconcile`"); math.Abs(unknown-want) > 0.001 {
		t.Errorf("an unknown outcome: computed $%.3f, measured $%.3f", unknown, want)
	}
}

// A scan reads what is stored, at half a read unit for 4 KB.
func TestCostOfScans(t *testing.T) {
	t.Parallel()
	s := service{Requests: 1e10, Retention: 24 * time.Hour, Scan: time.Hour}
	var scan, storage position
	for _, p := range s.bill() {
		switch {
		case strings.HasPrefix(p.What, "scans"):
			scan = p
		case strings.HasPrefix(p.What, "storage"):
			storage = p
		}
	}
	if got := fmt.Sprintf("%.0f GB", storage.Bytes/1e9); got != "444 GB" {
		t.Errorf("10,000,000,000 requests a month, kept for 72 h, are %s", got)
	}
	if want := 730 * storage.Bytes / 4096 / 2 * 0.125e-6; math.Abs(scan.USD-want) > 0.01 {
		t.Errorf("a scan every hour costs $%.2f, want $%.2f", scan.USD, want)
	}
}
