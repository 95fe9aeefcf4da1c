package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// plain makes text safe for a terminal: text of clients and handlers in a record
// must not move the cursor. Newlines and tabs stay.
func plain(s string) string {
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
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
	at := t.UTC().Format("2006-01-02 15:04:05Z")
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
