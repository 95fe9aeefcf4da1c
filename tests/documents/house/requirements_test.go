// SPDX-License-Identifier: Apache-2.0

package house

import (
	"cmp"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/once-lambda/once/internal/kit/engine"
)

const requirementsPage = "docs/reports/requirements.md"

// requirement matches a row of the page: an id, and what it asks.
var requirement = regexp.MustCompile(`(?m)^\| (F\d\d|G\d\d|FM\d\d|INV-[1-9]\d?|HTTP-\d\d) \| (.+) \|$`)

// Every requirement of the page has a test, or links to a document with advice;
// and every id that a test names is on the page.
func TestEveryRequirementHasATest(t *testing.T) {
	t.Parallel()
	known, tests := requirements(t), shownBy(t)
	for id, asks := range known {
		advice := strings.HasPrefix(asks, "[") && strings.Contains(asks, "](../") && !strings.Contains(asks, "](../../")
		if len(tests[id]) == 0 && !advice {
			t.Errorf("%s (%s): no test names it", id, asks)
		}
	}
	for id, by := range tests {
		if known[id] == "" {
			t.Errorf("%s in %s names %s, which is not in %s", by[0].name, by[0].file, id, requirementsPage)
		}
	}
	if len(tests) < 150 {
		t.Errorf("tests name %d requirements; they were not parsed", len(tests))
	}
}

// requirements returns what each requirement of the page asks, by its id.
func requirements(t *testing.T) map[string]string {
	t.Helper()
	known := map[string]string{}
	for _, row := range requirement.FindAllStringSubmatch(read(t, requirementsPage), -1) {
		if known[row[1]] != "" {
			t.Errorf("%s has two rows for %s", requirementsPage, row[1])
		}
		known[row[1]] = row[2]
	}
	if len(known) < 150 {
		t.Errorf("%s has %d requirements; it was not parsed", requirementsPage, len(known))
	}
	return known
}

// withoutName separates the number from the rest of a test's name.
var withoutName = regexp.MustCompile(`\b(?:Test)?(FM\d\d|INV-?\d+)_`)

// Users do not meet the numbers: neither in pages, nor in the comments and texts
// of the code. The suites of idempotenttest name them in failures, for authors
// of stores, and the model in docs/model has an invariant for each.
func TestRequirementNumbersStayInTests(t *testing.T) {
	t.Parallel()
	pages := 0
	for _, name := range tracked(t, ".md", ".go") {
		var prose []passage
		switch {
		case strings.HasSuffix(name, "_test.go"), strings.HasPrefix(name, "idempotent/idempotenttest/"),
			strings.HasPrefix(name, "internal/invariant/"), strings.HasPrefix(name, "tests/"), strings.HasPrefix(name, "docs/model/"),
			name == requirementsPage:
			continue
		case strings.HasSuffix(name, ".go"):
			prose = proseOfGo(t, name)
		default:
			prose = []passage{{line: 1, text: read(t, name)}}
		}
		pages++
		for _, p := range prose {
			if found := inComment.FindString(withoutName.ReplaceAllString(p.text, "$1 ")); found != "" {
				t.Errorf("%s:%d: %s: say what it means instead", name, p.line, found)
			}
		}
	}
	if pages < 200 {
		t.Errorf("only %d files were found", pages)
	}
}

// unlisted are failure modes that docs/reports/failure-modes.md does not name a test of,
// each with the reason.
var unlisted = map[string]string{
	"FM04": "inside a claim: to the caller, its reply never arrives",
	"FM45": "inside a sweep: an outdated index changes nothing",
	"FM50": "advice without a test: the page links to the steps for a restore",
	"FM63": "inside the store: to the caller, evidence settled the record",
	"FM66": "inside a claim: the key is free, and is claimed",
}

// example matches a link to a test: its name without Test and without the
// requirement, and its file.
var example = regexp.MustCompile(`\[(\w+)\]\(\.\./\.\./(\S+\.go)\)`)

// numbered is what docs/reports/failure-modes.md omits from the name of a test.
var numbered = regexp.MustCompile(`^(Test|Fuzz)?((FM|INV|HTTP)\d+_?)?`)

// Each test that docs/reports/failure-modes.md names is in the linked file, and every
// failure mode has a test on the page or a reason why not.
func TestFailureModesAreOnThePage(t *testing.T) {
	t.Parallel()
	page, tests := read(t, "docs/reports/failure-modes.md"), shownBy(t)
	files := map[string][]string{} // by name, for the message
	for _, by := range tests {
		for _, s := range by {
			name := numbered.ReplaceAllString(s.name, "")
			if !slices.Contains(files[name], s.file) {
				files[name] = append(files[name], s.file)
			}
		}
	}
	named := map[string]bool{} // file and name
	for _, m := range example.FindAllStringSubmatch(page, -1) {
		file, err := os.ReadFile(filepath.Join(engine.Root(), m[2]))
		test := regexp.MustCompile(`(\bfunc Test|")((FM|INV|HTTP)\d+_?)?` + m[1] + `["(]`)
		if err != nil || !test.Match(file) {
			t.Errorf("%s has no test %s; tests of that name are in %q", m[2], m[1], files[m[1]])
		}
		named[path.Join(m[2], m[1])] = true
	}
	for id := range requirements(t) {
		if !strings.HasPrefix(id, "FM") {
			continue
		}
		listed := false
		for _, s := range tests[id] {
			listed = listed || named[path.Join(s.file, numbered.ReplaceAllString(s.name, ""))]
		}
		if listed == (unlisted[id] != "") {
			t.Errorf("%s: on docs/reports/failure-modes.md: %t; among the unlisted: %q", id, listed, unlisted[id])
		}
	}
	if len(named) < 60 {
		t.Errorf("docs/reports/failure-modes.md names %d tests; it was not parsed", len(named))
	}
}

// shown is a test, or a row of a test's table.
type shown struct{ dir, file, name string }

var (
	inRow     = regexp.MustCompile(`^(?:(FM\d\d)_\w+|(HTTP-\d\d))$`)
	inComment = regexp.MustCompile(`\b(?:(?:FM|F|G)\d\d|INV-\d+|HTTP-\d\d)\b`)
)

// shownBy returns, by requirement, the tests that name it: in the comment directly
// above them, or in the name of a row of their table and the comment above it. A
// test that cannot fail does not count. Each row of the suites in
// idempotent/idempotenttest fails on a broken store or guard: see
// TestBrokenStoresAndGuardsAreCaught there. The tests of lambdahttp play the rows of
// internal/kit/exchange.
func shownBy(t *testing.T) map[string][]shown {
	t.Helper()
	all := map[string][]shown{}
	for _, name := range tracked(t, ".go") {
		if !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "idempotent/idempotenttest/") && !strings.HasPrefix(name, "internal/kit/exchange/") {
			continue
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, filepath.Join(engine.Root(), name), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		add := func(test, id string) {
			s := shown{path.Dir(name), name, test}
			if !slices.ContainsFunc(all[id], func(o shown) bool { return o.dir == s.dir && o.name == s.name }) {
				all[id] = append(all[id], s)
			}
		}
		inFunctions(file, add)
		inTables(files, file, add)
	}
	for _, tests := range all {
		slices.SortStableFunc(tests, func(a, b shown) int { return cmp.Or(cmp.Compare(a.dir, b.dir), cmp.Compare(a.name, b.name)) })
	}
	return all
}

// inFunctions adds the ids in tests, fuzz targets, and examples that are run.
func inFunctions(file *ast.File, add func(test, id string)) {
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") && !strings.HasPrefix(f.Name.Name, "Fuzz") {
			continue
		}
		if !canFail(f) {
			continue
		}
		for _, id := range inComment.FindAllString(f.Doc.Text(), -1) {
			add(f.Name.Name, id)
		}
	}
	for _, e := range doc.Examples(file) {
		if e.Output == "" && !e.EmptyOutput {
			continue // an example without output is compiled, not run
		}
		for _, id := range inComment.FindAllString(e.Doc, -1) {
			add("Example"+e.Name, id)
		}
	}
}

// silent are the methods of a test that cannot fail it.
var silent = []string{"Chdir", "Context", "Helper", "Log", "Logf", "Name", "Parallel", "Setenv", "TempDir"}

// canFail reports whether a test uses its *testing.T for more than these: it
// calls another method of it, or passes it on. A test without a body tests
// nothing.
func canFail(f *ast.FuncDecl) bool {
	params := f.Type.Params.List
	if len(params) != 1 || len(params[0].Names) != 1 {
		return false
	}
	t := params[0].Names[0].Name
	is := func(e ast.Expr) bool {
		name, ok := e.(*ast.Ident)
		return ok && name.Name == t
	}
	found := false
	ast.Inspect(f.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		found = found || ok && is(method.X) && !slices.Contains(silent, method.Sel.Name) || slices.ContainsFunc(call.Args, is)
		return !found
	})
	return found
}

// inTables adds the ids in rows of tables: composite literals whose first field,
// or whose field id, is the name of a test.
func inTables(files *token.FileSet, file *ast.File, add func(test, id string)) {
	above := map[int]string{} // by the line below
	for _, group := range file.Comments {
		above[files.Position(group.End()).Line+1] = group.Text()
	}
	ast.Inspect(file, func(n ast.Node) bool {
		row, ok := n.(*ast.CompositeLit)
		if !ok || len(row.Elts) == 0 {
			return true
		}
		if _, list := row.Type.(*ast.ArrayType); list {
			return true // of names, or the table itself
		}
		first := row.Elts[0]
		if field, ok := first.(*ast.KeyValueExpr); ok {
			if key, ok := field.Key.(*ast.Ident); !ok || !strings.EqualFold(key.Name, "id") {
				return true
			}
			first = field.Value
		}
		literal, ok := first.(*ast.BasicLit)
		if !ok {
			return true
		}
		name, err := strconv.Unquote(literal.Value)
		m := inRow.FindStringSubmatch(name)
		if err != nil || m == nil {
			return true
		}
		add(name, m[1]+m[2])
		for _, id := range inComment.FindAllString(above[files.Position(row.Pos()).Line], -1) {
			add(name, id)
		}
		return true
	})
}
