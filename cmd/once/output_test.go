// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
)

func TestSpan(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", 59999 * time.Millisecond: "59s", time.Minute: "1m", 59*time.Minute + 59*time.Second: "59m",
		time.Hour: "1h", 99*time.Hour + 59*time.Minute: "99h", 100 * time.Hour: "4d", 999 * 24 * time.Hour: "999d", -90 * time.Second: "1m",
	} {
		if got := span(d); got != want {
			t.Errorf("%s is printed as %q, want %q", d, got, want)
		}
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{
		0: "0 B", 999: "999 B", 1000: "1.0 KB", 999_949: "999.9 KB", 999_950: "1.0 MB", 6 << 20: "6.3 MB", 5e12: "5.0 TB", 9e15: "9000.0 TB",
	} {
		if got := size(n); got != want {
			t.Errorf("%d is printed as %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := grouped(n); got != want {
			t.Errorf("%d is printed as %q, want %q", n, got, want)
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
		table := &table{w: &b, width: width, titles: []string{"RECORD", "N", "NOTE"}, spare: 1}
		for _, row := range [][]string{{"operation#abc", "1", "ünïcödé"}, {"op#abc", "100", ""}} {
			table.add(nil, row...)
		}
		if err := table.flush(); err != nil {
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
	table := &table{w: &b, width: 12, titles: []string{"A", "B"}, spare: 1}
	for i := range 3 * pageRows {
		note := "short"
		if i >= 2*pageRows {
			note = "a long note"
		}
		table.add(nil, "a", note)
	}
	want := "A  B\n" + strings.Repeat("a  short\n", 2*pageRows) + "A\n" + strings.Repeat("a\n", pageRows)
	if got := b.String(); got != want {
		t.Errorf("got\n%s", got)
	}
}

func TestShell(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{"a b": "'a b'", "it's": `'it'\''s'`, "": "''"} {
		if got := shell(s); got != want {
			t.Errorf("%q is quoted as %s, want %s", s, got, want)
		}
	}
}

func TestExitCode(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		err  error
		want int
	}{
		{nil, exitOK},
		{errors.New("any"), exitFailure},
		{usage("no"), exitUsage},
		{fmt.Errorf("x: %w", idempotent.ErrNoRecord), exitNotFound},
		{refuse("no"), exitRefused},
		{&idempotent.SettledError{}, exitRefused},
		{&idempotent.InProgressError{}, exitRefused},
		{&idempotent.StaleEvidenceError{}, exitRefused},
		{&idempotent.StepError{}, exitRefused},
		{&idempotent.StoreError{Err: errors.New("down")}, exitFailure},
	} {
		if got := exitCode(row.err); got != row.want {
			t.Errorf("%v: exit code %d, want %d", row.err, got, row.want)
		}
	}
}
