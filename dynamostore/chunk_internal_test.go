// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"strings"
	"testing"
	"time"
)

// A full chunk fits into an item of DynamoDB with every key: with the longest
// record id, and with the longest key that DynamoDB accepts.
func TestChunkItem_Fits(t *testing.T) {
	t.Parallel()
	for _, key := range []int{300 + 1 + 32 + 1 + 3, 2048} {
		it := plain.chunkItem(strings.Repeat("k", key), make([]byte, chunkSize), time.UnixMilli(253_402_300_799_999))
		size := itemSize(it)
		if size > maxItem {
			t.Errorf("with a key of %d bytes the item has %d bytes, and DynamoDB accepts %d", key, size, maxItem)
		}
		if spare := maxItem - size; spare > maxItem/100 {
			t.Errorf("with a key of %d bytes, %d bytes are left unused", key, spare)
		}
	}
}

// The computed limits, as numbers.
func TestChunkLimits(t *testing.T) {
	t.Parallel()
	for name, n := range map[string][2]int{
		"bytes in a chunk":                  {chunkSize, 405_504},
		"chunks of 6 MB":                    {(6<<20 + chunkSize - 1) / chunkSize, 16},
		"chunks of the largest result":      {maxChunks, 166},
		"full items that one call may read": {readBatch, 40},
	} {
		if n[0] != n[1] {
			t.Errorf("%s: %d, want %d", name, n[0], n[1])
		}
	}
}
