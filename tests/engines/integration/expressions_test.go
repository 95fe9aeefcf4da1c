// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// differences are refusals of dynamotest that DynamoDB Local does not share.
var differences = []struct{ request, refusal, why string }{
	{"check", "Key attributes must be scalars", "DynamoDB Local refuses the same condition in every request but a transaction"},
	{"update", "Type mismatch for Index Key", "DynamoDB Local refuses the same row in a put"},
}

// dynamotest answers 20,000 random requests as DynamoDB Local does: filters, conditions,
// key conditions, updates and projections, with paths into keys, sizes and numbers of
// every form. DynamoDB Local stores the numbers of an update as they are written, so
// numbers are compared by value.
func TestDynamotestExpressions(t *testing.T) {
	t.Parallel()
	const workers, each = 4, 5_000
	var accepted, refused, unimplemented atomic.Int64
	known := make([]atomic.Int64, len(differences))
	var group sync.WaitGroup
	for worker := range workers {
		sides := newSides(t)
		for _, s := range sides {
			for _, it := range expressionRows() {
				if _, err := s.put(t.Context(), it); err != nil {
					t.Fatal(err)
				}
			}
		}
		group.Go(func() {
			for i := range each {
				g := &generator{Rand: rand.New(rand.NewPCG(uint64(worker), uint64(i)))}
				kind, what, request := g.request()
				_, err := request(t.Context(), sides[1])
				text := fmt.Sprint(err)
				if cancelled, ok := errors.AsType[*types.TransactionCanceledException](err); ok {
					text = aws.ToString(cancelled.CancellationReasons[0].Message)
				}
				differs := false
				for n, d := range differences {
					if kind == d.request && strings.Contains(text, d.refusal) {
						differs = true
						known[n].Add(1)
					}
				}
				switch {
				case differs:
				case strings.Contains(text, "dynamotest does not implement"):
					unimplemented.Add(1)
				case agree(t, sides, fmt.Sprintf("request %d of %d: %s %s", i, worker, kind, what), request).code == "ValidationException":
					refused.Add(1)
				default:
					accepted.Add(1)
				}
			}
		})
	}
	group.Wait()
	t.Logf("%d requests: %d accepted, %d refused, %d that dynamotest does not implement", workers*each, accepted.Load(), refused.Load(), unimplemented.Load())
	for n, d := range differences {
		if t.Logf("%d times %q: %s", known[n].Load(), d.refusal, d.why); known[n].Load() == 0 {
			t.Error("this difference was not seen")
		}
	}
	if accepted.Load() < workers*each*4/10 || refused.Load() < workers*each*3/10 || unimplemented.Load() > workers*each/10 {
		t.Error("the test is void")
	}
}

// expressionRows are a row with a value of every type, one with values of other types
// under the same names, and one with keys only.
func expressionRows() []attributes {
	other := row("row", "2")
	for name, from := range map[string]string{"n": "s", "s": "b", "b": "n", "l": "m", "m": "l", "ss": "ns", "ns": "ss", "yes": "null"} {
		other[name] = row("row", "2")[from]
	}
	other["customer"] = text("c-2")
	return []attributes{row("row", "1"), other, rowKey("small", "-1.5")}
}

func rowKey(id, line string) attributes { return attributes{"id": text(id), "line": numeral(line)} }

func keyOf(it attributes) attributes { return attributes{"id": it["id"], "line": it["line"]} }

// generator makes random requests. Each expression is made with its placeholders.
type generator struct {
	*rand.Rand
	names  map[string]string
	values attributes
}

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func (g *generator) request() (kind, what string, request func(context.Context, side) (any, error)) {
	g.names, g.values = map[string]string{}, attributes{}
	key := pick(g, rowKey("row", "1"), rowKey("row", "2"), rowKey("small", "-1.5"), rowKey("none", "1"))
	kind = pick(g, "filter", "filter", "filter", "query", "index", "key", "key", "delete", "check", "update", "update", "update", "update", "project")
	switch kind {
	case "filter", "index":
		filter := g.spoiled(g.condition(3))
		return kind, filter + g.given(filter), func(ctx context.Context, s side) (any, error) {
			in := &dynamodb.ScanInput{TableName: s.table, FilterExpression: &filter, ExpressionAttributeNames: g.names, ExpressionAttributeValues: g.values}
			if kind == "index" {
				in.IndexName = aws.String("all")
			}
			out, err := s.Scan(ctx, in)
			if err != nil {
				return nil, err
			}
			return shownRows(out.Items), nil
		}
	case "query", "key":
		condition, filter := "id = :id", ""
		g.values[":id"] = pick(g, text("row"), text("row"), text("small"))
		if kind == "key" {
			condition = g.spoiled(g.keyCondition())
		} else {
			filter = g.spoiled(g.condition(2))
		}
		backward := g.chance(30)
		return kind, condition + ", filter " + filter + g.given(condition, filter), func(ctx context.Context, s side) (any, error) {
			in := &dynamodb.QueryInput{TableName: s.table, KeyConditionExpression: &condition, ExpressionAttributeNames: g.names, ExpressionAttributeValues: g.values, ScanIndexForward: aws.Bool(!backward)}
			if filter != "" {
				in.FilterExpression = &filter
			}
			out, err := s.Query(ctx, in)
			if err != nil {
				return nil, err
			}
			return shown(out.Items), nil
		}
	case "delete": // of a row that is put again
		condition := g.spoiled(g.condition(3))
		return kind, shown(key) + " if " + condition + g.given(condition), func(ctx context.Context, s side) (any, error) {
			out, err := s.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: s.table, Key: key, ConditionExpression: &condition, ExpressionAttributeNames: g.names, ExpressionAttributeValues: g.values, ReturnValues: types.ReturnValueAllOld, ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld})
			if err != nil {
				return nil, err
			}
			return shown(out.Attributes), s.restore(ctx, key)
		}
	case "check":
		condition := g.spoiled(g.condition(2))
		return kind, shown(key) + " if " + condition + g.given(condition), func(ctx context.Context, s side) (any, error) {
			_, err := s.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{{ConditionCheck: &types.ConditionCheck{TableName: s.table, Key: key, ConditionExpression: &condition, ExpressionAttributeNames: g.names, ExpressionAttributeValues: g.values}}}})
			return nil, err
		}
	case "update":
		update := g.spoiled(g.update())
		condition := ""
		if g.chance(30) {
			condition = g.condition(1)
		}
		return kind, shown(key) + ": " + update + " if " + condition + g.given(update, condition), func(ctx context.Context, s side) (any, error) {
			in := &dynamodb.UpdateItemInput{TableName: s.table, Key: key, UpdateExpression: &update, ExpressionAttributeNames: g.names, ExpressionAttributeValues: g.values, ReturnValues: types.ReturnValueAllNew}
			if condition != "" {
				in.ConditionExpression = &condition
			}
			now, err := s.UpdateItem(ctx, in)
			if err != nil {
				return nil, err
			}
			if shown(key) == shown(rowKey("none", "1")) {
				_, err = s.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: s.table, Key: key})
			}
			return shown(exact(object(now.Attributes))), cmp.Or(err, s.restore(ctx, key))
		}
	}
	projection := g.projection()
	return kind, shown(key) + " " + projection + g.given(projection), func(ctx context.Context, s side) (any, error) {
		out, err := s.GetItem(ctx, &dynamodb.GetItemInput{TableName: s.table, Key: key, ProjectionExpression: &projection, ExpressionAttributeNames: g.names})
		if err != nil {
			return nil, err
		}
		return shown(out.Item), nil
	}
}

// restore puts the row of a key back, if there was one.
func (s side) restore(ctx context.Context, key attributes) error {
	for _, it := range expressionRows() {
		if shown(keyOf(it)) == shown(keyOf(key)) {
			_, err := s.put(ctx, it)
			return err
		}
	}
	return nil
}

// exact returns a value in which equal numbers have the same form.
func exact(value types.AttributeValue) types.AttributeValue {
	form := func(n string) string {
		r, _ := new(big.Rat).SetString(n)
		return r.RatString()
	}
	switch v := value.(type) {
	case *types.AttributeValueMemberN:
		return numeral(form(v.Value))
	case *types.AttributeValueMemberNS:
		ns := make([]string, len(v.Value))
		for i, n := range v.Value {
			ns[i] = form(n)
		}
		return numerals(ns...)
	case *types.AttributeValueMemberL:
		l := make([]types.AttributeValue, len(v.Value))
		for i, e := range v.Value {
			l[i] = exact(e)
		}
		return sequence(l...)
	case *types.AttributeValueMemberM:
		m := attributes{}
		for name, e := range v.Value {
			m[name] = exact(e)
		}
		return object(m)
	}
	return value
}

// shownRows shows rows whose order does not matter.
func shownRows(items []attributes) []string {
	rows := make([]string, len(items))
	for i, it := range items {
		rows[i] = shown(it)
	}
	slices.Sort(rows)
	return rows
}

// given removes the placeholders that no expression uses, but not always, and describes
// the others.
func (g *generator) given(expressions ...string) string {
	if !g.chance(1) {
		g.names, g.values = used(g.names, expressions...), used(g.values, expressions...)
	}
	return fmt.Sprint(" with ", g.names, shown(g.values))
}

// spoiled changes a few expressions, so that most of these are invalid.
func (g *generator) spoiled(expression string) string {
	if !g.chance(4) {
		return expression
	}
	words := strings.Fields(expression)
	at := g.IntN(len(words))
	switch g.IntN(4) {
	case 0:
		words = slices.Delete(words, at, at+1)
	case 1:
		words = slices.Insert(words, at, words[at])
	case 2:
		other := g.IntN(len(words))
		words[at], words[other] = words[other], words[at]
	case 3:
		words[at] = pick(g, ",", "(", ")", "AND", "NOT", "1", "status", "[", ".", "=", "set", "in")
	}
	return strings.Join(words, " ")
}

func (g *generator) condition(depth int) string {
	if depth > 0 && g.chance(40) {
		switch g.IntN(4) {
		case 0:
			return "NOT " + g.condition(depth-1)
		case 1:
			return "( " + g.condition(depth-1) + " )"
		case 2:
			return g.condition(depth-1) + " AND " + g.condition(depth-1)
		}
		return g.condition(depth-1) + " OR " + g.condition(depth-1)
	}
	switch g.IntN(9) {
	case 0:
		return g.operand() + " BETWEEN " + g.operand() + " AND " + g.operand()
	case 1:
		list := []string{g.operand()}
		for range g.IntN(3) {
			list = append(list, g.operand())
		}
		return g.operand() + " IN ( " + strings.Join(list, " , ") + " )"
	case 2:
		return pick(g, "attribute_exists", "attribute_not_exists") + " ( " + pick(g, g.path, g.path, g.path, g.path, g.operand)() + " )"
	case 3:
		kind := g.value(text(pick(g, "S", "N", "B", "SS", "NS", "BS", "BOOL", "NULL", "L", "M", "n", "")))
		return "attribute_type ( " + pick(g, g.path, g.path, g.path, g.operand)() + " , " + kind + " )"
	case 4:
		return pick(g, "begins_with", "contains") + " ( " + g.operand() + " , " + g.operand() + " )"
	}
	return g.operand() + " " + pick(g, "=", "<>", "<", "<=", ">", ">=") + " " + g.operand()
}

func (g *generator) operand() string {
	if g.chance(3) {
		return "( " + g.operand() + " )"
	}
	switch n := g.IntN(100); {
	case n < 45:
		return g.path()
	case n < 55:
		return "size ( " + pick(g, g.path, g.path, g.path, g.anyValue)() + " )"
	}
	return g.anyValue()
}

// path returns an attribute, or a path into one, which can be missing.
func (g *generator) path() string {
	name := pick(g, "id", "line", "customer", "n", "n", "s", "s", "b", "yes", "ss", "ns", "bs", "l", "l", "m", "m", "absent", "#")
	if name == "#" || g.chance(10) {
		name = g.name(pick(g, "null", "empty", "status", "a.b", "n", "m", "id", "line", "absent"))
	} else if g.chance(1) {
		name = "status"
	}
	for g.chance(20) {
		name += pick(g, ".a", ".m", ".b", ".x", "[0]", "[1]", "[2]", "[9]")
	}
	return name
}

func (g *generator) name(attribute string) string {
	placeholder := fmt.Sprintf("#n%d", len(g.names))
	g.names[placeholder] = attribute
	return placeholder
}

func (g *generator) value(v types.AttributeValue) string {
	placeholder := fmt.Sprintf(":v%d", len(g.values))
	g.values[placeholder] = v
	return placeholder
}

func (g *generator) anyValue() string {
	if len(g.values) > 0 && g.chance(10) { // the same operand twice
		return fmt.Sprintf(":v%d", g.IntN(len(g.values)))
	}
	if g.chance(50) {
		return g.value(numeral(g.number()))
	}
	if g.chance(50) {
		return g.value(text(pick(g, "häuser", "h", "x", "", "row", "😀", "c-1")))
	}
	return g.value(pick[types.AttributeValue](g,
		binary(1, 2), &types.AttributeValueMemberB{Value: []byte{}}, yes, null, &types.AttributeValueMemberBOOL{},
		texts("a", "b"), texts("a"), numerals("2", "1.0"), numerals("1e0"), &types.AttributeValueMemberBS{Value: [][]byte{{1}}},
		sequence(text("x"), numeral("1"), sequence()), sequence(), object(attributes{"b": text("deep")}), object(attributes{}),
	))
}

// number returns numerals of all forms, near the bounds of what a number can be.
func (g *generator) number() string {
	digits := func(n int) string {
		s := ""
		for range n {
			s += fmt.Sprint(g.IntN(10))
		}
		return s
	}
	sign := pick(g, "", "", "", "-", "+")
	switch g.IntN(20) {
	case 0, 1, 2, 3:
		return sign + digits(1) + "." + digits(1+g.IntN(4))
	case 4, 5:
		return sign + digits(1+g.IntN(3)) + pick(g, "e", "E") + pick(g, "", "+", "-") + digits(1+g.IntN(2))
	case 6:
		return sign + digits(36+g.IntN(4)) + pick(g, "", "0", "000", ".0", "."+digits(1))
	case 7:
		return sign + pick(g, "1e125", "9.9e125", "1e126", "1e-130", "1e-131", "0e999", "0.0", "-0", "10.50", "1.05e1", "00010.5", ".5", "5.", "1e", "x", "", " 1", "1_0", "NaN", "Infinity", "0x1p3")
	}
	return sign + fmt.Sprint(g.IntN(12))
}

// keyCondition returns conditions of keys, of which most are valid.
func (g *generator) keyCondition() string {
	id, line := pick(g, "id", "id", "id", "id", "id", "id", "id", "customer", "id.x", "( id )", g.name("id")), pick(g, "line", "line", "line", "line", "line", "line", "line", "n", "line[1]", g.name("line"))
	first := id + " = " + pick(g, ":id", ":id", ":id", ":id", ":id", ":id", g.anyValue(), "line")
	number := func() string {
		if g.chance(5) {
			return g.anyValue()
		}
		return g.value(numeral(g.number()))
	}
	second := line + " " + pick(g, "=", "<", "<=", ">", ">=", "<>") + " " + number()
	switch g.IntN(8) {
	case 0:
		return first
	case 1:
		return first + " AND " + line + " BETWEEN " + number() + " AND " + number()
	case 2:
		return second + " AND " + first
	case 3:
		return "( " + first + " ) AND ( " + second + " )"
	case 4:
		return ":id = id AND " + number() + " < " + line
	case 5:
		return first + " AND begins_with ( " + line + " , " + g.anyValue() + " )"
	}
	return first + " AND " + second
}

// update returns one to three sections of one or two actions.
func (g *generator) update() string {
	sections := []string{"SET", "SET", "REMOVE", "ADD", "DELETE"}
	g.Shuffle(len(sections), func(i, j int) { sections[i], sections[j] = sections[j], sections[i] })
	var all []string
	for _, section := range sections[:1+g.IntN(2)] {
		var actions []string
		for range 1 + g.IntN(2) {
			switch section {
			case "SET":
				actions = append(actions, g.path()+" = "+g.assigned())
			case "REMOVE":
				actions = append(actions, g.path())
			default:
				actions = append(actions, g.path()+" "+pick(g, g.anyValue, g.addend, g.addend, g.addend)())
			}
		}
		all = append(all, section+" "+strings.Join(actions, " , "))
	}
	return strings.Join(all, " ")
}

// addend returns a value for ADD or DELETE.
func (g *generator) addend() string {
	return g.value(pick[types.AttributeValue](g, numeral(g.number()), texts("a", "c"), texts("häuser"), numerals("1.0", "3"), numerals("2"), &types.AttributeValueMemberBS{Value: [][]byte{{1}, {3}}}))
}

// assigned returns the right side of SET.
func (g *generator) assigned() string {
	one := func() string {
		switch n := g.IntN(100); {
		case n < 10:
			return "if_not_exists ( " + pick(g, g.path, g.path, g.path, g.anyValue)() + " , " + g.operand() + " )"
		case n < 20:
			return "list_append ( " + pick(g, "l", g.operand()) + " , " + g.value(sequence(numeral("1"))) + " )"
		}
		return pick(g, g.path, g.anyValue)()
	}
	if g.chance(50) {
		return one()
	}
	return pick(g, "n", one()) + pick(g, " + ", " - ") + pick(g, "n", g.anyValue())
}

func (g *generator) projection() string {
	list := []string{g.path()}
	for range g.IntN(3) {
		list = append(list, g.path())
	}
	return g.spoiled(strings.Join(list, " , "))
}
