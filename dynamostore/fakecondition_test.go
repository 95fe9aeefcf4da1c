package dynamostore_test

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// conditionHolds reports whether a condition expression is true for an item, or
// for a missing item, by DynamoDB's rules (developer guide, "Condition and filter
// expressions, operators, and functions"): a missing operand, or one of another
// type, compares as false; NOT binds tighter than AND, and AND tighter than OR;
// each value of the request has to be used. It implements the part of the language
// that this package uses, and panics for the rest.
func conditionHolds(expression string, it, values item) (bool, error) {
	c := condition{tokens: token.FindAllString(expression, -1), item: it, values: values, used: map[string]bool{}}
	if strings.Join(c.tokens, "") != strings.ReplaceAll(expression, " ", "") {
		panic("not a condition: " + expression)
	}
	holds := c.or()
	if len(c.tokens) > 0 {
		panic(fmt.Sprintf("%s: what is %q?", expression, c.tokens))
	}
	for name := range values {
		if !c.used[name] {
			return false, validation("Value provided in ExpressionAttributeValues unused in expressions: keys: {" + name + "}")
		}
	}
	return holds, nil
}

var token = regexp.MustCompile(`[(),]|<=|>=|<>|[=<>]|:?\w+`)

// condition is an expression during parsing.
type condition struct {
	tokens       []string // not parsed yet
	item, values item
	used         map[string]bool
}

func (c *condition) next() (t string) {
	if len(c.tokens) > 0 {
		t, c.tokens = c.tokens[0], c.tokens[1:]
	}
	return t
}

// accept consumes the next token if it is t.
func (c *condition) accept(t string) bool {
	if len(c.tokens) == 0 || c.tokens[0] != t {
		return false
	}
	c.next()
	return true
}

func (c *condition) expect(t string) {
	if !c.accept(t) {
		panic(fmt.Sprintf("want %s, got %q", t, c.tokens))
	}
}

func (c *condition) or() bool {
	holds := c.and()
	for c.accept("OR") {
		right := c.and()
		holds = holds || right
	}
	return holds
}

func (c *condition) and() bool {
	holds := c.not()
	for c.accept("AND") {
		right := c.not()
		holds = holds && right
	}
	return holds
}

func (c *condition) not() bool {
	switch {
	case c.accept("NOT"):
		return !c.not()
	case c.accept("("):
		holds := c.or()
		c.expect(")")
		return holds
	case c.accept("attribute_exists"):
		return c.exists()
	case c.accept("attribute_not_exists"):
		return !c.exists()
	case c.accept("begins_with"):
		return c.begins()
	}
	return c.comparison()
}

func (c *condition) exists() bool {
	c.expect("(")
	_, ok := c.item[c.next()]
	c.expect(")")
	return ok
}

func (c *condition) begins() bool {
	c.expect("(")
	whole, _ := c.operand().(*types.AttributeValueMemberS)
	c.expect(",")
	start, _ := c.operand().(*types.AttributeValueMemberS)
	c.expect(")")
	return whole != nil && start != nil && strings.HasPrefix(whole.Value, start.Value)
}

func (c *condition) comparison() bool {
	left, operator := c.operand(), c.next()
	if operator == "IN" {
		return c.among(left)
	}
	order, comparable := compare(left, c.operand())
	switch operator {
	case "=":
		return comparable && order == 0
	case "<>":
		return !comparable || order != 0
	case "<":
		return comparable && order < 0
	case "<=":
		return comparable && order <= 0
	case ">":
		return comparable && order > 0
	case ">=":
		return comparable && order >= 0
	}
	panic("not a comparison: " + operator)
}

// among parses a list and reports whether v is in it.
func (c *condition) among(v types.AttributeValue) bool {
	c.expect("(")
	found := false
	for {
		order, comparable := compare(v, c.operand())
		found = found || comparable && order == 0
		if !c.accept(",") {
			c.expect(")")
			return found
		}
	}
}

// operand returns a value of the request, or an attribute; nil if it is missing.
func (c *condition) operand() types.AttributeValue {
	name := c.next()
	if !strings.HasPrefix(name, ":") {
		return c.item[name]
	}
	c.used[name] = true
	v, ok := c.values[name]
	if !ok {
		panic("no value for " + name)
	}
	return v
}

func compare(a, b types.AttributeValue) (order int, comparable bool) {
	switch a := a.(type) {
	case *types.AttributeValueMemberN:
		if b, ok := b.(*types.AttributeValueMemberN); ok {
			return cmp.Compare(floatOf(a), floatOf(b)), true
		}
	case *types.AttributeValueMemberS:
		if b, ok := b.(*types.AttributeValueMemberS); ok {
			return strings.Compare(a.Value, b.Value), true
		}
	case *types.AttributeValueMemberB:
		if b, ok := b.(*types.AttributeValueMemberB); ok {
			return bytes.Compare(a.Value, b.Value), true
		}
	}
	return 0, false
}

func TestConditionHolds(t *testing.T) {
	t.Parallel()
	n := func(v string) types.AttributeValue { return &types.AttributeValueMemberN{Value: v} }
	it := item{"pk": &types.AttributeValueMemberS{Value: "x"}, "n": n("10"), "b": &types.AttributeValueMemberB{Value: []byte{1}}}
	for expression, want := range map[string]bool{
		"attribute_exists(pk) AND n = :v":     true,
		"attribute_not_exists(pk) OR n <= :v": true,
		"n < :v":                              false,
		"n >= :v":                             true,
		"n > :v":                              false,
		"n <> :v":                             false,
		"NOT n = :v":                          false,
		"n IN (n, :v)":                        true,
		"n IN (b, pk) OR n < :v":              false,
		"NOT (n = :v AND attribute_exists(missing))": true,
		"missing = :v":  false,
		"missing <= :v": false,
		"missing <> :v": true,
		"pk = :v":       false, // another type
		"b = :v":        false,
		"n = :v OR n < :v AND attribute_exists(missing)":   true, // AND first
		"(n = :v OR n < :v) AND attribute_exists(missing)": false,
		"NOT attribute_exists(missing) AND n = :v":         true, // NOT first
		"NOT (attribute_exists(missing) OR NOT (n > :v))":  false,
		"attribute_not_exists(missing) OR missing = :v":    true,
		"(attribute_exists(missing) AND missing = :v)":     false,
		"attribute_not_exists(n) OR NOT n <= :v OR n > :v": false,
	} {
		if got, err := conditionHolds(expression, it, item{":v": n("10.0")}); got != want || err != nil {
			t.Errorf("%s: got %v, %v", expression, got, err)
		}
	}
	if _, err := conditionHolds("attribute_exists(pk)", it, item{":v": n("1")}); err == nil {
		t.Error("an unused value was accepted")
	}
}
