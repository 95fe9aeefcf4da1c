// SPDX-License-Identifier: Apache-2.0

// Package pair runs through every order of the calls of a few reconcilers to
// DynamoDB, while two abandoned runs of two operations and the position of one
// scan wait in the table. Package explore has one key and no scan.
//
//	scenario  the actors: reconcilers, an operator, and an announcement that arrives late
//	world     dynamotest with two records, a clock, and the actors
//	actor     a goroutine that is suspended before every call
//	step      a call is served, a fault happens, or the last runs begin
//	search    performs all steps in all orders, depth first, with one fault in each
//
// The guard and the store are the real ones. A list of due records counts as one
// call, and is made from the items of the index. A schedule is replayed from the
// start. It ends early in a state that another one has reached.
package pair
