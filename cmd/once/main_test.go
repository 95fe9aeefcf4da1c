// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/once-lambda/once/cmd/once/internal/operate"
)

// printed returns what a command line prints on standard output, if it succeeds.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	w := &operate.Env{Stdout: &out, Stderr: io.Discard, Getenv: func(string) string { return "" }}
	if code := run(t.Context(), w, args); code != operate.ExitOK {
		t.Fatalf("once %q: exit code %d", args, code)
	}
	return out.String()
}

// The help of every command fits a terminal and has an example, and the program's
// help has the exit codes.
func TestHelp(t *testing.T) {
	t.Parallel()
	walk(rootCommand(&operate.Env{}), func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())[1:]
		help := printed(t, append(path, "--help")...)
		if cmd.HasExample() != strings.Contains(help, "\nExamples:\n  once") || !cmd.HasExample() || !strings.Contains(help, cmd.Short) {
			t.Errorf("the help of once %q has no example:\n%s", path, help)
		}
		if cmd.Short != "" && strings.Count(help, cmd.Short+".\n") > 1 {
			t.Errorf("the help of once %q repeats itself:\n%s", path, help)
		}
		for line := range strings.Lines(help) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
				t.Errorf("the help of once %q has a line of %d columns: %s", path, n, line)
			}
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
		{":4\n", []string{"__complete", "show", ""}}, // no files
	} {
		if out := printed(t, row.args...); !strings.Contains(out, row.says) {
			t.Errorf("once %q prints\n%s", row.args, out)
		}
	}
}

// allCommands returns the commands and their flags, with their defaults: scripts of
// operators rely on them.
func allCommands() string {
	var text strings.Builder
	walk(rootCommand(&operate.Env{}), func(cmd *cobra.Command) {
		if !cmd.IsAvailableCommand() && cmd.HasParent() {
			return
		}
		fmt.Fprintln(&text, cmd.UseLine())
		cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" { // cobra adds it late
				fmt.Fprintf(&text, "  --%s %s %q\n", f.Name, f.Value.Type(), f.DefValue)
			}
		})
	})
	return text.String()
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
	root := rootCommand(&operate.Env{})
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

// The help of each command and the page have the same exit codes. [desk.once]
// checks that no command returns another one.
func TestExitCodesAreDocumented(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "reports", "limits.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	walk(rootCommand(&operate.Env{}), func(cmd *cobra.Command) {
		codes := cmd.Annotations[exitsNote]
		if cmd.HasSubCommands() || cmd.Name() == "help" || cmd.Parent().Name() == "completion" {
			return
		}
		commands++
		name := strings.TrimPrefix(cmd.CommandPath(), "once ")
		if codes == "" || !strings.Contains(cmd.Long, "Exit codes: "+strings.ReplaceAll(codes, " ", ", ")) {
			t.Errorf("the help of once %s has no exit codes", name)
		}
		if row := fmt.Sprintf("\n| `%s` | %s |\n", name, strings.ReplaceAll(codes, " ", ", ")); !bytes.Contains(guide, []byte(row)) {
			t.Errorf("docs/reports/limits.md has no row %s", strings.TrimSpace(row))
		}
	})
	if commands < 12 {
		t.Errorf("only %d commands were found", commands)
	}
	for line := range strings.Lines(exitCodes) {
		code, text, found := strings.Cut(strings.TrimSpace(line), "  ")
		if found && !bytes.Contains(guide, []byte("\n| "+code+" | "+text+" |\n")) {
			t.Errorf("docs/reports/limits.md does not explain exit code %s as %q", code, text)
		}
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

var (
	block   = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?")
	section = regexp.MustCompile(`(?m)^-- (\S+) --$\n`)
	shown   = regexp.MustCompile(`^(?:cmp stdout|json) (\S+)$`)
)

// plainCommand returns a command line without its quotes, folders and what a shell does
// with it, so that the one of a page and the one of a script are equal.
func plainCommand(line string) string {
	line, _, _ = strings.Cut(line, " || ")
	return strings.NewReplacer("'", "", `"`, "", "/tmp/", "", "$WORK/", "").Replace(strings.TrimPrefix(line, "once "))
}

// The commands of the pages are those of the scripts, and where a page shows what they
// print, a script compares it with the output of one of them.
func TestPagesShowScripts(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob(filepath.Join("testdata", "script", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	printed := map[string][]string{} // by command line
	for _, name := range scripts {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		files := map[string]string{}
		names := section.FindAllStringSubmatchIndex(text, -1)
		for i, at := range names {
			end := len(text)
			if i+1 < len(names) {
				end = names[i+1][0]
			}
			files[text[at[2]:at[3]]] = text[at[1]:end]
		}
		if len(names) > 0 {
			text = text[:names[0][0]]
		}
		last := ""
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			if m := shown.FindStringSubmatch(strings.TrimPrefix(line, "[file] ")); m != nil {
				printed[last] = append(printed[last], files[m[1]])
				continue
			}
			if _, command, found := strings.Cut(line, "once "); found && strings.HasPrefix(line, "exit ") {
				line = command
			}
			last = plainCommand(line)
			printed[last] = append(printed[last], "")
		}
	}
	pages, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands, samples := 0, 0
	for _, page := range pages {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range block.FindAllStringSubmatch(string(data), -1) {
			found := b[2] == ""
			for line := range strings.Lines(strings.ReplaceAll(b[1], "\\\n  ", "")) {
				if !strings.HasPrefix(line, "once ") {
					continue
				}
				commands++
				outputs, run := printed[plainCommand(strings.TrimSpace(line))]
				if !run {
					t.Errorf("%s: no script runs %s", filepath.Base(page), line)
				}
				for _, text := range outputs {
					found = found || text == b[2]
				}
			}
			if b[2] != "" {
				samples++
			}
			if !found {
				t.Errorf("%s: no script compares the output of\n%swith\n%s", filepath.Base(page), b[1], b[2])
			}
		}
	}
	if commands < 40 || samples < 7 {
		t.Errorf("found %d commands and %d samples", commands, samples)
	}
}
