// SPDX-License-Identifier: Apache-2.0

package alarms

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
)

// value is a value of a time series in one period, or a number. A value of a
// series can be missing.
type value struct {
	number  float64
	missing bool
	series  bool
}

func series(v float64, ok bool) value { return value{number: v, missing: !ok, series: true} }

// expression is a parsed math expression: a function of the values of a period.
type expression func(values map[string]value) value

// parse parses the part of CloudWatch's language that the alarms use: numbers,
// ids, + - * /, comparisons, FILL with a number, and IF. Go has the same syntax.
func parse(text string) (e expression, err error) {
	tree, err := parser.ParseExpr(text)
	if err != nil {
		return nil, fmt.Errorf("alarms: the expression %q: %w", text, err)
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("alarms: %v in the expression %q", r, text)
		}
	}()
	return compile(tree), nil
}

// compile panics at what is not of that part.
func compile(tree ast.Expr) expression {
	switch x := tree.(type) {
	case *ast.ParenExpr:
		return compile(x.X)
	case *ast.BinaryExpr:
		return binary(x.Op, compile(x.X), compile(x.Y))
	case *ast.CallExpr:
		var args []expression
		for _, arg := range x.Args {
			args = append(args, compile(arg))
		}
		return call(x.Fun.(*ast.Ident).Name, args)
	case *ast.BasicLit:
		n, err := strconv.ParseFloat(x.Value, 64)
		if err != nil {
			panic(err)
		}
		return func(map[string]value) value { return value{number: n} }
	case *ast.Ident:
		return func(values map[string]value) value {
			v, ok := values[x.Name]
			if !ok {
				panic("unknown id " + x.Name)
			}
			return v
		}
	}
	panic(fmt.Sprintf("unexpected %T", tree))
}

// binary applies an operator. If one of two series has no value, it counts as 0; if
// neither has one, or after a division by zero, there is no value.
func binary(operator token.Token, left, right expression) expression {
	op := operators[operator]
	if op == nil {
		panic("unexpected " + operator.String())
	}
	return func(values map[string]value) value {
		a, b := left(values), right(values)
		v := value{series: a.series || b.series}
		v.missing = (a.missing || !a.series) && (b.missing || !b.series) && v.series || operator == token.QUO && b.number == 0
		if !v.missing {
			v.number = op(a.number, b.number)
		}
		return v
	}
}

var operators = map[token.Token]func(a, b float64) float64{
	token.ADD: func(a, b float64) float64 { return a + b },
	token.SUB: func(a, b float64) float64 { return a - b },
	token.MUL: func(a, b float64) float64 { return a * b },
	token.QUO: func(a, b float64) float64 { return a / b },
	token.GTR: func(a, b float64) float64 { return truth(a > b) },
	token.LSS: func(a, b float64) float64 { return truth(a < b) },
	token.GEQ: func(a, b float64) float64 { return truth(a >= b) },
	token.LEQ: func(a, b float64) float64 { return truth(a <= b) },
	token.EQL: func(a, b float64) float64 { return truth(a == b) },
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func call(name string, args []expression) expression {
	switch {
	case name == "FILL" && len(args) == 2:
		return func(values map[string]value) value {
			if v := args[0](values); !v.missing {
				return v
			}
			return series(args[1](values).number, true)
		}
	case name == "IF" && len(args) == 3:
		return func(values map[string]value) value {
			c, v := args[0](values), args[2](values)
			if c.number != 0 {
				v = args[1](values)
			}
			return value{number: v.number, missing: v.missing || c.missing, series: true}
		}
	}
	panic(fmt.Sprintf("unexpected %s with %d arguments", name, len(args)))
}
