package dynamostore

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent/driver"
)

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
		keys[i] = item{PartitionKey: text(chunkKey(id, v, i))}
	}
	parts, length := make([][]byte, 0, count), 0
	for batch := range slices.Chunk(keys, readBatch) {
		found, err := s.getBatch(ctx, batch)
		if err != nil {
			return nil, err
		}
		for _, key := range batch {
			it := found[keyOf(key)]
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

// getBatch returns the existing items of keys, indexed by key because DynamoDB
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
				found[keyOf(it)] = it
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

// keyOf returns the key of an item, or "" if it has no string key.
func keyOf(it item) string {
	key, _ := it[PartitionKey].(*types.AttributeValueMemberS)
	if key == nil {
		return ""
	}
	return key.Value
}
