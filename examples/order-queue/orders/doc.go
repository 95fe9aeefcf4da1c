// SPDX-License-Identifier: Apache-2.0

// Package orders takes orders from a queue: it reserves the goods, charges the
// customer, and writes the order, once for each order, even if the process dies
// in between.
//
//	message ─► reserve   the stock goes down and the step is recorded, in one transaction
//	        ─► charge    at the provider, under a key that is the same on every attempt
//	        ─► Commit    the order, a message for the shop and the outcome, in one transaction
//
// If the customer cannot pay, a separate step returns the goods.
package orders
