// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent/driver"
)

// deleteCondition excludes records that an attempt may be working on, and records
// whose outcome is unknown.
const deleteCondition = attrVersion + " = :was AND " + attrState + " IN (:completed, :retryable)"

// Delete removes the record id and its large result, if the record has the version
// was and is completed or retryable. Otherwise it removes nothing and returns the
// current record, or [idempotent.ErrNoRecord].
//
// The key of a deleted record counts as new. So use Delete only for records past
// their Expires, which DynamoDB's time to live would delete eventually. Delete
// does not check Expires: the caller does, and the version ensures that the
// deleted record is the one that the caller read.
//
// Delete needs dynamodb:DeleteItem, and dynamodb:BatchWriteItem for large results.
func (s *Store) Delete(ctx context.Context, id driver.RecordID, was driver.Version) (current *driver.Record, err error) {
	in := &dynamodb.DeleteItemInput{
		TableName:           aws.String(s.table),
		Key:                 s.layout.keyOf(string(id)),
		ConditionExpression: aws.String(deleteCondition),
		ExpressionAttributeValues: item{
			":was":       &types.AttributeValueMemberB{Value: was[:]},
			":completed": text(driver.StateCompleted.Code()),
			":retryable": text(driver.StateRetryable.Code()),
		},
		ReturnValues:                        types.ReturnValueAllOld,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	out, err := s.deleteItem(ctx, in)
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		if len(failed.Item) == 0 {
			return s.Get(ctx, id) // as in Replace; see standing
		}
		return s.layout.decode(failed.Item)
	}
	if err != nil {
		return nil, s.explain("DeleteItem", err)
	}
	d := decoder{kind: "record", item: out.Attributes}
	return nil, s.deleteChunks(ctx, id, was, d.chunks().Count)
}

// deleteChunks removes the items of a large result whose record is gone.
func (s *Store) deleteChunks(ctx context.Context, id driver.RecordID, v driver.Version, count int) error {
	deletes := make([]types.WriteRequest, max(0, min(count, maxChunks)))
	for i := range deletes {
		deletes[i].DeleteRequest = &types.DeleteRequest{Key: s.layout.keyOf(chunkName(id, v, i))}
	}
	for batch := range slices.Chunk(deletes, writeBatch) {
		for _, store := range s.chunkStores() {
			if err := store.batchWrite(ctx, batch); err != nil {
				return err
			}
		}
	}
	return nil
}

// PurgeOptions are the options of [Store.PurgeChunks]. The zero value of each
// field is its documented default.
type PurgeOptions struct {
	// DryRun counts the chunks and removes none. Default: false.
	DryRun bool
	// Operations limits the purge to chunks of these operations. Default: all.
	Operations []string
	// Segments is how many parts of the table are read in parallel. Default: 4.
	Segments int
}

// orphanCondition selects chunks that DynamoDB's time to live may delete.
const orphanCondition = "attribute_exists(" + attrPart + ") AND " + ttlPlaceholder + " < :before"

// keysPage is how many keys one BatchGetItem reads (API reference, BatchGetItem:
// 100 items).
const keysPage = 100

// PurgeChunks removes the chunks of large results whose time to live ended before
// the given time and that no record refers to, and returns how many. A process
// that is killed between writing a chunk and its record leaves such chunks;
// [Store.Delete] removes only the chunks of a record.
//
// Like [Store.Scan], it reads the whole table, Options.ChunkTable too, and then the
// records of the chunks that it finds. The role needs dynamodb:Scan, dynamodb:BatchGetItem and
// dynamodb:BatchWriteItem.
func (s *Store) PurgeChunks(ctx context.Context, before time.Time, optFns ...func(*PurgeOptions)) (int, error) {
	o := PurgeOptions{}
	for _, f := range optFns {
		f(&o)
	}
	if o.Segments == 0 {
		o.Segments = defaultSegments
	}
	if o.Segments < 1 || o.Segments > 1_000_000 {
		return 0, fmt.Errorf("dynamostore: PurgeOptions.Segments is %d; it must be 1 to 1,000,000 (or zero for the default)", o.Segments)
	}
	purged := 0
	for _, store := range s.chunkStores() {
		n, err := s.purge(ctx, store, before, &o)
		if purged += n; err != nil {
			return purged, err
		}
	}
	return purged, nil
}

// purge removes the chunks in the table of a store.
func (s *Store) purge(ctx context.Context, chunks *Store, before time.Time, o *PurgeOptions) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var purged atomic.Int64
	var segments sync.WaitGroup
	for segment := range o.Segments {
		segments.Go(func() {
			filter, _, values := s.layout.filter(orphanCondition, item{":before": number(before.Unix())})
			names := map[string]string{ttlPlaceholder: s.layout.ttl}
			maps.Copy(names, s.layout.keyNames)
			in := &dynamodb.ScanInput{
				TableName:                 aws.String(chunks.table),
				FilterExpression:          filter,
				ProjectionExpression:      aws.String(s.layout.key),
				ExpressionAttributeNames:  names,
				ExpressionAttributeValues: values,
				Segment:                   aws.Int32(int32(segment)),
				TotalSegments:             aws.Int32(int32(o.Segments)),
			}
			if err := s.purgeSegment(ctx, chunks, in, o, &purged); err != nil {
				cancel(err)
			}
		})
	}
	segments.Wait()
	return int(purged.Load()), context.Cause(ctx)
}

func (s *Store) purgeSegment(ctx context.Context, chunks *Store, in *dynamodb.ScanInput, o *PurgeOptions, purged *atomic.Int64) error {
	for {
		out, err := s.client.Scan(ctx, in)
		if err != nil {
			return chunks.explain("Scan", err)
		}
		for batch := range slices.Chunk(out.Items, keysPage) {
			n, err := s.purgeBatch(ctx, chunks, batch, o)
			purged.Add(int64(n))
			if err != nil {
				return err
			}
		}
		if len(out.LastEvaluatedKey) == 0 {
			return nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

// purgeBatch removes the chunks that no record refers to. They cannot be written
// again: their write ids never recur, and their writers ended long ago.
func (s *Store) purgeBatch(ctx context.Context, table *Store, items []item, o *PurgeOptions) (purged int, err error) {
	var chunks []chunkRef
	records := map[string]item{}
	for _, it := range items {
		c, ok := parseChunkName(s.layout.nameOf(it))
		if !ok || len(o.Operations) > 0 && !slices.Contains(o.Operations, c.id.Operation()) {
			continue
		}
		chunks = append(chunks, c)
		records[string(c.id)] = s.layout.keyOf(string(c.id))
	}
	if len(chunks) == 0 {
		return 0, nil
	}
	keys := make([]item, 0, len(records))
	for _, key := range records {
		keys = append(keys, key)
	}
	found, err := s.getBatch(ctx, keys)
	if err != nil {
		return 0, err
	}
	var deletes []types.WriteRequest
	for _, c := range chunks {
		if !s.namesChunk(found[string(c.id)], c) {
			deletes = append(deletes, types.WriteRequest{DeleteRequest: &types.DeleteRequest{Key: s.layout.keyOf(c.name)}})
		}
	}
	if o.DryRun {
		return len(deletes), nil
	}
	for batch := range slices.Chunk(deletes, writeBatch) {
		if err := table.batchWrite(ctx, batch); err != nil {
			return purged, err
		}
		purged += len(batch)
	}
	return purged, nil
}

// chunkRef is the parsed name of a chunk.
type chunkRef struct {
	name    string
	id      driver.RecordID
	version driver.Version
	number  int
}

// parseChunkName is the inverse of chunkName. It decides by making the name again,
// so that what it cannot parse needs no other check.
func parseChunkName(name string) (c chunkRef, ok bool) {
	last := strings.LastIndexByte(name, '#')
	first := strings.LastIndexByte(name[:max(last, 0)], '#')
	if first < 1 {
		return c, false // no record id
	}
	c = chunkRef{name: name, id: driver.RecordID(name[:first])}
	c.number, _ = strconv.Atoi(name[last+1:])
	version, _ := hex.DecodeString(name[first+1 : last])
	copy(c.version[:], version)
	return c, chunkName(c.id, c.version, c.number) == name
}

// namesChunk reports whether a record refers to the chunk. A record that cannot be
// read counts as referring to it.
func (s *Store) namesChunk(record item, c chunkRef) bool {
	if record == nil {
		return false
	}
	r, err := s.layout.decode(record)
	return err != nil || r.Version == c.version && c.number < r.Chunks.Count
}
