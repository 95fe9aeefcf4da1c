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

// Scanner is what [Store.Scan] and [Store.ScanDue] need of a client besides.
type Scanner interface {
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
}

var _ Scanner = (*dynamodb.Client)(nil)

// ScanOptions are given to [Store.Scan] and [Store.ScanDue]. The zero value of
// each field is its documented default.
type ScanOptions struct {
	// Segments is how many parts of the table are read side by side. Default: 4.
	Segments int
	// Progress is told after every page how much was read so far, by one
	// goroutine at a time. Default: nobody.
	Progress func(ScanProgress)
}

// defaultSegments is what a zero ScanOptions.Segments means.
const defaultSegments = 4

// ScanProgress is how far a scan has come.
type ScanProgress struct {
	Items     int     // items read, chunks of large results among them
	ReadUnits float64 // read units consumed: half a unit for each 4 KB read
}

// What the lists of a scan have in common with DynamoDB: the items that are
// records, those that were due by then, and those that were given up.
const (
	recordCondition    = "attribute_exists(" + attrState + ")"
	dueScanCondition   = IndexSortKey + " <= :before"
	exhaustedCondition = "begins_with(" + IndexPartitionKey + ", :given)"
)

// Scan lists every record of the table, expired ones included, in no order. It
// reads the whole table, large results too, eventually consistently: half a
// read unit for each 4 KB. It is for people and for rare jobs. The client given
// to [New] has to be a [Scanner].
//
// An entry with an error and an ID is a record that cannot be read; the list
// goes on. One without an ID ends it.
func (s *Store) Scan(ctx context.Context, optFns ...func(*ScanOptions)) iter.Seq2[driver.Record, error] {
	return s.scan(ctx, optFns, recordCondition, nil, func(*driver.Record) bool { return true })
}

// ScanDue is [Store.Due] for a table that has no index: it reads the whole
// table, and costs what [Store.Scan] costs.
func (s *Store) ScanDue(ctx context.Context, before time.Time, optFns ...func(*ScanOptions)) iter.Seq2[driver.Record, error] {
	return s.scan(ctx, optFns, dueScanCondition, item{":before": number(before.UnixMilli())}, func(r *driver.Record) bool {
		return isDue(r, before)
	})
}

// WithoutIndex returns the store for a table that has no index: its lists are
// made by reading the whole table.
func (s *Store) WithoutIndex(optFns ...func(*ScanOptions)) *ScanningStore {
	return &ScanningStore{Store: s, optFns: optFns}
}

// ScanningStore is a [Store] whose lists are made by reading the whole table.
// Make one with [Store.WithoutIndex].
type ScanningStore struct {
	*Store
	optFns []func(*ScanOptions)
}

var _ driver.DueLister = (*ScanningStore)(nil)

// Due is [Store.ScanDue].
func (s *ScanningStore) Due(ctx context.Context, before time.Time) iter.Seq2[driver.Record, error] {
	return s.ScanDue(ctx, before, s.optFns...)
}

// Exhausted lists the records that reconciliation has given up, by reading the
// whole table.
func (s *ScanningStore) Exhausted(ctx context.Context) iter.Seq2[driver.Record, error] {
	return s.scan(ctx, s.optFns, exhaustedCondition, item{":given": text(exhaustedPrefix)}, func(r *driver.Record) bool {
		return r.Exhausted
	})
}

// scan yields the records that pass the filter, which DynamoDB applies, and
// match, which is applied here.
func (s *Store) scan(ctx context.Context, optFns []func(*ScanOptions), filter string, values item, match func(*driver.Record) bool) iter.Seq2[driver.Record, error] {
	o := ScanOptions{}
	for _, f := range optFns {
		f(&o)
	}
	if o.Segments == 0 {
		o.Segments = defaultSegments
	}
	return func(yield func(driver.Record, error) bool) {
		client, ok := s.client.(Scanner)
		switch {
		case !ok:
			yield(driver.Record{}, fmt.Errorf("dynamostore: reading the whole table wants a client that can Scan; %T cannot", s.client))
			return
		case o.Segments < 1 || o.Segments > 1_000_000:
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
			return s.scanSegment(ctx, client, in, p, func(e entry) bool {
				return e.err == nil && !match(&e.record) || found(e)
			})
		})
	}
}

func (s *Store) scanSegment(ctx context.Context, client Scanner, in *dynamodb.ScanInput, p *progress, found func(entry) bool) error {
	for {
		out, err := client.Scan(ctx, in)
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

// progress adds up what the segments have read.
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
