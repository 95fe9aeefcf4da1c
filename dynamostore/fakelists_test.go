package dynamostore_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
)

// maxPage is the page size of the fake, small so that every list has pages. In the
// service a page has at most 1 MB.
const maxPage = 3

// Query lists the keys of the index, which is always up to date; stale adds old
// items.
func (f *fakeDynamoDB) Query(ctx context.Context, in *dynamodb.QueryInput, _ ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	if err := f.enter(ctx, "Query"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if aws.ToString(in.IndexName) != dynamostore.IndexName || aws.ToString(in.ProjectionExpression) != dynamostore.PartitionKey {
		return nil, operationError("Query", validation("no such index, or an attribute that it does not have"))
	}
	all := append(f.values(), f.stale...)
	items, last, err := page(all, in.ExclusiveStartKey, int(aws.ToInt32(in.Limit)), aws.ToString(in.KeyConditionExpression), in.ExpressionAttributeValues)
	if err != nil {
		return nil, operationError("Query", err)
	}
	for i, it := range items {
		items[i] = item{"pk": it["pk"]}
	}
	return &dynamodb.QueryOutput{Items: items, LastEvaluatedKey: last}, nil
}

// Scan reads the items of a segment.
func (f *fakeDynamoDB) Scan(ctx context.Context, in *dynamodb.ScanInput, _ ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error) {
	if err := f.enter(ctx, "Scan"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	segment := slices.DeleteFunc(f.values(), func(it item) bool {
		h := fnv.New32()
		fmt.Fprint(h, pkOf(it))
		return int32(h.Sum32()%uint32(*in.TotalSegments)) != *in.Segment
	})
	read, last, err := page(segment, in.ExclusiveStartKey, maxPage, "", nil)
	if err != nil {
		return nil, operationError("Scan", err)
	}
	out := &dynamodb.ScanOutput{LastEvaluatedKey: last, ScannedCount: int32(len(read))}
	if in.ReturnConsumedCapacity == types.ReturnConsumedCapacityTotal {
		out.ConsumedCapacity = &types.ConsumedCapacity{CapacityUnits: aws.Float64(float64(len(read)) / 2)}
	}
	filter := aws.ToString(in.FilterExpression)
	for placeholder, name := range in.ExpressionAttributeNames {
		filter = strings.ReplaceAll(filter, placeholder, name)
	}
	for _, it := range read {
		holds, err := conditionHolds(filter, it, in.ExpressionAttributeValues)
		if err != nil {
			return nil, operationError("Scan", err)
		}
		if holds {
			out.Items = append(out.Items, overTheWire(it))
		}
	}
	return out, nil
}

// values returns all items in the order of their keys.
func (f *fakeDynamoDB) values() []item {
	all := make([]item, 0, len(f.items))
	for _, it := range f.items {
		all = append(all, it)
	}
	slices.SortFunc(all, func(a, b item) int { return strings.Compare(pkOf(a), pkOf(b)) })
	return all
}

// page returns the next items that fulfil the condition, and the last key if there
// may be more.
func page(all []item, start item, limit int, condition string, values item) (items []item, last item, err error) {
	for _, it := range all {
		if start != nil && pkOf(it) <= pkOf(start) {
			continue
		}
		if condition != "" {
			holds, err := conditionHolds(condition, it, values)
			if err != nil {
				return nil, nil, err
			}
			if !holds {
				continue
			}
		}
		items = append(items, it)
		if len(items) == min(limit, maxPage) {
			return items, item{"pk": it["pk"]}, nil
		}
	}
	return items, nil, nil
}

// TransactWriteItems writes all of its Puts or none.
func (f *fakeDynamoDB) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput, _ ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	if err := f.enter(ctx, "TransactWriteItems"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.transactions = append(f.transactions, in)
	if n := len(in.TransactItems); n > 100 {
		return nil, operationError("TransactWriteItems", validation(fmt.Sprintf("%d items", n)))
	}
	reasons, cancelled := make([]types.CancellationReason, len(in.TransactItems)), false
	for i, t := range in.TransactItems {
		reasons[i].Code = aws.String("None")
		old := f.items[pkOf(t.Put.Item)]
		if t.Put.ConditionExpression == nil {
			continue
		}
		holds, err := conditionHolds(*t.Put.ConditionExpression, old, t.Put.ExpressionAttributeValues)
		if err != nil {
			return nil, operationError("TransactWriteItems", err)
		}
		if !holds {
			cancelled = true
			reasons[i].Code = aws.String("ConditionalCheckFailed")
			if t.Put.ReturnValuesOnConditionCheckFailure == types.ReturnValuesOnConditionCheckFailureAllOld && !f.forgetful {
				reasons[i].Item = overTheWire(old)
			}
		}
	}
	if cancelled {
		return nil, operationError("TransactWriteItems", &types.TransactionCanceledException{CancellationReasons: reasons})
	}
	for _, t := range in.TransactItems {
		f.items[pkOf(t.Put.Item)] = overTheWire(t.Put.Item)
	}
	return &dynamodb.TransactWriteItemsOutput{}, nil
}
