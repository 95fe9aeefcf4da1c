// SPDX-License-Identifier: Apache-2.0

// Package pairs tries every pair of two settings together: of a guard, an operation, a
// store, HTTP and batches. A row has a value for each setting, and each pair of values is in
// a row. idempotenttest.Explore crashes the handler of the row: it sees first requests,
// retries, kills, late processes, evidence and other requests with the key. A life goes on
// until the record has expired, and can be on a real engine.
//
//	pairs_test.go     each row is explored, and lives
//	life_test.go      what a key goes through
//	handler_test.go   the handler of a row
//	fronts_test.go    what is in front of it
//	settings_test.go  the settings, which do not go together, and what a row promises
//	cover_test.go     rows that have every pair
package pairs
