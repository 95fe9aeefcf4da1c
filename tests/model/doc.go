// Package model is the oracle of the tests: what the design says about one
// key, as two small sequential machines that share no code with the guard and
// the stores.
//
//	Slot  what a store does with one id: Insert, Replace, Get
//	Key   what a guard does with one key: a request claims, its handler
//	      reports, evidence resolves, time passes
//
// Both are values: an operation returns the next one and the answer, so that a
// checker can go back. Key knows no cache: with one or without, a guard has to
// give the same answers. The files of the tests are named by how they use them.
//
//	property_*  Random sequences of operations, with handlers that are
//	            suspended while other requests come and go, crashes, lost
//	            replies and deletions, on memory, bolt and DynamoDB Local.
//	            Every answer, every event and every record is compared with
//	            Key.
//	linear_*    Histories of 64 goroutines on the same three. Each is searched
//	            for an order in which Slot, or Key, gives the very same
//	            answers.
//	negative_*  The stores of the folder broken, and histories that were made
//	            up, which none of the others may accept.
//	keys_*      That no two keys share a record, however alike they look.
//
// What they share: the network, on which replies get lost (network_test.go),
// the words of guard and model (translate_test.go), and the tally of what was
// seen, without which a test that passes would say little.
//
// The explorer in the folder explore needs no oracle: it walks through all
// schedules of a few actors and asserts the invariants of the design.
package model
