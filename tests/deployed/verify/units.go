// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/tests/deployed/verify/wire"
)

// used is what a request consumed, in write units.
type used struct{ Table, Index float64 }

// unitsAnswers are the documented and the reported units, by the rows of
// docs/reports/cost.md.
type unitsAnswers struct{ Documented, Reported map[string]used }

// The rows whose calls return what they consumed.
const (
	firstRow   = "first request"
	unknownRow = "first request that ends unknown"
	commitRow  = "first request, `Commit` with one item"
	stepRow    = "each `Step`, while the record has less than 1 KB"
	stepsRow   = "5" // steps of a request with results of 500 bytes
)

// units sends requests from this machine, whose calls ask for the consumed capacity.
var units = of(claim{
	name: "units", expected: "the write units of docs/reports/cost.md", source: "docs/reports/cost.md, ConsumedCapacity", local: true,
}, func(ctx context.Context, w *world) (unitsAnswers, error) {
	a := unitsAnswers{Reported: map[string]used{}}
	var err error
	if a.Documented, err = documentedUnits(); err != nil {
		return a, err
	}
	if err := w.budget.spend(50); err != nil {
		return a, err
	}
	const small, result = 16, 500 // bytes
	for name, handler := range map[string]func(context.Context, *meter) (string, error){
		firstRow:   func(context.Context, *meter) (string, error) { return noise(small), nil },
		unknownRow: func(context.Context, *meter) (string, error) { return "", idempotent.Unknown(errors.New("no reply")) },
		commitRow: func(ctx context.Context, _ *meter) (string, error) {
			return "", dynamostore.Commit(ctx, noise(small), types.TransactWriteItem{Put: &types.Put{
				TableName: aws.String(w.outputs["Items"]), Item: itemKey(rand.Text()),
			}})
		},
		stepRow: func(ctx context.Context, m *meter) (string, error) {
			before := m.total()
			_, err := idempotent.Step(ctx, "step/1", func(context.Context) (string, error) { return noise(small), nil })
			m.since(before)
			return "", err
		},
		stepsRow: func(ctx context.Context, _ *meter) (string, error) {
			for i := range 5 {
				if _, err := idempotent.Step(ctx, "step/"+strconv.Itoa(i), func(context.Context) (string, error) { return noise(result), nil }); err != nil {
					return "", err
				}
			}
			return noise(small), nil
		},
	} {
		m := &meter{Client: dynamostore.NewClient(w.cfg), local: w.Local}
		store, err := dynamostore.New(m, w.outputs["Records"])
		if err != nil {
			return a, err
		}
		guard, err := idempotent.New(store)
		if err != nil {
			return a, err
		}
		id := rand.Text()
		key := idempotent.Key{Operation: wire.Operation, Scope: idempotent.Global, ID: id, Fingerprint: idempotent.FingerprintBytes([]byte(id))}
		_, err = idempotent.Do(ctx, guard, key, func(ctx context.Context) (string, error) { return handler(ctx, m) }, func(o *idempotent.Operation) {
			if name == stepRow || name == stepsRow {
				o.Recovery, o.Steps = idempotent.Resume, []string{"step"}
			}
		})
		if err != nil && !idempotent.IsUnknown(err) {
			return a, err
		}
		a.Reported[name] = m.result()
	}
	return a, nil
}, func(a unitsAnswers) (string, verdict) {
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(a.Documented)) {
		if got, want := a.Reported[name], a.Documented[name]; got != want {
			wrong = append(wrong, fmt.Sprintf("%s: %g and %g on the index, not %g and %g", name, got.Table, got.Index, want.Table, want.Index))
		}
	}
	if len(wrong) > 0 {
		return strings.Join(wrong, "; "), fails
	}
	return fmt.Sprintf("%d rows agree", len(a.Documented)), when(len(a.Documented) > 0)
})

// documentedUnits reads the rows from docs/reports/cost.md.
func documentedUnits() (map[string]used, error) {
	page, err := os.ReadFile(filepath.Join(engine.Root(), "docs", "reports", "cost.md"))
	if err != nil {
		return nil, err
	}
	all := map[string]used{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case slices.Contains([]string{firstRow, unknownRow, commitRow, stepRow}, cells[0]) && len(cells) == 7:
			table, err1 := strconv.ParseFloat(cells[3], 64)
			index, err2 := strconv.ParseFloat(cells[4], 64)
			if err := errors.Join(err1, err2); err != nil {
				return nil, err
			}
			all[cells[0]] = used{table, index}
		case cells[0] == stepsRow && len(cells) == 5:
			table, err := strconv.ParseFloat(cells[2], 64)
			if err != nil {
				return nil, err
			}
			all[stepsRow] = used{Table: table}
		}
	}
	if len(all) != 5 {
		return nil, fmt.Errorf("docs/reports/cost.md has %d of the 5 rows that the claim units compares", len(all))
	}
	return all, nil
}

// noise returns text that cannot be compressed to less than three quarters.
func noise(bytes int) string {
	var b strings.Builder
	for b.Len() < bytes {
		b.WriteString(rand.Text())
	}
	return b.String()[:bytes]
}

// meter is a client that adds up the write units of its calls.
type meter struct {
	dynamostore.Client
	local bool // DynamoDB Local does not count the items of transactions
	mu    sync.Mutex
	sum   used
	part  *used // what result returns instead of the sum
}

func (m *meter) total() used {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sum
}

// since limits the result to what was used after before.
func (m *meter) since(before used) {
	now := m.total()
	m.part = &used{now.Table - before.Table, now.Index - before.Index}
}

func (m *meter) result() used {
	if m.part != nil {
		return *m.part
	}
	return m.total()
}

func (m *meter) add(all ...types.ConsumedCapacity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range all {
		if c.Table != nil {
			m.sum.Table += aws.ToFloat64(c.Table.CapacityUnits)
		}
		for _, index := range c.GlobalSecondaryIndexes {
			m.sum.Index += aws.ToFloat64(index.CapacityUnits)
		}
	}
}

func (m *meter) PutItem(ctx context.Context, in *dynamodb.PutItemInput, optFns ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	asked := *in
	asked.ReturnConsumedCapacity = types.ReturnConsumedCapacityIndexes
	out, err := m.Client.PutItem(ctx, &asked, optFns...)
	if err == nil && out.ConsumedCapacity != nil {
		m.add(*out.ConsumedCapacity)
	}
	return out, err
}

func (m *meter) TransactWriteItems(
	ctx context.Context, in *dynamodb.TransactWriteItemsInput, optFns ...func(*dynamodb.Options),
) (*dynamodb.TransactWriteItemsOutput, error) {
	asked := *in
	asked.ReturnConsumedCapacity = types.ReturnConsumedCapacityIndexes
	out, err := m.Client.TransactWriteItems(ctx, &asked, optFns...)
	switch {
	case err != nil:
	case m.local:
		each := types.ConsumedCapacity{Table: &types.Capacity{CapacityUnits: aws.Float64(2 * float64(len(in.TransactItems)))}}
		m.add(each)
	default:
		m.add(out.ConsumedCapacity...)
	}
	return out, err
}

// refusals are about writes that a condition refuses, in a separate table: such
// a call does not return what it consumed.
type refusals struct {
	Written, Refused int     // calls
	Units            float64 // of the item, as returned by the call that wrote it
	Metered          float64 // write units of all calls, in CloudWatch
}

var refused = of(claim{
	name: "refused units", expected: "a refused write costs a write of the current item", source: "docs/reports/cost.md, ConsumedWriteCapacityUnits",
}, func(ctx context.Context, w *world) (refusals, error) {
	const times = 100
	a := refusals{Written: 1, Refused: times}
	if err := w.budget.spend(3 * times); err != nil {
		return a, err
	}
	began, table := time.Now(), aws.String(w.outputs["Refused"])
	large := itemKey("key")
	large["text"] = &types.AttributeValueMemberS{Value: noise(1500)}
	out, err := w.dynamodb.PutItem(ctx, &dynamodb.PutItemInput{TableName: table, Item: large, ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal})
	if err != nil {
		return a, err
	}
	a.Units = aws.ToFloat64(out.ConsumedCapacity.CapacityUnits)
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
	}, a.Units*(1+times))
	return a, err
}, func(a refusals) (string, verdict) {
	want := a.Units * float64(a.Written+a.Refused)
	return fmt.Sprintf("%d refused writes of an item of %g units took %g units", a.Refused, a.Units, a.Metered-a.Units*float64(a.Written)),
		when(a.Refused > 0 && a.Units > 1 && a.Metered == want)
})

// sumUntil returns the sum of a metric since a time as soon as it is at least
// enough, or when the patience is over.
func (w *world) sumUntil(ctx context.Context, since time.Time, patience time.Duration, metric cwtypes.Metric, enough float64) (sum float64, err error) {
	for end := time.Now().Add(patience); ; {
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
		if err := pause(ctx, 5*time.Second); err != nil {
			return sum, err
		}
	}
}
