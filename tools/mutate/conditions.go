// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func isConstant(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && (id.Name == "true" || id.Name == "false")
}

// condition breaks a Boolean expression as a whole and in its parts. A forced
// expression is still evaluated: only its result is replaced.
func (b *breaker) condition(e ast.Expr) {
	b.add(e, "("+b.text(e)+") || true", "%s is always true", b.brief(e))
	b.add(e, "("+b.text(e)+") && false", "%s is never true", b.brief(e))
	b.operand(e)
}

func (b *breaker) operand(e ast.Expr) {
	switch e := e.(type) {
	case *ast.ParenExpr:
		b.operand(e.X)
		return
	case *ast.BinaryExpr:
		if e.Op == token.LAND || e.Op == token.LOR {
			left, right := "("+b.text(e.X)+")", "("+b.text(e.Y)+")"
			// A dropped operand is still mentioned, so that its variables are
			// used.
			mention := map[token.Token]string{token.LAND: "%s || (false && %s)", token.LOR: "%s && (true || %s)"}[e.Op]
			b.add(e, fmt.Sprintf(mention, left, right), "%s loses %s %s", b.brief(e), e.Op, b.brief(e.Y))
			b.add(e, fmt.Sprintf(mention, right, left), "%s loses %s %s", b.brief(e), b.brief(e.X), e.Op)
			b.operand(e.X)
			b.operand(e.Y)
			return
		}
		if other, ok := boundaries[e.Op]; ok {
			b.add(e, b.text(e.X)+" "+other.String()+" "+b.text(e.Y), "%s has %s", b.brief(e), other)
		}
	case *ast.UnaryExpr:
		if e.Op == token.NOT {
			b.add(e, b.text(e.X), "%s is not negated", b.brief(e))
			b.boundary(e.X)
			return
		}
	}
	b.add(e, "!("+b.text(e)+")", "%s is negated", b.brief(e))
	b.boundary(e)
}

var boundaries = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
}

// boundary moves the boundary of a comparison of times by one tick.
func (b *breaker) boundary(e ast.Expr) {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	other, ok := map[string]string{"Before": "After", "After": "Before"}[method.Sel.Name]
	if !ok {
		return
	}
	b.add(e, fmt.Sprintf("!%s.%s(%s)", b.text(method.X), other, b.text(call.Args[0])),
		"%s includes the equal time", b.brief(e))
}

// A condition of DynamoDB is a string constant whose name ends in
// conditionSuffix.
const conditionSuffix = "Condition"

// An expression has to use every placeholder that is passed with it. So an
// operand is not removed, but replaced by one that is never, or always, true of
// any record.
const (
	neverTrue  = "(attribute_exists(absent) AND absent = PLACEHOLDER)"
	alwaysTrue = "(attribute_not_exists(absent) OR absent = PLACEHOLDER)"
)

// breakCondition returns the broken forms of an expression, and a description
// of each. It parses operands joined by one kind of operator, which is all that
// the stores need.
func breakCondition(expr string) (broken, what []string, err error) {
	if strings.Contains(expr, " OR ") && strings.Contains(expr, " AND ") || strings.Contains(expr, "NOT ") || strings.Contains(expr, " BETWEEN ") {
		return nil, nil, fmt.Errorf("the condition %q is more than clauses joined by AND or by OR; extend conditions.go to break it", expr)
	}
	add := func(text, words string) {
		broken, what = append(broken, text), append(what, words)
	}
	add(always(expr), "the condition is gone")
	add(never(expr), "the condition is never true")
	for _, op := range []string{" OR ", " AND "} {
		operands := strings.Split(expr, op)
		if len(operands) == 1 {
			continue
		}
		for i, operand := range operands {
			neutral := never(expr)
			if op == " AND " {
				neutral = always(expr)
			}
			add(strings.Join(with(operands, i, neutral), op), operand+" is gone")
			add(strings.Join(with(operands, i, "(NOT "+operand+")"), op), operand+" is negated")
		}
	}
	for _, swap := range [][2]string{{" <= ", " < "}, {" < ", " <= "}, {" >= ", " > "}, {" > ", " >= "}, {" = ", " <> "}, {" <> ", " = "},
		{"attribute_not_exists(", "attribute_exists("}, {"attribute_exists(", "attribute_not_exists("}} {
		if strings.Contains(expr, swap[0]) {
			add(strings.Replace(expr, swap[0], swap[1], 1), strings.TrimSpace(swap[0])+" becomes "+strings.TrimSpace(swap[1]))
		}
	}
	return broken, what, nil
}

func with(operands []string, i int, text string) []string {
	out := slices.Clone(operands)
	out[i] = text
	return out
}

func never(expr string) string {
	return strings.Replace(neverTrue, "PLACEHOLDER", placeholder(expr), 1)
}
func always(expr string) string {
	return strings.Replace(alwaysTrue, "PLACEHOLDER", placeholder(expr), 1)
}

// placeholder returns the first placeholder for a value in expr, such as :now.
func placeholder(expr string) string {
	i := strings.IndexByte(expr, ':')
	if i < 0 {
		return ":none"
	}
	end := i + 1
	for end < len(expr) && (expr[end] >= 'a' && expr[end] <= 'z' || expr[end] >= 'A' && expr[end] <= 'Z') {
		end++
	}
	return expr[i:end]
}

// spoken matches text that can only be part of a condition.
var spoken = regexp.MustCompile(`(=|<|>) *:[a-z]|attribute_(not_)?exists`)

// stray returns the position of the first part of a condition in a file that is
// outside a constant with the right name, so that no mutant would break it.
func stray(f *ast.File) (at token.Pos) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			return !strings.HasSuffix(n.Names[0].Name, conditionSuffix)
		case *ast.BasicLit:
			if n.Kind == token.STRING && spoken.MatchString(n.Value) && at == token.NoPos {
				at = n.Pos()
			}
		}
		return true
	})
	return at
}

// constants evaluates the string constants of a package: literals, names of
// other constants, and their sums.
func constants(files []*ast.File) map[string]string {
	exprs := map[string]ast.Expr{}
	for _, f := range files {
		for _, decl := range f.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.CONST {
				continue
			}
			for _, spec := range gen.Specs {
				value := spec.(*ast.ValueSpec)
				for i, id := range value.Names {
					if i < len(value.Values) {
						exprs[id.Name] = value.Values[i]
					}
				}
			}
		}
	}
	var fold func(e ast.Expr, depth int) (string, bool)
	fold = func(e ast.Expr, depth int) (string, bool) {
		switch e := e.(type) {
		case *ast.BasicLit:
			s, err := strconv.Unquote(e.Value)
			return s, err == nil && e.Kind == token.STRING
		case *ast.Ident:
			next, ok := exprs[e.Name]
			if !ok || depth == 0 {
				return "", false
			}
			return fold(next, depth-1)
		case *ast.BinaryExpr:
			left, ok := fold(e.X, depth)
			right, alsoOK := fold(e.Y, depth)
			return left + right, ok && alsoOK && e.Op == token.ADD
		}
		return "", false
	}
	out := map[string]string{}
	for name, e := range exprs {
		if s, ok := fold(e, len(exprs)); ok {
			out[name] = s
		}
	}
	return out
}
