// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// edit replaces the bytes [from, to) of a file.
type edit struct {
	from, to int
	text     string
}

// breaker collects the mutants of one function.
type breaker struct {
	src   []byte
	fset  *token.FileSet
	found []mutant
}

// breakFunction returns every mutant of f. src is the text of its file.
func breakFunction(fset *token.FileSet, src []byte, f *ast.FuncDecl) []mutant {
	b := &breaker{src: src, fset: fset}
	b.walk(f.Body, resultTypes(f.Type))
	return b.found
}

// resultTypes returns the types of a function's results, one per value.
func resultTypes(t *ast.FuncType) (types []string) {
	if t.Results == nil {
		return nil
	}
	for _, field := range t.Results.List {
		name := "?"
		if id, ok := field.Type.(*ast.Ident); ok {
			name = id.Name
		}
		for range max(1, len(field.Names)) {
			types = append(types, name)
		}
	}
	return types
}

func (b *breaker) offset(p token.Pos) int { return b.fset.Position(p).Offset }

func (b *breaker) text(n ast.Node) string { return string(b.src[b.offset(n.Pos()):b.offset(n.End())]) }

// add records the mutant in which text replaces n. what describes it.
func (b *breaker) add(n ast.Node, text, what string, args ...any) {
	b.addRange(n.Pos(), n.End(), text, what, args...)
}

func (b *breaker) addRange(from, to token.Pos, text, what string, args ...any) {
	b.found = append(b.found, mutant{
		line: b.fset.Position(from).Line,
		what: fmt.Sprintf(what, args...),
		edit: edit{b.offset(from), b.offset(to), text},
	})
}

// brief returns the text of n on one line.
func (b *breaker) brief(n ast.Node) string {
	s := strings.Join(strings.Fields(b.text(n)), " ")
	if len(s) > 90 {
		s = s[:87] + "..."
	}
	return s
}

func (b *breaker) walk(n ast.Node, results []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			b.walk(n.Body, resultTypes(n.Type))
			return false
		case *ast.IfStmt:
			b.condition(n.Cond)
		case *ast.ForStmt:
			if n.Cond != nil {
				b.condition(n.Cond)
			}
		case *ast.SwitchStmt:
			b.clauses(n.Body, n.Tag == nil)
		case *ast.TypeSwitchStmt:
			b.types(n)
		case *ast.ReturnStmt:
			for i, value := range n.Results {
				if i < len(results) && len(n.Results) == len(results) && results[i] == "bool" && !isConstant(value) {
					b.condition(value)
				}
			}
		case ast.Stmt:
			b.statement(n)
		case *ast.CallExpr:
			b.call(n)
		case *ast.BinaryExpr:
			if slices.Contains([]token.Token{token.SUB, token.MUL, token.QUO}, n.Op) {
				text := b.text(n.X)
				if _, ok := n.Y.(*ast.Ident); ok { // may be the only use of a variable
					text = "onceOf(" + text + ", " + b.text(n.Y) + ")"
				}
				b.add(n, text, "%s becomes %s", b.brief(n), b.brief(n.X))
			}
		case *ast.UnaryExpr:
			if n.Op == token.SUB {
				b.add(n, b.text(n.X), "%s loses its sign", b.brief(n))
			}
		}
		return true
	})
}

// types drops clauses of a type switch. A variable that the clause binds has
// another type elsewhere, so its statements are lost.
func (b *breaker) types(n *ast.TypeSwitchStmt) {
	for _, stmt := range n.Body.List {
		if clause := stmt.(*ast.CaseClause); clause.List != nil {
			text := ""
			if assign, ok := n.Assign.(*ast.AssignStmt); ok {
				text = "case interface{ onceNobody() }: _ = " + b.text(assign.Lhs[0])
			}
			b.add(clause, text, "case %s is gone", b.list(clause.List))
		}
	}
}

// clauses breaks the conditions of a switch without a tag, and drops clauses and
// values of a switch with a tag. A clause that does what the switch does without
// it is there for the linter, and is no mutant.
func (b *breaker) clauses(body *ast.BlockStmt, tagless bool) {
	nothing := !slices.ContainsFunc(body.List, func(stmt ast.Stmt) bool {
		c := stmt.(*ast.CaseClause)
		return c.List == nil && len(c.Body) > 0
	})
	ends := slices.ContainsFunc(body.List, func(stmt ast.Stmt) bool {
		c := stmt.(*ast.CaseClause)
		return c.List == nil && returns(c)
	})
	for _, stmt := range body.List {
		clause := stmt.(*ast.CaseClause)
		if jump := fallsThrough(clause); jump != nil {
			text := ""
			if ends { // The switch can end its function, so the mutant must not leave it.
				text = `panic("no fallthrough")`
			}
			b.add(jump, text, "fallthrough is gone")
		}
		switch {
		case !tagless && len(clause.Body) == 0 && nothing:
		case clause.List == nil && returns(clause):
			// The compiler requires a clause here, so the mutant panics in it.
			b.add(clause, `default: panic("no clause")`, "the default clause is gone")
		case clause.List == nil:
			b.add(clause, "", "the default clause is gone")
		case tagless:
			for _, e := range clause.List {
				b.condition(e)
			}
		case len(clause.List) == 1:
			b.add(body, b.without(body, clause), "case %s is gone", b.brief(clause.List[0]))
		default:
			for i, e := range clause.List {
				var rest []string
				for _, r := range slices.Delete(slices.Clone(clause.List), i, i+1) {
					rest = append(rest, b.text(r))
				}
				b.addRange(clause.List[0].Pos(), clause.List[len(clause.List)-1].End(), strings.Join(rest, ", "), "case %s is gone", b.brief(e))
			}
		}
	}
}

// without returns the body of a switch without the cases of clause. The clause's
// statements move to the default clause as dead code, so that what they use is
// still used.
func (b *breaker) without(body *ast.BlockStmt, clause *ast.CaseClause) string {
	end := clause.End()
	if jump := fallsThrough(clause); jump != nil {
		end = jump.Pos()
	}
	dead := " if false {" + string(b.src[b.offset(clause.Colon)+1:b.offset(end)]) + "\n}; "
	at, otherwise := body.Rbrace, "default:"+dead
	for _, stmt := range body.List {
		if c := stmt.(*ast.CaseClause); c.List == nil {
			at, otherwise = c.Colon+1, dead
		}
	}
	start := b.offset(body.Pos())
	return apply(b.text(body), []edit{
		{b.offset(clause.Pos()) - start, b.offset(clause.End()) - start, ""},
		{b.offset(at) - start, b.offset(at) - start, otherwise},
	})
}

// fallsThrough returns the fallthrough at the end of a clause, or nil.
func fallsThrough(clause *ast.CaseClause) *ast.BranchStmt {
	if len(clause.Body) == 0 {
		return nil
	}
	if jump, ok := clause.Body[len(clause.Body)-1].(*ast.BranchStmt); ok && jump.Tok == token.FALLTHROUGH {
		return jump
	}
	return nil
}

func returns(clause *ast.CaseClause) bool {
	if len(clause.Body) == 0 {
		return false
	}
	_, ok := clause.Body[len(clause.Body)-1].(*ast.ReturnStmt)
	return ok
}

// harmless are deferred calls that only release what the end of the test
// releases too.
var harmless = []string{"cancel", "Unlock", "Stop", "Close"}

// used returns the expressions of a call that may be the only use of a variable:
// its arguments, the called function if it is a variable, and the value or element
// whose method it calls. In this repository, functions and packages have names of more
// than one letter.
func (b *breaker) used(call *ast.CallExpr) []ast.Expr {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		if len(f.Name) == 1 {
			return append([]ast.Expr{f}, call.Args...)
		}
	case *ast.SelectorExpr:
		switch x := f.X.(type) {
		case *ast.IndexExpr:
			return append([]ast.Expr{x}, call.Args...)
		case *ast.Ident:
			if len(x.Name) == 1 {
				return append([]ast.Expr{x}, call.Args...)
			}
		}
	}
	return call.Args
}

// statement drops calls, assignments and jumps. Without t.Helper, a failed test only names
// another line.
func (b *breaker) statement(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.ExprStmt:
		if call, ok := s.X.(*ast.CallExpr); ok && !slices.Contains([]string{"Lock", "Unlock", "panic", "Helper"}, name(call.Fun)) {
			b.add(s, "func(...any) {}("+b.list(b.used(call))+")", "%s is not called", b.brief(s))
		}
	case *ast.DeferStmt:
		if !slices.Contains(harmless, name(s.Call.Fun)) {
			text := "_ = " + b.text(s.Call.Fun)
			if builtin := []string{"delete", "close", "clear"}; slices.Contains(builtin, b.text(s.Call.Fun)) {
				text = "" // is no value
			}
			if len(s.Call.Args) > 0 {
				text += "; func(...any) {}(" + b.list(s.Call.Args) + ")"
			}
			b.add(s, text, "%s is gone", b.brief(s))
		}
	case *ast.IncDecStmt:
		b.add(s, "_ = "+b.text(s.X), "%s is gone", b.brief(s))
	case *ast.BranchStmt:
		if s.Tok != token.FALLTHROUGH { // see clauses
			b.add(s, "", "%s is gone", b.brief(s))
		}
	case *ast.AssignStmt:
		b.assignment(s)
	}
}

// assignment drops an assignment but still evaluates the value.
func (b *breaker) assignment(s *ast.AssignStmt) {
	switch s.Tok {
	case token.DEFINE:
	case token.ASSIGN:
		for i, left := range s.Lhs {
			right := s.Rhs[0]
			if len(s.Rhs) == len(s.Lhs) {
				right = s.Rhs[i]
			}
			if b.text(left) != "_" {
				b.add(left, "*onceNowhere("+b.text(left)+")", "%s is not set to %s", b.brief(left), b.brief(right))
			}
		}
	default: // += and similar operators
		b.add(s, "_ = "+b.text(s.Rhs[0]), "%s is gone", b.brief(s))
	}
}

// name returns the last part of the called expression.
func name(fun ast.Expr) string {
	switch f := fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// call drops the steps of a computation: x.Add(y) becomes x. Arguments are still
// evaluated, by a function of the woven code that returns its first argument.
func (b *breaker) call(c *ast.CallExpr) {
	first := func(kept ast.Expr, others ...ast.Expr) string {
		return "onceFirst(" + b.list(append([]ast.Expr{kept}, others...)) + ")"
	}
	method, isMethod := c.Fun.(*ast.SelectorExpr)
	switch name(c.Fun) {
	case "Clone":
		if isMethod && slices.Contains([]string{"bytes", "maps", "slices", "strings"}, b.text(method.X)) {
			b.add(c, b.text(c.Args[0]), "%s loses its Clone", b.brief(c))
		} else if isMethod {
			b.add(c, first(method.X, c.Args...), "%s loses its Clone", b.brief(c))
		}
	case "Add", "Truncate", "UTC":
		if isMethod {
			b.add(c, first(method.X, c.Args...), "%s loses its %s", b.brief(c), method.Sel.Name)
		}
	case "min", "max":
		if !isMethod && len(c.Args) == 2 {
			for i, kept := range c.Args {
				b.add(c, "onceOf("+b.text(kept)+", "+b.text(c.Args[1-i])+")", "%s becomes %s", b.brief(c), b.brief(kept))
			}
		}
	case "WithoutCancel":
		b.add(c, b.text(c.Args[0]), "%s becomes %s", b.brief(c), b.brief(c.Args[0]))
	}
}

// list returns the text of the expressions, separated by commas.
func (b *breaker) list(exprs []ast.Expr) string {
	var texts []string
	for _, e := range exprs {
		texts = append(texts, b.text(e))
	}
	return strings.Join(texts, ", ")
}
