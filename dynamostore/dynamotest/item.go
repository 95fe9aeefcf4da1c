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

// GetItem reads an item. Every read is consistent.
func (db *DB) GetItem(ctx context.Context, in *dynamodb.GetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	return call(ctx, &db.mu, "GetItem", in, "TableName Key ConsistentRead ProjectionExpression ExpressionAttributeNames", func(in *dynamodb.GetItemInput) *dynamodb.GetItemOutput {
		e := newExpressions(in.ExpressionAttributeNames, nil)
		names := e.projection(in.ProjectionExpression)
		e.done()
		t := db.table(in.TableName)
		it := t.items[t.key(in.Key, true)]
		if it == nil {
			return &dynamodb.GetItemOutput{}
		}
		return &dynamodb.GetItemOutput{Item: cloneItem(project(it, names))}
	})
}

// PutItem writes an item, if the condition is true of the current one.
func (db *DB) PutItem(ctx context.Context, in *dynamodb.PutItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	return call(ctx, &db.mu, "PutItem", in, "TableName Item ConditionExpression ExpressionAttributeNames ExpressionAttributeValues ReturnValues ReturnValuesOnConditionCheckFailure", func(in *dynamodb.PutItemInput) *dynamodb.PutItemOutput {
		wantReturn(in.ReturnValues, types.ReturnValueAllOld)
		w := write{table: in.TableName, put: in.Item, onFailure: in.ReturnValuesOnConditionCheckFailure}
		w.compile(in.ConditionExpression, nil, in.ExpressionAttributeNames, in.ExpressionAttributeValues)
		old, _ := db.one(&w)
		out := &dynamodb.PutItemOutput{}
		if in.ReturnValues == types.ReturnValueAllOld {
			out.Attributes = cloneItem(old)
		}
		return out
	})
}

// UpdateItem changes an item, or creates it, if the condition is true of the current
// one.
func (db *DB) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	return call(ctx, &db.mu, "UpdateItem", in, "TableName Key UpdateExpression ConditionExpression ExpressionAttributeNames ExpressionAttributeValues ReturnValues ReturnValuesOnConditionCheckFailure", func(in *dynamodb.UpdateItemInput) *dynamodb.UpdateItemOutput {
		wantReturn(in.ReturnValues, types.ReturnValueAllOld, types.ReturnValueAllNew, types.ReturnValueUpdatedNew)
		w := write{table: in.TableName, key: in.Key, onFailure: in.ReturnValuesOnConditionCheckFailure}
		w.compile(in.ConditionExpression, &in.UpdateExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues)
		old, now := db.one(&w)
		out := &dynamodb.UpdateItemOutput{}
		switch in.ReturnValues {
		case types.ReturnValueAllOld:
			out.Attributes = cloneItem(old)
		case types.ReturnValueAllNew:
			out.Attributes = cloneItem(now)
		case types.ReturnValueUpdatedNew:
			out.Attributes = cloneItem(project(now, w.update.touched()))
		}
		return out
	})
}

// DeleteItem deletes an item, if the condition is true of it.
func (db *DB) DeleteItem(ctx context.Context, in *dynamodb.DeleteItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error) {
	return call(ctx, &db.mu, "DeleteItem", in, "TableName Key ConditionExpression ExpressionAttributeNames ExpressionAttributeValues ReturnConsumedCapacity ReturnValues ReturnValuesOnConditionCheckFailure", func(in *dynamodb.DeleteItemInput) *dynamodb.DeleteItemOutput {
		wantReturn(in.ReturnValues, types.ReturnValueAllOld)
		w := write{table: in.TableName, key: in.Key, remove: true, onFailure: in.ReturnValuesOnConditionCheckFailure}
		w.compile(in.ConditionExpression, nil, in.ExpressionAttributeNames, in.ExpressionAttributeValues)
		old, _ := db.one(&w)
		out := &dynamodb.DeleteItemOutput{}
		if in.ReturnValues == types.ReturnValueAllOld {
			out.Attributes = cloneItem(old)
		}
		if in.ReturnConsumedCapacity != "" && in.ReturnConsumedCapacity != types.ReturnConsumedCapacityNone {
			out.ConsumedCapacity = &types.ConsumedCapacity{TableName: in.TableName, CapacityUnits: aws.Float64(db.table(in.TableName).deletionUnits(old))}
		}
		return out
	})
}

// deletionUnits returns how many write units the deletion of an item takes: one for
// each KB of it, in the table and in each index that has it.
func (t *table) deletionUnits(it item) float64 {
	units := max(1, (sizeOf(it)+1023)/1024)
	for _, i := range t.indexes {
		if i.of(it) == nil {
			continue
		}
		units += (sizeOf(project(it, i.projected)) + 1023) / 1024
	}
	return float64(units)
}

func wantReturn(got types.ReturnValue, known ...types.ReturnValue) {
	if got != "" && got != types.ReturnValueNone && !slices.Contains(known, got) {
		panic(unsupported("ReturnValues " + string(got)))
	}
}

// write is a put, an update, a deletion or a check of one item.
type write struct {
	table     *string
	put       item // of a put
	key       item // of the others
	remove    bool
	update    *update
	condition condition
	entered   []string // by the condition, see expressions
	onFailure types.ReturnValuesOnConditionCheckFailure
}

// compile compiles the expressions of w. It refuses what is invalid for every item.
func (w *write) compile(condition *string, change **string, names map[string]string, values item) {
	e := newExpressions(names, values)
	w.condition = e.condition("ConditionExpression", condition)
	w.entered = e.entered
	if change != nil {
		w.update = e.update(*change)
	}
	e.done()
}

// one executes a single write and returns the item before and after it.
func (db *DB) one(w *write) (old, now item) {
	t := db.table(w.table)
	key, old, now := db.prepare(t, w)
	t.store(key, now)
	return old, now
}

func (t *table) store(key string, now item) {
	if now == nil {
		delete(t.items, key)
	} else {
		t.items[key] = now
	}
}

// prepare returns the item before and after w, without writing it.
func (db *DB) prepare(t *table, w *write) (key string, old, now item) {
	t.checkPaths(w.entered)
	if w.put == nil {
		key = t.key(w.key, true)
	} else {
		now = cloneItem(w.put)
		key = t.key(now, false)
		t.check(now)
	}
	old = t.items[key]
	if !w.condition(old) {
		failed := &types.ConditionalCheckFailedException{Message: aws.String("The conditional request failed")}
		if w.onFailure == types.ReturnValuesOnConditionCheckFailureAllOld {
			failed.Item = cloneItem(old)
		}
		panic(refusal{failed})
	}
	switch {
	case w.update != nil:
		t.checkPaths(w.update.entered)
		for _, a := range w.update.actions {
			if slices.ContainsFunc(t.keys, func(k keyAttribute) bool { return k.name == a.path[0].name }) {
				refuse("One or more parameter values were invalid: Cannot update attribute %s. This attribute is part of the key", a.path[0].name)
			}
		}
		if now = old; now == nil {
			now = cloneItem(w.key)
		}
		now = w.update.apply(now)
		t.check(now)
	case now == nil && !w.remove: // a check
		now = old
	}
	return key, old, now
}
