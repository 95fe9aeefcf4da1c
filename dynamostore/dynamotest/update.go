// SPDX-License-Identifier: Apache-2.0

package dynamotest

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// update is a compiled update expression.
type update struct {
	actions []action
	entered []string // see expressions
}

// action changes the value at a path. Every action sees the item as it was before
// the update.
type action struct {
	path path
	new  func(before item) types.AttributeValue // nil removes the value
}

// update compiles an update expression. No text changes nothing.
func (e *expressions) update(text *string) *update {
	u := &update{}
	if text == nil {
		return u
	}
	e.entered = nil
	p := e.parser("UpdateExpression", *text)
	sections := map[string]func() action{"SET": p.set, "REMOVE": p.remove, "ADD": p.add, "DELETE": p.subtract}
	seen := map[string]bool{}
	for len(p.tokens) > 0 {
		section := strings.ToUpper(p.peek())
		parse := sections[section]
		if parse == nil {
			p.unexpected()
		}
		p.next()
		if seen[section] {
			p.fail("The %q section can only be used once in an update expression;", section)
		}
		seen[section] = true
		for {
			a := parse()
			for _, other := range u.actions {
				if n := min(len(a.path), len(other.path)); slices.Equal(a.path[:n], other.path[:n]) {
					p.fail("Two document paths overlap with each other; must remove or rewrite one of these paths; path one: %s, path two: %s", other.path, a.path)
				}
			}
			if slices.ContainsFunc(a.path, func(e element) bool { return e.index >= 0 }) {
				panic(unsupported("an UpdateExpression with a list element"))
			}
			u.actions = append(u.actions, a)
			if !p.accept(",") {
				break
			}
		}
	}
	u.entered = e.entered
	return u
}

func (p *parser) set() action {
	path := p.path()
	p.expect("=")
	left := p.setOperand()
	operator := p.peek()
	if operator != "+" && operator != "-" {
		return action{path, func(before item) types.AttributeValue { return existing(left.of(before)) }}
	}
	p.next()
	right := p.setOperand()
	p.wantKind(operator, left, "N")
	p.wantKind(operator, right, "N")
	return action{path, func(before item) types.AttributeValue {
		a, b := numberOf(existing(left.of(before))), numberOf(existing(right.of(before)))
		if a == nil || b == nil {
			refuse(wrongType)
		}
		if operator == "-" {
			b.Neg(b)
		}
		return &types.AttributeValueMemberN{Value: formatNumber(checkNumber(a.Add(a, b)))}
	}}
}

const wrongType = "An operand in the update expression has an incorrect data type"

// existing refuses an operand whose attribute is missing.
func existing(v types.AttributeValue) types.AttributeValue {
	if v == nil {
		refuse("The provided expression refers to an attribute that does not exist in the item")
	}
	return v
}

// setOperand parses a value, a path, or one of the functions of SET.
func (p *parser) setOperand() operand {
	if p.peek() == "(" {
		panic(unsupported("parentheses in an UpdateExpression"))
	}
	if len(p.tokens) < 2 || p.tokens[1] != "(" {
		return p.operand()
	}
	name := p.next()
	if name != "if_not_exists" && name != "list_append" {
		p.fail("Invalid function name; function: %s", name)
	}
	p.expect("(")
	first := p.setOperand()
	p.expect(",")
	second := p.setOperand()
	p.expect(")")
	if name == "if_not_exists" {
		if first.path == nil {
			p.fail("Operator or function requires a document path; operator or function: %s", name)
		}
		p.distinct(name, first, second)
		return operand{of: func(it item) types.AttributeValue {
			second := existing(second.of(it)) // also if it is not needed
			if v := first.of(it); v != nil {
				return v
			}
			return second
		}}
	}
	p.wantKind(name, first, "L")
	p.wantKind(name, second, "L")
	return operand{kind: "L", of: func(it item) types.AttributeValue {
		a, ok1 := existing(first.of(it)).(*types.AttributeValueMemberL)
		b, ok2 := existing(second.of(it)).(*types.AttributeValueMemberL)
		if !ok1 || !ok2 {
			refuse(wrongType)
		}
		return &types.AttributeValueMemberL{Value: slices.Concat(a.Value, b.Value)}
	}}
}

func (p *parser) remove() action { return action{path: p.path()} }

// add parses an action that adds a number, or members to a set.
func (p *parser) add() action {
	path, v := p.pathAndValue("ADD", "N", "SS", "NS", "BS")
	return action{path, func(before item) types.AttributeValue {
		old := path.of(before)
		if old == nil {
			return v
		}
		if a, b := numberOf(old), numberOf(v); a != nil && b != nil {
			return &types.AttributeValueMemberN{Value: formatNumber(checkNumber(a.Add(a, b)))}
		}
		kind, members := setOperands(old, v)
		_, more := membersOf(v)
		members = append(members, more...)
		slices.Sort(members)
		return setOf(kind, slices.Compact(members))
	}}
}

// subtract parses an action that removes members of a set.
func (p *parser) subtract() action {
	path, v := p.pathAndValue("DELETE", "SS", "NS", "BS")
	return action{path, func(before item) types.AttributeValue {
		old := path.of(before)
		if old == nil {
			return nil
		}
		kind, members := setOperands(old, v)
		_, less := membersOf(v)
		members = slices.DeleteFunc(members, func(m string) bool { return slices.Contains(less, m) })
		if len(members) == 0 {
			return nil
		}
		return setOf(kind, members)
	}}
}

func (p *parser) pathAndValue(operator string, kinds ...string) (path, types.AttributeValue) {
	path, o := p.path(), p.operand()
	if o.literal == nil {
		p.unexpected()
	}
	p.wantKind(operator, o, kinds...)
	if len(path) > 1 {
		panic(unsupported(operator + " with a nested path"))
	}
	return path, o.literal
}

// setOperands refuses two values that are not sets of the same type.
func setOperands(old, v types.AttributeValue) (kind string, members []string) {
	kind, members = membersOf(old)
	if kind == "" || kind != kindOf(v) {
		refuse(wrongType)
	}
	return kind, members
}

// apply returns the item after the update. It does not change before.
func (u *update) apply(before item) item {
	after := cloneItem(before)
	for _, a := range u.actions {
		var v types.AttributeValue
		if a.new != nil {
			v = a.new(before)
		}
		parent := after
		for _, e := range a.path[:len(a.path)-1] {
			m, ok := parent[e.name].(*types.AttributeValueMemberM)
			if !ok {
				refuse("The document path provided in the update expression is invalid for update")
			}
			parent = m.Value
		}
		if last := a.path[len(a.path)-1].name; v == nil {
			delete(parent, last)
		} else {
			parent[last] = clone(v, len(a.path))
		}
	}
	return after
}

// touched returns the names of the attributes that the update changes.
func (u *update) touched() []string {
	names := []string{}
	for _, a := range u.actions {
		if len(a.path) > 1 {
			panic(unsupported("ReturnValues UPDATED_NEW with a nested path"))
		}
		names = append(names, a.path[0].name)
	}
	return names
}
