// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// Each linter reports its fault in a module of testdata, and nothing else.
func TestLintersFindFaults(t *testing.T) {
	t.Parallel()
	archive, err := txtar.ParseFile("testdata/faults.txtar")
	if err != nil {
		t.Fatal(err)
	}
	dir, tool := t.TempDir(), filepath.Join(t.TempDir(), "lint")
	command := func(in string, args ...string) string {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = in, append(os.Environ(), "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if err != nil && args[0] == "build" {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	command(".", "build", "-o", tool, ".")
	want := map[string]int{}
	for _, f := range archive.Files {
		name := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(string(f.Data), "\n") {
			if _, linters, ok := strings.Cut(line, "// want "); ok {
				for linter := range strings.FieldsSeq(linters) {
					want[fmt.Sprintf("%s:%d %s", f.Name, n+1, linter)]++
				}
			}
		}
	}
	got := map[string]int{}
	// With -trimpath the go command repeats what it printed in the folder of an earlier run of this test.
	finding := regexp.MustCompile(`(?m)^(?:vet: )?(?:/\S*/` + t.Name() + `\d+/001/)?(\S+\.go:\d+):\d+: (?:(\w+): )?.*$`)
	out := command(dir, "vet", "-vettool="+tool, "./...")
	for _, m := range finding.FindAllStringSubmatch(out, -1) {
		got[m[1]+" "+m[2]]++
	}
	if !maps.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s\nfrom\n%s", lines(got), lines(want), out)
	}
}

func lines(found map[string]int) string {
	return strings.Join(slices.Sorted(maps.Keys(found)), "\n")
}
