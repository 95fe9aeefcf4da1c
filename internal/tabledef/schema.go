// SPDX-License-Identifier: Apache-2.0

// Package tabledef has what package dynamostore, the command line and infrastructure code
// must name alike about a table: its attributes, its index, and the environment variables
// that describe it.
package tabledef

// The schema of a table. Functions of different versions share one table, so it is fixed,
// except for the two names that options can change.
const (
	// PartitionKey is the default name of the partition key, a string: the prefix and the
	// record id. Without a sort key it is the table's only key attribute.
	PartitionKey = "pk"
	// TTLAttribute is the default name of the attribute of the table's time to live. It is
	// a number: seconds since 1970.
	TTLAttribute = "ttl"
	// IndexName is the global secondary index of the records that reconciliation has to
	// find. It projects the keys and [IndexAttributes].
	IndexName = "recovery"
	// IndexPartitionKey is the index's partition key, a string.
	IndexPartitionKey = "rk"
	// IndexSortKey is the index's sort key, a number: when the record is due, in
	// milliseconds since 1970.
	IndexSortKey = "rat"
	// ScanKey is the partition key, without the prefix, of the item in which the scans for
	// abandoned runs note how far they are. No record has it, because record ids begin with
	// an operation.
	ScanKey = "#scan"
	// OpenKey is the partition key, without the prefix, that a function reads while it
	// starts. No item has it.
	OpenKey = "#open"
)

// The attributes that the index projects besides its keys.
const (
	State    = "st"    // of a record
	Settled  = "dt"    // since when it has that state
	LeaseEnd = "lease" // the end of its lease
)

// IndexAttributes returns the attributes that the index projects besides its keys. With
// them a reconciler decides which records to read, and knows how long the others wait. They
// never change without the keys of the index, so they make no write more expensive.
func IndexAttributes() []string { return []string{State, Settled, LeaseEnd} }
