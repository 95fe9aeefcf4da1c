// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// DynamoDB has no time to live in a table with strong consistency across regions, so
// the pass also finds the items that it would delete.
const (
	expiredCondition = ttlPlaceholder + " < :expired"
	// deleteRecordCondition is false for a record that was renewed after the scan.
	deleteRecordCondition = attrVersion + " = :was AND " + expiredCondition
	// deleteChunkCondition compares no version: the key of a chunk contains it.
	deleteChunkCondition = "attribute_exists(" + attrPart + ") AND " + expiredCondition
)

const (
	// deleteParallel is how many items a call of Abandoned deletes in parallel: as many
	// as a reconciler claims in parallel, by default.
	deleteParallel = 10
	// deleteUnits is how many write units a second deletions take for each segment. A
	// partition has 1,000.
	deleteUnits = 250
)

// reaper deletes the expired items that a pass finds.
type reaper struct {
	store *Store
	now   time.Time
	pace  pace
	slots chan struct{} // of deletions at the same time

	mu      sync.Mutex
	deleted int
	err     error // of the first deletion that failed: this call makes no more
}

func newReaper(s *Store, now time.Time, segments int) *reaper {
	return &reaper{
		store: s, now: now,
		pace:  pace{units: 1, every: time.Second / time.Duration(deleteUnits*segments)},
		slots: make(chan struct{}, deleteParallel),
	}
}

// expiry returns the earliest time to live of an item that stays.
func (r *reaper) expiry() types.AttributeValue { return number(r.now.Unix()) }

// isExpired reports whether DynamoDB's time to live would delete the item. The time to
// live is projected only in a table with strong consistency.
func (r *reaper) isExpired(it item) bool {
	d := decoder{kind: "item", item: it}
	ttl := d.number(r.store.layout.ttl, required)
	return d.err == nil && ttl < r.now.Unix()
}

// deleteAll deletes expired items. It returns false, and the call ends, if a deletion was
// throttled, or if the time is too short for the pace.
func (r *reaper) deleteAll(ctx context.Context, expired []item) (more bool) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var deletions sync.WaitGroup
	for _, it := range expired {
		r.slots <- struct{}{}
		deletions.Go(func() {
			defer func() { <-r.slots }()
			if r.mayDelete() && !(r.pace.wait(ctx) && r.delete(ctx, it)) {
				stop()
			}
		})
	}
	deletions.Wait()
	return ctx.Err() == nil
}

// mayDelete reports whether the call still deletes expired items. The search for
// abandoned runs goes on without: it must not depend on a permission to delete.
func (r *reaper) mayDelete() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err == nil
}

// delete deletes an expired item, unless it was renewed. It returns false if that was
// throttled.
func (r *reaper) delete(ctx context.Context, it item) (more bool) {
	l := r.store.layout
	in := &dynamodb.DeleteItemInput{
		TableName:                 aws.String(r.store.table),
		Key:                       l.keyOf(l.nameOf(it)),
		ConditionExpression:       aws.String(deleteChunkCondition),
		ExpressionAttributeNames:  map[string]string{ttlPlaceholder: l.ttl},
		ExpressionAttributeValues: item{":expired": r.expiry()},
		ReturnConsumedCapacity:    types.ReturnConsumedCapacityTotal,
	}
	if version := it[attrVersion]; version != nil {
		in.ConditionExpression = aws.String(deleteRecordCondition)
		in.ExpressionAttributeValues[":was"] = version
	}
	out, err := r.store.deleteItem(ctx, in)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch _, renewed := errors.AsType[*types.ConditionalCheckFailedException](err); {
	case err == nil:
		r.pace.spent(out.ConsumedCapacity)
		r.deleted++
	case renewed || isConflict(err): // it is not expired any more, or another region keeps writing it
	case isThrottling(err):
		return false
	default:
		r.err = cmp.Or(r.err, r.store.explain("DeleteItem", unlessEnded(ctx, err)))
	}
	return true
}
