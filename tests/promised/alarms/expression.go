// SPDX-License-Identifier: Apache-2.0

package alarms

import (
	"fmt"
	"regexp"
	"slices"
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

var token = regexp.MustCompile(`\s*([A-Za-z_]\w*|\d+(?:\.\d+)?|>=|<=|==|!=|[-+*/(),<>])`)

// parse parses the part of CloudWatch's language that the alarms use: numbers,
// ids, + - * /, comparisons, FILL with a number, and IF.
func parse(text string) (e expression, err error) {
	p := &parser{}
	for rest := text; rest != ""; {
		m := token.FindStringSubmatchIndex(rest)
		if m == nil || m[0] != 0 {
			return nil, fmt.Errorf("alarms: cannot read %q in the expression %q", rest, text)
		}
		p.tokens, rest = append(p.tokens, rest[m[2]:m[3]]), rest[m[1]:]
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("alarms: %v in the expression %q", r, text)
		}
	}()
	e = p.comparison()
	if len(p.tokens) > 0 {
		panic("more after the end")
	}
	return e, nil
}

// parser reads tokens from left to right. It panics if the next one is not
// allowed.
type parser struct{ tokens []string }

func (p *parser) next() string {
	if len(p.tokens) == 0 {
		panic("unexpected end")
	}
	t := p.tokens[0]
	p.tokens = p.tokens[1:]
	return t
}

func (p *parser) accept(any ...string) (string, bool) {
	if len(p.tokens) == 0 || !slices.Contains(any, p.tokens[0]) {
		return "", false
	}
	return p.next(), true
}

func (p *parser) expect(t string) {
	if _, ok := p.accept(t); !ok {
		panic("no " + t)
	}
}

func (p *parser) comparison() expression {
	return p.binary(p.sum, map[string]func(a, b float64) float64{
		">": func(a, b float64) float64 { return truth(a > b) }, "<": func(a, b float64) float64 { return truth(a < b) },
		">=": func(a, b float64) float64 { return truth(a >= b) }, "<=": func(a, b float64) float64 { return truth(a <= b) },
		"==": func(a, b float64) float64 { return truth(a == b) }, "!=": func(a, b float64) float64 { return truth(a != b) },
	})
}

func (p *parser) sum() expression {
	return p.binary(p.product, map[string]func(a, b float64) float64{
		"+": func(a, b float64) float64 { return a + b }, "-": func(a, b float64) float64 { return a - b },
	})
}

func (p *parser) product() expression {
	return p.binary(p.operand, map[string]func(a, b float64) float64{
		"*": func(a, b float64) float64 { return a * b }, "/": func(a, b float64) float64 { return a / b },
	})
}

// binary parses operands with operators of one precedence between them. If one of
// two series has no value, it counts as 0; if neither has one, or after a division
// by zero, there is no value.
func (p *parser) binary(operand func() expression, operators map[string]func(a, b float64) float64) expression {
	left := operand()
	for len(p.tokens) > 0 && operators[p.tokens[0]] != nil {
		name := p.next()
		l, op, right := left, operators[name], operand()
		left = func(values map[string]value) value {
			a, b := l(values), right(values)
			v := value{series: a.series || b.series}
			v.missing = (a.missing || !a.series) && (b.missing || !b.series) && v.series || name == "/" && b.number == 0
			if !v.missing {
				v.number = op(a.number, b.number)
			}
			return v
		}
	}
	return left
}

func (p *parser) operand() expression {
	switch t := p.next(); {
	case t == "(":
		e := p.comparison()
		p.expect(")")
		return e
	case t == "FILL":
		args := p.arguments(2)
		return func(values map[string]value) value {
			if v := args[0](values); !v.missing {
				return v
			}
			return series(args[1](values).number, true)
		}
	case t == "IF":
		args := p.arguments(3)
		return func(values map[string]value) value {
			c := args[0](values)
			v := args[2](values)
			if c.number != 0 {
				v = args[1](values)
			}
			return value{number: v.number, missing: v.missing || c.missing, series: true}
		}
	case t[0] >= '0' && t[0] <= '9':
		n, err := strconv.ParseFloat(t, 64)
		if err != nil {
			panic(err)
		}
		return func(map[string]value) value { return value{number: n} }
	case t[0] >= 'a' && t[0] <= 'z':
		return func(values map[string]value) value {
			v, ok := values[t]
			if !ok {
				panic("unknown id " + t)
			}
			return v
		}
	default:
		panic("unexpected " + t)
	}
}

func (p *parser) arguments(n int) (list []expression) {
	p.expect("(")
	for i := range n {
		if i > 0 {
			p.expect(",")
		}
		list = append(list, p.comparison())
	}
	p.expect(")")
	return list
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
