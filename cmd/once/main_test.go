// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/smithy-go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/once-lambda/once/dynamostore"
)

// The help of every command fits a terminal and has an example, and the program's
// help has the exit codes.
func TestHelp(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	walk(rootCommand(&env{}), func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())[1:]
		help := d.once(append(path, "--help")...).ok().narrow(80).says(cmd.Short).out
		if cmd.HasExample() != strings.Contains(help, "\nExamples:\n  once") || !cmd.HasExample() {
			t.Errorf("the help of once %q has no example:\n%s", path, help)
		}
	})
	for _, row := range []struct {
		says string
		args []string
	}{
		{exitCodes, nil},
		{"once version ", []string{"--version"}},
		{"__start_once", []string{"completion", "bash"}},
		{"unknown\n", []string{"__complete", "list", "--state", "un"}},
	} {
		var out bytes.Buffer
		w := d.world
		w.stdout, w.stderr = &out, io.Discard
		if code := run(t.Context(), &w, row.args); code != exitOK || !strings.Contains(out.String(), row.says) {
			t.Errorf("once %q: exit code %d\n%s", row.args, code, &out)
		}
	}
}

// Scripts rely on the commands and their flags: they are those in the file, with their
// defaults.
func TestCommands(t *testing.T) {
	t.Parallel()
	var commands strings.Builder
	walk(rootCommand(&env{}), func(cmd *cobra.Command) {
		if !cmd.IsAvailableCommand() && cmd.HasParent() {
			return
		}
		fmt.Fprintln(&commands, cmd.UseLine())
		cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" { // cobra adds it late
				fmt.Fprintf(&commands, "  --%s %s %q\n", f.Name, f.Value.Type(), f.DefValue)
			}
		})
	})
	said{t: t, out: commands.String()}.golden("commands")
}

// walk calls f with cmd and the commands below it.
func walk(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, sub := range cmd.Commands() {
		walk(sub, f)
	}
}

// The commands and flags in the examples exist.
func TestExamples(t *testing.T) {
	t.Parallel()
	flag := regexp.MustCompile(`--([a-z-]+)`)
	seen := 0
	root := rootCommand(&env{})
	walk(root, func(cmd *cobra.Command) {
		for line := range strings.Lines(strings.ReplaceAll(cmd.Example, "\\\n", "")) {
			named, _, err := root.Find(strings.Fields(line)[1:])
			if err != nil || named == root || cmd != root && !strings.HasPrefix(named.CommandPath(), cmd.CommandPath()) {
				t.Errorf("%s: %v: %s", cmd.CommandPath(), err, line)
				continue
			}
			for _, m := range flag.FindAllStringSubmatch(line, -1) {
				if seen++; named.Flag(m[1]) == nil {
					t.Errorf("%s has no flag %s", named.CommandPath(), m[0])
				}
			}
		}
	})
	if seen < 10 {
		t.Errorf("only %d flags were found", seen)
	}
}

// An invalid command line is refused before the store is opened.
func TestUsage(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.file = filepath.Join(t.TempDir(), "missing.db")
	for _, row := range []struct {
		says string
		args []string
	}{
		{"Did you mean this?\n\tlist\nSee once --help.\n", []string{"lits"}},
		{"unknown command: want once table create or once table check", []string{"table", "chek"}},
		{"missing or unknown command", []string{"table"}},
		{`unknown command "all" for "once list"`, []string{"list", "all"}},
		{"unknown flag: --wide\nSee once list --help.\n", []string{"list", "--wide"}},
		{"invalid argument \"many\"", []string{"list", "--limit", "many"}},
		{"[due exhausted] were all set", []string{"list", "--due", "--exhausted"}},
		{"want one RECORD, got 0 arguments", []string{"show"}},
		{"quote a record that contains spaces", []string{"show", "POST", "/charges", "--global", "--key", "k"}},
		{"both a table (t) and a file", []string{"list", "--table", "t"}},
	} {
		d.once(row.args...).exits(exitUsage).says(row.says)
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

// On a terminal the progress of a long read is one line, which is removed at the
// end.
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
	if got := read(0); !strings.HasPrefix(got, "\rreading: 200 items, 1.0 read units\rreading: 400 items, 2.0 read units") {
		t.Errorf("got %q", got)
	}
	got := read(12_000)
	if !strings.Contains(got, "\rreading: 9,800 of about 12,000 items, 49.0 read units") || strings.Contains(got, "\n") || !strings.HasSuffix(got, "\r"+strings.Repeat(" ", 54)+"\r") {
		t.Errorf("got %q", got)
	}
	e.progress = false
	if got := read(0); got != "" {
		t.Errorf("without a terminal: got %q", got)
	}
}

func TestAdvice(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ operation, code, says string }{
		{"Query", "ValidationException", "--no-index"},
		{"PutItem", "ValidationException", "once table check"},
		{"Scan", "ResourceNotFoundException", "once table create"},
		{"Scan", "ExpiredTokenException", "log in again"},
		{"Scan", "UnrecognizedClientException", "log in again"},
		{"Query", "AccessDeniedException", "--no-index"}, // the store's error names the permission
		{"Scan", "AccessDeniedException", "--profile"},
		{"Scan", "InternalServerError", ""},
	} {
		err := fmt.Errorf("dynamostore: %w", &smithy.OperationError{OperationName: row.operation, Err: &smithy.GenericAPIError{Code: row.code}})
		if got := advice(err); row.says == "" && got != "" || !strings.Contains(got, row.says) {
			t.Errorf("%s, %s: got %q, want %q", row.operation, row.code, got, row.says)
		}
	}
	if got := advice(errors.New("any")); got != "" {
		t.Errorf("got %q", got)
	}
}
