package dynamostore

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent/driver"
)

// Querier is the additional interface of a client for [Store.Due] and
// [Store.Exhausted].
type Querier interface {
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
}

var (
	_ Querier          = (*dynamodb.Client)(nil)
	_ driver.DueLister = (*Store)(nil)
)

const (
	// dueParallel is how many shards are read in parallel.
	dueParallel = 8
	// duePage is how many keys are read from a shard in one query, and how many
	// records in one batch (API reference, BatchGetItem: 100 items).
	duePage = 100
)

// Due lists the records that are due no later than before, in no order. It queries
// all 64 shards of the index, eight at a time, and then reads the records
// themselves with consistent reads, because the index is eventually consistent. An
// empty list costs 64 queries of half a read unit each.
//
// The client given to [New] has to be a [Querier]; the role needs dynamodb:Query
// on the index and dynamodb:BatchGetItem on the table. For a table without the
// index see [Store.ScanDue].
func (s *Store) Due(ctx context.Context, before time.Time) iter.Seq2[driver.Record, error] {
	return s.list(ctx, duePrefix, before, func(r *driver.Record) bool {
		return isDue(r, before)
	})
}

// Exhausted lists the records that reconciliation has given up. It costs as much
// as [Store.Due].
func (s *Store) Exhausted(ctx context.Context) iter.Seq2[driver.Record, error] {
	return s.list(ctx, exhaustedPrefix, time.UnixMilli(maxMillis), func(r *driver.Record) bool {
		return r.Exhausted
	})
}

// maxMillis is later than any time in a record (the year 9999).
const maxMillis = 253402300799999

func isDue(r *driver.Record, before time.Time) bool {
	return !r.Exhausted && !r.Due.IsZero() && !r.Due.After(before)
}

// list yields the records of an index whose consistent read still matches the
// index.
func (s *Store) list(ctx context.Context, prefix string, before time.Time, still func(*driver.Record) bool) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		client, ok := s.client.(Querier)
		if !ok {
			yield(driver.Record{}, fmt.Errorf("dynamostore: a list needs a client with Query; %T has none", s.client))
			return
		}
		gather(ctx, shards, dueParallel, yield, func(ctx context.Context, shard int, found func(entry) bool) error {
			return s.listShard(ctx, client, shardKey(prefix, shard), before, func(e entry) bool {
				return e.err == nil && !still(&e.record) || found(e)
			})
		})
	}
}

// dueCondition selects the due records of one partition of the index.
const dueCondition = IndexPartitionKey + " = :shard AND " + IndexSortKey + " <= :before"

// listShard reads one partition of the index, page by page, with the records that
// it names.
func (s *Store) listShard(ctx context.Context, client Querier, shard string, before time.Time, found func(entry) bool) error {
	in := &dynamodb.QueryInput{
		TableName:              aws.String(s.table),
		IndexName:              aws.String(IndexName),
		KeyConditionExpression: aws.String(dueCondition),
		ProjectionExpression:   aws.String(PartitionKey),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":shard": text(shard), ":before": number(before.UnixMilli()),
		},
		Limit: aws.Int32(duePage),
	}
	for {
		out, err := client.Query(ctx, in)
		if err != nil {
			return s.explain("Query", err)
		}
		entries, err := s.readAll(ctx, out.Items)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !found(e) {
				return nil
			}
		}
		if len(out.LastEvaluatedKey) == 0 {
			return nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

// readAll reads the records of index entries, without those that no longer exist.
func (s *Store) readAll(ctx context.Context, named []item) ([]entry, error) {
	if len(named) == 0 {
		return nil, nil
	}
	keys := make([]item, len(named))
	for i, it := range named {
		keys[i] = item{PartitionKey: it[PartitionKey]}
	}
	items, err := s.getBatch(ctx, keys)
	if err != nil {
		return nil, err
	}
	entries := make([]entry, 0, len(items))
	for _, key := range keys {
		if it := items[keyOf(key)]; it != nil {
			entries = append(entries, entryOf(it))
		}
	}
	return entries, nil
}
