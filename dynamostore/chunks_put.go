package dynamostore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent/driver"
)

// writeBatch is the limit of one BatchWriteItem (API reference: 25 items and
// 16 MB). 25 full chunks have less than 10 MB, and less than 13 MB in the base64 of
// the request.
const writeBatch = 25

// PutChunks stores data next to the record id, in items of up to 400 KB, and
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
		puts[i].PutRequest = &types.PutRequest{Item: chunkItem(chunkKey(id, v, i), part, expires)}
	}
	for batch := range slices.Chunk(puts, writeBatch) {
		if err := s.batchWrite(ctx, batch); err != nil {
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
