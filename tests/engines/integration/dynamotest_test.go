// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/internal/kit/engine"
)

// dynamo has the operations that dynamotest implements.
type dynamo interface {
	dynamostore.Client
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
}

// side is one of the two databases that are compared, with a separate table.
type side struct {
	dynamo
	table *string
}

// newSides returns DynamoDB Local and dynamotest with the same table. Its key is a
// text and a number, and it has two indexes.
func newSides(t *testing.T) [2]side {
	t.Helper()
	name := "rows-" + strings.ToLower(rand.Text())
	key := func(hash, sorts string) []types.KeySchemaElement {
		return []types.KeySchemaElement{
			{AttributeName: &hash, KeyType: types.KeyTypeHash}, {AttributeName: &sorts, KeyType: types.KeyTypeRange},
		}
	}
	in := &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String("line"), AttributeType: types.ScalarAttributeTypeN},
			{AttributeName: aws.String("customer"), AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: key("id", "line"),
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{
			{IndexName: aws.String("by-customer"), KeySchema: key("customer", "line"), Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly}},
			{IndexName: aws.String("all"), KeySchema: key("customer", "line"), Projection: &types.Projection{ProjectionType: types.ProjectionTypeAll}},
		},
	}
	sides := [2]side{{local.client(), &name}, {dynamotest.New(), &name}}
	for _, s := range sides {
		if _, err := s.CreateTable(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	return sides
}

func (s side) put(ctx context.Context, it attributes, optFns ...func(*dynamodb.PutItemInput)) (any, error) {
	in := &dynamodb.PutItemInput{TableName: s.table, Item: it, ReturnValues: types.ReturnValueAllOld}
	for _, f := range optFns {
		f(in)
	}
	out, err := s.PutItem(ctx, in)
	if err != nil {
		return nil, err
	}
	return shown(out.Attributes), nil
}

// answer is what both databases must agree on.
type answer struct {
	output  any
	code    string // of the error
	reasons []string
	items   []attributes // that came with the error
}

func answerOf(output any, err error) (a answer) {
	if err == nil {
		return answer{output: output}
	}
	a.code = err.Error()
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		a.code = api.ErrorCode()
	}
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		a.items = []attributes{failed.Item}
	}
	if cancelled, ok := errors.AsType[*types.TransactionCanceledException](err); ok {
		for _, r := range cancelled.CancellationReasons {
			if aws.ToString(r.Code) == "ValidationError" { // not always a reason in DynamoDB Local
				return answer{code: "ValidationException"}
			}
			a.reasons, a.items = append(a.reasons, aws.ToString(r.Code)), append(a.items, r.Item)
		}
	}
	return a
}

// agree makes the same request of both databases and compares the answers.
func agree(t *testing.T, sides [2]side, what string, request func(context.Context, side) (any, error)) answer {
	t.Helper()
	output, err := request(t.Context(), sides[0])
	want := answerOf(output, err)
	output, fakeErr := request(t.Context(), sides[1])
	got := answerOf(output, fakeErr)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\nDynamoDB Local %s, %v\ndynamotest     %s, %v", what, shown(want.output), err, shown(got.output), fakeErr)
	}
	return want
}

// agreeOnRows compares the tables.
func agreeOnRows(t *testing.T, sides [2]side, what string) {
	t.Helper()
	agree(t, sides, what+": the rows", func(ctx context.Context, s side) (any, error) {
		out, err := s.Scan(ctx, &dynamodb.ScanInput{TableName: s.table})
		if err != nil {
			return nil, err
		}
		rows := make([]string, len(out.Items))
		for i, it := range out.Items {
			rows[i] = shown(it)
		}
		slices.Sort(rows)
		return rows, nil
	})
}

// shown returns attributes as text with a fixed order.
func shown(v any) string {
	switch v := v.(type) {
	case attributes:
		var all []string
		for name, value := range v {
			all = append(all, name+": "+shown(value))
		}
		slices.Sort(all)
		return "{" + strings.Join(all, ", ") + "}"
	case []attributes:
		all := make([]string, len(v))
		for i, it := range v {
			all[i] = shown(it)
		}
		return "[" + strings.Join(all, ", ") + "]"
	case *types.AttributeValueMemberM:
		return shown(v.Value)
	case *types.AttributeValueMemberL:
		all := make([]string, len(v.Value))
		for i, e := range v.Value {
			all[i] = shown(e)
		}
		return "[" + strings.Join(all, ", ") + "]"
	case *types.AttributeValueMemberSS:
		return fmt.Sprint("SS ", slices.Sorted(slices.Values(v.Value)))
	case *types.AttributeValueMemberNS:
		return fmt.Sprint("NS ", slices.Sorted(slices.Values(v.Value)))
	case types.AttributeValue:
		return fmt.Sprintf("%s %v", strings.TrimPrefix(fmt.Sprintf("%T", v), "*types.AttributeValueMember"), reflect.ValueOf(v).Elem().FieldByName("Value"))
	}
	return fmt.Sprint(v)
}

func binary(b ...byte) types.AttributeValue { return &types.AttributeValueMemberB{Value: b} }
func texts(s ...string) types.AttributeValue {
	return &types.AttributeValueMemberSS{Value: s}
}
func numerals(s ...string) types.AttributeValue { return &types.AttributeValueMemberNS{Value: s} }
func sequence(v ...types.AttributeValue) types.AttributeValue {
	return &types.AttributeValueMemberL{Value: v}
}
func object(it attributes) types.AttributeValue { return &types.AttributeValueMemberM{Value: it} }

var yes, null = &types.AttributeValueMemberBOOL{Value: true}, &types.AttributeValueMemberNULL{Value: true}

// row has a value of every type.
func row(id, line string) attributes {
	return attributes{
		"id": text(id), "line": numeral(line), "customer": text("c-1"),
		"n": numeral("10.50"), "s": text("häuser"), "b": binary(1, 2, 3), "yes": yes, "null": null, "empty": text(""),
		"ss": texts("b", "a"), "ns": numerals("1", "2.0"), "bs": &types.AttributeValueMemberBS{Value: [][]byte{{1}, {2}}},
		"l": sequence(text("x"), numeral("1"), sequence()), "m": object(attributes{"a": numeral("1"), "m": object(attributes{"b": text("deep")})}),
		"status": text("open"),
	}
}

var operands = attributes{
	":n": numeral("10.5"), ":one": numeral("1"), ":neg": numeral("-1e-3"), ":s": text("häuser"), ":h": text("h"), ":b": binary(1, 2), ":yes": yes,
	":null": null, ":ss": texts("a", "b"), ":ns": numerals("2", "1"), ":l": sequence(text("x"), numeral("1"), sequence()),
	":m": object(attributes{"b": text("deep")}), ":N": text("N"), ":Q": text("Q"), ":empty": text(""),
}

var placeholders = map[string]string{"#status": "status", "#dotted": "a.b", "#n": "n", "#m": "m"}

// used returns the placeholders that an expression mentions.
func used[V any](all map[string]V, expressions ...string) map[string]V {
	some := map[string]V{}
	for name, v := range all {
		for _, e := range expressions {
			if slices.Contains(strings.FieldsFunc(e, func(r rune) bool { return strings.ContainsRune(" (),=<>+-[].", r) }), name) {
				some[name] = v
			}
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some
}

// dynamotest evaluates conditions and filters as DynamoDB Local does, and refuses
// the same ones.
func TestDynamotestConditions(t *testing.T) {
	t.Parallel()
	sides := newSides(t)
	for _, s := range sides {
		if _, err := s.put(t.Context(), row("row", "1")); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]int{}
	for _, condition := range []string{
		"n = :n", "n <> :n", "n < :n", "n <= :n", "n > :n", "n >= :n", "n > :neg", ":n = n", ":n < :one", "#n = :n",
		"s = :s", "s < :s", "s > :h", "b > :b", "b = :b", "s = :n", "s < :n", "absent = :n", "absent <> :n", "absent < :n", "NOT absent < :n",
		"yes = :yes", "null = :null", "ss = :ss", "ns = :ns", "l = :l", "m.m = :m", "m = :m", "yes < :yes", "ss > :ss", "#status = :s", "#dotted = :n",
		"attribute_exists(n)", "attribute_exists(m.m.b)", "attribute_exists(m.x.b)", "attribute_exists(l[0])", "attribute_exists(l[9])", "attribute_exists(n.x)", "attribute_exists(l.x)", "attribute_exists(m[0])",
		"attribute_not_exists(n)", "attribute_not_exists(absent)", "attribute_exists(:n)", "attribute_exists(n, s)", "attribute_exists()",
		"attribute_type(n, :N)", "attribute_type(s, :N)", "attribute_type(absent, :N)", "attribute_type(n, :Q)", "attribute_type(n, :n)", "attribute_type(n, s)",
		"begins_with(s, :h)", "begins_with(s, :s)", "begins_with(s, :n)", "begins_with(n, :h)", "begins_with(absent, :h)", "begins_with(b, :b)", "begins_with(s, s)", "begins_with(:s, :h)", "begins_with(s, :empty)", "begins_with(s)",
		"contains(s, :h)", "contains(ss, :h)", "contains(ss, :s)", "contains(ns, :one)", "contains(l, :one)", "contains(l, :n)", "contains(n, :one)", "contains(b, :b)", "contains(m, :h)", "contains(s, :one)", "contains(:s, :h)",
		"size(s) = :n", "size(s) > :one", "size(l) > :one", "size(m) > :one", "size(b) > :one", "size(ss) > :one", "size(n) > :one", "size(absent) > :one", "size(:n) > :one", "size(:s) > :one", "size(s)",
		"n BETWEEN :one AND :n", "n BETWEEN :n AND :one", "n BETWEEN :one AND :s", "s BETWEEN :h AND :s", "n BETWEEN absent AND :n", "absent BETWEEN :one AND :n", ":n BETWEEN line AND n", "n BETWEEN n AND :n", "n BETWEEN :yes AND :yes",
		"n IN (:one, :n)", "n IN (:one)", "n IN (:s, :yes)", "n IN (n, :n)", "n IN ()", "absent IN (:n)", "yes IN (:yes)", "n IN (line, :n)",
		"n = :n OR absent = :n AND absent = :one", "(n = :n OR absent = :n) AND absent = :one", "NOT n = :n OR n = :one", "NOT (n = :n AND absent = :n)", "NOT NOT n = :n", "not n = :n or n in (:n)", "n between :one and :n",
		"(n = :n)", "((n = :n))", "((n = :n) AND (s = :s))", "((n = :n) OR (s = :s)) AND n = :n", "(((n = :n)))", "NOT (n = :n)", "(NOT (n = :n))",
		"n = n", "n = :undefined", "#undefined = :n", "status = :n", "Status = :n", "m.status = :n", "n", "n =", "= :n", "n == :n", "n = :n)", "(n = :n", "n = :n s = :s", "n = :n AND", "", " ", "n = 1", "n != :n", "n = :n;", "unknown(n)", "ATTRIBUTE_EXISTS(n)", "Size(s) > :one", "n.", "l[", "l[x] = :n", "l[0] = :h", "l[2] = :h", "m.a = :one", "m.a.b = :one", "_x = :n", "x-y = :n",
		"1n = :n", "n = :n AND n < :n AND n <= :n OR s = :s", "attribute_exists(size(s))", "contains(n, n)", "size(s) = size(s)", "n IN :n", ":yes = yes", ":yes",
	} {
		filtered := agree(t, sides, "filter "+condition, func(ctx context.Context, s side) (any, error) {
			out, err := s.Scan(ctx, &dynamodb.ScanInput{TableName: s.table, FilterExpression: &condition, ExpressionAttributeNames: used(placeholders, condition), ExpressionAttributeValues: used(operands, condition)})
			if err != nil {
				return nil, err
			}
			return out.Count, nil
		})
		seen[fmt.Sprint(filtered.output)+filtered.code]++
		agree(t, sides, "a missing row, "+condition, func(ctx context.Context, s side) (any, error) {
			_, err := s.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: s.table, Key: attributes{"id": text("none"), "line": numeral("1")}, ConditionExpression: &condition, ExpressionAttributeNames: used(placeholders, condition), ExpressionAttributeValues: used(operands, condition)})
			return nil, err
		})
	}
	if seen["0"] < 30 || seen["1"] < 30 || seen["<nil>ValidationException"] < 30 {
		t.Errorf("the answers are %v: the test is void", seen)
	}
}

// dynamotest updates items as DynamoDB Local does.
func TestDynamotestUpdates(t *testing.T) {
	t.Parallel()
	sides := newSides(t)
	for i, expression := range []string{
		"SET n = :n", "SET n = n + :one", "SET n = n - :neg", "SET n = :one - n", "SET n = absent + :one", "SET n = s + :one", "SET n = n + :s", "SET n = if_not_exists(absent, :one) + :n", "SET x = if_not_exists(n, :one)", "SET x = if_not_exists(absent, absent)",
		"SET x = n, n = :one", "SET x = absent", "SET l = list_append(l, :l)", "SET l = list_append(:l, l)", "SET l = list_append(absent, :l)", "SET l = list_append(n, :l)", "SET l = list_append(l, :n)", "SET x = list_append(if_not_exists(x, :l), :l)",
		"SET m.a = :s", "SET m.m.c = :n", "SET m.x.c = :n", "SET n.x = :n", "SET #m.#status = :s", "SET x = m.m", "SET x = l[1]", "SET x = size(s)", "SET x = begins_with(s, :h)", "SET x = :undefined", "SET status = :n", "SET #status = :n",
		"REMOVE n", "REMOVE absent", "REMOVE m.a", "REMOVE m.x.y", "REMOVE n, s", "REMOVE n, n", "REMOVE m, m.a", "REMOVE :n",
		"ADD n :one", "ADD absent :one", "ADD n :s", "ADD s :one", "ADD ss :ss", "ADD ns :ns", "ADD ss :ns", "ADD absent :ss", "ADD n n", "ADD l :l",
		"DELETE ss :ss", "DELETE ns :ns", "DELETE absent :ss", "DELETE ss :ns", "DELETE n :n", "DELETE ss :one",
		"SET n = :n REMOVE s ADD ns :ns DELETE ss :ss", "SET n = :n SET s = :s", "SET n = :n, n = :one", "SET n = :n REMOVE n", "set n = :n remove s", "SETT n = :n", "SET n :n", "SET", "", "SET n = :n,", "SET n = :n + :n + :n", "SET n = n * :one",
		"SET id = :s", "SET line = :n", "REMOVE id", "ADD line :one", "SET customer = :empty", "SET customer = :s", "SET x = :n ADD x :one",
	} {
		for _, exists := range []bool{true, false} {
			id := fmt.Sprint(i, exists)
			if exists {
				agree(t, sides, "put", func(ctx context.Context, s side) (any, error) { return s.put(ctx, row(id, "1")) })
			}
			values := types.ReturnValueAllNew
			if !strings.Contains(expression, ".") {
				values = []types.ReturnValue{types.ReturnValueAllNew, types.ReturnValueAllOld, types.ReturnValueUpdatedNew, types.ReturnValueNone}[i%4]
			}
			agree(t, sides, fmt.Sprintf("%s, exists: %v, %s", expression, exists, values), func(ctx context.Context, s side) (any, error) {
				out, err := s.UpdateItem(ctx, &dynamodb.UpdateItemInput{
					TableName: s.table, Key: attributes{"id": text(id), "line": numeral("1")}, UpdateExpression: &expression, ReturnValues: values,
					ExpressionAttributeNames: used(placeholders, expression), ExpressionAttributeValues: used(operands, expression),
				})
				if err != nil {
					return nil, err
				}
				return shown(out.Attributes), nil
			})
		}
	}
	agreeOnRows(t, sides, "after the updates")
}

// dynamotest accepts and refuses the same rows, and returns them in the same form.
func TestDynamotestRows(t *testing.T) {
	t.Parallel()
	sides := newSides(t)
	with := func(name string, v types.AttributeValue) attributes {
		return attributes{"id": text(name), "line": numeral("1"), name: v}
	}
	for what, it := range map[string]attributes{
		"every type": row("all", "1"), "no sort key": {"id": text("x")}, "no key": {}, "a key of another type": {"id": numeral("1"), "line": numeral("1")}, "an empty key": {"id": text(""), "line": numeral("1")},
		"a long key": {"id": text(strings.Repeat("x", 2049)), "line": numeral("1")}, "the longest key": {"id": text(strings.Repeat("x", 2048)), "line": numeral("1")}, "another form of a key": {"id": text("all"), "line": numeral("1.0")},
		"an index key of another type": with("customer", numeral("1")), "an empty index key": with("customer", text("")), "no index key": with("x", text("")),
		"an invalid number": with("n", numeral("x")), "an empty number": with("n", numeral("")), "a number in hex": with("n", numeral("0x10")), "an exponent": with("n", numeral("1.5E+3")), "a small number": with("n", numeral("1e-130")), "too small": with("n", numeral("1e-131")), "a large number": with("n", numeral("9.9e125")), "too large": with("n", numeral("1e126")),
		"38 digits": with("n", numeral(strings.Repeat("9", 38))), "39 digits": with("n", numeral(strings.Repeat("9", 39))), "zeros at the end": with("n", numeral("1"+strings.Repeat("0", 50))), "minus": with("n", numeral("-12.30")),
		"an empty set": with("s", texts()), "duplicates": with("s", texts("a", "a")), "duplicate numbers": with("s", numerals("1", "1.0")), "null": with("s", null), "no null": with("s", &types.AttributeValueMemberNULL{}), "no bytes": with("b", &types.AttributeValueMemberB{Value: []byte{}}), "nil bytes": with("b", &types.AttributeValueMemberB{}),
		"31 levels": with("d", nested(31)), "33 levels": with("d", nested(33)), "34 levels": with("d", nested(34)),
		"400 KB": {"id": text("big"), "line": numeral("1"), "x": text(strings.Repeat("x", 400<<10-3-2-4-2-1))}, "more than 400 KB": {"id": text("big"), "line": numeral("1"), "x": text(strings.Repeat("x", 400<<10))},
	} {
		agree(t, sides, what, func(ctx context.Context, s side) (any, error) { return s.put(ctx, it) })
		for _, key := range []attributes{it, {"id": it["id"]}, {"id": it["id"], "line": it["line"]}} {
			key = maps.Clone(key)
			maps.DeleteFunc(key, func(_ string, v types.AttributeValue) bool { return v == nil })
			agree(t, sides, what+", read", func(ctx context.Context, s side) (any, error) {
				out, err := s.GetItem(ctx, &dynamodb.GetItemInput{TableName: s.table, Key: key})
				if err != nil {
					return nil, err
				}
				return shown(out.Item), nil
			})
		}
	}
	for what, request := range map[string]func(context.Context, side) (any, error){
		"a missing table": func(ctx context.Context, s side) (any, error) {
			return s.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String("missing"), Key: attributes{"id": text("x")}})
		},
		"a projection": func(ctx context.Context, s side) (any, error) {
			out, err := s.GetItem(ctx, &dynamodb.GetItemInput{TableName: s.table, Key: attributes{"id": text("all"), "line": numeral("1")}, ProjectionExpression: aws.String("n, #status"), ExpressionAttributeNames: map[string]string{"#status": "status"}})
			return out.Item, err
		},
		"an unused name": func(ctx context.Context, s side) (any, error) {
			return s.GetItem(ctx, &dynamodb.GetItemInput{TableName: s.table, Key: attributes{"id": text("all"), "line": numeral("1")}, ProjectionExpression: aws.String("n"), ExpressionAttributeNames: map[string]string{"#status": "status"}})
		},
		"names without an expression": func(ctx context.Context, s side) (any, error) {
			return s.GetItem(ctx, &dynamodb.GetItemInput{TableName: s.table, Key: attributes{"id": text("all"), "line": numeral("1")}, ExpressionAttributeNames: map[string]string{"#status": "status"}})
		},
		"an unused value": func(ctx context.Context, s side) (any, error) {
			return s.put(ctx, row("all", "1"), func(in *dynamodb.PutItemInput) {
				in.ConditionExpression, in.ExpressionAttributeValues = aws.String("attribute_exists(n)"), attributes{":n": numeral("1")}
			})
		},
		"values without an expression": func(ctx context.Context, s side) (any, error) {
			return s.put(ctx, row("all", "1"), func(in *dynamodb.PutItemInput) { in.ExpressionAttributeValues = attributes{":n": numeral("1")} })
		},
		"empty names": func(ctx context.Context, s side) (any, error) {
			return s.put(ctx, row("all", "1"), func(in *dynamodb.PutItemInput) {
				in.ConditionExpression, in.ExpressionAttributeNames = aws.String("attribute_exists(n)"), map[string]string{}
			})
		},
		"a refused condition, with the row": func(ctx context.Context, s side) (any, error) {
			return s.put(ctx, row("all", "1"), func(in *dynamodb.PutItemInput) {
				in.ConditionExpression, in.ReturnValuesOnConditionCheckFailure = aws.String("attribute_not_exists(id)"), types.ReturnValuesOnConditionCheckFailureAllOld
			})
		},
		"a refused condition": func(ctx context.Context, s side) (any, error) {
			return s.put(ctx, row("all", "1"), func(in *dynamodb.PutItemInput) { in.ConditionExpression = aws.String("attribute_not_exists(id)") })
		},
		"a deletion": func(ctx context.Context, s side) (any, error) {
			out, err := s.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: s.table, Key: attributes{"id": text("minus"), "line": numeral("1")}, ReturnValues: types.ReturnValueAllOld})
			return out.Attributes, err
		},
	} {
		agree(t, sides, what, request)
	}
	agreeOnRows(t, sides, "after the puts")
}

// DynamoDB Local refuses every word that dynamotest reserves.
func TestDynamotestReservedWords(t *testing.T) {
	t.Parallel()
	sides := newSides(t)
	source, err := os.ReadFile(filepath.Join(engine.Root(), "dynamostore", "dynamotest", "expression.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(source), "reservedWords = strings.Fields(`")
	list, _, _ = strings.Cut(list, "`")
	words := strings.Fields(list)
	if len(words) != 573 { // as many as in the developer guide
		t.Fatalf("%d reserved words", len(words))
	}
	words = slices.DeleteFunc(words, func(word string) bool {
		return word == "CONVERT" || word == "SIZE" // which DynamoDB Local accepts
	})
	for _, word := range append(words, "amount", "order_id", "pk", "wid", "exp", "available", "quantity") {
		expression := "attribute_exists(" + word + ")"
		agree(t, sides, expression, func(ctx context.Context, s side) (any, error) {
			out, err := s.Scan(ctx, &dynamodb.ScanInput{TableName: s.table, FilterExpression: &expression})
			if err != nil {
				return nil, err
			}
			return out.Count, nil
		})
	}
}

// dynamotest applies and cancels transactions as DynamoDB Local does.
func TestDynamotestTransactions(t *testing.T) {
	t.Parallel()
	sides := newSides(t)
	agree(t, sides, "a row", func(ctx context.Context, s side) (any, error) { return s.put(ctx, row("row", "1")) })
	key := func(id string) attributes { return attributes{"id": text(id), "line": numeral("1")} }
	put := func(id, condition string) types.TransactWriteItem {
		it := types.TransactWriteItem{Put: &types.Put{Item: key(id), ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld}}
		if condition != "" {
			it.Put.ConditionExpression = &condition
		}
		return it
	}
	update := func(id, expression, condition string) types.TransactWriteItem {
		it := types.TransactWriteItem{Update: &types.Update{Key: key(id), UpdateExpression: &expression, ExpressionAttributeValues: used(operands, expression, condition)}}
		if condition != "" {
			it.Update.ConditionExpression = &condition
		}
		return it
	}
	remove := func(id, condition string) types.TransactWriteItem {
		return types.TransactWriteItem{Delete: &types.Delete{Key: key(id), ConditionExpression: &condition}}
	}
	check := func(id, condition string) types.TransactWriteItem {
		return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{Key: key(id), ConditionExpression: &condition}}
	}
	for i, items := range [][]types.TransactWriteItem{
		{put("a", ""), update("row", "SET n = n - :one", "n > :one"), check("none", "attribute_not_exists(id)")},
		{put("a", "attribute_not_exists(id)"), put("b", "")},
		{put("b", ""), remove("row", "attribute_not_exists(id)"), check("none", "attribute_exists(id)")},
		{put("b", ""), put("b", "")}, {put("b", ""), remove("b", "attribute_exists(id)")},
		{put("b", ""), update("row", "SET s = s + :one", "")}, {put("b", ""), update("row", "SET x.y = :one", "")}, {put("b", ""), update("row", "SET absent = absent + :one", "")},
		{put("b", ""), update("row", "SET status = :one", "")}, {put("b", ""), update("row", "SET x = :undefined", "")}, {put("b", ""), check("row", "n = ")}, {put("b", ""), {}},
		{{Put: &types.Put{Item: key("b")}, Delete: &types.Delete{Key: key("c")}}}, {put("b", ""), {Put: &types.Put{Item: attributes{"id": text("c")}}}},
		{put("b", ""), {Delete: &types.Delete{Key: attributes{"id": text("c")}}}}, {}, {remove("row", "attribute_exists(id)"), put("c", "")},
	} {
		for j := range items { // both sides have the same table name
			it := &items[j]
			if it.Put != nil {
				it.Put.TableName = sides[0].table
			}
			if it.Update != nil {
				it.Update.TableName = sides[0].table
			}
			if it.Delete != nil {
				it.Delete.TableName = sides[0].table
			}
			if it.ConditionCheck != nil {
				it.ConditionCheck.TableName = sides[0].table
			}
		}
		for range 2 { // the second time with the token of the first
			agree(t, sides, fmt.Sprint("transaction ", i), func(ctx context.Context, s side) (any, error) {
				_, err := s.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: items, ClientRequestToken: aws.String(fmt.Sprint("token-", i))})
				return nil, err
			})
			agreeOnRows(t, sides, fmt.Sprint("after transaction ", i))
		}
	}
	agree(t, sides, "the token of another transaction", func(ctx context.Context, s side) (any, error) {
		other := put("d", "")
		other.Put.TableName = s.table
		_, err := s.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{other}, ClientRequestToken: aws.String("token-0")})
		return nil, err
	})
	agree(t, sides, "a missing table", func(ctx context.Context, s side) (any, error) {
		other := put("d", "")
		other.Put.TableName = aws.String("missing")
		_, err := s.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{other}})
		return nil, err
	})
}

// dynamotest lists and batches rows as DynamoDB Local does.
func TestDynamotestLists(t *testing.T) {
	t.Parallel()
	sides := newSides(t)
	for i := range 12 {
		it := row(fmt.Sprint("id-", i%2), fmt.Sprint(i-5))
		it["customer"] = text(fmt.Sprint("c-", i%3))
		if i == 11 {
			delete(it, "customer")
		}
		agree(t, sides, "put", func(ctx context.Context, s side) (any, error) { return s.put(ctx, it) })
	}
	values := attributes{":id": text("id-1"), ":c": text("c-1"), ":one": numeral("1"), ":two": numeral("2"), ":n": numeral("10.5"), ":h": text("h")}
	for _, index := range []string{"", "by-customer", "all", "none"} {
		for _, condition := range []string{
			"id = :id", "customer = :c", "id = :id AND line > :one", "id = :id AND line BETWEEN :one AND :two", "customer = :c AND line < :two", "line = :one AND id = :id", "(id = :id) AND (line >= :one)",
			"id = :id AND n = :n", "id > :id", "id = :id OR line = :one", "line = :one", "id = :id AND line <> :one", "id = :id AND begins_with(id, :h)", "id = :id AND line IN (:one)", "NOT id = :id", "id = :id AND line = :one AND line = :two", "", "id", "status = :id",
		} {
			for _, optFn := range []func(*dynamodb.QueryInput){
				func(*dynamodb.QueryInput) {},
				func(in *dynamodb.QueryInput) { in.ScanIndexForward, in.Limit = aws.Bool(false), aws.Int32(2) },
				func(in *dynamodb.QueryInput) {
					in.FilterExpression, in.ProjectionExpression = aws.String("attribute_exists(line)"), aws.String("id, line")
				},
				func(in *dynamodb.QueryInput) {
					in.FilterExpression, in.ProjectionExpression = aws.String("attribute_exists(n)"), aws.String("id, line")
				},
				func(in *dynamodb.QueryInput) { in.ConsistentRead, in.Limit = aws.Bool(true), aws.Int32(3) },
				func(in *dynamodb.QueryInput) { in.ProjectionExpression = aws.String("n") },
			} {
				in := dynamodb.QueryInput{KeyConditionExpression: &condition, ExpressionAttributeValues: used(values, condition)}
				if index != "" {
					in.IndexName = &index
				}
				optFn(&in)
				agree(t, sides, fmt.Sprintf("query %s where %s, %+v", index, condition, in), func(ctx context.Context, s side) (any, error) {
					var pages []string
					in := in
					for {
						in.TableName = s.table
						out, err := s.Query(ctx, &in)
						if err != nil {
							return nil, err
						}
						pages = append(pages, fmt.Sprint(shown(out.Items), out.Count, out.ScannedCount, shown(out.LastEvaluatedKey)))
						if in.ExclusiveStartKey = out.LastEvaluatedKey; in.ExclusiveStartKey == nil {
							return pages, nil
						}
					}
				})
			}
		}
	}
	key := func(id, line string) attributes { return attributes{"id": text(id), "line": numeral(line)} }
	for what, keys := range map[string][]attributes{
		"keys": {key("id-1", "0"), key("id-0", "1"), key("none", "1")}, "the same key twice": {key("id-1", "0"), key("id-1", "0")}, "no keys": {}, "101 keys": slices.Repeat([]attributes{key("id-1", "0")}, 101),
	} {
		agree(t, sides, what, func(ctx context.Context, s side) (any, error) {
			out, err := s.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{*s.table: {Keys: keys, ProjectionExpression: aws.String("id, line")}}})
			if err != nil {
				return nil, err
			}
			rows := []string{}
			for _, it := range out.Responses[*s.table] {
				rows = append(rows, shown(it))
			}
			slices.Sort(rows)
			return rows, nil
		})
	}
	put := types.WriteRequest{PutRequest: &types.PutRequest{Item: key("new", "1")}}
	remove := types.WriteRequest{DeleteRequest: &types.DeleteRequest{Key: key("id-1", "0")}}
	for what, requests := range map[string][]types.WriteRequest{
		"a put and a deletion": {put, remove}, "two writes of one row": {put, put}, "nothing": {}, "an empty request": {{}}, "26 writes": slices.Repeat([]types.WriteRequest{put}, 26), "an invalid key": {{PutRequest: &types.PutRequest{Item: attributes{"id": text("x")}}}},
	} {
		agree(t, sides, what, func(ctx context.Context, s side) (any, error) {
			out, err := s.BatchWriteItem(ctx, &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{*s.table: requests}})
			if err != nil {
				return nil, err
			}
			return len(out.UnprocessedItems), nil
		})
		agreeOnRows(t, sides, what)
	}
}
