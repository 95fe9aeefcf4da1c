// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"cmp"
	"context"
	"errors"
	"sync"

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

// expiry returns the earliest time to live of an item that stays.
func (p *pass) expiry() types.AttributeValue { return number(p.now.Unix()) }

// isExpired reports whether DynamoDB's time to live would delete the item. The time to
// live is projected only in a table with strong consistency.
func (p *pass) isExpired(it item) bool {
	d := decoder{kind: "item", item: it}
	ttl := d.number(p.store.layout.ttl, required)
	return d.err == nil && ttl < p.now.Unix()
}

// deleteAll deletes expired items. It ends the call if a deletion was throttled, or if
// the time is too short for the pace.
func (p *pass) deleteAll(ctx context.Context, expired []item) {
	var deletions sync.WaitGroup
	for _, it := range expired {
		p.slots <- struct{}{}
		deletions.Go(func() {
			defer func() { <-p.slots }()
			if !p.mayDelete() {
				return
			}
			if !p.deletes.wait(ctx) {
				p.stop()
				return
			}
			p.delete(ctx, it)
		})
	}
	deletions.Wait()
}

// mayDelete reports whether the call still deletes expired items. The search for
// abandoned runs goes on without: it must not depend on a permission to delete.
func (p *pass) mayDelete() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kept == nil
}

// delete deletes an expired item, unless it was renewed.
func (p *pass) delete(ctx context.Context, it item) {
	l := p.store.layout
	in := &dynamodb.DeleteItemInput{
		TableName:                 aws.String(p.store.table),
		Key:                       l.keyOf(l.nameOf(it)),
		ConditionExpression:       aws.String(deleteChunkCondition),
		ExpressionAttributeNames:  map[string]string{ttlPlaceholder: l.ttl},
		ExpressionAttributeValues: item{":expired": p.expiry()},
		ReturnConsumedCapacity:    types.ReturnConsumedCapacityTotal,
	}
	if version := it[attrVersion]; version != nil {
		in.ConditionExpression = aws.String(deleteRecordCondition)
		in.ExpressionAttributeValues[":was"] = version
	}
	out, err := p.store.deleteItem(ctx, in)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch _, renewed := errors.AsType[*types.ConditionalCheckFailedException](err); {
	case err == nil:
		p.deletes.spent(out.ConsumedCapacity)
		p.done.Deleted++
	case renewed || isConflict(err): // it is not expired any more, or another region keeps writing it
	case isThrottling(err):
		p.stop()
	default:
		p.kept = cmp.Or(p.kept, p.store.explain("DeleteItem", unlessEnded(ctx, err)))
	}
}
