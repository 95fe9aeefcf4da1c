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
