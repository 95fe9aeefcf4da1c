// SPDX-License-Identifier: Apache-2.0

// Package operate finds and changes records as an operator does. The commands of once
// and its console share it.
//
// Chapters, from a change of a record to the store:
//
//	shape.go         refuses results whose shape differs from the stored ones
//	resolve.go       writes evidence
//	forget.go        discards an outcome
//	requeue.go       lets reconciliation ask again
//	results.go       what was done with many records
//	stats.go         counts all records
//	find.go          finds a record
//	evidence.go      evidence in the form that a record declares
//	confirmation.go  what an operator confirms before a write
//	audit.go         a line for each write
//	open.go          opens a file or a table
//	table.go         the store in a table
//	store.go         a store, and lists of its records
//	env.go           what a command works with
//	errors.go        exit codes and advice
package operate
