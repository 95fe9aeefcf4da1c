// SPDX-License-Identifier: Apache-2.0

// Package model is the oracle of the tests: the design of one key, as a small
// sequential machine that shares no code with the guard. A request claims, its handler
// reports, evidence resolves, time passes.
//
// Key is a value: an operation returns the next one and the answer, so that a checker
// can backtrack. Key has no cache: with or without one, a guard has to give the same
// answers.
//
// The explorer in the folder explore runs every schedule of a few actors, and
// compares each write with Key. The tests of this package, from top to bottom:
//
//	guard_test.go     histories of 64 goroutines that share one guard, on
//	                  memory, bolt and DynamoDB Local: each has an order in
//	                  which Key gives exactly the same answers and records
//	negative_test.go  the stores of the folder broken, and invented histories,
//	                  which the tests above must not accept
//	linear_test.go    the load, the histories, and the search for an order
//	network_test.go   the connection to a store, on which replies get lost
//	main_test.go      the stores and the time
package model
