// Package model is the oracle of the tests: the design of one key, as two small
// sequential machines that share no code with the guard and the stores.
//
//	Slot  what a store does with one id: Insert, Replace, Get
//	Key   what a guard does with one key: a request claims, its handler
//	      reports, evidence resolves, time passes
//
// Both are values: an operation returns the next one and the answer, so that a
// checker can backtrack. Key has no cache: with or without one, a guard has to
// give the same answers. The names of the test files say how they use the
// machines.
//
//	property_*  Random sequences of operations, with handlers that are
//	            suspended while other requests come and go, crashes, lost
//	            replies and deletions, on memory, bolt and DynamoDB Local.
//	            Every answer, every event and every record is compared with
//	            Key.
//	linear_*    Histories of 64 goroutines on the same three. Each is searched
//	            for an order in which Slot, or Key, gives exactly the same
//	            answers.
//	negative_*  The stores of the folder broken, and invented histories, which
//	            the other tests must not accept.
//	keys_*      Two keys never share a record, however similar they are.
//
// The tests share three things: the network, on which replies get lost
// (network_test.go), the translation between guard and model
// (translate_test.go), and the tally of what was seen, without which a passing
// test would prove little.
//
// The explorer in the folder explore needs no oracle: it runs through all
// schedules of a few actors and asserts the invariants of the design.
package model
