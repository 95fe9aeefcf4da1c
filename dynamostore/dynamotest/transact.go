// SPDX-License-Identifier: Apache-2.0

package dynamotest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

// The limits of a transaction (API reference, TransactWriteItems).
const (
	maxTransactItems = 100
	tokenLasts       = 10 * time.Minute
)

// TransactWriteItems writes all items or none. A request with the token of an
// earlier one is not applied again for ten minutes.
func (db *DB) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	return call(ctx, &db.mu, "TransactWriteItems", in, "TransactItems ClientRequestToken", func(in *dynamodb.TransactWriteItemsInput) *dynamodb.TransactWriteItemsOutput {
		token := aws.ToString(in.ClientRequestToken)
		if n := len(in.TransactItems); n < 1 || n > maxTransactItems || len(token) > 36 {
			refuse("%d items with a token of %d bytes: want 1 to %d items and at most 36 bytes", n, len(token), maxTransactItems)
		}
		writes := make([]*write, len(in.TransactItems))
		for i := range in.TransactItems {
			writes[i] = writeOf(&in.TransactItems[i])
		}
		if earlier, ok := db.tokens[token]; ok && token != "" && time.Since(earlier.applied) < tokenLasts {
			if !reflect.DeepEqual(earlier.items, in.TransactItems) {
				panic(refusal{&types.IdempotentParameterMismatchException{}})
			}
			return &dynamodb.TransactWriteItemsOutput{}
		}
		db.apply(writes)
		db.tokens[token] = transaction{slices.Clone(in.TransactItems), time.Now()}
		return &dynamodb.TransactWriteItemsOutput{}
	})
}

// writeOf compiles an item of a transaction.
func writeOf(it *types.TransactWriteItem) *write {
	w, n := &write{}, 0
	const known = "TableName ConditionExpression ExpressionAttributeNames ExpressionAttributeValues ReturnValuesOnConditionCheckFailure "
	if p := it.Put; p != nil {
		n++
		onlyKnown("Put", p, known+"Item")
		w.table, w.put, w.onFailure = p.TableName, p.Item, p.ReturnValuesOnConditionCheckFailure
		w.compile(p.ConditionExpression, nil, p.ExpressionAttributeNames, p.ExpressionAttributeValues)
	}
	if u := it.Update; u != nil {
		n++
		onlyKnown("Update", u, known+"Key UpdateExpression")
		if u.UpdateExpression == nil {
			refuse("missing UpdateExpression")
		}
		w.table, w.key, w.onFailure = u.TableName, u.Key, u.ReturnValuesOnConditionCheckFailure
		w.compile(u.ConditionExpression, &u.UpdateExpression, u.ExpressionAttributeNames, u.ExpressionAttributeValues)
	}
	if d := it.Delete; d != nil {
		n++
		onlyKnown("Delete", d, known+"Key")
		w.table, w.key, w.remove, w.onFailure = d.TableName, d.Key, true, d.ReturnValuesOnConditionCheckFailure
		w.compile(d.ConditionExpression, nil, d.ExpressionAttributeNames, d.ExpressionAttributeValues)
	}
	if c := it.ConditionCheck; c != nil {
		n++
		onlyKnown("ConditionCheck", c, known+"Key")
		if c.ConditionExpression == nil {
			refuse("missing ConditionExpression")
		}
		w.table, w.key, w.onFailure = c.TableName, c.Key, c.ReturnValuesOnConditionCheckFailure
		w.compile(c.ConditionExpression, nil, c.ExpressionAttributeNames, c.ExpressionAttributeValues)
	}
	if n != 1 {
		refuse("TransactItems can only contain one of Check, Put, Update or Delete")
	}
	return w
}

// apply executes all writes, or refuses them with a reason for each.
func (db *DB) apply(writes []*write) {
	tables := make([]*table, len(writes))
	for i, w := range writes {
		tables[i] = db.table(w.table)
		if tables[i].description.MultiRegionConsistency == types.MultiRegionConsistencyStrong {
			refuse("Transactions are not supported in a global table with strong consistency")
		}
	}
	keys, items := make([]string, len(writes)), make([]item, len(writes))
	reasons, codes, seen := make([]types.CancellationReason, len(writes)), make([]string, len(writes)), map[string]bool{}
	for i, w := range writes {
		at := w.key
		if at == nil {
			at = w.put
		}
		if id := *w.table + "\x00" + encodeKey(tables[i].keys.of(at)...); seen[id] {
			refuse("Transaction request cannot include multiple operations on one item")
		} else {
			seen[id] = true
		}
	}
	cancelled := false
	for i, w := range writes {
		codes[i] = "None"
		err := catch(func() { keys[i], _, items[i] = db.prepare(tables[i], w) })
		if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
			codes[i] = "ConditionalCheckFailed"
			reasons[i] = types.CancellationReason{Message: failed.Message, Item: failed.Item}
		} else if api, ok := errors.AsType[smithy.APIError](err); ok {
			codes[i] = "ValidationError"
			reasons[i] = types.CancellationReason{Message: aws.String(api.ErrorMessage())}
		} else if err != nil {
			panic(refusal{err}) // of a feature that this package lacks
		}
		reasons[i].Code = &codes[i]
		cancelled = cancelled || err != nil
	}
	if cancelled {
		panic(refusal{&types.TransactionCanceledException{
			Message:             aws.String(fmt.Sprintf("Transaction cancelled, please refer cancellation reasons for specific reasons [%s]", strings.Join(codes, ", "))),
			CancellationReasons: reasons,
		}})
	}
	for i := range writes {
		tables[i].store(keys[i], items[i])
	}
}

// The limits of batches (API reference, BatchWriteItem and BatchGetItem).
const (
	maxBatchPuts  = 25
	maxBatchGets  = 100
	maxBatchBytes = 16 << 20
)

// BatchGetItem reads items of one or more tables, and returns them in the reverse
// order. Items beyond 16 MB are unprocessed.
func (db *DB) BatchGetItem(ctx context.Context, in *dynamodb.BatchGetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
	return call(ctx, &db.mu, "BatchGetItem", in, "RequestItems", func(in *dynamodb.BatchGetItemInput) *dynamodb.BatchGetItemOutput {
		out := &dynamodb.BatchGetItemOutput{Responses: map[string][]item{}, UnprocessedKeys: map[string]types.KeysAndAttributes{}}
		count, read := 0, 0
		for name, request := range in.RequestItems {
			onlyKnown("KeysAndAttributes", &request, "Keys ConsistentRead ProjectionExpression ExpressionAttributeNames")
			e := newExpressions(request.ExpressionAttributeNames, nil)
			names := e.projection(request.ProjectionExpression)
			e.done()
			t, seen := db.table(&name), map[string]bool{}
			for _, key := range slices.Backward(request.Keys) {
				id := t.key(key, true)
				if seen[id] {
					refuse("Provided list of item keys contains duplicates")
				}
				seen[id] = true
				count++
				it := t.items[id]
				if read += sizeOf(it); read > maxBatchBytes {
					rest := request
					rest.Keys = append(out.UnprocessedKeys[name].Keys, key)
					out.UnprocessedKeys[name] = rest
				} else if it != nil {
					out.Responses[name] = append(out.Responses[name], cloneItem(project(it, names)))
				}
			}
		}
		if count < 1 || count > maxBatchGets {
			refuse("%d keys: want 1 to %d", count, maxBatchGets)
		}
		return out
	})
}

// BatchWriteItem puts and deletes items of one or more tables.
func (db *DB) BatchWriteItem(ctx context.Context, in *dynamodb.BatchWriteItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.BatchWriteItemOutput, error) {
	return call(ctx, &db.mu, "BatchWriteItem", in, "RequestItems", func(in *dynamodb.BatchWriteItemInput) *dynamodb.BatchWriteItemOutput {
		var writes []func()
		sent := 0
		for name, requests := range in.RequestItems {
			t, seen := db.table(&name), map[string]bool{}
			for _, r := range requests {
				w := write{condition: func(item) bool { return true }}
				switch {
				case (r.PutRequest == nil) == (r.DeleteRequest == nil):
					refuse("Supplied WriteRequest is empty or has two requests")
				case r.PutRequest != nil:
					w.put = r.PutRequest.Item
				default:
					w.key, w.remove = r.DeleteRequest.Key, true
				}
				key, _, now := db.prepare(t, &w)
				if seen[key] {
					refuse("Provided list of item keys contains duplicates")
				}
				seen[key] = true
				sent += sizeOf(now)
				writes = append(writes, func() { t.store(key, now) })
			}
		}
		if n := len(writes); n < 1 || n > maxBatchPuts || sent > maxBatchBytes {
			refuse("%d requests with %d bytes: want 1 to %d requests with at most %d bytes", n, sent, maxBatchPuts, maxBatchBytes)
		}
		for _, w := range writes {
			w()
		}
		return &dynamodb.BatchWriteItemOutput{}
	})
}
