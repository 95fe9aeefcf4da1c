package dynamostore

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent/driver"
)

// replaceCondition is false also where there is no item: unlike UpdateItem
// under another condition, this never creates one.
const replaceCondition = attrVersion + " = :was"

// Replace writes all of r, and what a later version had written into the
// record, in place of the version was. Otherwise it returns the record that
// stands, or [idempotent.ErrNoRecord]. See [driver.Store].
func (s *Store) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	standing, refused, err := s.put(ctx, &r, replaceCondition, ":was", &types.AttributeValueMemberB{Value: was[:]})
	if err != nil || !refused {
		return nil, err
	}
	return s.standing(ctx, r.ID, was, standing)
}

// standing returns the record that stood in the way of a write on the version
// was. Such a write also fails if there is no record, and then DynamoDB returns
// none; but an endpoint that ignores ReturnValuesOnConditionCheckFailure never
// returns one. To take that for an absent record would be permission to run
// again, and an error would leave a record that was deleted in doubt for ever.
// So a consistent read decides.
func (s *Store) standing(ctx context.Context, id driver.RecordID, was driver.Version, returned item) (*driver.Record, error) {
	if len(returned) > 0 {
		return decode(returned)
	}
	r, err := s.Get(ctx, id)
	if err == nil && r.Version == was {
		return nil, errContradiction
	}
	return r, err
}

// errContradiction: versions never recur, so the write should have succeeded.
var errContradiction = errors.New("dynamostore: a write was refused and the record is the expected version; it was written at the same moment, or the endpoint ignores ReturnValuesOnConditionCheckFailure (an emulator or a proxy that is too old?)")
