package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// column is one column of a table.
type column struct {
	title string
	right bool // numbers
	// keep is the minimum width if lines are too long, and cut shortens a cell to
	// a width. Without cut the column is never shortened.
	keep int
	cut  func(s string, width int) string
	// spare columns are omitted, the last one first, if lines would be too long
	// otherwise. once show prints their values.
	spare bool
}

// cutMark replaces the removed part of a cell.
const cutMark = "…"

// cutEnd shortens a cell at its end.
func cutEnd(s string, width int) string {
	r := []rune(s)
	if len(r) <= width {
		return s
	}
	return string(r[:width-1]) + cutMark
}

// cutID shortens the operation of a record id: the hash identifies the record.
func cutID(s string, width int) string {
	i := strings.LastIndexByte(s, '#')
	if i < 0 || utf8.RuneCountInString(s) <= width {
		return cutEnd(s, width)
	}
	hash := s[i:]
	return cutEnd(s[:i], max(2, width-len(hash))) + hash
}

// writeTable writes rows under titles, in lines no longer than width if possible.
// It omits an empty column.
func writeTable(w io.Writer, width int, columns []column, rows [][]string) error {
	widths := make([]int, len(columns))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for i, c := range columns {
		if widths[i] > 0 {
			widths[i] = max(widths[i], len(c.title))
		}
	}
	leaveOut(width, columns, widths)
	fit(width, columns, widths)
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.title
	}
	var b strings.Builder
	for _, row := range append([][]string{titles}, rows...) {
		line := ""
		for i, cell := range row {
			if widths[i] == 0 {
				continue
			}
			if c := columns[i]; c.cut != nil && utf8.RuneCountInString(cell) > widths[i] {
				cell = c.cut(cell, widths[i])
			}
			pad := strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(cell)))
			if columns[i].right {
				line += pad + cell + "  "
			} else {
				line += cell + pad + "  "
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// leaveOut omits columns until the columns that cannot be shortened fit.
func leaveOut(width int, columns []column, widths []int) {
	least := func(i int) int {
		switch {
		case widths[i] == 0:
			return 0
		case columns[i].cut == nil:
			return widths[i] + 2
		default:
			return min(widths[i], columns[i].keep) + 2
		}
	}
	total := -2
	for i := range columns {
		total += least(i)
	}
	for i := len(columns) - 1; i >= 0 && width > 0 && total > width; i-- {
		if columns[i].spare {
			total -= least(i)
			widths[i] = 0
		}
	}
}

// fit shortens columns, the last one first, until the lines fit.
func fit(width int, columns []column, widths []int) {
	total := -2
	for _, n := range widths {
		if n > 0 {
			total += n + 2
		}
	}
	for i := len(columns) - 1; i >= 0 && width > 0 && total > width; i-- {
		if columns[i].cut == nil || widths[i] <= columns[i].keep {
			continue
		}
		less := min(total-width, widths[i]-columns[i].keep)
		widths[i] -= less
		total -= less
	}
}

// writeFacts writes labelled lines. Several values of one label are written on
// separate lines.
func writeFacts(w io.Writer, facts [][2]string) error {
	wide := 0
	for _, f := range facts {
		wide = max(wide, len(f[0]))
	}
	for _, f := range facts {
		for i, line := range strings.Split(f[1], "\n") {
			label := f[0]
			if i > 0 {
				label = ""
			}
			if _, err := fmt.Fprintf(w, "%-*s  %s\n", wide, label, line); err != nil {
				return err
			}
		}
	}
	return nil
}
