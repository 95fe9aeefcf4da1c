package dynamostore

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent/driver"
)

// replaceCondition is false if there is no item, so a replace never creates one.
// UpdateItem with another condition could.
const replaceCondition = attrVersion + " = :was"

// Replace writes all of r, including the attributes that a later version had
// written, if the record has the version was. Otherwise it returns the current
// record, or [idempotent.ErrNoRecord]. See [driver.Store].
func (s *Store) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	standing, refused, err := s.put(ctx, &r, replaceCondition, ":was", &types.AttributeValueMemberB{Value: was[:]})
	if err != nil || !refused {
		return nil, err
	}
	return s.standing(ctx, r.ID, was, standing)
}

// standing returns the current record after a write on the version was had been
// refused. Such a write also fails if there is no record; then DynamoDB returns no
// item. But an endpoint that ignores ReturnValuesOnConditionCheckFailure never
// returns an item. If that counted as a missing record, the handler could run
// twice. If it were an error, the outcome for a deleted record would stay unknown
// for ever. So a consistent read decides.
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

// errContradiction is returned if a write was refused although the record has the
// expected version. Versions never recur, so the write should have succeeded.
var errContradiction = errors.New("dynamostore: a write was refused although the record has the expected version: it was written at the same moment, or the endpoint ignores ReturnValuesOnConditionCheckFailure (an emulator or a proxy that is too old?)")
