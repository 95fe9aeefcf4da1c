// SPDX-License-Identifier: Apache-2.0

// Package model is the oracle of the tests: the design of one key, as two small
// sequential machines that share no code with the guard and the stores.
//
//	Slot  what a store does with one id: Insert, Replace, Get
//	Key   what a guard does with one key: a request claims, its handler
//	      reports, evidence resolves, time passes
//
// Both are values: an operation returns the next one and the answer, so that a
// checker can backtrack. Key has no cache: with or without one, a guard has to
// give the same answers.
//
// The explorer in the folder explore runs every schedule of a few actors, and
// compares each write with Key. The tests of this package, from top to bottom:
//
//	guard_test.go     histories of 64 goroutines that share one guard, on
//	                  memory, bolt and DynamoDB Local: each has an order in
//	                  which Key gives exactly the same answers and records
//	stores_test.go    the same for calls to the stores, and Slot
//	negative_test.go  the stores of the folder broken, and invented histories,
//	                  which the tests above must not accept
//	keys_test.go      two keys never share a record, however similar they are
//	linear_test.go    the load, the histories, and the search for an order
//	network_test.go   the connection to a store, on which replies get lost
//	main_test.go      the stores and the time
package model
