// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/token"
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
