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

// Deleter is the additional interface of a client for [Store.Delete].
type Deleter interface {
	DeleteItem(context.Context, *dynamodb.DeleteItemInput, ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error)
}

var _ Deleter = (*dynamodb.Client)(nil)

// deleteCondition excludes records that an attempt may be working on, and records
// whose outcome is unknown.
const deleteCondition = attrVersion + " = :was AND " + attrState + " IN (:completed, :retryable)"

// Delete removes the record id and its large result, if the record has the version
// was and is completed or retryable. Otherwise it removes nothing and returns the
// current record, or [idempotent.ErrNoRecord].
//
// The key of a deleted record counts as new. So use Delete only for records past
// their Expires, which DynamoDB's time to live would delete eventually. Delete
// does not check Expires: the caller does, and the version ensures that the
// deleted record is the one that the caller read.
//
// Delete needs dynamodb:DeleteItem, and dynamodb:BatchWriteItem for large results.
// The client given to [New] has to be a [Deleter].
func (s *Store) Delete(ctx context.Context, id driver.RecordID, was driver.Version) (current *driver.Record, err error) {
	client, ok := s.client.(Deleter)
	if !ok {
		return nil, errors.New("dynamostore: Delete needs a client with DeleteItem")
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
			return s.Get(ctx, id) // as in Replace; see standing
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
