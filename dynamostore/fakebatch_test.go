package dynamostore_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// The limits of the API reference, BatchWriteItem and BatchGetItem.
const (
	maxBatchPuts  = 25
	maxBatchGets  = 100
	maxBatchBytes = 16 << 20
	maxItemBytes  = 400 << 10
)

// BatchWriteItem processes the last requests of a batch first.
func (f *fakeDynamoDB) BatchWriteItem(ctx context.Context, in *dynamodb.BatchWriteItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.BatchWriteItemOutput, error) {
	if err := f.enter(ctx, "BatchWriteItem"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.batchPuts = append(f.batchPuts, in)
	table, requests := only(in.RequestItems)
	if err := validatePuts(requests); err != nil {
		return nil, operationError("BatchWriteItem", err)
	}
	undone := f.undone("BatchWriteItem", len(requests))
	for _, r := range requests[undone:] {
		if r.DeleteRequest != nil {
			delete(f.items, pkOf(r.DeleteRequest.Key))
			continue
		}
		f.items[pkOf(r.PutRequest.Item)] = overTheWire(r.PutRequest.Item)
	}
	out := &dynamodb.BatchWriteItemOutput{}
	if undone > 0 {
		out.UnprocessedItems = map[string][]types.WriteRequest{f.named(table): slices.Clone(requests[:undone])}
	}
	return out, nil
}

func validatePuts(requests []types.WriteRequest) error {
	seen, sent := map[string]bool{}, 0
	for _, r := range requests {
		if r.DeleteRequest != nil {
			seen[pkOf(r.DeleteRequest.Key)] = true
			continue
		}
		size, wire := 0, 0
		for name, value := range r.PutRequest.Item {
			switch v := value.(type) {
			case *types.AttributeValueMemberB:
				size, wire = size+len(v.Value), wire+len(v.Value)*4/3 // base64
			case *types.AttributeValueMemberS:
				size += len(v.Value)
			case *types.AttributeValueMemberN:
				size += len(v.Value) // an upper bound
			}
			size += len(name)
		}
		if size > maxItemBytes {
			return validation("Item size has exceeded the maximum allowed size")
		}
		sent += max(size, wire)
		seen[pkOf(r.PutRequest.Item)] = true
	}
	if len(seen) != len(requests) || len(requests) < 1 || len(requests) > maxBatchPuts || sent > maxBatchBytes {
		return validation(fmt.Sprintf("%d requests for %d items with %d bytes", len(requests), len(seen), sent))
	}
	return nil
}

// BatchGetItem returns items in the reverse order of the keys, as many as fit.
func (f *fakeDynamoDB) BatchGetItem(ctx context.Context, in *dynamodb.BatchGetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
	if err := f.enter(ctx, "BatchGetItem"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.batchGets = append(f.batchGets, in)
	table, request := only(in.RequestItems)
	if n := len(request.Keys); n < 1 || n > maxBatchGets || !aws.ToBool(request.ConsistentRead) {
		return nil, operationError("BatchGetItem", validation(fmt.Sprintf("%d keys, consistent: %v", n, request.ConsistentRead)))
	}
	undone := f.undone("BatchGetItem", len(request.Keys))
	out := &dynamodb.BatchGetItemOutput{Responses: map[string][]map[string]types.AttributeValue{}}
	read := 0
	for i, key := range slices.Backward(request.Keys) {
		it := f.items[pkOf(key)]
		if part, ok := it["part"].(*types.AttributeValueMemberB); ok {
			read += len(part.Value)
		}
		if i < undone || read > maxBatchBytes {
			undone = i + 1
			break
		}
		if it != nil {
			out.Responses[f.named(table)] = append(out.Responses[f.named(table)], overTheWire(it))
		}
	}
	if undone > 0 {
		out.UnprocessedKeys = map[string]types.KeysAndAttributes{f.named(table): {Keys: slices.Clone(request.Keys[:undone])}}
	}
	return out, nil
}

func (f *fakeDynamoDB) undone(operation string, size int) int {
	if f.leave == nil {
		return 0
	}
	return f.leave(operation, f.calls[operation], size)
}

func (f *fakeDynamoDB) named(table string) string {
	if f.alias != "" {
		return f.alias
	}
	return table
}

func pkOf(it item) string { return it["pk"].(*types.AttributeValueMemberS).Value }

func only[V any](tables map[string]V) (string, V) {
	if len(tables) != 1 {
		panic(fmt.Sprintf("%d tables", len(tables)))
	}
	for name, v := range tables {
		return name, v
	}
	panic("unreachable")
}
