// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/kit/engine"
)

// fate is what becomes of a transaction.
type fate string

const (
	applied fate = "applied"
	lost    fate = "applied, its reply lost"
	never   fate = "never applied, no reply"
	refused fate = "refused"
)

// A handler commits an order, gets an error, and commits again, with the same or
// with another order and result. The order that exists, the answer to the first
// caller and the answers to all retries agree; Commit says that nothing was
// written only if no order exists or can still come to exist.
func TestSecondCommit(t *testing.T) {
	t.Parallel()
	memory := database{name: "memory", table: local.table}
	for _, side := range []struct {
		*database
		client dynamostore.Client
	}{{&memory, dynamotest.New(memory.table)}, {&local, local.client()}} {
		for _, first := range []fate{lost, never, refused} {
			for _, second := range []fate{applied, lost, refused} {
				for _, sameResult := range []bool{true, false} {
					for _, sameWrites := range []bool{true, false} {
						row := secondCommit{client: side.client, first: first, second: second, results: [2]string{"order 1", "order 2"}}
						if sameResult {
							row.results[1] = row.results[0]
						}
						row.orders = [2]string{engine.Domain + rand.Text(), engine.Domain + rand.Text()}
						if sameWrites {
							row.orders[1] = row.orders[0]
						}
						t.Run(fmt.Sprintf("%s/first %s/second %s/same result %t/same writes %t", side.name, first, second, sameResult, sameWrites), func(t *testing.T) {
							t.Parallel()
							row.run(t, side.database)
						})
					}
				}
			}
		}
	}
}

type secondCommit struct {
	client        dynamostore.Client
	first, second fate
	results       [2]string
	orders        [2]string
}

// want is what has to be seen.
type want struct {
	said   [2]string // by the two calls of Commit
	caller string
	retry  string
	order  string // that exists
}

const (
	inDoubt    = "may have been applied"
	notApplied = "not applied"
	settled    = "settled with another result"
	unresolved = "unresolved"
)

func (row *secondCommit) wants() want {
	w := want{said: [2]string{inDoubt, "ok"}, caller: row.results[1], order: row.orders[1]}
	switch {
	case row.first == lost && row.second == applied: // the second finds the first, so nothing of the second is written
		if row.results[1] != row.results[0] {
			w.said[1] = settled
		}
		w.caller, w.order = row.results[0], row.orders[0]
	case row.first == lost:
		w.said[1], w.caller, w.order = inDoubt, row.results[0], row.orders[0]
	case row.second == lost: // the outcome's write finds the second
		w.said[1] = inDoubt
	case row.second == refused && row.first == never:
		w.said[1], w.caller, w.order = inDoubt, inDoubt, ""
	case row.second == refused:
		w.said[1], w.caller, w.order = notApplied, notApplied, ""
	}
	if row.first == refused {
		w.said[0] = notApplied
	}
	if w.retry = w.caller; w.order == "" {
		w.retry = unresolved
	}
	return w
}

func (row *secondCommit) run(t *testing.T, db *database) {
	fates := []fate{row.first, row.second} // of the transactions
	g := guardOver(t, db.storeOver(t, dynamotest.Intercept(row.client, func(ctx context.Context, c *dynamotest.Call) {
		next := applied
		if c.Op == "TransactWriteItems" {
			next, fates = fates[0], fates[1:]
		}
		if next != never {
			c.Do(ctx)
		}
		if next == never || next == lost {
			c.Err = errLost
		}
	})))
	put := func(i int, f fate) (items []types.TransactWriteItem) {
		order := map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: row.orders[i]}}
		items = append(items, types.TransactWriteItem{Put: &types.Put{TableName: &db.table, Item: order}})
		if f == refused && i == 0 {
			items[0].Put.ConditionExpression = aws.String("attribute_exists(pk)")
		} else if f == refused { // whatever the record says
			items[0].Put.TableName = aws.String("missing")
		}
		return items
	}
	key := newKey()
	var got want
	value, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
		err := dynamostore.Commit(ctx, row.results[0], put(0, row.first)...)
		got.said[0] = said(err)
		err = dynamostore.Commit(ctx, row.results[1], put(1, row.second)...)
		got.said[1] = said(err)
		if errors.As(err, new(*idempotent.SettledError)) {
			err = nil // and the handler goes on as if its own order existed
		}
		return row.results[1], err
	})
	if got.caller = value; err != nil {
		got.caller = said(err)
	}
	if got.retry, err = idempotent.Do(t.Context(), g, key, func(context.Context) (string, error) {
		return "the handler ran again", nil
	}); err != nil {
		got.retry = said(err)
	}
	for _, id := range row.orders {
		out, err := row.client.GetItem(t.Context(), &dynamodb.GetItemInput{
			TableName: &db.table, Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: id}}, ConsistentRead: aws.Bool(true),
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Item) > 0 && got.order != id {
			got.order += id
		}
	}
	if want := row.wants(); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	t.Logf("first Commit: %s; second: %s; caller: %s; retry: %s; orders: %d", got.said[0], got.said[1], got.caller, got.retry, strings.Count(got.order, engine.Domain))
}

// said is what the error of a Commit, or of a request, says.
func said(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, idempotent.ErrNotApplied):
		return notApplied
	case errors.As(err, new(*idempotent.SettledError)):
		return settled
	case errors.As(err, new(*idempotent.StoreError)):
		if errors.As(err, new(*dynamostore.ConditionError)) {
			return "a condition failed"
		}
		return inDoubt
	case errors.As(err, new(*idempotent.UnresolvedError)):
		return unresolved
	}
	return err.Error()
}
