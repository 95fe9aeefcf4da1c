// SPDX-License-Identifier: Apache-2.0

// Package dynamotest is DynamoDB in memory, for tests of handlers that write with
// [dynamostore.Commit] or [dynamostore.CommitStep].
//
//	db := dynamotest.New("once", "orders")
//	store, err := dynamostore.New(db, "once")
//	guard, err := idempotent.New(store)
//	// call the handler; then look at the rows with db.GetItem or db.Scan
//
// A [DB] implements [dynamostore.Client], and UpdateItem for the handler's own
// rows:
//
//	rows          GetItem, PutItem, UpdateItem, DeleteItem, BatchGetItem, BatchWriteItem
//	lists         Query and Scan of tables and global secondary indexes, in pages
//	transactions  TransactWriteItems, with reasons for a cancellation and request tokens
//	tables        CreateTable, DescribeTable, UpdateTimeToLive, DescribeTimeToLive, and
//	              UpdateTable to make a table global with strong consistency
//
// It evaluates condition, filter, key condition, update and projection expressions
// as DynamoDB does, and refuses what DynamoDB refuses: reserved words, placeholders
// that are missing or unused, operands of the wrong type, keys that do not fit the
// table, paths into keys, items above 400 KB. Errors have the types of the SDK. The
// tests of this project run the same requests against DynamoDB Local.
//
// It never guesses: a request that uses anything else gets an error that contains
// "dynamotest does not implement". Among these are parameters of the API before
// expressions (Expected, KeyConditions and others), projections of nested paths,
// list elements in update expressions, and local secondary indexes. It does not
// delete expired items, throttle, or report conflicts between transactions.
//
// To count calls, change them, lose replies or inject faults, wrap the client with
// [Intercept].
package dynamotest

// Chapters, each of which refers only to those below it:
//
//	intercept.go   In: a database for a handler that is crashed; Intercept and Call
//	item.go        transactions, batches, GetItem, PutItem, UpdateItem, DeleteItem
//	list.go        queries and scans
//	table.go       New; tables, keys and indexes
//	update.go      update expressions
//	expression.go  conditions, projections, paths, reserved words
//	value.go       values, numbers and sizes
//	refusal.go     the way of every call, and its errors
