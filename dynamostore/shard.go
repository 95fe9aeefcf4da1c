package dynamostore

import "hash/crc32"

// shards is the number of partition keys of the index. It is fixed for ever,
// as is the hash below: a handler and a reconciler that disagreed about either
// would hide records from each other.
//
// Without shards every record that is due would be in one partition, and a
// partition takes 1,000 write units per second (developer guide, "Burst and
// adaptive capacity"); an index that throttles throttles its table.
const shards = 64

// What begins the index key of a record: whether it is due for reconciliation,
// or was given up.
const (
	duePrefix       = "u#"
	exhaustedPrefix = "x#"
)

// indexKey returns the index's partition key for a record.
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
