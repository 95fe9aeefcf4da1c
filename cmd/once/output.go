// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/once-lambda/once/dynamostore"
)

// table prints rows under titles in aligned columns. It prints them in pages, so
// that a long list needs little memory and appears while it is read.
type table struct {
	w      io.Writer
	width  int // of a line; 0: unlimited
	titles []string
	spare  int           // how many of the last columns are omitted before lines get too long
	json   *json.Encoder // prints documents in place of the rows; nil: without --json

	page    [][]string
	printed int   // columns of the last page
	err     error // the first of a write
}

// table returns a table on stdout.
func (e *env) table(spare int, titles ...string) *table {
	t := &table{w: e.stdout, width: e.width, titles: titles, spare: spare}
	if e.json {
		t.json = e.encoder()
	}
	return t
}

// pageRows is the number of rows that are aligned with each other.
const pageRows = 100

// add adds a row, or prints the document in its place. Each cell is one line of plain
// text. It returns the first error of a write.
func (t *table) add(document any, cells ...string) error {
	if t.json != nil {
		return t.json.Encode(document)
	}
	for i, cell := range cells {
		if cell == "" {
			cells[i] = "-"
		}
	}
	if t.page = append(t.page, cells); len(t.page) == pageRows {
		t.flush()
	}
	return t.err
}

// flush prints the rows that were added since the last flush. It returns the first
// error of a write, after which nothing is printed.
func (t *table) flush() error {
	if len(t.page) == 0 || t.err != nil {
		return t.err
	}
	columns := t.fit()
	var lines []string
	if columns != t.printed {
		lines = append(lines, strings.Join(t.titles[:columns], "\t"))
	}
	for _, row := range t.page {
		lines = append(lines, strings.Join(row[:columns], "\t"))
	}
	t.page, t.printed = t.page[:0], columns
	_, t.err = io.WriteString(t.w, aligned(lines))
	return t.err
}

// fit returns how many columns fit into a line.
func (t *table) fit() (columns int) {
	total := -gap
	widths := make([]int, len(t.titles))
	for i := range widths {
		for _, row := range append(t.page, t.titles) {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
		total += widths[i] + gap
	}
	columns = len(widths)
	for ; t.width > 0 && total > t.width && columns > len(widths)-t.spare; columns-- {
		total -= widths[columns-1] + gap
	}
	return columns
}

// labelled returns lines of values with labels. A value can have several lines.
func labelled(facts [][2]string) string {
	var lines []string
	for _, f := range facts {
		lines = append(lines, f[0]+"\t"+strings.ReplaceAll(f[1], "\n", "\n\t"))
	}
	return aligned(lines)
}

const gap = 2 // between two columns

// aligned returns the lines with their cells, which a tab separates, in columns.
func aligned(lines []string) string {
	var b strings.Builder
	out := tabwriter.NewWriter(&b, 0, 0, gap, ' ', 0)
	for _, line := range lines {
		fmt.Fprintln(out, line)
	}
	out.Flush()
	return b.String()
}

// meter shows the progress of a long read on a terminal, in one line of standard
// error that changes.
type meter struct {
	env   *env
	what  string
	about int // approximate number of items; 0: unknown

	mu    sync.Mutex
	state dynamostore.ScanProgress
	next  time.Time // when to print again
	width int       // of the printed line
}

// meterPause is the pause between two changes of the line.
const meterPause = 200 * time.Millisecond

func (e *env) meter(what string, about int) *meter {
	return &meter{env: e, what: what, about: about, next: e.now().Add(meterPause)}
}

// read stores the amount read so far and prints it if it is time. It is safe for
// concurrent use.
func (m *meter) read(p dynamostore.ScanProgress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = p
	now := m.env.now()
	if !m.env.progress || now.Before(m.next) {
		return
	}
	of := ""
	if m.about > p.Items {
		of = " of about " + grouped(m.about)
	}
	line := fmt.Sprintf("%s: %s%s items, %.1f read units", m.what, grouped(p.Items), of, p.ReadUnits)
	fmt.Fprintf(m.env.stderr, "\r%-*s", m.width, line)
	m.next, m.width = now.Add(meterPause), len(line)
}

// end removes the line, and returns the amount read.
func (m *meter) end() dynamostore.ScanProgress {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.width > 0 {
		fmt.Fprintf(m.env.stderr, "\r%*s\r", m.width, "")
	}
	return m.state
}

// plain makes text safe for a terminal: text of clients and handlers in a record
// must not move the cursor. Newlines and tabs stay.
func plain(s string) string {
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func hidden(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }

// oneLine is plain for a table cell: it also replaces newlines and tabs.
func oneLine(s string) string { return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(plain(s)) }

// span returns a duration in at most four characters.
func span(d time.Duration) string {
	switch d = d.Abs(); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 100*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// when returns a time with its distance from now.
func when(t, now time.Time) string {
	at := t.Format("2006-01-02 15:04:05Z")
	if t.After(now) {
		return fmt.Sprintf("%s (in %s)", at, span(t.Sub(now)))
	}
	return fmt.Sprintf("%s (%s ago)", at, span(now.Sub(t)))
}

// size returns a number of bytes with its unit.
func size(n int) string {
	units := []string{"KB", "MB", "GB", "TB"}
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/1000, 0
	for v >= 999.95 && i < len(units)-1 {
		v, i = v/1000, i+1
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}

// grouped returns a number with commas.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// count returns a number with its noun.
func count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(n) + " " + one + "s"
}
