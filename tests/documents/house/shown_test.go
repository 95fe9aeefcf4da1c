// SPDX-License-Identifier: Apache-2.0

package house

import (
	"cmp"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/once-lambda/once/internal/kit/engine"
)

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
