// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent/driver"
)

// writeBatch is the limit of one BatchWriteItem (API reference: 25 items and
// 16 MB). 25 full chunks have less than 10 MB, and less than 13 MB in the base64 of
// the request.
const writeBatch = 25

// PutChunks stores data for the record id, in items of up to 400 KB in its table or
// in Options.ChunkTable, and
// returns the number of items. One call writes up to 25 items (9.6 MB); each KB
// costs one write unit. More than 64 MB are refused with [driver.ErrTooLarge].
// DynamoDB may delete the items two hours after expires; a zero time means never.
// See [driver.ChunkStore].
//
// The writes need no condition. The key contains the write id v, which was
// generated for this result and never recurs. So no other writer uses these keys,
// a repeated write changes nothing, and no reader looks for them before a record
// with v is stored, which happens afterwards.
func (s *Store) PutChunks(ctx context.Context, id driver.RecordID, v driver.Version, data []byte, expires time.Time) (int, error) {
	if len(data) > maxChunked {
		return 0, fmt.Errorf("dynamostore: the result has %d bytes, this store holds at most %d: %w", len(data), maxChunked, driver.ErrTooLarge)
	}
	count := max(1, (len(data)+chunkSize-1)/chunkSize) // zero would mean that the result is not in chunks
	puts := make([]types.WriteRequest, count)
	for i := range puts {
		part := data[i*chunkSize : min((i+1)*chunkSize, len(data))]
		puts[i].PutRequest = &types.PutRequest{Item: s.layout.chunkItem(chunkName(id, v, i), part, expires)}
	}
	for batch := range slices.Chunk(puts, writeBatch) {
		if err := s.chunks.batchWrite(ctx, batch); err != nil {
			return 0, err
		}
	}
	return count, nil
}

// batchWrite puts and deletes items that fit into one call.
func (s *Store) batchWrite(ctx context.Context, writes []types.WriteRequest) error {
	err := s.drain(ctx, len(writes), func() (left int, err error) {
		out, err := s.client.BatchWriteItem(ctx, &dynamodb.BatchWriteItemInput{
			RequestItems: map[string][]types.WriteRequest{s.table: writes},
		})
		if err != nil {
			return 0, err
		}
		writes = nil
		for _, unprocessed := range out.UnprocessedItems { // one table, which the reply may name differently
			writes = append(writes, unprocessed...)
		}
		return len(writes), nil
	})
	return s.explain("BatchWriteItem", err)
}

// readBatch is how many full items one BatchGetItem returns (API reference: 100
// items and 16 MB).
const readBatch = 16 << 20 / maxItem

// GetChunks returns the data that [Store.PutChunks] stored in count items, or
// [idempotent.ErrNoRecord] if one of the items is missing. The reads are
// consistent: each 4 KB costs one read unit. One call reads up to 40 items (15.4
// MB). DynamoDB returns at most 1 MB per partition and call, so several calls are
// normal if few partitions hold many chunks. See [driver.ChunkStore].
func (s *Store) GetChunks(ctx context.Context, id driver.RecordID, v driver.Version, count int) ([]byte, error) {
	if count < 1 || count > maxChunks {
		return nil, fmt.Errorf("dynamostore: invalid number of chunks %d in a record: this version reads 1 to %d; if a newer version wrote the record, deploy that version here too", count, maxChunks)
	}
	keys := make([]item, count)
	for i := range keys {
		keys[i] = s.layout.keyOf(chunkName(id, v, i))
	}
	for _, store := range s.chunkStores() {
		if data, err := store.readChunks(ctx, keys); !errors.Is(err, driver.ErrNoRecord) {
			return data, err
		}
	}
	return nil, driver.ErrNoRecord
}

// readChunks returns the data in the items of keys.
func (s *Store) readChunks(ctx context.Context, keys []item) ([]byte, error) {
	parts, length := make([][]byte, 0, len(keys)), 0
	for batch := range slices.Chunk(keys, readBatch) {
		found, err := s.getBatch(ctx, batch)
		if err != nil {
			return nil, err
		}
		for _, key := range batch {
			it := found[s.layout.nameOf(key)]
			if it == nil {
				return nil, driver.ErrNoRecord
			}
			part, err := decodeChunk(it)
			if err != nil {
				return nil, err
			}
			parts, length = append(parts, part), length+len(part)
		}
	}
	data := make([]byte, 0, length)
	for _, part := range parts {
		data = append(data, part...)
	}
	return data, nil
}

// getBatch returns the existing items of keys, indexed by name because DynamoDB
// returns them in any order. The keys must fit into one call.
func (s *Store) getBatch(ctx context.Context, keys []item) (found map[string]item, err error) {
	found = make(map[string]item, len(keys))
	err = s.drain(ctx, len(keys), func() (left int, err error) {
		out, err := s.client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{
			RequestItems: map[string]types.KeysAndAttributes{s.table: {Keys: keys, ConsistentRead: aws.Bool(true)}},
		})
		if err != nil {
			return 0, err
		}
		for _, items := range out.Responses { // one table, which the reply may name differently
			for _, it := range items {
				found[s.layout.nameOf(it)] = it
			}
		}
		keys = nil
		for _, unprocessed := range out.UnprocessedKeys {
			keys = append(keys, unprocessed.Keys...)
		}
		return len(keys), nil
	})
	return found, s.explain("BatchGetItem", err)
}

// A large result is stored in items of the record's table, or of
// Options.ChunkTable:
//
//	pk    the prefix + the record id + "#" + the write id in hex + "#" + its number, from 0
//	v     format version
//	part  the bytes
//	ttl   when DynamoDB may delete the item
//
// A chunk cannot be mistaken for a record, nor a record for a chunk. Their keys
// always differ: after the last "#" a record id has 43 characters
// ([idempotent.RecordID]), and a chunk's key has at most three. A call that uses a
// chunk's key as a record id fails. The chunk has no exp, so the condition of an
// insert is false; it has no wid, so the condition of a replace is false; and
// decode finds its required attributes missing.

// chunkSize is the number of result bytes in each chunk but the last, which has
// the rest. It leaves 4 KB for the key, which DynamoDB limits to 2 KB, and for the
// names. Readers do not depend on it.
const chunkSize = maxItem - 4<<10

const (
	// maxChunked limits a result in chunks, in bytes. Lambda returns at most 6 MB,
	// and package idempotent decompresses at most this much.
	maxChunked = 64 << 20
	maxChunks  = (maxChunked + chunkSize - 1) / chunkSize
)

// chunkGrace is how long after the record's expiry DynamoDB may delete a chunk. It
// is an hour longer than for the record, so that a caller that has just read the
// record finds its chunks.
const chunkGrace = ttlGrace + time.Hour

func chunkName(id driver.RecordID, v driver.Version, number int) string {
	return string(id) + "#" + hex.EncodeToString(v[:]) + "#" + strconv.Itoa(number)
}

// chunkItem returns a chunk as a DynamoDB item. If expires is zero, the item never
// expires.
func (l *layout) chunkItem(name string, part []byte, expires time.Time) item {
	it := item{
		attrFormat: &types.AttributeValueMemberN{Value: formatVersion},
		attrPart:   &types.AttributeValueMemberB{Value: part},
	}
	l.place(it, name)
	if !expires.IsZero() {
		it[l.ttl] = number(ceilSeconds(expires.Add(chunkGrace)))
	}
	return it
}

// decodeChunk returns the bytes in a chunk.
func decodeChunk(it item) ([]byte, error) {
	d := decoder{kind: "chunk", item: it}
	d.format()
	part := d.bytes(attrPart, required)
	return part, d.err
}

// errUndone is the cause of a batch of which DynamoDB did nothing: it reports that
// without an error.
var errUndone = errors.New("the table or one of its partitions is throttled; see its throttling metrics")

// drain sends a batch of size items, and what is left of it, until nothing is
// left. DynamoDB returns the part of a batch that it did not process and
// recommends growing pauses (developer guide, "Batch operations and error
// handling"). It returns a throttling error only if it processed nothing; drain
// handles both in the same way. The pauses start again from the shortest after any
// progress. The number of attempts is limited as in persist, which also retries
// conflicts here.
func (s *Store) drain(ctx context.Context, size int, send func() (left int, err error)) error {
	for attempt := 1; ; attempt++ {
		left, cause := 0, errUndone
		err := s.persist(ctx, func() (err error) {
			left, err = send()
			return err
		})
		switch {
		case err == nil && left == 0:
			return nil
		case err == nil && left < size:
			size, attempt = left, 1
		case isThrottling(err):
			cause = err
		case err != nil:
			return err
		}
		if err := s.pause(ctx, attempt, "not all of the batch was processed", cause); err != nil {
			return err
		}
	}
}

// isThrottling reports whether err is a throttling error of AWS. The client has
// already retried it, with the few retries that suit a record. A batch is retried
// for longer, because otherwise its result is lost for replays.
func isThrottling(err error) bool {
	return retry.IsErrorThrottles(retry.DefaultThrottles).IsErrorThrottle(err) == aws.TrueTernary
}
