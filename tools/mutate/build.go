// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// maxBuilds limits how often a package is built. Each build leaves out the
// mutants that the compiler refused before.
const maxBuilds = 6

// binary are the test binaries that hold all mutants of a package, one for each folder of
// tests.
type binary struct {
	*source
	work       string       // the folder of the binaries
	refused    map[int]bool // by id: mutants that do not compile
	favourites sync.Map     // by entry: the test that noticed the last mutant of the function
}

// build weaves the mutants into the package and builds its tests.
func (s *source) build(work string) (*binary, error) {
	b := &binary{source: s, work: work, refused: map[int]bool{}}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return nil, err
	}
	for range maxBuilds {
		refused, err := b.try(work)
		if err != nil || len(refused) == 0 {
			return b, err
		}
		for _, id := range refused {
			b.refused[id] = true
		}
	}
	return nil, fmt.Errorf("%s still does not compile after %d builds", s.folder(), maxBuilds)
}

// try builds once and returns the mutants that the compiler refused.
func (b *binary) try(work string) (refused []int, err error) {
	spans := map[string][]span{}
	overlay := map[string]string{}
	write := func(name, text string) error {
		path := filepath.Join(work, name)
		overlay[filepath.Join(b.dir, name)] = path
		return os.WriteFile(path, []byte(text), 0o644)
	}
	pkg := ""
	for name, f := range b.files {
		pkg = f.ast.Name.Name
		w := b.weave(f, func(id int) bool { return !b.refused[id] })
		if len(w.lines) == 0 {
			continue
		}
		spans[name] = w.lines
		if err := write(name, w.text); err != nil {
			return nil, err
		}
	}
	if err := write("once_mutant_selector.go", fmt.Sprintf(selector, pkg, len(b.mutants)+1)); err != nil {
		return nil, err
	}
	doc, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return nil, err
	}
	list := filepath.Join(work, "overlay.json")
	if err := os.WriteFile(list, doc, 0o644); err != nil {
		return nil, err
	}
	for _, tests := range b.suites() {
		// -e: print every error, not only the first ten.
		cmd := exec.Command("go", "test", "-c", "-vet=off", "-overlay", list, "-gcflags=-e", "-o", b.path(tests), "./"+tests)
		cmd.Dir = b.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			if refused = whose(string(out), spans); len(refused) == 0 {
				return nil, fmt.Errorf("%s does not compile, and not because of a mutant:\n%s", b.folder(), out)
			}
			return refused, nil
		}
	}
	return nil, nil
}

// suites returns the folders in the package whose tests run.
func (s *source) suites() []string {
	if s.tests == nil {
		return []string{""}
	}
	return s.tests
}

// path returns the binary of a folder of tests.
func (b *binary) path(tests string) string {
	return filepath.Join(b.work, fmt.Sprintf("test%d", slices.Index(b.suites(), tests)))
}

var compileError = regexp.MustCompile(`(?m)^(\S*?)([^/\s]+\.go):(\d+):\d+: `)

// whose returns the mutants in whose lines the compiler found errors.
func whose(output string, spans map[string][]span) (ids []int) {
	seen := map[int]bool{}
	for _, m := range compileError.FindAllStringSubmatch(output, -1) {
		line, _ := strconv.Atoi(m[3])
		for _, s := range spans[strings.TrimSpace(m[2])] {
			if s.from <= line && line <= s.to && s.id != 0 && !seen[s.id] {
				seen[s.id] = true
				ids = append(ids, s.id)
			}
		}
	}
	return ids
}

// Every mutant of a package is woven into the same source, so that one build
// serves all of them. A function with mutants
//
//	func f(x int) bool { body }
//
// becomes
//
//	func f(x int) bool { switch onceMutant { case -1: onceReach(7); case 7: return f_m7(x) }; body }
//	func f_m7(x int) bool { body with the seventh change }
//
// and a constant becomes a variable that is selected in the same way. With -1 no
// mutant is on, and each function records that it was entered.

// The environment variables that select the mutant, and the file to which the
// functions write that they were entered.
const (
	variable = "ONCE_MUTANT"
	entered  = "ONCE_ENTERED"
)

// noteEntries is the value of variable that makes functions record their entry.
const noteEntries = -1

// selector declares the variables and functions that the woven code uses.
const selector = `package %s

import (
	"os"
	"strconv"
	"sync/atomic"
)

var onceEntered [%d]atomic.Bool

func onceReach(entry int) { // without an allocation: tests count those
	if onceEntered[entry].Swap(true) {
		return
	}
	f, err := os.OpenFile(os.Getenv("` + entered + `"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(strconv.Itoa(entry) + "\n")
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		panic(err)
	}
}

var onceMutant, _ = strconv.Atoi(os.Getenv("` + variable + `"))

func onceFirst[T any](first T, _ ...any) T { return first }

func onceOf[T any](first, _ T) T { return first }

func onceNowhere[T any](T) *T { return new(T) }
`

// woven is the text of a file with its mutants, and the lines of each mutant.
type woven struct {
	text  string
	lines []span
}

type span struct {
	from, to int // lines, inclusive
	id       int
}

// weave returns the file with the mutants for which keep returns true.
func (s *source) weave(f *sourceFile, keep func(id int) bool) woven {
	var edits []edit
	var copies strings.Builder
	var spans []span
	// The copies come after the end of the file, so the lines before do not
	// change their numbers.
	line := strings.Count(string(f.text), "\n") + 1
	write := func(id int, text string) {
		text = "\n" + text + "\n"
		copies.WriteString(text)
		n := strings.Count(text, "\n")
		spans = append(spans, span{line, line + n, id})
		line += n
	}
	for _, decl := range f.ast.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			var cases strings.Builder
			call, named := s.forward(d)
			for _, i := range f.functions[d] {
				m := &s.mutants[i]
				if !keep(m.id) {
					continue
				}
				fmt.Fprintf(&cases, "case %d: %s; ", m.id, call(m.id))
				write(m.id, s.brokenCopy(f, d, m))
			}
			if cases.Len() > 0 {
				at := s.fset.Position(d.Body.Lbrace).Offset + 1
				edits = append(edits, edit{at, at, fmt.Sprintf("switch onceMutant { case %d: onceReach(%d); ", noteEntries, s.mutants[f.functions[d][0]].id) + cases.String() + "}; "})
				edits = append(edits, named...)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				value, ok := spec.(*ast.ValueSpec)
				if !ok || len(f.constants[value]) == 0 {
					continue
				}
				var cases strings.Builder
				for _, i := range f.constants[value] {
					if m := &s.mutants[i]; keep(m.id) {
						fmt.Fprintf(&cases, "case %d: return %s; ", m.id, m.edit.text)
					}
				}
				from, to := s.fset.Position(value.Pos()).Offset, s.fset.Position(value.End()).Offset
				// A constant may name others that are variables now, so its value is written.
				id, lines := value.Names[0].Name, strings.Repeat("\n", bytes.Count(f.text[from:to], []byte("\n")))
				edits = append(edits, edit{from, to, id + "Intact = " + strconv.Quote(s.folded[id]) + lines})
				write(0, fmt.Sprintf("var %s = func() string { switch onceMutant { %s }; return %sIntact }()", id, cases.String(), id))
			}
		}
	}
	return woven{text: apply(string(f.text), edits) + copies.String(), lines: spans}
}

// brokenCopy returns the text of d under the mutant's own name, with its change.
func (s *source) brokenCopy(f *sourceFile, d *ast.FuncDecl, m *mutant) string {
	start, end := s.fset.Position(d.Pos()).Offset, s.fset.Position(d.End()).Offset
	at := s.fset.Position(d.Name.Pos()).Offset
	return apply(string(f.text[start:end]), []edit{
		{at - start, at - start + len(d.Name.Name), copyName(d, m.id)},
		{m.edit.from - start, m.edit.to - start, m.edit.text},
	})
}

func copyName(d *ast.FuncDecl, id int) string { return fmt.Sprintf("%s_m%d", d.Name.Name, id) }

// forward returns a function that returns the statement that passes a call of d on
// to a copy, and the edits of d that the statement needs.
func (s *source) forward(d *ast.FuncDecl) (call func(id int) string, named []edit) {
	before, after, args := "", "(", s.names(d.Type.Params, &named)
	if d.Recv != nil {
		before = s.names(d.Recv, &named)[0] + "."
	}
	if d.Type.TypeParams != nil {
		after = "[" + strings.Join(s.names(d.Type.TypeParams, &named), ", ") + "]("
	}
	if n := len(d.Type.Params.List); n > 0 {
		if _, variadic := d.Type.Params.List[n-1].Type.(*ast.Ellipsis); variadic {
			args[len(args)-1] += "..."
		}
	}
	after += strings.Join(args, ", ") + ")"
	if d.Type.Results == nil {
		after += "; return"
	} else {
		before = "return " + before
	}
	return func(id int) string { return before + copyName(d, id) + after }, named
}

// names returns the names of the parameters in list. For those without a name, or
// with the name _, it adds the edits that name them.
func (s *source) names(list *ast.FieldList, named *[]edit) (out []string) {
	name := func(from, to token.Pos, space string) {
		at := s.fset.Position(from).Offset
		id := fmt.Sprintf("onceParameter%d", at)
		out = append(out, id)
		*named = append(*named, edit{at, at + int(to-from), id + space})
	}
	for _, field := range list.List {
		if len(field.Names) == 0 {
			name(field.Type.Pos(), field.Type.Pos(), " ")
		}
		for _, id := range field.Names {
			if id.Name == "_" {
				name(id.Pos(), id.End(), "")
			} else {
				out = append(out, id.Name)
			}
		}
	}
	return out
}

// apply makes edits, which do not overlap, in text.
func apply(text string, edits []edit) string {
	slices.SortFunc(edits, func(a, b edit) int { return b.from - a.from })
	for _, e := range edits {
		text = text[:e.from] + e.text + text[e.to:]
	}
	return text
}
