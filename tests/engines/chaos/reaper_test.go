// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/internal/tabledef"
)

// reaper deletes expired items, as DynamoDB does by their time to live: in any order, and
// none whose time to live has changed meanwhile. The store sets it an hour after the expiry
// of a record, which the reaper does not wait for.
type reaper struct {
	storm  *storm
	client *dynamodb.Client
	items  atomic.Int64 // of the table, by the last pass
}

func (p *reaper) work(ctx context.Context) {
	for pause(ctx, reapEvery) == nil {
		_ = p.reap(ctx) // the engine may be dead
	}
}

func (p *reaper) reap(ctx context.Context) error {
	const grace = time.Hour
	now := strconv.FormatInt(time.Now().Add(grace).Unix(), 10)
	pages := dynamodb.NewScanPaginator(p.client, &dynamodb.ScanInput{
		TableName: aws.String(p.storm.settings.Table), FilterExpression: aws.String("#ttl < :now"),
		ExpressionAttributeNames:  map[string]string{"#ttl": tabledef.TTLAttribute},
		ExpressionAttributeValues: map[string]types.AttributeValue{":now": &types.AttributeValueMemberN{Value: now}},
	})
	items := int64(0)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		items += int64(page.ScannedCount)
		for _, it := range page.Items {
			_, err := p.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{
				TableName:           aws.String(p.storm.settings.Table),
				Key:                 map[string]types.AttributeValue{tabledef.PartitionKey: it[tabledef.PartitionKey]},
				ConditionExpression: aws.String("#ttl = :ttl"), ExpressionAttributeNames: map[string]string{"#ttl": tabledef.TTLAttribute},
				ExpressionAttributeValues: map[string]types.AttributeValue{":ttl": it[tabledef.TTLAttribute]},
			})
			if err != nil {
				return err
			}
			p.storm.seen.Add(factExpired, 1)
		}
	}
	p.items.Store(items)
	return nil
}
