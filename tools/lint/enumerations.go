// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"strings"

	"github.com/nishanths/exhaustive/passes/exhaustive"
	"golang.org/x/tools/go/analysis"
)

// watched are the enumerations that grow with the protocol. A switch over one of
// them lists every value, even if it has a default: a new state must be considered
// wherever the states differ.
const watched = `/driver\.State$|/event\.Kind$|/lambdahttp\.Situation$`

// enumerations reports switches and maps that miss a value of an enumeration.
// Elsewhere a default case is enough. Tests choose the values that they are about,
// so only their switches over enumerations of the product count, and no maps.
var enumerations = &analysis.Analyzer{
	Name:      "exhaustive",
	Doc:       exhaustive.Analyzer.Doc,
	Requires:  exhaustive.Analyzer.Requires,
	FactTypes: exhaustive.Analyzer.FactTypes,
	Run: func(pass *analysis.Pass) (any, error) {
		report, seen := pass.Report, map[token.Pos]bool{}
		defer func() { pass.Report = report }()
		run := func(wanted func(analysis.Diagnostic, bool) bool) error {
			pass.Report = func(d analysis.Diagnostic) {
				test := strings.HasSuffix(pass.Fset.Position(d.Pos).Filename, "_test.go")
				if wanted(d, test) && !seen[d.Pos] {
					seen[d.Pos] = true
					report(d)
				}
			}
			_, err := exhaustive.Analyzer.Run(pass)
			return err
		}
		// The flags are variables of the package, and a value is added to typeonly:
		// the second run includes what the first one did.
		set(exhaustive.Analyzer, "d", "true")
		tests := within(pass.Pkg.Path(), root+"/tests")
		if tests {
			set(exhaustive.Analyzer, "check", "switch")
			set(exhaustive.Analyzer, "typeonly", root+`/(idempotent|lambdahttp|lambdabatch|telemetry)[./]`)
		} else {
			set(exhaustive.Analyzer, "check", "switch,mapliteral")
		}
		err := run(func(d analysis.Diagnostic, test bool) bool {
			return !test || !strings.Contains(d.Message, "map literal")
		})
		if err != nil || tests {
			return nil, err
		}
		set(exhaustive.Analyzer, "d", "false")
		set(exhaustive.Analyzer, "typeonly", watched)
		arrays(pass, report)
		return nil, run(func(_ analysis.Diagnostic, test bool) bool { return !test })
	},
}

var isWatched = regexp.MustCompile(watched)

// arrays reports literals of arrays and slices that are indexed by the values of
// a watched enumeration, and miss one. exhaustive knows only maps.
func arrays(pass *analysis.Pass, report func(analysis.Diagnostic)) {
	for _, file := range pass.Files {
		if strings.HasSuffix(pass.Fset.File(file.FileStart).Name(), "_test.go") {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			if _, isMap := pass.TypesInfo.TypeOf(literal).Underlying().(*types.Map); isMap {
				return true
			}
			listed := map[string]bool{}
			var enum *types.Named
			for _, e := range literal.Elts {
				if entry, ok := e.(*ast.KeyValueExpr); ok {
					index := pass.TypesInfo.Types[entry.Key]
					if named, ok := index.Type.(*types.Named); ok && index.Value != nil && isWatched.MatchString(named.String()) {
						enum, listed[index.Value.ExactString()] = named, true
					}
				}
			}
			if enum == nil {
				return true
			}
			var missing []string
			scope := enum.Obj().Pkg().Scope()
			for _, name := range scope.Names() {
				c, ok := scope.Lookup(name).(*types.Const)
				if ok && types.Identical(c.Type(), enum) && !listed[c.Val().ExactString()] {
					missing = append(missing, name)
				}
			}
			if len(missing) > 0 {
				report(analysis.Diagnostic{Pos: literal.Pos(), Message: fmt.Sprintf("missing indexes in array literal: %s", strings.Join(missing, ", "))})
			}
			return true
		})
	}
}
