// SPDX-License-Identifier: Apache-2.0

package oncevet

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"
)

// Each check finds the mistakes of its package in testdata, there, in a function that
// it calls and in another package, and nothing else. The packages use the toolkit of
// this tree.
func TestChecks(t *testing.T) {
	t.Parallel()
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	download := exec.Command("go", "list", "-deps", "./...") // analysistest does not
	download.Dir, download.Env = dir, append(os.Environ(), "GOWORK=off")
	if out, err := download.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, check := range Checks {
		if _, err := os.Stat(filepath.Join(dir, check)); err != nil {
			t.Errorf("%s has no tests: %v", check, err)
		}
	}
	found := map[string]bool{}
	for _, r := range analysistest.Run(findings{t}, dir, Analyzer, "./...") {
		for _, d := range r.Diagnostics {
			found[d.Category] = true
		}
	}
	for _, check := range append(slices.Clone(Checks), "ignore") {
		if !found[check] {
			t.Errorf("%s found nothing", check)
		}
	}
}

// The command finds as a tool of go vet what the comments in testdata expect. There
// the go command passes the facts between packages.
func TestVetTool(t *testing.T) {
	t.Parallel()
	tool := filepath.Join(t.TempDir(), "oncevet")
	if out, err := exec.Command("go", "build", "-o", tool, "./cmd/oncevet").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	vet := exec.Command("go", "vet", "-vettool="+tool, "./...")
	vet.Dir, vet.Env = "testdata", append(os.Environ(), "GOWORK=off", "GOFLAGS=-trimpath")
	out, err := vet.CombinedOutput()
	if err == nil {
		t.Error("go vet succeeded")
	}
	got, want := map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)(\w+/\w+\.go:\d+):\d+: \w+: `).FindAllStringSubmatch(string(out), -1) {
		got[m[1]] = true
	}
	err = filepath.WalkDir("testdata", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		code, err := os.ReadFile(path)
		for n, line := range strings.Split(string(code), "\n") {
			if strings.Contains(line, "want `") || strings.Contains(line, `want "`) {
				want[fmt.Sprintf("%s/%s:%d", filepath.Base(filepath.Dir(path)), filepath.Base(path), n+1)] = true
			}
		}
		return err
	})
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v; got\n%v\nwant\n%v\nfrom\n%s", err, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)), out)
	}
}

// findings compares findings, and not facts, which the findings in other packages
// show.
type findings struct{ *testing.T }

func (f findings) Errorf(format string, args ...any) {
	f.Helper()
	if text := fmt.Sprintf(format, args...); !strings.Contains(text, "unexpected fact") {
		f.Error(text)
	}
}
