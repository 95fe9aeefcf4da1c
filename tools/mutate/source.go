// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// source is one package with its mutants.
type source struct {
	target
	dir     string // absolute
	fset    *token.FileSet
	files   map[string]*sourceFile // by base name
	folded  map[string]string      // the values of string constants, by name
	mutants []mutant
}

type sourceFile struct {
	text []byte
	ast  *ast.File
	// functions and constants are the broken ones, with the indexes of their
	// mutants.
	functions map[*ast.FuncDecl][]int
	constants map[*ast.ValueSpec][]int
}

// readSource parses a package and finds its mutants.
func readSource(root string, t target) (*source, error) {
	s := &source{target: t, dir: filepath.Join(root, t.module, t.pkg), fset: token.NewFileSet(), files: map[string]*sourceFile{}}
	names, err := filepath.Glob(filepath.Join(s.dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var all []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(s.fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		s.files[filepath.Base(name)] = &sourceFile{text: text, ast: f, functions: map[*ast.FuncDecl][]int{}, constants: map[*ast.ValueSpec][]int{}}
		all = append(all, f)
	}
	s.folded = constants(all)
	for _, base := range s.sorted() {
		f := s.files[base]
		for _, decl := range f.ast.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if slices.Contains(t.breaks, base) {
					for _, m := range breakFunction(s.fset, f.text, d) {
						m.where = functionName(d)
						f.functions[d] = append(f.functions[d], s.note(m, base))
					}
				}
			case *ast.GenDecl:
				if t.conditions && d.Tok == token.CONST {
					if err := s.conditionsOf(d, f, base, s.folded); err != nil {
						return nil, err
					}
				}
			}
		}
		if at := stray(f.ast); t.conditions && at != token.NoPos {
			return nil, fmt.Errorf("%s: this condition is not in a constant named …%s, so no mutant would break it", s.fset.Position(at), conditionSuffix)
		}
	}
	for _, base := range t.breaks {
		if s.files[base] == nil {
			return nil, fmt.Errorf("%s has no file %s; correct targets.go", s.folder(), base)
		}
	}
	number(s.mutants)
	for _, f := range s.files {
		for _, mutants := range f.functions {
			for _, i := range mutants {
				s.mutants[i].entry = s.mutants[mutants[0]].id
			}
		}
	}
	return s, nil
}

// folder returns the package's path from the root.
func (s *source) folder() string { return filepath.ToSlash(filepath.Join(s.module, s.pkg)) }

func (s *source) sorted() (names []string) {
	for name := range s.files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// note stores a mutant and returns its index.
func (s *source) note(m mutant, base string) int {
	m.pkg, m.file = s.folder(), base
	s.mutants = append(s.mutants, m)
	return len(s.mutants) - 1
}

func (s *source) conditionsOf(d *ast.GenDecl, f *sourceFile, base string, folded map[string]string) error {
	for _, spec := range d.Specs {
		value := spec.(*ast.ValueSpec)
		if len(value.Names) != 1 || len(value.Values) != 1 || !strings.HasSuffix(value.Names[0].Name, conditionSuffix) {
			continue
		}
		expr, ok := folded[value.Names[0].Name]
		if !ok {
			continue
		}
		texts, what, err := breakCondition(expr)
		if err != nil {
			return fmt.Errorf("%s: %w", s.fset.Position(value.Pos()), err)
		}
		for i := range texts {
			m := mutant{condition: true, where: value.Names[0].Name, what: what[i],
				line: s.fset.Position(value.Pos()).Line, edit: edit{text: strconv.Quote(texts[i])}}
			f.constants[value] = append(f.constants[value], s.note(m, base))
		}
	}
	return nil
}

// functionName returns "name" or "Type.name".
func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if index, ok := t.(*ast.IndexExpr); ok {
		t = index.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name + "." + d.Name.Name
	}
	return d.Name.Name
}

// mutant is one small change.
type mutant struct {
	id    int    // the value of the environment variable, from 1
	pkg   string // folder of the package, from the root
	where string // function or constant
	file  string // base name
	line  int
	what  string // the change in words
	nth   int    // from 2 if several changes of a function have the same words
	edit  edit
	entry int // id of the first mutant of the same function; 0: of a constant

	condition bool // of DynamoDB
}

// name returns the mutant's name. It stays the same as long as the code around
// the change does.
func (m mutant) name() string {
	s := m.pkg + "." + m.where + ": " + m.what
	if m.nth > 1 {
		s += fmt.Sprintf(" (%d)", m.nth)
	}
	return s
}

// number sets the ids of a package's mutants, and numbers those with the same
// words.
func number(mutants []mutant) {
	seen := map[string]int{}
	for i := range mutants {
		m := &mutants[i]
		m.id = i + 1
		key := m.where + "\x00" + m.what
		seen[key]++
		m.nth = seen[key]
	}
}

// outcome is the result of a mutant.
type outcome uint8

const (
	killed          outcome = iota + 1
	neverEnds               // declared endless, so that its time-out counts as killed
	equivalent              // declared, and no test noticed
	survived                // from here on a person has to look at it
	hung                    // no test failed, but one did not end, possibly for other reasons
	wronglyDeclared         // declared equivalent, and a test noticed
	refused                 // by the compiler
	outcomes                // the number of outcomes
)

func (o outcome) fine() bool { return o < survived }

// verdict is the line about a mutant.
type verdict struct {
	mutant
	fate
	outcome
	reason string // why it is equivalent
}

func (v verdict) String() string {
	s := fmt.Sprintf("%s (%s:%d): ", v.name(), v.file, v.line)
	switch v.outcome {
	case killed, neverEnds:
		return s + "killed by " + v.by
	case equivalent:
		return s + "equivalent: " + v.reason
	case survived:
		return s + "SURVIVED"
	case hung:
		return s + "HUNG, ended by " + v.by + "; write a test that fails, or declare it endless"
	case wronglyDeclared:
		return s + "DECLARED EQUIVALENT, but killed by " + v.by
	default:
		return s + "DOES NOT COMPILE; add a form that does to operators.go"
	}
}

// summary counts the mutants by outcome.
type summary [outcomes]int

// ok reports whether no mutant needs attention.
func (s summary) ok() bool {
	for o, n := range s {
		if n > 0 && !outcome(o).fine() {
			return false
		}
	}
	return true
}

// since returns what was counted after before.
func (s summary) since(before summary) summary {
	for o := range s {
		s[o] -= before[o]
	}
	return s
}

func (s summary) String() string {
	all := 0
	for _, n := range s {
		all += n
	}
	text := fmt.Sprintf("%d mutants: %d killed, %d of them because they never end; %d equivalent, %d survived",
		all, s[killed]+s[neverEnds], s[neverEnds], s[equivalent], s[survived])
	for _, rare := range []struct {
		outcome
		what string
	}{{hung, "hung"}, {wronglyDeclared, "wrongly declared"}, {refused, "did not compile"}} {
		if n := s[rare.outcome]; n > 0 {
			text += fmt.Sprintf(", %d %s", n, rare.what)
		}
	}
	return text
}
