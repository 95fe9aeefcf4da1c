// Package orders takes orders from a queue: it reserves the goods, charges the
// customer, and writes the order down, once for each order, whatever happens to
// the process in between.
//
//	message ─► reserve   the stock goes down and the step is recorded, in one transaction
//	        ─► charge    at the provider, under a key that is the same on every attempt
//	        ─► Commit    the order, a message for the shop and the end of the work, in one transaction
//
// A customer who cannot pay gives the goods back in a step of its own.
package orders
