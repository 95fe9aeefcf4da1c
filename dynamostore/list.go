// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/tabledef"
)

const (
	// listParallel is how many shards are read at the same time.
	listParallel = 8
	// listPage is how many entries are read from a shard in one query. An entry has
	// about 100 bytes, so a full page costs three read units.
	listPage = 250
)

// Due lists the records in the index that wait for reconciliation and are due after a
// time, the earliest due first. The zero time lists all. Of those in progress it lists
// only the announced ones: [Store.Abandoned] finds the others. It queries all 64 shards of
// the index, eight at a time, and merges them: at most two pages of each shard are in
// memory. It does not read the records. An empty list costs 64 queries of half a read unit each. The index is eventually
// consistent.
//
// The role needs dynamodb:Query on the index. For a table without the index see
// Options.NoIndex.
func (s *Store) Due(ctx context.Context, after time.Time) iter.Seq2[driver.Listed, error] {
	if s.opts.NoIndex != nil {
		return s.sorted(ctx, func(r *driver.Record) bool { return !r.Exhausted && r.Due.After(after) })
	}
	return s.merged(ctx, duePrefix, after)
}

// Exhausted lists the records that reconciliation has given up, the earliest
// first. It costs as much as [Store.Due].
func (s *Store) Exhausted(ctx context.Context) iter.Seq2[driver.Listed, error] {
	if s.opts.NoIndex != nil {
		return s.sorted(ctx, func(r *driver.Record) bool { return r.Exhausted })
	}
	return s.merged(ctx, exhaustedPrefix, time.Time{})
}

// merged yields the entries of all shards of a list whose times are after t, or all
// if t is zero, in the order of their times.
func (s *Store) merged(ctx context.Context, prefix string, t time.Time) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var queries sync.WaitGroup
		defer queries.Wait()
		defer cancel()
		slots := make(chan struct{}, listParallel)
		heads := make([]shard, shards)
		for n := range heads {
			pages := make(chan page)
			heads[n].pages = pages
			queries.Go(func() { s.pagesOf(ctx, shardKey(prefix, n), t, slots, pages) })
		}
		for n := range heads {
			heads[n].turn()
		}
		for {
			first := &heads[0]
			for n := range heads {
				if heads[n].before(first) {
					first = &heads[n]
				}
			}
			e, ok := first.next()
			if !ok {
				break
			}
			if !yield(e.listed, e.err) || e.err != nil && e.listed.ID == "" {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(driver.Listed{}, err)
		}
	}
}

// listed is an entry of a list, or the id of an unreadable entry and the error.
type listed struct {
	listed driver.Listed
	err    error
}

// page is a page of a shard.
type page []listed

// shard is a part of a list that is being merged. Its zero page has no entries.
type shard struct {
	pages <-chan page // closed after the last page
	page  page        // entries that are not yielded yet; empty: the shard has ended
}

// turn gets the next page that has entries.
func (h *shard) turn() {
	for len(h.page) == 0 {
		p, more := <-h.pages
		if !more {
			return
		}
		h.page = p
	}
}

// before reports whether the next entry of h comes before that of other. An error
// that ends the list has no time, so it comes first.
func (h *shard) before(other *shard) bool {
	return len(h.page) > 0 && (len(other.page) == 0 || h.page[0].listed.Due.Before(other.page[0].listed.Due))
}

// next removes the next entry.
func (h *shard) next() (e listed, ok bool) {
	if len(h.page) == 0 {
		return e, false
	}
	e, h.page = h.page[0], h.page[1:]
	h.turn()
	return e, true
}

// laterCondition selects the entries of a partition that are due after a time.
const laterCondition = listCondition + " AND " + tabledef.IndexSortKey + " > :after"

// pagesOf sends the pages of one partition of the index that are due after t.
// It reads one page ahead, in one of the slots, and ends with ctx. An error is its
// last page.
func (s *Store) pagesOf(ctx context.Context, partition string, t time.Time, slots chan struct{}, pages chan<- page) {
	defer close(pages)
	filter, _, values := s.layout.filter("", item{":shard": text(partition), ":after": number(t.UnixMilli())})
	in := &dynamodb.QueryInput{
		TableName:                 aws.String(s.table),
		IndexName:                 aws.String(tabledef.IndexName),
		KeyConditionExpression:    aws.String(laterCondition),
		FilterExpression:          filter,
		ProjectionExpression:      aws.String(s.layout.listedAttributes()),
		ExpressionAttributeNames:  s.layout.keyNames,
		ExpressionAttributeValues: values,
		Limit:                     aws.Int32(listPage),
	}
	for {
		p, err := s.queryPage(ctx, in, slots)
		if err != nil {
			p = page{{err: err}}
		}
		select {
		case pages <- p:
		case <-ctx.Done():
			return
		}
		if err != nil || len(in.ExclusiveStartKey) == 0 {
			return
		}
	}
}

// listedAttributes returns a projection: the attributes of the index that a list
// shows.
func (l *layout) listedAttributes() string {
	return strings.Join(append([]string{l.key, tabledef.IndexSortKey}, tabledef.IndexAttributes()...), ", ")
}

// queryPage reads a page, and sets the start of the next one in in.
func (s *Store) queryPage(ctx context.Context, in *dynamodb.QueryInput, slots chan struct{}) (page, error) {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	out, err := s.client.Query(ctx, in)
	if err != nil {
		return nil, s.explain("Query", err)
	}
	in.ExclusiveStartKey = out.LastEvaluatedKey
	p := make(page, len(out.Items))
	for i, it := range out.Items {
		p[i].listed, p[i].err = s.layout.decodeListed(it)
	}
	return p, nil
}

const defaultSegments = 4

// The filters of scans: the items that are records, and those in any list.
const (
	recordCondition = "attribute_exists(" + attrState + ")"
	listedCondition = "attribute_exists(" + tabledef.IndexSortKey + ")"
)

// Scan lists every record of the table, including expired ones, in no order. It
// reads the whole table, large results too, with eventually consistent reads: half
// a read unit for each 4 KB. It is meant for operators and rare jobs.
//
// An entry with an error and an ID is a record that cannot be read; the list
// continues. An error without an ID ends the list.
func (s *Store) Scan(ctx context.Context, optFns ...func(*ScanOptions)) iter.Seq2[driver.Record, error] {
	o := ScanOptions{}
	for _, f := range optFns {
		f(&o)
	}
	return s.scan(ctx, o, recordCondition)
}

// sorted yields the entries that match in the order of their times.
func (s *Store) sorted(ctx context.Context, match func(*driver.Record) bool) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		var all page
		for r, err := range s.scan(ctx, *s.opts.NoIndex, listedCondition) {
			if err != nil && r.ID == "" {
				yield(driver.Listed{}, err)
				return
			}
			if err != nil || match(&r) {
				all = append(all, listed{r.Listed(), err})
			}
		}
		slices.SortStableFunc(all, func(a, b listed) int { return a.listed.Due.Compare(b.listed.Due) })
		for _, e := range all {
			if !yield(e.listed, e.err) {
				return
			}
		}
	}
}

// scan yields the records that meet a condition, which DynamoDB evaluates.
func (s *Store) scan(ctx context.Context, o ScanOptions, condition string) iter.Seq2[driver.Record, error] {
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
			filter, names, values := s.layout.filter(condition, nil)
			in := &dynamodb.ScanInput{
				TableName:                 aws.String(s.table),
				FilterExpression:          filter,
				ExpressionAttributeNames:  names,
				ExpressionAttributeValues: values,
				Segment:                   aws.Int32(int32(segment)),
				TotalSegments:             aws.Int32(int32(o.Segments)),
				ReturnConsumedCapacity:    types.ReturnConsumedCapacityTotal,
			}
			return s.scanSegment(ctx, in, p, found)
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
			if !found(s.entryOf(it)) {
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
	p.read.ReadUnits += unitsOf(out.ConsumedCapacity)
	p.tell(p.read)
}

// unitsOf returns the units that a call took.
func unitsOf(c *types.ConsumedCapacity) float64 {
	if c == nil {
		return 0
	}
	return aws.ToFloat64(c.CapacityUnits)
}

// entry is a record in a list, or the id of an unreadable record and the error. An
// invalid record, or one of a later version, must not hide the others.
type entry struct {
	record driver.Record
	err    error
}

func (s *Store) entryOf(it item) entry {
	r, err := s.layout.decode(it)
	if err != nil {
		return entry{driver.Record{ID: driver.RecordID(s.layout.nameOf(it))}, err}
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
