package dynamostore

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent/driver"
)

// put writes r if condition holds. Otherwise it reports a refusal and returns the
// current item, which DynamoDB returns with the refusal at "no additional cost"
// and with "no read capacity units" (API reference, PutItem,
// ReturnValuesOnConditionCheckFailure). The returned item is empty if there is no
// item.
func (s *Store) put(ctx context.Context, r *driver.Record, condition, placeholder string, value types.AttributeValue) (standing item, refused bool, err error) {
	it, err := encode(r)
	if err != nil {
		return nil, false, err
	}
	if err := checkSize(it); err != nil {
		return nil, false, err
	}
	in := &dynamodb.PutItemInput{
		TableName:                           aws.String(s.table),
		Item:                                it,
		ConditionExpression:                 aws.String(condition),
		ExpressionAttributeValues:           map[string]types.AttributeValue{placeholder: value},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	err = s.persist(ctx, func() error {
		_, err := s.client.PutItem(ctx, in)
		return err
	})
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		return failed.Item, true, nil
	}
	return nil, false, s.explain("PutItem", err)
}
