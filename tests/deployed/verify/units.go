// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
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
