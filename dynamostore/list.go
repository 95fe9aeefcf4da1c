// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent/driver"
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
// The role needs dynamodb:Query on the index and dynamodb:BatchGetItem on the
// table. For a table without the index see [Store.ScanDue].
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
		gather(ctx, shards, dueParallel, yield, func(ctx context.Context, shard int, found func(entry) bool) error {
			return s.listShard(ctx, shardKey(prefix, shard), before, func(e entry) bool {
				return e.err == nil && !still(&e.record) || found(e)
			})
		})
	}
}

// dueCondition selects the due records of one partition of the index.
const dueCondition = IndexPartitionKey + " = :shard AND " + IndexSortKey + " <= :before"

// listShard reads one partition of the index, page by page, with the records that
// it names.
func (s *Store) listShard(ctx context.Context, shard string, before time.Time, found func(entry) bool) error {
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
		out, err := s.client.Query(ctx, in)
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

// ScanOptions are the options of [Store.Scan] and [Store.ScanDue]. The zero value
// of each field is its documented default.
type ScanOptions struct {
	// Segments is how many parts of the table are read in parallel. Default: 4.
	Segments int
	// Progress is called after every page with the amount read so far, by one
	// goroutine at a time. Default: no call.
	Progress func(ScanProgress)
}

const defaultSegments = 4

// ScanProgress is the progress of a scan.
type ScanProgress struct {
	Items     int     // items read, including chunks of large results
	ReadUnits float64 // read units consumed: half a unit for each 4 KB read
}

// The filters of scans: the items that are records, those due by a time, and those
// given up.
const (
	recordCondition    = "attribute_exists(" + attrState + ")"
	dueScanCondition   = IndexSortKey + " <= :before"
	exhaustedCondition = "begins_with(" + IndexPartitionKey + ", :given)"
)

// Scan lists every record of the table, including expired ones, in no order. It
// reads the whole table, large results too, with eventually consistent reads: half
// a read unit for each 4 KB. It is meant for operators and rare jobs.
//
// An entry with an error and an ID is a record that cannot be read; the list
// continues. An error without an ID ends the list.
func (s *Store) Scan(ctx context.Context, optFns ...func(*ScanOptions)) iter.Seq2[driver.Record, error] {
	return s.scan(ctx, optFns, recordCondition, nil, func(*driver.Record) bool { return true })
}

// ScanDue is [Store.Due] for a table without the index: it reads the whole table
// and costs as much as [Store.Scan].
func (s *Store) ScanDue(ctx context.Context, before time.Time, optFns ...func(*ScanOptions)) iter.Seq2[driver.Record, error] {
	return s.scan(ctx, optFns, dueScanCondition, item{":before": number(before.UnixMilli())}, func(r *driver.Record) bool {
		return isDue(r, before)
	})
}

// WithoutIndex returns the store for a table without the index. Its lists read the
// whole table.
func (s *Store) WithoutIndex(optFns ...func(*ScanOptions)) *ScanningStore {
	return &ScanningStore{Store: s, optFns: optFns}
}

// ScanningStore is a [Store] whose lists read the whole table.
// [Store.WithoutIndex] returns one.
type ScanningStore struct {
	*Store
	optFns []func(*ScanOptions)
}

var _ driver.DueLister = (*ScanningStore)(nil)

// Due calls [Store.ScanDue].
func (s *ScanningStore) Due(ctx context.Context, before time.Time) iter.Seq2[driver.Record, error] {
	return s.ScanDue(ctx, before, s.optFns...)
}

// Exhausted lists the records that reconciliation has given up. It reads the whole
// table.
func (s *ScanningStore) Exhausted(ctx context.Context) iter.Seq2[driver.Record, error] {
	return s.scan(ctx, s.optFns, exhaustedCondition, item{":given": text(exhaustedPrefix)}, func(r *driver.Record) bool {
		return r.Exhausted
	})
}

// scan yields the records that pass the filter, which DynamoDB applies, and match,
// which is applied here.
func (s *Store) scan(
	ctx context.Context, optFns []func(*ScanOptions), filter string, values item, match func(*driver.Record) bool,
) iter.Seq2[driver.Record, error] {
	o := ScanOptions{}
	for _, f := range optFns {
		f(&o)
	}
	if o.Segments == 0 {
		o.Segments = defaultSegments
	}
	return func(yield func(driver.Record, error) bool) {
		if o.Segments < 1 || o.Segments > 1_000_000 {
			yield(driver.Record{}, fmt.Errorf("dynamostore: ScanOptions.Segments is %d; it must be 1 to 1,000,000 (or zero for the default)", o.Segments))
			return
		}
		p := &progress{tell: o.Progress}
		gather(ctx, o.Segments, o.Segments, yield, func(ctx context.Context, segment int, found func(entry) bool) error {
			in := &dynamodb.ScanInput{
				TableName:                 aws.String(s.table),
				FilterExpression:          aws.String(filter),
				ExpressionAttributeValues: values,
				Segment:                   aws.Int32(int32(segment)),
				TotalSegments:             aws.Int32(int32(o.Segments)),
				ReturnConsumedCapacity:    types.ReturnConsumedCapacityTotal,
			}
			return s.scanSegment(ctx, in, p, func(e entry) bool {
				return e.err == nil && !match(&e.record) || found(e)
			})
		})
	}
}

func (s *Store) scanSegment(ctx context.Context, in *dynamodb.ScanInput, p *progress, found func(entry) bool) error {
	for {
		out, err := s.client.Scan(ctx, in)
		if err != nil {
			return s.explain("Scan", err)
		}
		p.page(out)
		for _, it := range out.Items {
			if !found(entryOf(it)) {
				return nil
			}
		}
		if len(out.LastEvaluatedKey) == 0 {
			return nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

// progress sums what the segments have read.
type progress struct {
	tell func(ScanProgress)

	mu   sync.Mutex
	read ScanProgress
}

func (p *progress) page(out *dynamodb.ScanOutput) {
	if p.tell == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read.Items += int(out.ScannedCount)
	if c := out.ConsumedCapacity; c != nil {
		p.read.ReadUnits += aws.ToFloat64(c.CapacityUnits)
	}
	p.tell(p.read)
}

// entry is a record in a list, or the id of an unreadable record and the error. An
// invalid record, or one of a later version, must not hide the others.
type entry struct {
	record driver.Record
	err    error
}

func entryOf(it item) entry {
	r, err := decode(it)
	if err != nil {
		return entry{driver.Record{ID: driver.RecordID(keyOf(it))}, err}
	}
	return entry{record: *r}
}

// gather runs n producers, at most atOnce at a time, and yields their results in
// the order in which they are found. An error that a producer returns ends all
// producers and is yielded, like the end of ctx. A producer has to return when
// found returns false.
func gather(ctx context.Context, n, atOnce int, yield func(driver.Record, error) bool, produce func(ctx context.Context, i int, found func(entry) bool) error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	entries := make(chan entry)
	send := func(e entry) bool {
		select {
		case entries <- e:
			return true
		case <-ctx.Done():
			return false
		}
	}
	numbers := make(chan int, n)
	for i := range n {
		numbers <- i
	}
	close(numbers)
	var producers sync.WaitGroup
	for range atOnce {
		producers.Go(func() {
			for i := range numbers {
				if ctx.Err() != nil {
					return
				}
				if err := produce(ctx, i, send); err != nil {
					send(entry{err: err})
					return
				}
			}
		})
	}
	go func() {
		producers.Wait()
		close(entries)
	}()

	enough := false
	for e := range entries {
		if enough {
			continue // until every producer has returned
		}
		enough = !yield(e.record, e.err) || e.err != nil && e.record.ID == ""
		if enough {
			cancel()
		}
	}
	if err := ctx.Err(); err != nil && !enough {
		yield(driver.Record{}, err)
	}
}
