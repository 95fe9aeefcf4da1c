// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit/engine"
)

// account is a domain item with a balance. It is in the store's own table, but
// any table would do.
type account struct {
	db *database
	id string
}

func newAccount(t *testing.T, db *database, balance int) account {
	t.Helper()
	a := account{db, engine.Domain + rand.Text()}
	it := a.key()
	it["balance"] = number(balance)
	_, err := db.client().PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &db.table, Item: it})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (a account) key() map[string]types.AttributeValue {
	id := &types.AttributeValueMemberS{Value: a.id}
	if a.db.shared {
		return map[string]types.AttributeValue{"PK": id, "SK": &types.AttributeValueMemberS{Value: "ACCOUNT"}}
	}
	return map[string]types.AttributeValue{"pk": id}
}

func number(n int) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.Itoa(n)}
}

// withdraw takes an amount if the balance suffices.
func (a account) withdraw(amount int) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{
		TableName:                           &a.db.table,
		Key:                                 a.key(),
		UpdateExpression:                    aws.String("SET balance = balance - :amount ADD withdrawals :one"),
		ConditionExpression:                 aws.String("balance >= :amount"),
		ExpressionAttributeValues:           map[string]types.AttributeValue{":amount": number(amount), ":one": number(1)},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
}

func (a account) read(t *testing.T) (balance, withdrawals int) {
	t.Helper()
	out, err := a.db.client().GetItem(t.Context(), &dynamodb.GetItemInput{
		TableName: &a.db.table, Key: a.key(), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		t.Fatal(err)
	}
	n := func(name string) int {
		v, _ := out.Item[name].(*types.AttributeValueMemberN)
		if v == nil {
			return 0
		}
		i, err := strconv.Atoi(v.Value)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	return n("balance"), n("withdrawals")
}

// F45, G05: a withdrawal and the outcome of its request are one transaction: if
// repeated, it withdraws nothing more.
func TestCommit(t *testing.T) {
	t.Parallel()
	tables(t, func(t *testing.T, db *database) {
		a := newAccount(t, db, 100)
		g := guardOver(t, db.store(t))
		key := newKey()
		for i := range 3 {
			out, err := idempotent.DoOutcome(t.Context(), g, key, func(ctx context.Context) (string, error) {
				return "took 30", dynamostore.Commit(ctx, "took 30", a.withdraw(30))
			})
			if err != nil || out.Value != "took 30" || !out.Stored || out.Replayed != (i > 0) {
				t.Errorf("request %d: %+v, %v", i, out, err)
			}
		}
		if balance, n := a.read(t); balance != 70 || n != 1 {
			t.Errorf("the balance is %d after %d withdrawals", balance, n)
		}
	})
}

// FM27: a lost lease and a failed condition of the domain have different errors,
// and neither writes anything.
func TestLostLeaseOrDomainRule(t *testing.T) {
	t.Parallel()
	tables(t, func(t *testing.T, db *database) {
		t.Run("domain rule", func(t *testing.T) {
			a, b := newAccount(t, db, 100), newAccount(t, db, 10)
			g := guardOver(t, db.store(t))
			key := newKey()
			_, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
				err := dynamostore.Commit(ctx, "ok", a.withdraw(30), b.withdraw(30))
				var refused *dynamostore.ConditionError
				if !errors.As(err, &refused) || refused.Index != 1 || !errors.Is(err, idempotent.ErrNotApplied) {
					t.Errorf("got error %v, want one about item 1", err)
				} else if v, ok := refused.Item["balance"].(*types.AttributeValueMemberN); !ok || v.Value != "10" {
					t.Errorf("the error shows the item %v", refused.Item)
				}
				return "", idempotent.NotExecuted(err)
			})
			if !errors.As(err, new(*dynamostore.ConditionError)) {
				t.Errorf("the caller gets %v", err)
			}
			if balance, _ := a.read(t); balance != 100 {
				t.Errorf("the balance is %d: half of a transaction was applied", balance)
			}
			r, err := db.store(t).Get(t.Context(), key.RecordID())
			if err != nil || r.State != driver.StateRetryable {
				t.Errorf("the record is %v, %v", r, err)
			}
		})
		t.Run("lost lease", func(t *testing.T) {
			a := newAccount(t, db, 100)
			clock := &idempotenttest.Clock{}
			g := guardOver(t, db.store(t), func(o *idempotent.Options) { o.Now, o.Recovery = clock.Now, idempotent.Rerun })
			key := newKey()
			out, err := idempotent.DoOutcome(clock.Invocation(t.Context(), time.Minute), g, key, func(ctx context.Context) (string, error) {
				clock.Advance(time.Hour)
				if _, err := idempotent.Do(clock.Invocation(t.Context(), time.Minute), g, key, func(ctx context.Context) (string, error) {
					return "second", dynamostore.Commit(ctx, "second", a.withdraw(20))
				}); err != nil {
					t.Error(err)
				}
				// The domain's condition would fail as well: the lost lease is
				// reported.
				err := dynamostore.Commit(ctx, "first", a.withdraw(1000))
				if !errors.As(err, new(*idempotent.SettledError)) || errors.As(err, new(*dynamostore.ConditionError)) {
					t.Errorf("the late Commit returned %v", err)
				}
				return "", err
			})
			if err != nil || out.Value != "second" || !out.Replayed {
				t.Errorf("the late caller gets %+v, %v", out, err)
			}
			if balance, n := a.read(t); balance != 80 || n != 1 {
				t.Errorf("the balance is %d after %d withdrawals", balance, n)
			}
		})
	})
}

var errLost = errors.New("the reply was lost")

// FM25, FM26: a transaction is applied and its reply lost. If the same run sends it
// again, it has another token, which DynamoDB, as after ten minutes, does not know; the
// condition fails on what is recorded. A later run finds the step before it sends
// anything. The domain write happens once.
func TestLostReplyOfATransaction(t *testing.T) {
	t.Parallel()
	tables(t, func(t *testing.T, db *database) {
		for name, row := range map[string]struct {
			inStep      bool
			tries, runs int
			sent        int
		}{
			"Commit":                           {tries: 1, runs: 1, sent: 1},
			"Commit, again":                    {tries: 2, runs: 1, sent: 2},
			"CommitStep, again":                {inStep: true, tries: 2, runs: 1, sent: 2},
			"CommitStep, again in a later run": {inStep: true, tries: 1, runs: 2, sent: 1},
		} {
			t.Run(name, func(t *testing.T) {
				a, key := newAccount(t, db, 100), newKey()
				var tokens []string
				g := guardOver(t, db.storeOver(t, dynamotest.Intercept(db.client(), func(ctx context.Context, c *dynamotest.Call) {
					c.Do(ctx)
					if in, ok := c.In.(*dynamodb.TransactWriteItemsInput); ok {
						if tokens = append(tokens, *in.ClientRequestToken); len(tokens) == 1 && c.Err == nil {
							c.Err = errLost
						}
					}
				})), func(o *idempotent.Options) {
					if row.inStep {
						o.Recovery, o.Steps = idempotent.Resume, []string{"take"}
					}
				})
				var errs []error
				take := func(ctx context.Context) (v string, err error) {
					if v = "took 30"; row.inStep {
						v, err = dynamostore.CommitStep(ctx, "take", v, a.withdraw(30))
					} else {
						err = dynamostore.Commit(ctx, v, a.withdraw(30))
					}
					errs = append(errs, err)
					return v, err
				}
				for run := range row.runs {
					v, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (v string, err error) {
						for n := 0; n < row.tries && (n == 0 || err != nil); n++ {
							v, err = take(ctx)
						}
						return v, err
					})
					if run == row.runs-1 && (v != "took 30" || err != nil) {
						t.Errorf("the caller gets %q, %v", v, err)
					}
				}
				if !errors.Is(errs[0], errLost) || len(errs) != row.tries*row.runs || len(errs) > 1 && errs[1] != nil {
					t.Errorf("the tries returned %v, want the lost reply and then nil", errs)
				}
				if len(tokens) != row.sent || len(slices.Compact(slices.Sorted(slices.Values(tokens)))) != row.sent {
					t.Errorf("the tokens of the transactions are %q, want %d different ones", tokens, row.sent)
				}
				if balance, n := a.read(t); balance != 70 || n != 1 {
					t.Errorf("the balance is %d after %d withdrawals", balance, n)
				}
			})
		}
	})
}

// G05: a thousand commits to one account, some sent twice, with injected
// conflicts: the sum is right and no request is served twice.
func TestCommitStorm(t *testing.T) {
	t.Parallel()
	const requests, workers, enough = 1000, 8, 700
	a := newAccount(t, &local, enough)
	var calls, injected atomic.Int32 // every tenth transaction gets a conflict instead of being sent
	client := dynamotest.Intercept(local.client(), func(ctx context.Context, c *dynamotest.Call) {
		if c.Op != "TransactWriteItems" || calls.Add(1)%10 != 0 {
			c.Do(ctx)
			return
		}
		injected.Add(1)
		c.Err = &types.TransactionCanceledException{CancellationReasons: []types.CancellationReason{
			{Code: aws.String("None")}, {Code: aws.String("TransactionConflict")},
		}}
	})
	store, err := dynamostore.New(client, local.table)
	if err != nil {
		t.Fatal(err)
	}
	g := guardOver(t, store)
	var served, refused, replayed atomic.Int32
	work := make(chan int)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range work {
				key := newKey()
				for range 1 + i%2 {
					out, err := idempotent.DoOutcome(t.Context(), g, key, func(ctx context.Context) (string, error) {
						err := dynamostore.Commit(ctx, "served", a.withdraw(1))
						if errors.As(err, new(*dynamostore.ConditionError)) {
							return "", idempotent.Final("empty", "nothing is left")
						}
						return "served", err
					})
					var final *idempotent.FinalError
					switch {
					case out.Replayed:
						replayed.Add(1)
					case errors.As(err, &final):
						refused.Add(1)
					case err != nil:
						t.Error(err)
					default:
						served.Add(1)
					}
				}
			}
		})
	}
	for i := range requests {
		work <- i
	}
	close(work)
	wg.Wait()
	balance, n := a.read(t)
	t.Logf("%d served, %d refused, %d replayed; %d conflicts injected", served.Load(), refused.Load(), replayed.Load(), injected.Load())
	if balance != 0 || n != enough || served.Load() != enough || refused.Load() != requests-enough || replayed.Load() != requests/2 {
		t.Errorf("the balance is %d after %d withdrawals", balance, n)
	}
	if injected.Load() < requests/20 {
		t.Errorf("only %d conflicts were injected", injected.Load())
	}
}

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
