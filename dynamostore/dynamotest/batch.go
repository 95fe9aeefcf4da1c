// SPDX-License-Identifier: Apache-2.0

package dynamotest

import (
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

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
