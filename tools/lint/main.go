// SPDX-License-Identifier: Apache-2.0

// Lint checks one package for [go vet -vettool]. The go command runs it, and
// caches the result.
//
// It holds the analyzers of go vet, staticcheck, exhaustive, errorlint, dupword and
// oncevet, and three others: imports, lll and ignores. The reasons are in
// docs/adr/0028-linters-and-oncevet.md.
//
// A finding that is right to stay has the comment
//
//	//lint:ignore NAME reason
//
// on its line or on the line above.
//
// [go vet -vettool]: https://pkg.go.dev/cmd/go#hdr-Report_likely_mistakes_in_packages
package main

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/Abirdcfly/dupword"
	"github.com/polyfloyd/go-errorlint/errorlint"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/printf"
	"golang.org/x/tools/go/analysis/suite/vet"
	"golang.org/x/tools/go/analysis/unitchecker"
	"honnef.co/go/tools/analysis/facts/deprecated"
	"honnef.co/go/tools/analysis/lint"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"
	"honnef.co/go/tools/unused"

	"github.com/once-lambda/once/oncevet"
)

// root is the path of the modules that are linted.
const root = "github.com/once-lambda/once"

func main() {
	if dependency(os.Args[len(os.Args)-1]) {
		unitchecker.Main(printf.Analyzer, deprecated.Analyzer)
	}
	unitchecker.Main(suite()...)
}

// dependency reports whether a file configures a run over a package of another
// module. Of these only two facts are needed: what is deprecated, and what formats
// its arguments. To compute the others takes longer than to compile the package.
func dependency(file string) bool {
	if !strings.HasSuffix(file, ".cfg") {
		return false
	}
	var config unitchecker.Config
	data, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(data, &config) != nil {
		return false // unitchecker reports it
	}
	return config.VetxOnly && !within(config.ImportPath, root)
}

func within(pkg, tree string) bool { return pkg == tree || strings.HasPrefix(pkg, tree+"/") }

// suite returns the analyzers for the packages of this repository.
func suite() []*analysis.Analyzer {
	all := slices.Clone(vet.Suite)
	for _, checks := range [][]*lint.Analyzer{staticcheck.Analyzers, simple.Analyzers, stylecheck.Analyzers} {
		for _, c := range checks {
			if !c.Doc.NonDefault {
				all = append(all, c.Analyzer)
			}
		}
	}
	// Fixtures repeat words on purpose.
	words := dupword.NewAnalyzer()
	set(words, "comments-only", "true")
	set(words, "ignore", "reports,waits") // of a function that is called so
	wrapped := errorlint.NewAnalyzer()
	set(wrapped, "errorf", "true")
	all = append(all, enumerations, words, outsideTests(wrapped), unusedCode, imports, lll)
	for _, a := range all {
		heedIgnores(a)
	}
	return append(all, ignores(all), handlers())
}

// handlers returns oncevet, for code that is written as users write it: examples, and
// what the documents show. The tests of the toolkit make mistakes on purpose.
func handlers() *analysis.Analyzer {
	set(oncevet.Analyzer, "tests", "true")
	a := *oncevet.Analyzer
	a.Run = func(pass *analysis.Pass) (any, error) {
		checked, report := *pass, pass.Report
		checked.Report = func(d analysis.Diagnostic) {
			file := pass.Fset.Position(d.Pos).Filename
			if shown.MatchString(file) || written.MatchString(pass.Pkg.Path()) {
				report(d)
			}
		}
		return oncevet.Analyzer.Run(&checked)
	}
	return &a
}

var (
	shown   = regexp.MustCompile(`(example|recipe)_test\.go$`)
	written = regexp.MustCompile(`^` + root + `/(examples|tests/documents/programs|tests/measured/bench/(function|peers))(/|$)`)
)

// outsideTests makes an analyzer ignore tests. A test may want the very error that
// it passed in.
func outsideTests(a *analysis.Analyzer) *analysis.Analyzer {
	run := a.Run
	a.Run = func(pass *analysis.Pass) (any, error) {
		report := pass.Report
		pass.Report = func(d analysis.Diagnostic) {
			if !strings.HasSuffix(pass.Fset.Position(d.Pos).Filename, "_test.go") {
				report(d)
			}
		}
		return run(pass)
	}
	return a
}

func set(a *analysis.Analyzer, flag, value string) {
	if err := a.Flags.Set(flag, value); err != nil {
		panic(err)
	}
}

// unusedCode reports what staticcheck's U1000 computes. The go command passes a
// package together with its tests, so a use in a test counts.
var unusedCode = &analysis.Analyzer{
	Name:     "unused",
	Doc:      "report unused code",
	Requires: []*analysis.Analyzer{unused.Analyzer.Analyzer},
	Run: func(pass *analysis.Pass) (any, error) {
		for _, object := range pass.ResultOf[unused.Analyzer.Analyzer].(unused.Result).Unused {
			pass.Reportf(position(pass, object.Position), "%s %s is unused", object.Kind, object.Name)
		}
		return nil, nil
	},
}
