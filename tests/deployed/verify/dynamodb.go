// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/tests/deployed/verify/wire"
)

// consumed are the write units of calls to a separate table. DynamoDB Local does not
// count the items of a transaction, and a refused write returns no units.
type consumed struct {
	Transaction float64 // of two small items, as returned
	Item        float64 // of the write of a large item, as returned
	Refused     int     // writes that this item refused
	Metered     float64 // of all these calls, in CloudWatch
}

// times is how many writes are refused.
const times = 100

// refused lets an item refuse writes.
var refused = of(claim{
	name: "refused units", expected: "a refused write costs a write of the current item; a transaction costs two units for each small item",
	source: "docs/reports/cost.md, ConsumedWriteCapacityUnits", units: 3 * times,
}, func(ctx context.Context, w *world) (consumed, error) {
	a := consumed{Refused: times}
	began, table := time.Now(), aws.String(w.outputs["Units"])
	both, err := w.dynamodb.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
		TransactItems: []types.TransactWriteItem{
			{Put: &types.Put{TableName: table, Item: itemKey("first")}}, {Put: &types.Put{TableName: table, Item: itemKey("second")}},
		},
		ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	})
	if err != nil {
		return a, err
	}
	for _, c := range both.ConsumedCapacity {
		a.Transaction += aws.ToFloat64(c.CapacityUnits)
	}
	large := itemKey("key")
	large["text"] = &types.AttributeValueMemberS{Value: strings.Repeat("x", 1500)}
	out, err := w.dynamodb.PutItem(ctx, &dynamodb.PutItemInput{TableName: table, Item: large, ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal})
	if err != nil {
		return a, err
	}
	a.Item = aws.ToFloat64(out.ConsumedCapacity.CapacityUnits)
	for range times {
		_, err := w.dynamodb.PutItem(ctx, &dynamodb.PutItemInput{
			TableName: table, Item: itemKey("key"), ConditionExpression: aws.String("attribute_not_exists(pk)"),
		})
		if !errors.As(err, new(*types.ConditionalCheckFailedException)) {
			return a, fmt.Errorf("units: a write was not refused: %w", err)
		}
	}
	a.Metered, err = w.sumUntil(ctx, began, 10*time.Minute, cwtypes.Metric{
		Namespace: aws.String("AWS/DynamoDB"), MetricName: aws.String("ConsumedWriteCapacityUnits"),
		Dimensions: []cwtypes.Dimension{{Name: aws.String("TableName"), Value: table}},
	}, a.Transaction+a.Item*(1+times))
	return a, err
}, func(a consumed) (string, verdict) {
	units := a.Metered - a.Transaction - a.Item
	return fmt.Sprintf("a transaction of two items took %g units; %d refused writes of an item of %g units took %g units", a.Transaction, a.Refused, a.Item, units),
		when(a.Transaction == 4 && a.Refused > 0 && a.Item > 1 && units == a.Item*float64(a.Refused))
})

// sumUntil returns the sum of a metric since a time as soon as it is at least
// enough, or when the patience is over. LocalStack's CloudWatch does not understand
// the SDK.
func (w *world) sumUntil(ctx context.Context, since time.Time, patience time.Duration, metric cwtypes.Metric, enough float64) (sum float64, err error) {
	for end := time.Now().Add(patience); !w.Local; {
		out, err := w.cloudwatch.GetMetricData(ctx, &cloudwatch.GetMetricDataInput{
			StartTime: aws.Time(since.Truncate(time.Minute)), EndTime: aws.Time(time.Now().Add(time.Minute)),
			MetricDataQueries: []cwtypes.MetricDataQuery{{Id: aws.String("m"), MetricStat: &cwtypes.MetricStat{
				Metric: &metric, Period: aws.Int32(60), Stat: aws.String("Sum"),
			}}},
		})
		if err != nil {
			return 0, err
		}
		sum = 0
		for _, value := range out.MetricDataResults[0].Values {
			sum += value
		}
		if sum >= enough || time.Now().After(end) {
			return sum, nil
		}
		if err := pause(ctx, interval); err != nil {
			return sum, err
		}
	}
	return 0, nil
}

// race is what two regions did with one key.
type race struct {
	DelayMS int64 // by which the second region began later
	Runs    int
	Errors  []string `json:",omitempty"`
}

// delays are those of the second region, in milliseconds.
var delays = []int64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20, 50, 100, 200, 300, 500, 700, 1000, 1500, 2000}

// regions claims keys in two regions of a table with strong consistency.
var regions = of(claim{
	name: "regions", expected: "no key runs in two regions of a table with strong consistency", source: "docs/regions.md", replicas: true,
	units: len(delays) * 4 * 3, // four writes of a key, in three regions
}, func(ctx context.Context, w *world) ([]race, error) {
	var guards []*idempotent.Guard
	for _, region := range []string{w.Region, w.Replicas[0]} {
		client := dynamostore.NewClient(w.cfg, func(o *dynamodb.Options) { o.Region = region })
		store, err := dynamostore.New(client, w.outputs["Strong"], func(o *dynamostore.Options) { o.Consistency = dynamostore.Strong })
		if err != nil {
			return nil, err
		}
		guard, err := idempotent.New(store, func(o *idempotent.Options) { o.WaitFor = 20 * time.Second })
		if err != nil {
			return nil, err
		}
		guards = append(guards, guard)
	}
	all := make([]race, len(delays))
	for i, delay := range delays {
		all[i].DelayMS = delay
		id := rand.Text()
		key := idempotent.Key{Operation: wire.Operation, Scope: idempotent.Global, ID: id, Fingerprint: idempotent.FingerprintBytes([]byte(id))}
		var runs atomic.Int32
		_, err := together(len(guards), func(n int) (string, error) {
			if err := pause(ctx, time.Duration(int64(n)*delay)*time.Millisecond); err != nil {
				return "", err
			}
			return idempotent.Do(ctx, guards[n], key, func(context.Context) (string, error) { runs.Add(1); return "done", nil })
		})
		if all[i].Runs = int(runs.Load()); err != nil {
			all[i].Errors = strings.Split(err.Error(), "\n")
		}
	}
	return all, ctx.Err()
}, func(all []race) (string, verdict) {
	twice, ok, failed := 0, len(all) > 0, []string(nil)
	for _, r := range all {
		if r.Runs > 1 {
			twice++
		}
		ok, failed = ok && r.Runs == 1, append(failed, r.Errors...)
	}
	seen := append([]string{fmt.Sprintf("%d of %d keys ran twice", twice, len(all))}, failed...)
	return strings.Join(seen, ", "), when(ok && len(failed) == 0)
})
