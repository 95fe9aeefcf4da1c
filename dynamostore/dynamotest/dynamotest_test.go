// SPDX-License-Identifier: Apache-2.0

package dynamotest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/once-lambda/once/dynamostore/dynamotest"
)

// The comparison with DynamoDB Local is in tests/engines/integration. These tests need no
// engine; their expectations come from the developer guide.

type item = map[string]types.AttributeValue

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func num(s string) types.AttributeValue  { return &types.AttributeValueMemberN{Value: s} }
func key(pk string) item                 { return item{"pk": text(pk)} }
func code(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return fmt.Sprint(err)
}

// row has a value of each type that the expressions below use.
func row() item {
	return item{
		"pk": text("row"), "n": num("10"), "s": text("abc"), "status": text("open"), "b": &types.AttributeValueMemberB{Value: []byte{1, 2}},
		"ss": &types.AttributeValueMemberSS{Value: []string{"a", "b"}}, "ns": &types.AttributeValueMemberNS{Value: []string{"1", "2"}}, "bs": &types.AttributeValueMemberBS{Value: [][]byte{{1}, {2}}},
		"l": &types.AttributeValueMemberL{Value: []types.AttributeValue{num("1"), text("x")}},
		"m": &types.AttributeValueMemberM{Value: item{"a": num("1")}}, "yes": &types.AttributeValueMemberBOOL{Value: true}, "nul": &types.AttributeValueMemberNULL{Value: true},
	}
}

var operands = item{
	":v": num("10.0"), ":one": num("1"), ":s": text("ab"), ":a": text("a"), ":S": text("S"), ":yes": &types.AttributeValueMemberBOOL{Value: true},
	":ss": &types.AttributeValueMemberSS{Value: []string{"b", "c"}}, ":all": &types.AttributeValueMemberSS{Value: []string{"b", "a"}},
	":l": &types.AttributeValueMemberL{Value: []types.AttributeValue{text("y")}}, ":big": num(strings.Repeat("9", 38)), ":small": num("0.1"),
	":face": text("😀"), ":two": num("2"), ":b1": &types.AttributeValueMemberB{Value: []byte{1}}, ":b2": &types.AttributeValueMemberB{Value: []byte{2}}, ":b3": &types.AttributeValueMemberB{Value: []byte{3}},
	":L": text("L"), ":M": text("M"), ":SS": text("SS"), ":NS": text("NS"), ":BS": text("BS"), ":B": text("B"), ":N": text("N"), ":NULL": text("NULL"), ":null": &types.AttributeValueMemberNULL{Value: true}, ":other": &types.AttributeValueMemberM{Value: item{"b": num("1")}}, ":wide": &types.AttributeValueMemberM{Value: item{"a": num("1"), "b": num("1")}},
	":x": text("x"), ":BOOL": text("BOOL"), ":ns": &types.AttributeValueMemberNS{Value: []string{"2", "3"}}, ":m": &types.AttributeValueMemberM{Value: item{"a": num("1.0")}}, ":list": &types.AttributeValueMemberL{Value: []types.AttributeValue{num("1"), text("x")}},
}

var names = map[string]string{"#status": "status"}

// mentioned returns the placeholders in an expression.
func mentioned[V any](all map[string]V, expression string) map[string]V {
	some := maps.Clone(all)
	words := strings.FieldsFunc(expression, func(r rune) bool { return strings.ContainsRune(" (),=<>+-.", r) })
	maps.DeleteFunc(some, func(name string, _ V) bool { return !slices.Contains(words, name) })
	if len(some) == 0 {
		return nil
	}
	return some
}

func newDB(t *testing.T) *dynamotest.DB {
	t.Helper()
	db := dynamotest.New("rows")
	if _, err := db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String("rows"), Item: row()}); err != nil {
		t.Fatal(err)
	}
	return db
}

func TestConditions(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	for condition, want := range map[string]string{
		"attribute_exists(pk) AND n = :v": "true", "attribute_not_exists(pk) OR n <= :v": "true", "n < :v": "false", "n >= :v": "true", "n > :v": "false", "n <> :v": "false", "NOT n = :v": "false",
		"n IN (s, :v)": "true", "n IN (b, s) OR n < :v": "false", "NOT (n = :v AND attribute_exists(absent))": "true",
		"absent = :v": "false", "absent <= :v": "false", "absent <> :v": "true", "s = :v": "false", "b = :v": "false", "s < :v": "false",
		"n = :v OR n < :v AND attribute_exists(absent)": "true", "(n = :v OR n < :v) AND attribute_exists(absent)": "false", "NOT attribute_exists(absent) AND n = :v": "true",
		"n BETWEEN :one AND :v": "true", "n BETWEEN :one AND :small": "ValidationException", "begins_with(s, :s)": "true", "begins_with(s, :S)": "false", "begins_with(n, :s)": "false", "begins_with(s, :v)": "ValidationException",
		"contains(s, :s)": "true", "contains(ss, :a)": "true", "contains(ns, :one)": "true", "contains(ns, :v)": "false", "contains(ns, :a)": "false", "contains(l, :one)": "true", "contains(l, :a)": "false", "attribute_type(s, :S)": "true", "attribute_type(n, :S)": "false", "attribute_type(n, :a)": "ValidationException",
		"size(s) > :one": "true", "size(l) > :v": "false", "size(n) > :one": "false", "m.a = :one": "true", "l[0] = :one": "true", "l[5] = :one": "false", "m[0] = :one": "false", "n.a = :one": "false", "yes = :yes": "true", ":v = :v": "true", "(n) = (:v)": "true", "NOT (n) IN (:v)": "false", "((n)) = :v": "ValidationException", "n = ((:v))": "ValidationException", "n = size": "ValidationException", "size(:v) > :one": "ValidationException", "((n) = :v) OR (s) > :one": "true", "size(:face) = :two": "true", "begins_with(s, size(l))": "ValidationException", "contains(:s, :s)": "true", "contains(s, s)": "ValidationException",
		"pk.x = :v": "ValidationException", "n = :v OR attribute_exists(pk[0])": "ValidationException", "attribute_exists(rk.x)": "ValidationException", "ss = :all": "true", "ss = :ss": "false", "#status = :s": "false",
		"status = :s": "ValidationException", "STATUS = :s": "ValidationException", "n = :none": "ValidationException", "#none = :v": "ValidationException", "n = n": "ValidationException", "yes < :yes": "ValidationException", "((n = :v))": "ValidationException", "(n = :v) AND (s = :s)": "false",
		"attribute_type(l, :L)": "true", "attribute_type(m, :M)": "true", "attribute_type(ss, :SS)": "true", "attribute_type(ns, :NS)": "true", "attribute_type(bs, :BS)": "true", "attribute_type(b, :B)": "true", "attribute_type(n, :N)": "true", "attribute_type(nul, :NULL)": "true", "nul = :null": "true", "m = :other": "false", "m = :wide": "false", "((n = :v)": "ValidationException", "(n": "ValidationException", "()": "ValidationException",
		"begins_with(b, :b1)": "true", "begins_with(b, :b2)": "false", "begins_with(b, :s)": "false", "begins_with(s, :b1)": "false", "begins_with(l, :s)": "false",
		"contains(b, :b2)": "true", "contains(b, :b3)": "false", "contains(b, :s)": "false", "contains(s, :x)": "false", "contains(s, :b1)": "false", "contains(bs, :b2)": "true", "contains(bs, :b3)": "false", "contains(n, :one)": "false", "contains(m, :one)": "false", "contains(l, :x)": "true",
		"size(b) = :two": "true", "size(l) = :two": "true", "size(m) = :one": "true", "size(ss) = :two": "true", "size(ns) = :two": "true", "size(bs) = :two": "true", "size(yes) = :one": "false", "size(absent) = :one": "false", "size(s) = :two": "false",
		"attribute_type(yes, :BOOL)": "true", "attribute_type(s, :v)": "ValidationException", "m = :m": "true", "l = :list": "true", "l = :l": "false", "ns = :ns": "false", "ns = :ss": "false", "yes = :one": "false", "m = :list": "false", "b > :b1": "true", "b < :b1": "false", "s > :s": "true", "s > :b1": "false", "s = s2": "false",
		":yes BETWEEN :one AND :v": "ValidationException", "n BETWEEN :one AND n": "ValidationException", "n BETWEEN n AND :v": "ValidationException", "n BETWEEN :one AND :one": "false", "n BETWEEN :s AND :v": "ValidationException", "n BETWEEN m.a AND :v": "true", "n BETWEEN :v AND m.a": "false", "n BETWEEN m.a AND m.b": "false", "n BETWEEN :one": "ValidationException", "n BETWEEN :one OR :v": "ValidationException",
		"n <= :one": "false", "n <= :v": "true", "m.a <= :v": "true", ":yes < n": "ValidationException", "n LIKE :v": "ValidationException", "n IN (n)": "ValidationException", "n IN :v": "ValidationException", "n IN (:one": "ValidationException",
		"n IN (" + strings.Repeat(":one, ", 99) + ":v)": "true", "n IN (" + strings.Repeat(":one, ", 100) + ":v)": "ValidationException",
		"l[1] = :x": "true", "l[2] = :x": "false", "l.a = :one": "false", "m.a[0] = :one": "false", "l[0].a = :one": "false", "m.b = :one": "false", "5 = :v": "ValidationException", "n = 5": "ValidationException", "l[0 = :one": "ValidationException", "m. = :one": "ValidationException",
		"attribute_exists(n": "ValidationException", "attribute_exists n)": "ValidationException", "n = :v AND": "ValidationException", "(n = :v) OR ((s = :s))": "ValidationException", "((n = :v) AND (s = :s)) OR n = :v": "true", "(n = :v": "ValidationException", "not attribute_exists(absent) and n in (:v)": "true", "n = :v s": "ValidationException", "attribute_exists(absent) OR NOT n = :one": "true",
		"n = :v)": "ValidationException", "n =": "ValidationException", "": "ValidationException", "n ! :v": "ValidationException", "n": "ValidationException", "exists(n)": "ValidationException", "attribute_exists(:v)": "ValidationException", "attribute_exists(n, s)": "ValidationException", "l[x] = :v": "ValidationException",
	} {
		out, err := db.Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String("rows"), FilterExpression: &condition, ExpressionAttributeNames: mentioned(names, condition), ExpressionAttributeValues: mentioned(operands, condition)})
		got := code(err)
		if err == nil {
			got = fmt.Sprint(out.Count == 1)
		}
		if got != want {
			t.Errorf("%s: got %s, %v, want %s", condition, got, err, want)
		}
	}
	for what, in := range map[string]*dynamodb.ScanInput{
		"an unused value":    {FilterExpression: aws.String("attribute_exists(n)"), ExpressionAttributeValues: item{":v": num("1")}},
		"an unused name":     {FilterExpression: aws.String("attribute_exists(n)"), ExpressionAttributeNames: names},
		"values for nothing": {ExpressionAttributeValues: item{":v": num("1")}},
	} {
		in.TableName = aws.String("rows")
		if _, err := db.Scan(t.Context(), in); code(err) != "ValidationException" {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestUpdates(t *testing.T) {
	t.Parallel()
	const refused = "ValidationException"
	for expression, want := range map[string]string{
		"SET n = n + :one": "11", "SET n = n - :small": "9.9", "SET n = :v": "10", "SET n = if_not_exists(absent, :one)": "1", "SET n = if_not_exists(n, :one) + :one": "11", "ADD n :one": "11", "REMOVE s SET n = m.a": "1",
		"set n = :one": "1", "SET n = n": "10", "SET n = n - :v": "0", "SET n = m.a": "1", "SET n = n REMOVE s": "10", "ADD n :small": "10.1", "SET n = if_not_exists(n, :s)": "10", "SET n = :two, s = n": "2", "ADD n :one, hits :one": "11", "DELETE ss :ss, absent :ss": "10", "SET m.a = n REMOVE m.b": "10",
		"ADD absent :s": refused, "DELETE absent :one": refused, "SET n = if_not_exists(rk.x, :one)": refused,
		"ADD ns :ss": refused, "ADD l :l": refused, "ADD yes :one": refused, "DELETE ss :one": refused, "DELETE ss :ns": refused, "SET m.b.c = :s": refused, "SET n.x = :one": refused, "SET n = if_not_exists(:one, n)": refused, "SET n = foo(n, :one)": refused, "SET n = :one +": refused, "SET n :one": refused, "ADD n": refused, "SET l = list_append(:one, l)": refused, "SET l = list_append(l, :one)": refused, "SET l = list_append(l, s)": refused, "SET l = list_append(s, l)": refused, "SET l = list_append(l :l)": refused, "SET l = list_append(l, :l": refused, "SET l = list_append l, :l)": refused, "SET n = :s - :one": refused, "SET n = :one - :s": refused, "SET n = n + s": refused, "SET n = :one SET s = :s": refused, "SET m.a = :one, m = :m": refused, "SET rk.x = :one": refused, "": refused, "SET": refused,
		"SET n = s + :one": refused, "SET n = absent": refused, "SET n = absent + :one": refused, "SET n = n + :s": refused, "SET n = n + :big SET s = :s": refused, "SET n = :big + :small": refused,
		"ADD n :s": refused, "ADD s :one": refused, "DELETE n :ss": refused, "SET x.y = :one": refused, "SET pk = :s": refused, "SET n = :one, n = :v": refused, "REMOVE m, m.a": refused, "SET status = :s": refused, "SET n = size(s)": refused, "SET n": refused, "PUT n = :one": refused, "SET n = list_append(n, :l)": refused, "ADD n n": refused, "SET n = if_not_exists(n, absent)": refused, "SET n = if_not_exists(n, n)": refused, "SET n = list_append(l, :l) + :one": refused, "SET n = pk.x": refused, "REMOVE pk.x": refused,
		"SET l[0] = :one": "dynamotest does not implement an UpdateExpression with a list element", "SET n = (n + :one)": "dynamotest does not implement parentheses in an UpdateExpression", "ADD m.a :one": "dynamotest does not implement ADD with a nested path",
	} {
		db := newDB(t)
		out, err := db.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{TableName: aws.String("rows"), Key: key("row"), UpdateExpression: &expression, ExpressionAttributeValues: mentioned(operands, expression), ReturnValues: types.ReturnValueAllNew})
		got := code(err)
		if err == nil {
			got = out.Attributes["n"].(*types.AttributeValueMemberN).Value
		}
		if got != want && !(err != nil && strings.HasSuffix(got, want)) {
			t.Errorf("%s: got %s, %v, want %s", expression, got, err, want)
		}
	}
	db := newDB(t)
	expression := "SET m.b = :s, l = list_append(l, :l) ADD ss :ss DELETE ns :none"
	out, err := db.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
		TableName: aws.String("rows"), Key: key("row"), UpdateExpression: &expression, ReturnValues: types.ReturnValueAllNew,
		ExpressionAttributeValues: item{":s": text("x"), ":l": operands[":l"], ":ss": operands[":ss"], ":none": &types.AttributeValueMemberNS{Value: []string{"1", "2"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if m := out.Attributes["m"].(*types.AttributeValueMemberM).Value; len(m) != 2 || len(out.Attributes["l"].(*types.AttributeValueMemberL).Value) != 3 || !slices.Equal(out.Attributes["ss"].(*types.AttributeValueMemberSS).Value, []string{"a", "b", "c"}) || out.Attributes["ns"] != nil {
		t.Errorf("got %v", out.Attributes)
	}
}

// A transaction writes all of its items or none, and its token protects it from
// being applied again for ten minutes.
func TestTransactions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := newDB(t)
		table := aws.String("rows")
		spend := types.TransactWriteItem{Update: &types.Update{TableName: table, Key: key("row"), UpdateExpression: aws.String("SET n = n - :n"), ConditionExpression: aws.String("n >= :n"), ExpressionAttributeValues: item{":n": num("6")}, ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld}}
		send := func(token string, items ...types.TransactWriteItem) error {
			_, err := db.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{TransactItems: items, ClientRequestToken: &token})
			return err
		}
		order := types.TransactWriteItem{Put: &types.Put{TableName: table, Item: key("order")}}
		for range 2 {
			if err := send("a", order, spend); err != nil {
				t.Fatal(err)
			}
		}
		if err := send("a", order); code(err) != "IdempotentParameterMismatchException" {
			t.Errorf("another request with the token: %v", err)
		}
		time.Sleep(10 * time.Minute)
		other := types.TransactWriteItem{Delete: &types.Delete{TableName: table, Key: key("order")}}
		err := send("a", other, spend)
		cancelled, ok := errors.AsType[*types.TransactionCanceledException](err)
		if !ok || *cancelled.CancellationReasons[0].Code != "None" || *cancelled.CancellationReasons[1].Code != "ConditionalCheckFailed" || cancelled.CancellationReasons[1].Item["n"].(*types.AttributeValueMemberN).Value != "4" {
			t.Errorf("after ten minutes: %v", err)
		}
		if out, err := db.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: table, Key: key("order")}); err != nil || out.Item == nil {
			t.Errorf("a part of a refused transaction was written: %v", err)
		}
	})
}

// A request beyond the documented operations and parameters is refused.
func TestRefuses(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	table := aws.String("rows")
	for what, err := range map[string]error{
		"Expected":                    second(db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: table, Item: row(), Expected: map[string]types.ExpectedAttributeValue{"n": {}}})),
		"ReturnItemCollectionMetrics": second(db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: table, Item: row(), ReturnItemCollectionMetrics: "SIZE"})),
		"nested path":                 second(db.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: table, Key: key("row"), ProjectionExpression: aws.String("m.a")})),
		"Select":                      second(db.Scan(t.Context(), &dynamodb.ScanInput{TableName: table, Select: "ALL_ATTRIBUTES"})),
		"ReturnValues UPDATED_OLD":    second(db.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{TableName: table, Key: key("row"), ReturnValues: "UPDATED_OLD"})),
		"LocalSecondaryIndexes":       second(db.CreateTable(t.Context(), &dynamodb.CreateTableInput{TableName: aws.String("other"), LocalSecondaryIndexes: []types.LocalSecondaryIndex{{}}})),
	} {
		if err == nil || !strings.Contains(err.Error(), "dynamotest does not implement") || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := db.GetItem(ended, &dynamodb.GetItemInput{TableName: table, Key: key("row")}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled context: %v", err)
	}
	if _, err := db.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String("none"), Key: key("row")}); code(err) != "ResourceNotFoundException" {
		t.Errorf("a missing table: %v", err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("New accepted an invalid name")
			}
		}()
		dynamotest.New("a b")
	}()
}

func second[T any](_ T, err error) error { return err }

// Rows that are read or given are not shared with the database, and the calls may
// run at the same time.
func TestSharesNothing(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	arn := "arn:aws:dynamodb:us-east-1:123456789012:table/rows"
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				given := row()
				if _, err := db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &arn, Item: given}); err != nil {
					t.Error(err)
				}
				given["b"].(*types.AttributeValueMemberB).Value[0] = 9
				got, err := db.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String("rows"), Key: key("row")})
				if err != nil || got.Item["b"].(*types.AttributeValueMemberB).Value[0] != 1 {
					t.Errorf("got %v, %v", got, err)
				}
				got.Item["m"].(*types.AttributeValueMemberM).Value["a"] = num("2")
				if _, err := db.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{TableName: aws.String("rows"), Key: key("count"), UpdateExpression: aws.String("ADD hits :one"), ExpressionAttributeValues: item{":one": num("1")}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got, err := db.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String("rows"), Key: key("count")})
	if err != nil || got.Item["hits"].(*types.AttributeValueMemberN).Value != "160" {
		t.Errorf("got %v, %v", got.Item, err)
	}
	row, err := db.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String("rows"), Key: key("row")})
	if err != nil || row.Item["m"].(*types.AttributeValueMemberM).Value["a"].(*types.AttributeValueMemberN).Value != "1" {
		t.Errorf("got %v, %v", row.Item, err)
	}
}

// A page ends at the limit or at 1 MB, a batch of reads at 16 MB, and the segments
// of a scan are disjoint.
func TestPages(t *testing.T) {
	t.Parallel()
	db := dynamotest.New("rows")
	large := text(strings.Repeat("x", 399<<10))
	var keys []item
	for i := range 50 {
		it := key(fmt.Sprint("row-", i))
		keys = append(keys, key(fmt.Sprint("row-", i)))
		it["x"] = large
		if _, err := db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String("rows"), Item: it}); err != nil {
			t.Fatal(err)
		}
	}
	seen, pages, units := map[string]int{}, 0, 0.
	for segment := range int32(3) {
		before := len(seen)
		in := &dynamodb.ScanInput{TableName: aws.String("rows"), Segment: &segment, TotalSegments: aws.Int32(3), ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal}
		for {
			out, err := db.Scan(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			if len(out.Items) > 3 {
				t.Fatalf("%d items of 400 KB on a page", len(out.Items))
			}
			for _, it := range out.Items {
				seen[it["pk"].(*types.AttributeValueMemberS).Value]++
			}
			pages, units = pages+1, units+*out.ConsumedCapacity.CapacityUnits
			if in.ExclusiveStartKey = out.LastEvaluatedKey; in.ExclusiveStartKey == nil {
				break
			}
		}
		if len(seen) == before {
			t.Errorf("segment %d has no rows", segment)
		}
	}
	if len(seen) != 50 || slices.Max(slices.Collect(maps.Values(seen))) != 1 || pages < 17 || units < 2490 || units > 2560 {
		t.Errorf("%d rows on %d pages for %.1f units", len(seen), pages, units)
	}
	out, err := db.BatchGetItem(t.Context(), &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{"rows": {Keys: keys}}})
	if err != nil || len(out.Responses["rows"]) != 41 || len(out.UnprocessedKeys["rows"].Keys) != 9 {
		t.Errorf("%d rows and %d unprocessed keys, %v; want 41 rows, which have less than 16 MB", len(out.Responses["rows"]), len(out.UnprocessedKeys["rows"].Keys), err)
	}
}

// A query reads one partition of a table or an index in the order of its sort key,
// and refuses other conditions.
func TestQuery(t *testing.T) {
	t.Parallel()
	db := dynamotest.New()
	schema := func(hash, sort string) []types.KeySchemaElement {
		return []types.KeySchemaElement{{AttributeName: &hash, KeyType: types.KeyTypeHash}, {AttributeName: &sort, KeyType: types.KeyTypeRange}}
	}
	table := aws.String("lines")
	if _, err := db.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: table, KeySchema: schema("id", "line"),
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("id"), AttributeType: "S"}, {AttributeName: aws.String("line"), AttributeType: "N"}, {AttributeName: aws.String("sku"), AttributeType: "S"},
		},
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{{IndexName: aws.String("by-sku"), KeySchema: schema("sku", "line"), Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly}}},
	}); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"10", "9", "-1", "100"} {
		for _, id := range []string{"a", "b"} {
			if _, err := db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: table, Item: item{"id": text(id), "line": num(line), "sku": text("cup"), "x": text(id)}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	values := item{":id": text("a"), ":sku": text("cup"), ":nine": num("9"), ":ten": num("10"), ":empty": text("")}
	const refused = "ValidationException"
	for _, c := range []struct {
		condition, index string
		optFn            func(*dynamodb.QueryInput)
		want             string // the lines of every page, or an error
	}{
		{"id = :id", "", nil, "-1 9 10 100"},
		{"id = :id AND line > :nine", "", nil, "10 100"},
		{"id = :id AND line BETWEEN :nine AND :ten", "", nil, "9 10"},
		{"id = :id", "", func(in *dynamodb.QueryInput) { in.ScanIndexForward, in.Limit = aws.Bool(false), aws.Int32(3) }, "100 10 9 | -1"},
		{"sku = :sku AND line < :ten", "by-sku", func(in *dynamodb.QueryInput) { in.Limit = aws.Int32(2) }, "-1 -1 | 9 9 |"},
		{"sku = :sku", "by-sku", func(in *dynamodb.QueryInput) { in.ProjectionExpression = aws.String("x") }, refused},
		{"sku = :sku", "by-sku", func(in *dynamodb.QueryInput) { in.FilterExpression = aws.String("attribute_exists(x)") }, refused},
		{"sku = :sku", "by-sku", func(in *dynamodb.QueryInput) { in.ConsistentRead = aws.Bool(true) }, refused},
		{"id = :id", "", func(in *dynamodb.QueryInput) { in.FilterExpression = aws.String("attribute_exists(line)") }, refused},
		{"id = :id", "", func(in *dynamodb.QueryInput) { in.Limit = aws.Int32(0) }, refused},
		{":id = id AND (line) > :nine", "", nil, "10 100"}, {":nine < line AND id = :id", "", nil, "10 100"},
		{"line = size(line) AND id = :id", "", nil, refused}, {":nine BETWEEN line AND :ten AND id = :id", "", nil, refused}, {"id = line", "", nil, refused}, {":id = :id AND id = :id", "", nil, refused}, {"id = :nine", "", nil, refused}, {"id = :empty", "", nil, refused}, {"id.x = :id", "", nil, refused}, {"begins_with(line, :id) AND id = :id", "", nil, refused}, {"NOT id = :id", "", nil, refused}, {"id = :id )", "", nil, refused}, {"line <> :nine AND id = :id", "", nil, refused}, {"id = line AND id = :id", "", nil, refused}, {"line = :id AND id = :id", "", nil, refused}, {"attribute_exists(id)", "", nil, refused},
		{"id = :id", "", func(in *dynamodb.QueryInput) { in.FilterExpression = aws.String("attribute_not_exists(sku.x)") }, refused},
		{"id = :id", "none", nil, refused}, {"line = :nine", "", nil, refused}, {"id > :id", "", nil, refused}, {"id = :id OR line = :nine", "", nil, refused}, {"id = :id AND sku = :sku", "", nil, refused}, {"id = :id AND line > :nine AND line < :ten", "", nil, refused},
	} {
		in := &dynamodb.QueryInput{TableName: table, KeyConditionExpression: &c.condition, ExpressionAttributeValues: mentioned(values, c.condition)}
		if c.index != "" {
			in.IndexName = &c.index
		}
		if c.optFn != nil {
			c.optFn(in)
		}
		var got []string
		for {
			out, err := db.Query(t.Context(), in)
			if err != nil {
				got = []string{code(err)}
				break
			}
			for _, it := range out.Items {
				got = append(got, it["line"].(*types.AttributeValueMemberN).Value)
			}
			if in.ExclusiveStartKey = out.LastEvaluatedKey; in.ExclusiveStartKey == nil {
				break
			}
			got = append(got, "|")
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s: got %s, want %s", c.condition, got, c.want)
		}
	}
}
