// SPDX-License-Identifier: Apache-2.0

// Package output makes text for people: tables, progress and plain text.
package output

import (
	"cmp"
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
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/view"
)

// Table prints rows under titles in aligned columns. It prints them in pages, so
// that a long list needs little memory and appears while it is read.
type Table struct {
	W      io.Writer
	Width  int // of a line; 0: unlimited
	Titles []string
	Spare  int           // how many of the last columns are omitted before lines get too long
	JSON   *json.Encoder // prints documents in place of the rows; nil: without --json

	page    [][]string
	printed int   // columns of the last page
	err     error // the first of a write
}

// pageRows is the number of rows that are aligned with each other.
const pageRows = 100

// Add adds a row, or prints the document in its place. Each cell is one line of plain
// text. It returns the first error of a write.
func (t *Table) Add(document any, cells ...string) error {
	if t.JSON != nil {
		return t.JSON.Encode(document)
	}
	for i, cell := range cells {
		if cell == "" {
			cells[i] = "-"
		}
	}
	if t.page = append(t.page, cells); len(t.page) == pageRows {
		t.Flush()
	}
	return t.err
}

// Flush prints the rows that were added since the last flush. It returns the first
// error of a write, after which nothing is printed.
func (t *Table) Flush() error {
	if len(t.page) == 0 || t.err != nil {
		return t.err
	}
	columns := t.fit()
	var lines []string
	if columns != t.printed {
		lines = append(lines, strings.Join(t.Titles[:columns], "\t"))
	}
	for _, row := range t.page {
		lines = append(lines, strings.Join(row[:columns], "\t"))
	}
	t.page, t.printed = t.page[:0], columns
	_, t.err = io.WriteString(t.W, aligned(lines))
	return t.err
}

// fit returns how many columns fit into a line.
func (t *Table) fit() (columns int) {
	total := -gap
	widths := make([]int, len(t.Titles))
	for i := range widths {
		for _, row := range append(t.page, t.Titles) {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
		total += widths[i] + gap
	}
	columns = len(widths)
	for ; t.Width > 0 && total > t.Width && columns > len(widths)-t.Spare; columns-- {
		total -= widths[columns-1] + gap
	}
	return columns
}

// Labelled returns lines of values with labels. A value can have several lines.
func Labelled(facts [][2]string) string {
	var lines []string
	for _, f := range facts {
		lines = append(lines, f[0]+"\t"+strings.ReplaceAll(f[1], "\n", "\n\t"))
	}
	return aligned(lines)
}

// Folded returns the facts with line breaks between the words of long values, so that their
// lines fit into 80 columns.
func Folded(facts [][2]string) [][2]string {
	labels := 0
	for _, f := range facts {
		labels = max(labels, utf8.RuneCountInString(f[0]))
	}
	room := 80 - labels - gap
	folded := make([][2]string, len(facts))
	for i, f := range facts {
		value, width := "", 0
		for n, word := range strings.Split(f[1], " ") {
			switch columns := utf8.RuneCountInString(word); {
			case n == 0:
				value, width = word, columns
			case width+1+columns <= room:
				value, width = value+" "+word, width+1+columns
			default:
				value, width = value+"\n"+word, columns
			}
		}
		folded[i] = [2]string{f[0], value}
	}
	return folded
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

// Screen is a terminal on which the line of a [Meter] stands below what is printed. Its
// writers remove the line first, and the meter draws it again. The line of the last meter
// stands until something is printed.
type Screen struct {
	to io.Writer // standard error

	mu    sync.Mutex
	width int // of the line
}

// NewScreen returns a screen whose meters write to standard error.
func NewScreen(stderr io.Writer) *Screen { return &Screen{to: stderr} }

// Over returns a writer to w, which is standard output or standard error.
func (s *Screen) Over(w io.Writer) io.Writer { return over{s, w} }

type over struct {
	*Screen
	w io.Writer
}

// Write removes the line and writes p.
func (o over) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.width > 0 {
		fmt.Fprintf(o.to, "\r%*s\r", o.width, "")
	}
	o.width = 0
	return o.w.Write(p)
}

// draw replaces the line.
func (s *Screen) draw(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.to, "\r%-*s", s.width, line)
	s.width = len(line)
}

// Meter shows how far long work is: on a screen in its line, and elsewhere in a line of
// standard error each ten seconds.
type Meter struct {
	screen *Screen   // nil: there is no terminal
	w      io.Writer // nil: show nothing
	now    func() time.Time
	what   string
	unit   string
	about  int // approximate number of units; 0: unknown

	mu    sync.Mutex
	began time.Time
	done  int
	read  dynamostore.ScanProgress
	next  time.Time // when to print again
}

// meterPause is the pause between two changes of the line, and meterLine between two lines.
const (
	meterPause = 200 * time.Millisecond
	meterLine  = 10 * time.Second
)

// NewMeter returns a meter of work on about so many units, such as records; 0: unknown.
// Without a screen and without w it shows nothing.
func NewMeter(screen *Screen, w io.Writer, now func() time.Time, what, unit string, about int) *Meter {
	m := &Meter{screen: screen, w: w, now: now, what: what, unit: unit, about: about, began: now()}
	m.next = m.began.Add(m.pause())
	return m
}

func (m *Meter) pause() time.Duration {
	if m.screen == nil {
		return meterLine
	}
	return meterPause
}

// Read stores the amount read so far. It is safe for concurrent use, as Add is.
func (m *Meter) Read(p dynamostore.ScanProgress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.read, m.done = p, p.Items
	m.show()
}

// Add counts units that are done.
func (m *Meter) Add(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done += n
	m.show()
}

// show prints how far the work is, if it is time.
func (m *Meter) show() {
	now := m.now()
	switch {
	case m.screen == nil && m.w == nil, now.Before(m.next):
		return
	case m.screen != nil:
		m.screen.draw(m.line(now))
	default:
		fmt.Fprintf(m.w, "once: %s\n", m.line(now))
	}
	m.next = now.Add(m.pause())
}

// line returns what is done, how fast, and what is left.
func (m *Meter) line(now time.Time) string {
	of, left := "", ""
	rate := float64(m.done) / now.Sub(m.began).Seconds()
	if m.about > m.done {
		of = " of about " + Grouped(m.about)
		if m.done > 0 {
			left = fmt.Sprintf(", %s left", Span(time.Duration(float64(m.about-m.done)/rate*float64(time.Second))))
		}
	}
	fast := Grouped(int(rate + 0.5))
	if rate < 10 {
		fast = fmt.Sprintf("%.1f", rate)
	}
	line := fmt.Sprintf("%s: %s%s %s, %s a second%s", m.what, Grouped(m.done), of, m.unit, fast, left)
	if m.read.ReadUnits > 0 {
		line += fmt.Sprintf(", %.1f read units", m.read.ReadUnits)
	}
	return line
}

// Amount returns the amount read so far.
func (m *Meter) Amount() dynamostore.ScanProgress {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.read
}

// Plain makes text safe for a terminal: text of clients and handlers in a record
// must not move the cursor. Newlines and tabs stay.
func Plain(s string) string {
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

// OneLine is plain for a table cell: it also replaces newlines and tabs.
func OneLine(s string) string { return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(Plain(s)) }

// Span returns a duration in at most four characters.
func Span(d time.Duration) string {
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

// When returns a time with its distance from now.
func When(t, now time.Time) string {
	at := t.Format("2006-01-02 15:04:05Z")
	if t.After(now) {
		return fmt.Sprintf("%s (in %s)", at, Span(t.Sub(now)))
	}
	return fmt.Sprintf("%s (%s ago)", at, Span(now.Sub(t)))
}

// Size returns a number of bytes with its unit.
func Size(n int) string {
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

// Grouped returns a number with commas.
func Grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Count returns a number with its noun.
func Count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return Grouped(n) + " " + one + "s"
}

// DescribeStep returns the progress of a step.
func DescribeStep(s *view.Step) string {
	name := OneLine(s.Name)
	switch s.State {
	case "finished":
		kept := "kept"
		if s.Sealed {
			kept = "kept, sealed"
		}
		return fmt.Sprintf("%s: finished by %s at %s, %s %s", name, cmp.Or(s.FinishedBy, "an unknown source"), s.At.Format(time.TimeOnly+"Z"), Size(s.ResultBytes), kept)
	case "begun":
		return fmt.Sprintf("%s: begun at %s and not finished (%s)", name, s.At.Format(time.TimeOnly+"Z"), s.Mode)
	}
	return name + ": not recorded"
}

// DescribeResult describes the stored result without its content.
func DescribeResult(v *view.Record) string {
	if v.Encoding == driver.EncodingOmitted {
		return "omitted: it could not be stored; retries get an error"
	}
	text := fmt.Sprintf("%s as %s", Size(v.ResultBytes), OneLine(v.Encoding))
	switch {
	case v.Sealed:
		text += ":\nonly a program that has the operation's key can read it"
	case v.Outcome == nil:
		text += "; --result prints it"
	}
	return text
}

// Short returns a record id with a shortened hash that still identifies the
// record.
func Short(id idempotent.RecordID) string {
	return OneLine(id.Operation()) + "#" + id.KeyHash()
}
