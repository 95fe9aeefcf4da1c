// SPDX-License-Identifier: Apache-2.0

// Package dynamostore is a store of package idempotent in one DynamoDB table.
//
//	Guard ─► Insert   PutItem  if attribute_not_exists(pk) OR exp <= :now
//	      ─► Replace  PutItem  if wid = :was
//	      ─► Get      GetItem  with a consistent read
//
// Each is one call. DynamoDB returns the current record with a refused write, so a
// duplicate costs one round trip and no read.
//
// DynamoDB bills a write, even a refused one, by the size of the item, and stores
// no item above 400 KB. So a result above 4 KB is stored in separate items,
// before the record that refers to them:
//
//	Guard ─► PutChunks  BatchWriteItem  of record id # write id # 0, 1, …
//	      ─► GetChunks  BatchGetItem    with a consistent read
//
// One such call usually suffices for the largest response of a Lambda function,
// 6 MB. A replay of such a response costs one extra call.
//
// One table serves every operation of every function:
//
//	pk                 the record id; no sort key
//	ttl                when DynamoDB may delete the item: an hour after the record
//	                   expired, its chunks another hour later
//	index "recovery"   only the records that reconciliation has to find
//
// [Store.Check] reports problems of a table, at deploy time and in tests.
// [Store.CreateTable] creates a table for tests and local use. [Open] opens the store that
// the environment describes, and [NewClient] returns a client with few, quick retries. A
// table that has other items, too, can have a sort key and other names of its attributes:
// see [Options].
//
// Package [github.com/once-lambda/once/dynamostore/dynamotest] is DynamoDB in
// memory, for tests of handlers.
//
// A handler needs dynamodb:PutItem and dynamodb:GetItem on the table, and for
// results above 4 KB dynamodb:BatchWriteItem and dynamodb:BatchGetItem. Without
// dynamodb:BatchWriteItem it works, but such a result is not stored and cannot be
// replayed. See the runnable example of [New].
package dynamostore

// Chapters, each of which refers only to those below it:
//
//	transact.go      Commit and CommitStep: items and the outcome in one transaction
//	refusal.go       what a refused transaction says
//	delete.go        Delete, and chunks that were left behind
//	abandoned.go     runs that were abandoned, by a scan that continues
//	expire.go        expired items of a table without a time to live
//	bookmark.go      where that scan is, and how fast it goes
//	list.go          due records, by index or by scan
//	chunk.go         large results
//	table_create.go  CreateTable
//	table_check.go   Check
//	client.go        Open, its call while a function starts, and NewClient
//	protocol.go      how NewClient encodes and decodes the messages of each request
//	store.go         New, Get, Insert, Replace; retries and advice
//	size.go          the size of an item
//	item.go          a record as an item, and back
//	layout.go        where the items are in a table, and the names of attributes
