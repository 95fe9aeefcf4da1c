package dynamostore

import (
	"encoding/hex"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent/driver"
)

// A large result is stored next to its record, in items of the same table:
//
//	pk    the record id + "#" + the write id in hex + "#" + its number, from 0
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

// attrPart holds the bytes of a chunk. No record has an attribute of that name.
const attrPart = "part"

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

func chunkKey(id driver.RecordID, v driver.Version, number int) string {
	return string(id) + "#" + hex.EncodeToString(v[:]) + "#" + strconv.Itoa(number)
}

// chunkItem returns a chunk as a DynamoDB item. If expires is zero, the item never
// expires.
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
