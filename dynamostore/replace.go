package dynamostore

import (
	"context"

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
	if len(standing) == 0 {
		return nil, driver.ErrNoRecord
	}
	return decode(standing)
}
