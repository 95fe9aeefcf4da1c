package dynamostore

import (
	"context"
	"errors"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// insertCondition lets a write through where there is no record, or one that
// has expired. DynamoDB deletes expired items "within a few days" and returns
// them until then (developer guide, "Using time to live"), so the expiry is
// judged here. A record without exp never expires: the comparison is false.
const insertCondition = "attribute_not_exists(" + PartitionKey + ") OR " + attrExpires + " <= :now"

// Insert writes r if there is no record of that id or one that expired by now,
// and otherwise returns the record that stands. See [driver.Store].
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

// errNothingReturned: the condition can only fail on an item, and it was asked
// for. Whatever answered is not DynamoDB as we know it.
var errNothingReturned = errors.New("dynamostore: the insert was refused and the record that stands was not returned; the endpoint ignores ReturnValuesOnConditionCheckFailure (an emulator or a proxy that is too old?)")
