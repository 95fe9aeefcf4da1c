package dynamostore

import (
	"context"
	"errors"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent/driver"
)

// Deleter is what [Store.Delete] needs of a client besides.
type Deleter interface {
	DeleteItem(context.Context, *dynamodb.DeleteItemInput, ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error)
}

var _ Deleter = (*dynamodb.Client)(nil)

// deleteCondition lets no record go that somebody may be working on or that
// nobody knows the outcome of.
const deleteCondition = attrVersion + " = :was AND " + attrState + " IN (:completed, :retryable)"

// Delete removes the record id, and the large result beside it, if its Version
// is was and it is completed or retryable. Otherwise it removes nothing and
// returns the record that stands, or [idempotent.ErrNoRecord].
//
// The key of a deleted record counts as new. So Delete is for records past
// their Expires alone, where DynamoDB's time to live would do the same some day:
// it is the caller who looks, and the version ties the deletion to what was
// seen. It needs dynamodb:DeleteItem, and dynamodb:BatchWriteItem for large
// results; the client given to [New] has to be a [Deleter].
func (s *Store) Delete(ctx context.Context, id driver.RecordID, was driver.Version) (current *driver.Record, err error) {
	client, ok := s.client.(Deleter)
	if !ok {
		return nil, errors.New("dynamostore: Delete wants a client that can DeleteItem")
	}
	in := &dynamodb.DeleteItemInput{
		TableName:           aws.String(s.table),
		Key:                 item{PartitionKey: text(string(id))},
		ConditionExpression: aws.String(deleteCondition),
		ExpressionAttributeValues: item{
			":was":       &types.AttributeValueMemberB{Value: was[:]},
			":completed": text(driver.StateCompleted.Code()),
			":retryable": text(driver.StateRetryable.Code()),
		},
		ReturnValues:                        types.ReturnValueAllOld,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	var out *dynamodb.DeleteItemOutput
	err = s.persist(ctx, func() (err error) {
		out, err = client.DeleteItem(ctx, in)
		return err
	})
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		if len(failed.Item) == 0 {
			return s.Get(ctx, id) // as for Replace: see standing
		}
		return decode(failed.Item)
	}
	if err != nil {
		return nil, s.explain("DeleteItem", err)
	}
	d := decoder{kind: "record", item: out.Attributes}
	return nil, s.deleteChunks(ctx, id, was, d.chunks().Count)
}

// deleteChunks removes the items of a large result whose record is gone.
func (s *Store) deleteChunks(ctx context.Context, id driver.RecordID, v driver.Version, count int) error {
	deletes := make([]types.WriteRequest, max(0, min(count, maxChunks)))
	for i := range deletes {
		deletes[i].DeleteRequest = &types.DeleteRequest{Key: item{PartitionKey: text(chunkKey(id, v, i))}}
	}
	for batch := range slices.Chunk(deletes, writeBatch) {
		if err := s.batchWrite(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}
