// SPDX-License-Identifier: Apache-2.0

package oncevet

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ssa"
)

// Analyzer reports mistakes in handlers that use the toolkit once. A finding has the
// name of its check as category and at the beginning of its message.
var Analyzer = &analysis.Analyzer{
	Name: "oncevet",
	Doc: "report mistakes in handlers that use the toolkit once\n\n" +
		"It finds effects that can happen twice, keys that change between retries, and outcomes that are lost. " +
		"The comment //oncevet:ignore CHECK reason accepts a finding on its line or on the line below.",
	URL:       "https://github.com/once-lambda/once/blob/main/docs/oncevet.md",
	Run:       run,
	FactTypes: []analysis.Fact{new(summary), new(carrier)},
}

// tests is a flag of the analyzer.
var tests bool

func init() {
	Analyzer.Flags.BoolVar(&tests, "tests", false, "check files of tests too")
}

// Checks lists the names of the checks, as in [analysis.Diagnostic.Category].
var Checks = []string{
	"lostcontext", "downstreamkey", "outsidestep", "notexecuted", "ignored", "afterexit", "unstablekey",
	"stepname", "joined", "aftercommit", "committype", "wholeevent", "retention",
}

// vet checks one package.
type vet struct {
	pass      *analysis.Pass
	prog      *ssa.Program
	funcs     []*ssa.Function // of the source, with function literals
	summaries map[*ssa.Function]*summary
	within    map[ssa.Value]bool // calls whose results are being resolved
	keeps     map[place]bool     // see findKept
	ignores   map[string]map[int]*ignore
	found     map[finding]bool
}

type finding struct {
	pos   token.Pos
	check string
}

func run(pass *analysis.Pass) (any, error) {
	if foreign(pass) {
		return nil, nil
	}
	v := &vet{pass: pass, summaries: map[*ssa.Function]*summary{}, within: map[ssa.Value]bool{}, found: map[finding]bool{}}
	v.ignores = v.readIgnores()
	v.build()
	v.findKept()

	list := v.findGuarded()
	for _, f := range v.funcs {
		v.notexecuted(f)
		v.joined(f)
		v.ignored(f)
		v.aftercommit(f)
		v.unstablekey(f)
		v.stepname(f)
		v.fingerprints(f)
	}
	handlers := v.steps()
	for _, g := range list {
		v.outsidestep(g)
		v.undeclaredsteps(g)
		v.committype(g)
		v.wholeevent(g)
		v.retention(g)
		handlers = append(handlers, g.handlers...)
	}
	v.contexts(handlers)
	v.downstreamkey(list)
	v.unusedIgnores()
	v.export()
	return nil, nil
}

// foreign reports whether a package belongs to a dependency. Those of the standard
// library have no module and no dot in the first element of their path.
func foreign(pass *analysis.Pass) bool {
	if pass.Module != nil && pass.Module.Path != "" {
		return pass.Module.Version != ""
	}
	first, _, _ := strings.Cut(pass.Pkg.Path(), "/")
	return !strings.Contains(first, ".")
}

// build makes the SSA form of the package, as buildssa does. buildssa itself would run
// over each dependency, because this analyzer has facts.
func (v *vet) build() {
	v.prog = ssa.NewProgram(v.pass.Fset, 0)
	v.prog.SetNoReturn(func(f *types.Func) bool {
		return ends.MatchString(name(f))
	})
	for _, p := range v.pass.Pkg.Imports() {
		v.prog.CreatePackage(p, nil, nil, true)
	}
	pkg := v.prog.CreatePackage(v.pass.Pkg, v.pass.Files, v.pass.TypesInfo, false)
	pkg.Build()
	var add func(f *ssa.Function)
	add = func(f *ssa.Function) {
		v.funcs = append(v.funcs, f)
		for _, literal := range f.AnonFuncs {
			add(literal)
		}
	}
	add(pkg.Func("init")) // with the values of variables
	for _, file := range v.pass.Files {
		if v.inTest(file.Package) {
			continue
		}
		for _, d := range file.Decls {
			if d, ok := d.(*ast.FuncDecl); ok {
				add(v.prog.FuncValue(v.pass.TypesInfo.Defs[d.Name].(*types.Func)))
			}
		}
	}
}

func (v *vet) inTest(pos token.Pos) bool {
	return !tests && strings.HasSuffix(v.pass.Fset.File(pos).Name(), "_test.go")
}

// report reports a finding, once for each check and place.
func (v *vet) report(check string, pos token.Pos, format string, args ...any) {
	if !pos.IsValid() || v.inTest(pos) || v.found[finding{pos, check}] || v.isIgnored(check, pos) {
		return
	}
	v.found[finding{pos, check}] = true
	v.pass.Report(analysis.Diagnostic{Pos: pos, Category: check, Message: check + ": " + fmt.Sprintf(format, args...)})
}

// steps returns the functions of all steps of the package.
func (v *vet) steps() (list []*ssa.Function) {
	for _, f := range v.funcs {
		calls(f, func(call ssa.CallInstruction) {
			if c := call.Common(); isStep(name(callee(c))) {
				list = append(list, v.callables(c.Args[2])...)
			}
		})
	}
	return list
}

// export publishes the summaries for packages that import this one.
func (v *vet) export() {
	for _, f := range v.funcs {
		d := declared(f)
		if d == nil {
			continue
		}
		if s := v.summaryOf(f); !reflect.ValueOf(*s).IsZero() {
			v.pass.ExportObjectFact(d, s)
		}
	}
	if v.carries() {
		v.pass.ExportPackageFact(new(carrier))
	}
}

// ignore is a comment
//
//	//oncevet:ignore CHECK reason
//
// which accepts a finding on its line or on the line below.
type ignore struct {
	pos    token.Pos
	check  string
	reason string
	used   bool
}

const directive = "//oncevet:ignore"

// readIgnores returns the comments of the package, by file and line.
func (v *vet) readIgnores() map[string]map[int]*ignore {
	files := map[string]map[int]*ignore{}
	for _, file := range v.pass.Files {
		for _, group := range file.Comments {
			for _, c := range group.List {
				rest, ok := strings.CutPrefix(c.Text, directive)
				if !ok {
					continue
				}
				check, reason, _ := strings.Cut(strings.TrimSpace(rest), " ")
				at := v.pass.Fset.Position(c.Pos())
				if files[at.Filename] == nil {
					files[at.Filename] = map[int]*ignore{}
				}
				files[at.Filename][at.Line] = &ignore{pos: c.Pos(), check: check, reason: strings.TrimSpace(reason)}
			}
		}
	}
	return files
}

// ignored reports whether a comment accepts a finding.
func (v *vet) isIgnored(check string, pos token.Pos) bool {
	at := v.pass.Fset.Position(pos)
	lines := v.ignores[at.Filename]
	for _, i := range []*ignore{lines[at.Line], lines[at.Line-1]} {
		if i != nil && i.check == check && i.reason != "" {
			i.used = true
			return true
		}
	}
	return false
}

// unusedIgnores reports comments that accept nothing.
func (v *vet) unusedIgnores() {
	for _, lines := range v.ignores {
		for _, i := range lines {
			switch {
			case !slices.Contains(Checks, i.check):
				v.report("ignore", i.pos, "unknown check %q; write %s CHECK reason", i.check, directive)
			case i.reason == "":
				v.report("ignore", i.pos, "a comment without a reason ignores nothing; write %s %s reason", directive, i.check)
			case !i.used:
				v.report("ignore", i.pos, "there is no %s finding here; remove the comment", i.check)
			}
		}
	}
}
