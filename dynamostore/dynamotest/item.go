// SPDX-License-Identifier: Apache-2.0

package dynamotest

import (
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

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
