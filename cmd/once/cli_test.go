package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/dynamostore"
)

// The help of every command fits a terminal, and the program's help has the exit
// codes.
func TestHelp(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.once("--help").ok().golden("help")
	for _, command := range [][]string{{"list"}, {"show"}, {"resolve"}, {"reconcile"}, {"purge"}, {"stats"}, {"table", "create"}, {"table", "check"}} {
		d.once(append(command, "--help")...).ok().golden("help-" + strings.Join(command, "-"))
	}
	d.once("--version").ok().says("once ")
	d.once("lst").exits(exitUsage).says(`did you mean "list"`, "See once --help.")
	d.once("list", "--wide").exits(exitUsage).says("--wide")

	var out bytes.Buffer
	w := d.world
	w.stdout, w.stderr = &out, io.Discard
	if code := run(t.Context(), &w, nil); code != exitOK || !strings.Contains(out.String(), exitCodes) {
		t.Errorf("without arguments: exit code %d\n%s", code, &out)
	}
}

func TestTable_File(t *testing.T) {
	t.Parallel()
	d := newDesk(t, aNight(t)...)
	d.once("table", "check").ok().says("file once.db can be used as a store")
	d.once("table", "check", "--json").ok().says(`"ok": true`, `"problems": []`)
	d.once("table", "create").ok() // an existing file is not changed
	if len(d.left()) != len(aNight(t)) {
		t.Error("records are missing")
	}
	if err := os.WriteFile(d.file, bytes.Repeat([]byte("no store "), 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	d.once("table", "check").exits(exitFailure).says("not a bbolt file")
}

// Reading commands change nothing in a file, not even expired records.
func TestLookingWritesNothing(t *testing.T) {
	t.Parallel()
	d := newDesk(t, aNight(t)...)
	before, err := os.ReadFile(d.file)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"list"}, {"show", string(chargeKey.RecordID())}, {"stats"}, {"purge"}, {"reconcile", "--dry-run"}, {"table", "check"}} {
		d.once(args...).ok()
	}
	if after, err := os.ReadFile(d.file); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file was changed (%v)", err)
	}
}

// If the context ends, the command fails and does not print an incomplete list as
// complete.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	d := newDesk(t, aNight(t)...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, command := range []string{"list", "stats", "purge", "reconcile"} {
		w := d.world
		w.stdout, w.stderr = io.Discard, io.Discard
		if code := run(ctx, &w, []string{command, "--file", d.file}); code != exitFailure {
			t.Errorf("%s: exit code %d", command, code)
		}
	}
}

// Progress is printed now and then; on a terminal in one line that is removed at
// the end.
func TestMeter(t *testing.T) {
	t.Parallel()
	now := night
	var out strings.Builder
	e := &env{world: &world{stderr: &out, now: func() time.Time { return now }}, progress: true}
	read := func(about int) string {
		out.Reset()
		m := e.meter("reading", about)
		for i := range 100 {
			now = now.Add(100 * time.Millisecond)
			m.read(dynamostore.ScanProgress{Items: (i + 1) * 100, ReadUnits: float64(i+1) / 2})
		}
		if p := m.end(); p.Items != 10_000 {
			t.Errorf("read %d items", p.Items)
		}
		return out.String()
	}
	if got, want := read(0), "reading: 200 items, 1.0 read units\nreading: 5,200 items, 26.0 read units\nreading: 10,000 items, 50.0 read units\n"; got != want {
		t.Errorf("into a file: got %q, want %q", got, want)
	}
	e.stderrTTY = true
	got := read(12_000)
	if !strings.Contains(got, "\rreading: 9,800 of about 12,000 items, 49.0 read units") || strings.Contains(got, "\n") || !strings.HasSuffix(got, strings.Repeat(" ", 54)+"\r") {
		t.Errorf("on a terminal: got %q", got)
	}
	e.progress = false
	if got := read(0); got != "" {
		t.Errorf("without --progress: got %q", got)
	}
}
