// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

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
