package dynamostore

import (
	"context"
	"errors"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// insertCondition is true if there is no record, or only an expired one. DynamoDB
// deletes expired items "within a few days" and returns them until then (developer
// guide, "Using time to live"), so the condition compares the expiry. A record
// without exp never expires: the comparison is false.
const insertCondition = "attribute_not_exists(" + PartitionKey + ") OR " + attrExpires + " <= :now"

// Insert writes r if there is no record of that id, or one that has expired by
// now. Otherwise it returns the current record. See [driver.Store].
func (s *Store) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	standing, refused, err := s.put(ctx, &r, insertCondition, ":now", number(now.UnixMilli()))
	if err != nil || !refused {
		return nil, err
	}
	if len(standing) == 0 {
		return nil, errNothingReturned
	}
	return decode(standing)
}

// errNothingReturned means that the endpoint is not DynamoDB: the condition can
// fail only if there is an item, and the request asked for that item.
var errNothingReturned = errors.New("dynamostore: the insert was refused without the current record: the endpoint ignores ReturnValuesOnConditionCheckFailure (an emulator or a proxy that is too old?)")
