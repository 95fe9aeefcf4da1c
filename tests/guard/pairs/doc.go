// SPDX-License-Identifier: Apache-2.0

// Package pairs tries every pair of two settings together: of a guard, an operation, a
// store, HTTP and batches. A row has a value for each setting, and each pair of values is in
// a row. idempotenttest.Explore crashes the handler of the row: it sees first requests,
// retries, kills, late processes, evidence and other requests with the key.
//
//	settings_test.go  the settings, which do not go together, and what a row promises
//	handler_test.go   the handler of a row
//	cover_test.go     rows that have every pair
//	pairs_test.go     each row is explored
package pairs
