// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/tabledef"
)

// A record in progress has the sort key of the index, which is when it is due, and
// not the partition key, unless its run has announced itself. So it is not in the
// index, and a first request costs no write there. A process that ends without a
// warning, for example because it has no memory left, leaves such a record. A scan
// finds it.

// The filters of scans for such records.
const (
	runningCondition   = "attribute_not_exists(" + tabledef.IndexPartitionKey + ") AND attribute_exists(" + tabledef.IndexSortKey + ")"
	abandonedCondition = "attribute_not_exists(" + tabledef.IndexPartitionKey + ") AND " + tabledef.IndexSortKey + " <= :now"
)

// Running lists the records in progress that wait for reconciliation and are not
// in the index, in no order. It reads the whole table like [Store.Scan], at once.
func (s *Store) Running(ctx context.Context) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		if s.opts.NoIndex != nil {
			return // Due lists them
		}
		s.scan(ctx, ScanOptions{}, runningCondition)(func(r driver.Record, err error) bool {
			return yield(r.Listed(), err)
		})
	}
}

// Abandoned reads the table for records in progress that are due by now and not
// announced, and passes them to handle in pages: runs whose process ended without a
// warning. A call reads until its context ends, for at most 15 minutes, and at most
// 1,000 read units a second for each of Options.ScanSegments. The next
// call continues where it ended. See [driver.AbandonedLister].
//
// After a pass over the table that found nothing, the next one begins
// Options.ScanEvery after its end. What ended one process can end others: after a
// pass that found a record, the next one begins after an hour, if that is sooner, and
// each pass that finds nothing doubles the pause. In a table with a Prefix, where a
// pass reads other items too, the pause is always ScanEvery. Until a pass begins, a
// call costs half a read unit. [Store.BeginScan] begins one at once. A position that
// is damaged, or whose time is in the future, is replaced by a new pass.
//
// The reads are eventually consistent: 8 KB cost one read unit, whatever the filter
// removes, chunks of large results included (see Options.ChunkTable). Where a pass
// is, and which call reads, is in an item of the table, which costs two write units
// for each call that reads.
//
// With Options.Consistency, the pass also deletes each record an hour after its expiry
// and each chunk two hours after that of its record, from Options.ChunkTable, too. A
// deletion is conditional on the version and the expiry, so an item that was renewed
// stays. Deletions do not count as findings. They are limited to ten at a time, and to
// 250 write units a second for each segment. A throttled one ends the call, and the next
// call repeats its page. After any other error the call deletes nothing more, and reads
// on: abandoned runs are found without the permission to delete. So an item is deleted
// at the latest ScanEvery, and the time of two passes, after it may be.
//
// The role needs dynamodb:Scan, dynamodb:GetItem and dynamodb:PutItem on the table. With
// Options.Consistency it needs dynamodb:DeleteItem, too, and all four on
// Options.ChunkTable.
func (s *Store) Abandoned(ctx context.Context, now time.Time, handle func([]driver.Listed) bool) (driver.Scanned, error) {
	if s.opts.ScanEvery < 0 || s.opts.NoIndex != nil {
		return driver.Scanned{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, longestRead)
	defer cancel()
	if s.opts.Consistency != Strong || s.chunks == s {
		return s.readOn(ctx, now, handle)
	}
	var chunks driver.Scanned
	var chunksErr error
	var ended sync.WaitGroup
	ended.Go(func() { chunks, chunksErr = s.chunks.readOn(ctx, now, nil) })
	scanned, err := s.readOn(ctx, now, handle)
	ended.Wait()
	scanned.Items, scanned.ReadUnits = scanned.Items+chunks.Items, scanned.ReadUnits+chunks.ReadUnits
	scanned.Deleted += chunks.Deleted
	scanned.Late = scanned.Late || chunks.Late
	scanned.Replaced = cmp.Or(scanned.Replaced, chunks.Replaced)
	return scanned, errors.Join(err, chunksErr)
}

// readOn continues the pass over one table, or begins one. The context has a deadline.
func (s *Store) readOn(ctx context.Context, now time.Time, handle func([]driver.Listed) bool) (driver.Scanned, error) {
	mark, err := s.bookmark(ctx)
	if err != nil {
		return driver.Scanned{}, unlessEnded(ctx, err)
	}
	if mark.wrong = mark.problem(now); mark.wrong != "" || mark.done() && !now.Before(mark.ended.Add(min(mark.pause, s.opts.ScanEvery))) {
		mark.begin(now, s.opts.ScanSegments)
	}
	if mark.done() || mark.reserved.After(now) {
		return mark.scanned(now, s.opts.ScanEvery), nil
	}
	mark.reserved = now.Add(timeLeft(ctx) + saveTimeout)
	if mine, err := s.putBookmark(ctx, mark); !mine {
		mark.wrong = "" // the other call replaces it
		return mark.scanned(now, s.opts.ScanEvery), unlessEnded(ctx, err)
	}
	p := &pass{
		store: s, now: now, mark: mark, handle: handle,
		pace:   pace{units: fullPage, every: time.Second * fullPage / time.Duration(scanUnits*len(mark.starts))},
		reaper: newReaper(s, now, len(mark.starts)),
	}
	err = p.read(ctx)
	mark.reserved = time.Time{}
	if mark.done() {
		mark.end(now, s.shortestPause(), s.opts.ScanEvery)
	}
	save, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	_, saveErr := s.putBookmark(save, mark) // if it is not mine any more, another call has gone on
	result := mark.scanned(now, s.opts.ScanEvery)
	result.Items, result.ReadUnits, result.Deleted = p.done.Items, p.done.ReadUnits, p.reaper.deleted
	return result, errors.Join(err, saveErr)
}

// BeginScan makes the next call of [Store.Abandoned] begin a pass over the table,
// without the rest of the pause. It reports false if a pass has begun and not ended.
// It reads and writes one item.
func (s *Store) BeginScan(ctx context.Context, now time.Time) (begins bool, err error) {
	mark, err := s.bookmark(ctx)
	switch {
	case err != nil:
		return false, err
	case mark.was == nil || mark.problem(now) != "":
		return true, nil // the next call begins a pass anyway
	case !mark.done():
		return false, nil
	}
	mark.pause = 0
	return s.putBookmark(ctx, mark)
}

// LastScan returns when the pass over the table began that is under way, or the last
// one, and when the last one ended. Both are zero before the first pass. It reads one
// item.
func (s *Store) LastScan(ctx context.Context) (driver.Scanned, error) {
	mark, err := s.bookmark(ctx)
	if err != nil {
		return driver.Scanned{}, err
	}
	return driver.Scanned{Began: mark.began, Ended: mark.ended}, nil
}

// shortestPause is the pause after a pass that found something, if it is shorter than
// Options.ScanEvery.
func (s *Store) shortestPause() time.Duration {
	if s.layout.prefix != "" {
		return s.opts.ScanEvery
	}
	return time.Hour
}

// fullPage is how many read units a full page of a scan costs: 1 MB.
const fullPage = 128

// pass is a call of Abandoned that reads.
type pass struct {
	store  *Store
	now    time.Time
	mark   *bookmark
	handle func([]driver.Listed) bool
	pace   pace

	reaper *reaper // of a table without a time to live

	stop context.CancelFunc // ends the call

	mu     sync.Mutex
	closed bool  // handle has returned false
	err    error // of the reads
	done   driver.Scanned
}

// read reads all segments that are not done until ctx ends.
func (p *pass) read(ctx context.Context) error {
	ctx, p.stop = context.WithCancel(ctx)
	defer p.stop()
	var segments sync.WaitGroup
	for i := range p.mark.starts {
		segments.Go(func() {
			for p.mark.starts[i] != nil && p.pace.wait(ctx) {
				if !p.page(ctx, i) {
					p.stop()
					return
				}
			}
		})
	}
	segments.Wait()
	return errors.Join(p.err, p.reaper.err)
}

// page reads a page of a segment. The segment starts after it once its records are
// handled. A throttled read ends the call: requests come first.
func (p *pass) page(ctx context.Context, segment int) (more bool) {
	l := p.store.layout
	s := p.selection()
	filter, _, values := l.filter(s.condition, s.values)
	in := &dynamodb.ScanInput{
		TableName:                 aws.String(p.store.table),
		FilterExpression:          filter,
		ProjectionExpression:      aws.String(s.projection),
		ExpressionAttributeNames:  s.names,
		ExpressionAttributeValues: values,
		Segment:                   aws.Int32(int32(segment)),
		TotalSegments:             aws.Int32(int32(len(p.mark.starts))),
		ReturnConsumedCapacity:    types.ReturnConsumedCapacityTotal,
	}
	if start := p.mark.starts[segment]; len(start) > 0 {
		in.ExclusiveStartKey = start
	}
	out, err := p.store.client.Scan(ctx, in)
	if err != nil {
		p.fails(ctx, "Scan", err)
		return false
	}
	p.pace.spent(out.ConsumedCapacity)
	found := make([]driver.Listed, 0, len(out.Items))
	var expired []item
	for _, it := range out.Items {
		if p.reaper.isExpired(it) {
			expired = append(expired, it)
			continue
		}
		listed, _ := l.decodeListed(it) // with an error, it has the id
		found = append(found, listed)
	}
	if !p.handled(out, found) {
		return false
	}
	if !p.reaper.deleteAll(ctx, expired) { // claims come first
		p.stop()
	}
	if ctx.Err() != nil {
		return false // the next call reads the page again
	}
	p.mark.starts[segment] = out.LastEvaluatedKey // nil: the segment is done
	return true
}

// handled counts a page and passes its records to handle.
func (p *pass) handled(out *dynamodb.ScanOutput, found []driver.Listed) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done.Items += int(out.ScannedCount)
	p.done.ReadUnits += unitsOf(out.ConsumedCapacity)
	if p.closed || len(found) > 0 && !p.handle(found) {
		p.closed = true
		return false
	}
	p.mark.found = p.mark.found || len(found) > 0
	return true
}

// fails keeps an error of a call. A call that was throttled, or ended with ctx, is no
// error: the next call of Abandoned repeats it.
func (p *pass) fails(ctx context.Context, operation string, err error) {
	if err = unlessEnded(ctx, err); isThrottling(err) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = errors.Join(p.err, p.store.explain(operation, err))
}

// selection is what a pass selects in its table.
type selection struct {
	condition, projection string
	names                 map[string]string
	values                item
}

// selection returns what the pass selects: abandoned runs, and expired items in a table
// without a time to live.
func (p *pass) selection() selection {
	l := p.store.layout
	s := selection{abandonedCondition, l.listedAttributes(), l.keyNames, item{":now": number(p.now.UnixMilli())}}
	switch {
	case p.store.opts.Consistency != Strong:
		return s
	case p.handle == nil: // the table holds only chunks
		s.condition, s.values = expiredCondition, item{":expired": p.reaper.expiry()}
	default:
		s.condition = "(" + s.condition + ") OR " + expiredCondition
		s.values[":expired"] = p.reaper.expiry()
	}
	s.projection += ", " + attrVersion + ", " + ttlPlaceholder
	s.names = map[string]string{ttlPlaceholder: l.ttl}
	maps.Copy(s.names, l.keyNames)
	return s
}
