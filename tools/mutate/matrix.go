// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// runAll runs every test that can notice the mutant m, except those named in without, and
// names all that do. Tests that a crash or a time-out kept from their end run again, one by one,
// with less time: some mutants keep most of them waiting.
func (b *binary) runAll(m mutant, tests []test, without []string) (all fate) {
	tests = slices.Concat(runs(tests, m, "", without)...)
	all.timedOut = true
	var by []string
	note := func(name string, f fate) {
		by = append(by, name)
		all.noticed, all.timedOut = true, all.timedOut && f.timedOut
	}
	for len(tests) > 0 {
		suite := tests[0].suite
		same := slices.DeleteFunc(slices.Clone(tests), func(t test) bool { return t.suite != suite })
		tests = slices.DeleteFunc(tests, func(t test) bool { return t.suite == suite })
		output, f := b.exec(suite, m.id, limitOf(same), "", "-test.run="+pattern(same))
		ended := resultsIn(output)
		for _, t := range same {
			switch ended[t.name] {
			case "FAIL":
				note(t.name, fate{})
			case "":
				if _, alone := b.exec(suite, m.id, max(2*time.Second, 20*t.took), "", "-test.run="+pattern([]test{t})); alone.noticed {
					note(t.name, alone)
				}
			}
		}
		if f.noticed && by == nil { // only together
			return f
		}
	}
	slices.Sort(by)
	all.by = strings.Join(by, " ")
	all.timedOut = all.timedOut && all.noticed
	return all
}

// result matches the line of a test that ended, without those of its subtests.
var result = regexp.MustCompile(`(?m)^\x16?--- (PASS|FAIL|SKIP): ([^/\s]+) \(`)

// resultsIn returns the results of the tests that ended, by name.
func resultsIn(output string) map[string]string {
	ended := map[string]string{}
	for _, m := range result.FindAllStringSubmatch(output, -1) {
		ended[m[2]] = m[1]
	}
	return ended
}

// matrix has the tests that notice each mutant, by its name.
type matrix map[string][]string

func (x matrix) add(v verdict) {
	if v.noticed && v.outcome != neverEnds {
		x[v.name()] = strings.Fields(v.by)
	}
}

// report prints the tests of a package, those that could go first.
func (x matrix) report(out io.Writer, b *binary, tests []test) error {
	lengths := map[string]int{}
	for _, suite := range b.suites() {
		if err := addLengths(lengths, filepath.Join(b.dir, suite)); err != nil {
			return err
		}
	}
	// Long tests go before short ones.
	slices.SortFunc(tests, func(x, y test) int {
		return cmp.Or(cmp.Compare(lengths[y.name], lengths[x.name]), cmp.Compare(x.name, y.name))
	})
	gone := map[string]bool{}
	for _, t := range tests {
		gone[t.name] = true
		for _, by := range x {
			if slices.Contains(by, t.name) && !slices.ContainsFunc(by, func(name string) bool { return !gone[name] }) {
				gone[t.name] = false
			}
		}
	}
	notices, alone := map[string]int{}, map[string]int{}
	for _, by := range x {
		for _, name := range by {
			notices[name]++
		}
		if len(by) == 1 {
			alone[by[0]]++
		}
	}
	show := func(fate string, t test) {
		fmt.Fprintf(out, "%s.%s %s: %d lines, %.2f s, notices %d mutants, %d of them alone\n",
			b.folder(), t.name, fate, lengths[t.name], t.took.Seconds(), notices[t.name], alone[t.name])
	}
	for _, t := range tests {
		if gone[t.name] {
			show("could go", t)
		}
	}
	for _, t := range tests {
		if !gone[t.name] {
			show("stays", t)
		}
	}
	return nil
}

// addLengths adds how many lines each function of the tests in a folder has.
func addLengths(lengths map[string]int, dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return err
	}
	fset := token.NewFileSet()
	for _, name := range names {
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range f.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok && d.Recv == nil {
				lengths[d.Name.Name] = fset.Position(d.End()).Line - fset.Position(d.Pos()).Line + 1
			}
		}
	}
	return nil
}
