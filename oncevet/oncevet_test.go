// SPDX-License-Identifier: Apache-2.0

package oncevet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
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
	"golang.org/x/tools/go/packages"
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

// The check of types refuses what Wrap refuses at start-up, with the same reasons.
func TestTypesAreRefusedAsByWrap(t *testing.T) {
	t.Parallel()
	env := append(os.Environ(), "GOWORK=off", "GOFLAGS=-trimpath")
	run := exec.Command("go", "run", "./typecases")
	run.Dir, run.Env = "testdata", env
	out, err := run.Output()
	if err != nil {
		t.Fatal(err)
	}
	pkgs, err := packages.Load(&packages.Config{
		Mode: packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports | packages.NeedDeps | packages.NeedName,
		Dir:  "testdata", Env: env,
	}, "./typecases")
	if err != nil || len(pkgs) != 1 || len(pkgs[0].Errors) > 0 {
		t.Fatalf("%v, %v", pkgs, err)
	}
	info, answers, tried := pkgs[0].TypesInfo, json.NewDecoder(bytes.NewReader(out)), 0
	for _, file := range pkgs[0].Syntax {
		ast.Inspect(file, func(n ast.Node) bool {
			index, ok := n.(*ast.IndexExpr)
			if !ok {
				return true
			}
			if f, ok := index.X.(*ast.Ident); !ok || f.Name != "try" {
				return true
			}
			var want [2]string
			if err := answers.Decode(&want); err != nil {
				t.Fatal(err)
			}
			tried++
			typ := info.TypeOf(index.Index)
			for i, got := range []error{storable(typ), distinct(typ)} {
				if (got == nil) != (want[i] == "") || got != nil && !strings.Contains(spelled(want[i]), spelled(got.Error())) {
					t.Errorf("%s as a %s: got %v, and Wrap says %q", typ, []string{"result", "request"}[i], got, want[i])
				}
			}
			return true
		})
	}
	if tried < 60 || answers.More() {
		t.Errorf("%d types were compared, and the program has more", tried)
	}
}

// spelled removes the differences between the names of types in go/types and in
// reflect.
func spelled(text string) string {
	return strings.NewReplacer(" ", "", `\`, "", "interface{}", "any").Replace(strings.ReplaceAll(text, "interface {}", "any"))
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
