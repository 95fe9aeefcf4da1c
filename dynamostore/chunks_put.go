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

// writeBatch is the most that one BatchWriteItem takes (API reference: 25 items
// and 16 MB). As many full chunks have less than 10 MB, and less than 13 in the
// base64 of the request.
const writeBatch = 25

// PutChunks keeps data beside the record id, in items of up to 400 KB, and
// returns in how many. 25 items, which are 9.6 MB, cost one call, and each KB a
// write unit. More than 64 MB are [idempotent.ErrTooLarge]. DynamoDB may delete
// them two hours after expires; a zero time means never. See
// [driver.ChunkStore].
//
// There is no condition on these writes, and none is needed: the key has the
// write id v in it, which was drawn for this one result and never recurs. So
// nobody else writes there, doing it twice changes nothing, and nobody looks
// there before a record says so that carries v, which is written afterwards.
func (s *Store) PutChunks(ctx context.Context, id driver.RecordID, v driver.Version, data []byte, expires time.Time) (int, error) {
	if len(data) > maxChunked {
		return 0, fmt.Errorf("dynamostore: the result has %d bytes and this store keeps at most %d: %w", len(data), maxChunked, driver.ErrTooLarge)
	}
	count := max(1, (len(data)+chunkSize-1)/chunkSize) // none would mean: not in chunks
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

// batchWrite puts and deletes what fits into one call.
func (s *Store) batchWrite(ctx context.Context, writes []types.WriteRequest) error {
	err := s.drain(ctx, len(writes), func() (left int, err error) {
		out, err := s.client.BatchWriteItem(ctx, &dynamodb.BatchWriteItemInput{
			RequestItems: map[string][]types.WriteRequest{s.table: writes},
		})
		if err != nil {
			return 0, err
		}
		writes = nil
		for _, unprocessed := range out.UnprocessedItems { // of the one table, by whatever name
			writes = append(writes, unprocessed...)
		}
		return len(writes), nil
	})
	return s.explain("BatchWriteItem", err)
}
