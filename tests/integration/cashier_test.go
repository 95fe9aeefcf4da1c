package integration

import (
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
)

// The price of a million units: on demand, Standard table class, us-east-1,
// 2026-11-21 (https://aws.amazon.com/dynamodb/pricing/on-demand/).
const (
	writePrice = 0.625
	readPrice  = 0.125
)

// cost is what calls consumed.
type cost struct {
	calls   int
	writes  float64 // write units of the table
	indexes float64 // write units of the index
	reads   float64 // read units
}

func (c cost) plus(d cost) cost {
	return cost{c.calls + d.calls, c.writes + d.writes, c.indexes + d.indexes, c.reads + d.reads}
}

func (c cost) minus(d cost) cost {
	return cost{c.calls - d.calls, c.writes - d.writes, c.indexes - d.indexes, c.reads - d.reads}
}

// each returns the cost of one call. All calls must have the same cost.
func (c cost) each() cost {
	n := float64(c.calls)
	return cost{1, c.writes / n, c.indexes / n, c.reads / n}
}

// dollars returns the price of a million of c.
func (c cost) dollars() float64 { return (c.writes+c.indexes)*writePrice + c.reads*readPrice }

// cashier is a client that records what each call consumed, as DynamoDB reports
// it.
type cashier struct {
	dynamostore.Client
	mu      sync.Mutex
	spent   map[string]cost      // by operation
	refused map[[16]byte]refusal // by the wid of the current item
}

// refusal counts the writes that one item refused, with the price of each.
type refusal struct {
	times int
	units float64
}

func newCashier(c dynamostore.Client) *cashier {
	return &cashier{Client: c, spent: map[string]cost{}, refused: map[[16]byte]refusal{}}
}

// total returns the cost of all calls so far.
func (c *cashier) total() (sum cost) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spent {
		sum = sum.plus(s)
	}
	return sum
}

func (c *cashier) add(operation string, spent cost) {
	spent.calls = 1
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spent[operation] = c.spent[operation].plus(spent)
}

func (c *cashier) PutItem(ctx context.Context, in *dynamodb.PutItemInput, optFns ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityIndexes
	out, err := c.Client.PutItem(ctx, in, optFns...)
	if refused, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		units, priceErr := c.price(ctx, *in.TableName, refused.Item)
		if priceErr != nil {
			return nil, priceErr
		}
		c.add("PutItem", cost{writes: units})
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	used := cost{writes: *out.ConsumedCapacity.Table.CapacityUnits}
	for _, index := range out.ConsumedCapacity.GlobalSecondaryIndexes {
		used.indexes += *index.CapacityUnits
	}
	c.add("PutItem", used)
	return out, nil
}

// price returns the write units of a refused write. The refusal does not report
// them: it is billed as one write, by the size of the current item (developer
// guide, "Capacity unit consumption for write operations"). So the same item is
// written once more, under another key, and the engine reports the units of
// that write.
func (c *cashier) price(ctx context.Context, table string, standing map[string]types.AttributeValue) (float64, error) {
	wid, _ := standing["wid"].(*types.AttributeValueMemberB)
	pk, _ := standing[dynamostore.PartitionKey].(*types.AttributeValueMemberS)
	if wid == nil || pk == nil {
		return 0, errors.New("the refusal returned no record")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.refused[[16]byte(wid.Value)]
	if known.times == 0 {
		aside := maps.Clone(standing)
		aside[dynamostore.PartitionKey] = &types.AttributeValueMemberS{Value: "x" + pk.Value[1:]}
		out, err := c.Client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &table, Item: aside, ReturnConsumedCapacity: types.ReturnConsumedCapacityIndexes})
		if err != nil {
			return 0, err
		}
		known.units = *out.ConsumedCapacity.Table.CapacityUnits
	}
	known.times++
	c.refused[[16]byte(wid.Value)] = known
	return known.units, nil
}

func (c *cashier) GetItem(ctx context.Context, in *dynamodb.GetItemInput, optFns ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := c.Client.GetItem(ctx, in, optFns...)
	if err == nil {
		c.add("GetItem", cost{reads: *out.ConsumedCapacity.CapacityUnits})
	}
	return out, err
}

func (c *cashier) BatchWriteItem(ctx context.Context, in *dynamodb.BatchWriteItemInput, optFns ...func(*dynamodb.Options)) (*dynamodb.BatchWriteItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := c.Client.BatchWriteItem(ctx, in, optFns...)
	if err == nil {
		c.add("BatchWriteItem", cost{writes: sum(out.ConsumedCapacity)})
	}
	return out, err
}

func (c *cashier) BatchGetItem(ctx context.Context, in *dynamodb.BatchGetItemInput, optFns ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := c.Client.BatchGetItem(ctx, in, optFns...)
	if err == nil {
		c.add("BatchGetItem", cost{reads: sum(out.ConsumedCapacity)})
	}
	return out, err
}

// TransactWriteItems counts two write units for each item, because no item here
// has more than 1 KB, and two for a record that leaves the index (developer
// guide, "Capacity management for transactions"). The capacity that DynamoDB
// Local reports for transactions does not depend on the number of their items,
// so only whether the index was written is taken from it.
func (c *cashier) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput, optFns ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityIndexes
	out, err := c.Client.TransactWriteItems(ctx, in, optFns...)
	if err != nil {
		return nil, err
	}
	used := cost{writes: 2 * float64(len(in.TransactItems))}
	for _, t := range out.ConsumedCapacity {
		used.indexes += 2 * float64(len(t.GlobalSecondaryIndexes))
	}
	c.add("TransactWriteItems", used)
	return out, nil
}

// emptyQuery is the minimum that a query reads, in units; DynamoDB Local
// reports none.
const emptyQuery = 0.5

func (c *cashier) Query(ctx context.Context, in *dynamodb.QueryInput, optFns ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := c.Client.Query(ctx, in, optFns...)
	if err == nil {
		c.add("Query", cost{reads: max(emptyQuery, *out.ConsumedCapacity.CapacityUnits)})
	}
	return out, err
}

func sum(used []types.ConsumedCapacity) (units float64) {
	for _, u := range used {
		units += *u.CapacityUnits
	}
	return units
}
