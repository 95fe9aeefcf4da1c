// SPDX-License-Identifier: Apache-2.0

package oncevet

import (
	"fmt"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/packages"
)

// Each check finds the mistakes of its package in testdata, there, in a function that
// it calls and in another package, and nothing else. The packages use the toolkit of
// this tree.
func TestChecks(t *testing.T) {
	t.Parallel()
	for _, check := range Checks {
		if _, err := os.Stat(filepath.Join("testdata", check)); err != nil {
			t.Errorf("%s has no tests: %v", check, err)
		}
	}
	found, met, twice, wanted := map[string]bool{}, map[string]bool{}, map[string]bool{}, expectations(t)
	for _, p := range analyze(t, "testdata") {
		for _, d := range p.Diagnostics {
			found[d.Category] = true
			at := p.Package.Fset.Position(d.Pos)
			line := fmt.Sprintf("%s/%s:%d", p.Package.Name, filepath.Base(at.Filename), at.Line)
			if place := fmt.Sprint(p.Package.ID, at, d.Category); twice[place] {
				t.Errorf("%s: %s is reported twice", line, d.Category)
			} else {
				twice[place] = true
			}
			if want := wanted[line]; want == nil || !want.MatchString(d.Message) {
				t.Errorf("%s: got %s, want %v", line, d.Message, want)
			}
			met[line] = true
		}
	}
	for line, want := range wanted {
		if !met[line] {
			t.Errorf("%s: no finding, want %v", line, want)
		}
	}
	for _, check := range append(slices.Clone(Checks), "ignore") {
		if !found[check] {
			t.Errorf("%s found nothing", check)
		}
	}
}

// analyze returns the packages of a module with their findings. Unlike analysistest.Run, it
// reads the packages of other modules from export data, which takes a third of the time.
func analyze(t *testing.T, dir string) []*checker.Action {
	t.Helper()
	c := &packages.Config{Mode: packages.LoadSyntax | packages.NeedModule, Dir: dir, Tests: true, Env: append(os.Environ(), "GOWORK=off")}
	pkgs, err := packages.Load(c, "./...")
	if err != nil {
		t.Fatal(err)
	}
	graph, err := checker.Analyze([]*analysis.Analyzer{Analyzer}, pkgs, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range graph.Roots {
		if len(p.Package.Errors) > 0 || p.Err != nil {
			t.Fatal(p.Package.Errors, p.Err)
		}
	}
	return graph.Roots
}

// expectations returns the findings that the comments in testdata expect, one a line, by
// package, file and line.
func expectations(t *testing.T) map[string]*regexp.Regexp {
	t.Helper()
	wanted := map[string]*regexp.Regexp{}
	err := filepath.WalkDir("testdata", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		code, err := os.ReadFile(path)
		for n, line := range strings.Split(string(code), "\n") {
			if m := regexp.MustCompile("want [`\"](.*?)[`\"]").FindStringSubmatch(line); m != nil {
				wanted[fmt.Sprintf("%s/%s:%d", filepath.Base(filepath.Dir(path)), filepath.Base(path), n+1)] = regexp.MustCompile(m[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return wanted
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
	for line := range expectations(t) {
		want[line] = true
	}
	if !maps.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s\nfrom\n%s", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)), out)
	}
}

// With -oncevet.tests, files of tests are checked too.
func TestFilesOfTests(t *testing.T) { // not parallel: the flag is that of all runs
	if err := Analyzer.Flags.Set("tests", "true"); err != nil {
		t.Fatal(err)
	}
	defer func() { tests = false }()
	found := map[string]bool{}
	for _, p := range analyze(t, filepath.Join("testdata", "ignores")) {
		for _, d := range p.Diagnostics {
			if at := p.Package.Fset.Position(d.Pos); filepath.Base(at.Filename) == "ignores_test.go" {
				found[d.Category] = true
			}
		}
	}
	if want := map[string]bool{"ignored": true, "ignore": true}; !maps.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
}

// Packages of other modules and of the standard library are not checked.
func TestForeign(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		module *analysis.Module
		path   string
		want   bool
	}{
		{nil, "net/http", true},
		{nil, "example.com/shop/order", false},
		{&analysis.Module{}, "net/http", true},
		{&analysis.Module{}, "example.com/shop/order", false},
		{&analysis.Module{Path: "shop"}, "shop/order", false},
		{&analysis.Module{Path: "example.com/dep", Version: "v1.0.0"}, "example.com/dep", true},
	} {
		pass := &analysis.Pass{Module: row.module, Pkg: types.NewPackage(row.path, "p")}
		if got := foreign(pass); got != row.want {
			t.Errorf("%s in %v: got %t, want %t", row.path, row.module, got, row.want)
		}
		if row.want {
			if _, err := Analyzer.Run(pass); err != nil { // it would panic: the pass has no files
				t.Errorf("%s in %v: %v", row.path, row.module, err)
			}
		}
	}
}

// A method that takes the input of an operation of the AWS SDK and returns an error is
// one of a client.
func TestAWSInput(t *testing.T) {
	t.Parallel()
	failure, text := types.Universe.Lookup("error").Type(), types.Typ[types.String]
	for _, row := range []struct {
		path, input string
		method      bool
		result      types.Type
		want        bool
	}{
		{"github.com/aws/aws-sdk-go-v2/service/dynamodb", "PutItemInput", true, failure, true},
		{"github.com/aws/aws-sdk-go/service/dynamodb", "PutItemInput", true, failure, true},
		{"github.com/aws/aws-sdk-go-v2/service/dynamodb", "Item", true, failure, false},
		{"github.com/aws/aws-sdk-go-v2/service/dynamodb", "PutItemInput", false, failure, false},
		{"github.com/aws/aws-sdk-go-v2/service/dynamodb", "PutItemInput", true, text, false},
		{"github.com/aws/aws-sdk-go-v2/service/cloudwatch", "PutMetricDataInput", true, failure, false},
		{"example.com/shop", "PutInput", true, failure, false},
	} {
		defined := types.NewNamed(types.NewTypeName(0, types.NewPackage(row.path, "p"), row.input, nil), types.NewStruct(nil, nil), nil)
		var recv *types.Var
		if row.method {
			recv = types.NewParam(0, nil, "", text)
		}
		tuple := func(t types.Type) *types.Tuple { return types.NewTuple(types.NewParam(0, nil, "", t)) }
		if got := awsInput(types.NewSignatureType(recv, nil, nil, tuple(types.NewPointer(defined)), tuple(row.result), false)); got != row.want {
			t.Errorf("%v: got %t", row, got)
		}
	}
}

// The summary of a function that does much stays small.
func TestSummaryIsLimited(t *testing.T) {
	t.Parallel()
	var s summary
	for range 2 {
		for i := range most - 1 {
			s.add(&summary{Sends: []*send{{What: fmt.Sprint(i)}}})
		}
	}
	if len(s.Sends) != most-1 {
		t.Errorf("%d requests, want %d", len(s.Sends), most-1)
	}
	for i := range 2 * most {
		at := fmt.Sprint("order.go:", i)
		s.add(&summary{Sends: []*send{{At: at}}, Steps: []stepUse{{At: at}}, Lost: []string{at}, Leaves: []string{at}})
	}
	if len(s.Sends) != most || len(s.Steps) != most || len(s.Lost) != most || len(s.Leaves) != most {
		t.Errorf("%d requests, %d steps, %d contexts and %d goroutines, want %d of each", len(s.Sends), len(s.Steps), len(s.Lost), len(s.Leaves), most)
	}
}
