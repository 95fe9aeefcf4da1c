package dynamostore

import "hash/crc32"

// shards is the number of partition keys of the index. It is fixed for ever, like
// the hash below: if a handler and a reconciler used different values, records
// would stay hidden.
//
// Without shards all due records would be in one partition. A partition handles
// 1,000 write units per second (developer guide, "Burst and adaptive capacity"),
// and an index that throttles also throttles its table.
const shards = 64

// The prefixes of a record's index key: due for reconciliation, or given up.
const (
	duePrefix       = "u#"
	exhaustedPrefix = "x#"
)

// indexKey returns the index's partition key of a record.
func indexKey(pk string, exhausted bool) string {
	prefix := duePrefix
	if exhausted {
		prefix = exhaustedPrefix
	}
	return shardKey(prefix, int(crc32.ChecksumIEEE([]byte(pk))%shards))
}

// shardKey returns the index's partition key of shard n: the prefix and two
// digits, 00 to 63.
func shardKey(prefix string, n int) string {
	return prefix + string([]byte{'0' + byte(n/10), '0' + byte(n%10)})
}
