package dynamostore

import (
	"encoding/hex"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent/driver"
)

// A large result is kept beside its record, in items of the same table:
//
//	pk    the record id + "#" + the write id in hex + "#" + its number, from 0
//	v     format version
//	part  the bytes
//	ttl   when DynamoDB may delete the item
//
// A chunk is never taken for a record, nor the other way round. Their keys
// cannot be equal: behind the last "#" a record id has 43 characters
// ([idempotent.RecordID]), a chunk's key at most three. And who asks for a chunk
// by its key as if it were a record gets an error: it has no exp, which would let
// an insert through, no wid, which would let a replace through, and none of the
// attributes that decode requires.

// attrPart holds the bytes of a chunk. No record has an attribute of that name.
const attrPart = "part"

// chunkSize is how many bytes of the result are in a chunk; the last one has
// the rest. It leaves 4 KB for the key, which DynamoDB limits to 2 KB, and for
// the names. Readers do not depend on it.
const chunkSize = maxItem - 4<<10

const (
	// maxChunked bounds a result in chunks, in bytes. Lambda returns at most
	// 6 MB, and package idempotent unpacks at most this much.
	maxChunked = 64 << 20
	maxChunks  = (maxChunked + chunkSize - 1) / chunkSize
)

// chunkGrace is how long DynamoDB keeps a chunk after its record expired: an
// hour longer than the record, so that whoever has just read the record finds
// its chunks.
const chunkGrace = ttlGrace + time.Hour

// chunkKey returns the key of a chunk.
func chunkKey(id driver.RecordID, v driver.Version, number int) string {
	return string(id) + "#" + hex.EncodeToString(v[:]) + "#" + strconv.Itoa(number)
}

// chunkItem returns a chunk as DynamoDB keeps it. Like a record, it stays where
// expires is zero.
func chunkItem(key string, part []byte, expires time.Time) item {
	it := item{
		PartitionKey: text(key),
		attrFormat:   &types.AttributeValueMemberN{Value: formatVersion},
		attrPart:     &types.AttributeValueMemberB{Value: part},
	}
	if !expires.IsZero() {
		it[TTLAttribute] = number(ceilSeconds(expires.Add(chunkGrace)))
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
