// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

type attributes = map[string]types.AttributeValue

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func numeral(s string) types.AttributeValue { return &types.AttributeValueMemberN{Value: s} }

// Every kind of refusal of a transaction by DynamoDB Local: the errors that it
// matches, and that its text names the item, its table and the reason, but no
// value.
func TestRefusedTransactions(t *testing.T) {
	t.Parallel()
	orders := *newSides(t)[0].table
	// The random name of a table contains four digits by chance, but not twelve.
	const digits = "424242424242"
	const secret = "SECRET-" + digits
	large := attributes{"id": text("large"), "line": numeral("1")}
	stored := attributes{"id": large["id"], "line": large["line"], "note": text(secret), "filler": text(strings.Repeat("x", 300<<10))}
	if _, err := local.client().PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &orders, Item: stored}); err != nil {
		t.Fatal(err)
	}
	put := func(it attributes) types.TransactWriteItem {
		return types.TransactWriteItem{Put: &types.Put{TableName: &orders, Item: it}}
	}
	with := func(name string, value types.AttributeValue) types.TransactWriteItem {
		return put(attributes{"id": text("with-" + secret), "line": numeral("1"), name: value})
	}
	update := func(expression string, values attributes) types.TransactWriteItem {
		return types.TransactWriteItem{Update: &types.Update{TableName: &orders, Key: large, UpdateExpression: &expression, ExpressionAttributeValues: values}}
	}
	value := attributes{":v": text(secret)}
	good := with("fine", text("fine"))
	for name, c := range map[string]struct {
		items     []types.TransactWriteItem
		says      []string
		condition bool
		doubt     bool
	}{
		"a condition": {
			items:     []types.TransactWriteItem{good, {ConditionCheck: &types.ConditionCheck{TableName: &orders, Key: large, ConditionExpression: aws.String("note = :v"), ExpressionAttributeValues: attributes{":v": text("other")}}}},
			says:      []string{"item 1", orders, "condition"},
			condition: true,
		},
		"a missing table":         {items: []types.TransactWriteItem{good, {Delete: &types.Delete{TableName: aws.String("missing"), Key: large}}}, says: []string{"item 1", `"missing"`, "ResourceNotFoundException", "is missing"}},
		"an invalid table name":   {items: []types.TransactWriteItem{{Delete: &types.Delete{TableName: aws.String("a b"), Key: large}}}, says: []string{"item 0", `"a b"`, "ValidationException"}},
		"the same item twice":     {items: []types.TransactWriteItem{good, {Delete: &types.Delete{TableName: &orders, Key: large}}, update("REMOVE x", nil)}, says: []string{"item 1 and item 2 are the same item", orders, "multiple operations"}},
		"two puts of one item":    {items: []types.TransactWriteItem{good, with("b", text("b"))}, says: []string{"item 0, item 1", orders, "multiple operations"}},
		"an oversized put":        {items: []types.TransactWriteItem{good, with("x", text(strings.Repeat("x", 400<<10)))}, says: []string{"item 1", orders, "DynamoDB holds at most 409600"}},
		"an oversized update":     {items: []types.TransactWriteItem{update("SET x = :v", attributes{":v": text(strings.Repeat("x", 200<<10))})}, says: []string{"item 0", orders, "size"}},
		"an oversized value":      {items: []types.TransactWriteItem{update("SET x = :v", attributes{":v": text(strings.Repeat("x", 401<<10))})}, says: []string{"item 0", orders, "size"}},
		"a part of the key":       {items: []types.TransactWriteItem{good, put(attributes{"id": text(secret)})}, says: []string{"item 1", orders, "ValidationE"}},
		"a key of another type":   {items: []types.TransactWriteItem{put(attributes{"id": numeral(digits), "line": numeral("1")})}, says: []string{"item 0", orders, "ValidationE"}},
		"an empty key":            {items: []types.TransactWriteItem{put(attributes{"id": text(""), "line": numeral("1")})}, says: []string{"item 0", orders, "ValidationE"}},
		"a key of an update":      {items: []types.TransactWriteItem{{Update: &types.Update{TableName: &orders, Key: attributes{"id": text(secret)}, UpdateExpression: aws.String("REMOVE x")}}}, says: []string{"item 0", orders, "ValidationE"}},
		"a long key":              {items: []types.TransactWriteItem{put(attributes{"id": text(strings.Repeat(secret, 500)), "line": numeral("1")})}, says: []string{"item 0", orders, "ValidationE"}},
		"an index key":            {items: []types.TransactWriteItem{with("customer", numeral(digits))}, says: []string{"item 0", orders, "ValidationE"}},
		"an empty index key":      {items: []types.TransactWriteItem{with("customer", text(""))}, says: []string{"item 0", orders, "ValidationE"}},
		"an update of a key":      {items: []types.TransactWriteItem{update("SET id = :v", value)}, says: []string{"item 0", orders, "ValidationE"}},
		"an invalid number":       {items: []types.TransactWriteItem{with("n", numeral(secret))}, says: []string{"item 0", orders, "ValidationException"}},
		"a number of 46 digits":   {items: []types.TransactWriteItem{with("n", numeral(strings.Repeat("42", 23)))}, says: []string{"item 0", orders, "38 digits"}},
		"a number too large":      {items: []types.TransactWriteItem{with("n", numeral("1e999"))}, says: []string{"item 0", orders, "Number overflow"}},
		"an empty set":            {items: []types.TransactWriteItem{with("s", &types.AttributeValueMemberSS{})}, says: []string{"item 0", orders, "may not be empty"}},
		"duplicates in a set":     {items: []types.TransactWriteItem{with("s", &types.AttributeValueMemberSS{Value: []string{secret, secret}})}, says: []string{"item 0", orders, "duplicates"}},
		"too deep":                {items: []types.TransactWriteItem{with("d", nested(40))}, says: []string{"item 0", orders, "Nesting"}},
		"the syntax":              {items: []types.TransactWriteItem{update("SETT x = :v", value)}, says: []string{"item 0", orders, "Syntax error"}},
		"a reserved word":         {items: []types.TransactWriteItem{update("SET status = :v", value)}, says: []string{"item 0", orders, "reserved keyword"}},
		"an unused value":         {items: []types.TransactWriteItem{update("REMOVE x", value)}, says: []string{"item 0", orders, "ValidationException"}},
		"an undefined value":      {items: []types.TransactWriteItem{update("SET x = :w", value)}, says: []string{"item 0", orders, "not defined"}},
		"a sum with a text":       {items: []types.TransactWriteItem{good, update("SET note = note + :v", attributes{":v": numeral(digits)})}, says: []string{"item 1", orders, "ValidationE"}},
		"a missing path":          {items: []types.TransactWriteItem{good, update("SET a.b.c = :v", value)}, says: []string{"item 1", orders, "ValidationE"}},
		"a missing operand":       {items: []types.TransactWriteItem{good, update("SET x = nothing + :v", attributes{":v": numeral(digits)})}, says: []string{"item 1", orders, "ValidationE"}},
		"no operation":            {items: []types.TransactWriteItem{{}}, says: []string{"item 0", "ValidationException"}},
		"an item without a table": {items: []types.TransactWriteItem{{Delete: &types.Delete{Key: large}}}, says: []string{"TransactItems[1]", "TableName"}},
		"too many items":          {items: slices.Repeat([]types.TransactWriteItem{good}, 100), says: []string{"100 items", "DynamoDB accepts 99"}},
		"an error of the engine":  {items: []types.TransactWriteItem{{Put: &types.Put{TableName: &orders, Item: large, ReturnValuesOnConditionCheckFailure: "SOME"}}}, says: []string{"not known whether", "InternalFailure"}, doubt: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := guardOver(t, local.store(t), func(o *idempotent.Options) { o.Recovery = idempotent.Rerun })
			key := newKey()
			var got error
			_, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
				got = dynamostore.Commit(ctx, "done", c.items...)
				return "", got
			})
			if err == nil || got == nil {
				t.Fatalf("Do returned %v, Commit %v", err, got)
			}
			for claim, want := range map[error]bool{idempotent.ErrNotApplied: !c.doubt, driver.ErrTooLarge: false} {
				if errors.Is(got, claim) != want {
					t.Errorf("%v matches %v: %v, want %v", got, claim, !want, want)
				}
			}
			if is := errors.As(got, new(*dynamostore.ConditionError)); is != c.condition {
				t.Errorf("%v is a *ConditionError: %t, want %t", got, is, c.condition)
			}
			for _, part := range c.says {
				if !strings.Contains(got.Error(), part) {
					t.Errorf("the error does not contain %q:\n%v", part, got)
				}
			}
			for _, value := range []string{"SECRET", digits} {
				if strings.Contains(got.Error(), value) {
					t.Errorf("the error contains a value: %v", got)
				}
			}
			// Nothing was written, so the next request runs.
			if v, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
				return "done", dynamostore.Commit(ctx, "done", types.TransactWriteItem{Put: &types.Put{
					TableName: &orders, Item: attributes{"id": text(rand.Text()), "line": numeral("1")},
				}})
			}); v != "done" || err != nil {
				t.Errorf("the next request: %q, %v", v, err)
			}
		})
	}
	t.Run("the record's own item", func(t *testing.T) {
		key := newKey()
		_, err := idempotent.Do(t.Context(), guardOver(t, local.store(t)), key, func(ctx context.Context) (string, error) {
			err := dynamostore.Commit(ctx, "done", types.TransactWriteItem{Delete: &types.Delete{TableName: &local.table, Key: attributes{"pk": text(string(key.RecordID()))}}})
			if !errors.Is(err, idempotent.ErrNotApplied) || !strings.Contains(err.Error(), "the record and item 0 are the same item") {
				t.Errorf("got %v", err)
			}
			return "", idempotent.NotExecuted(err)
		})
		if err == nil {
			t.Error("Commit succeeded")
		}
	})
	t.Run("the store's table is another", func(t *testing.T) {
		// The record cannot be in a table with another key: every call returns
		// such an error.
		s, err := dynamostore.New(dynamotest.Intercept(local.client(), func(ctx context.Context, c *dynamotest.Call) {
			if in, ok := c.In.(*dynamodb.TransactWriteItemsInput); ok {
				in.TransactItems[0].Put.TableName = &orders
			}
			c.Do(ctx)
		}), local.table)
		if err != nil {
			t.Fatal(err)
		}
		_, err = idempotent.Do(t.Context(), guardOver(t, s), newKey(), func(ctx context.Context) (string, error) {
			err := dynamostore.Commit(ctx, "done", with("b", text("b")))
			if !errors.Is(err, idempotent.ErrNotApplied) || !strings.Contains(err.Error(), "the record") || !strings.Contains(err.Error(), "ValidationE") {
				t.Errorf("got %v", err)
			}
			return "", idempotent.NotExecuted(err)
		})
		if err == nil {
			t.Error("Commit succeeded")
		}
	})
}

// nested returns a value in depth maps.
func nested(depth int) types.AttributeValue {
	v := text("x")
	for range depth {
		v = &types.AttributeValueMemberM{Value: attributes{"d": v}}
	}
	return v
}
