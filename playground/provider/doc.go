// SPDX-License-Identifier: Apache-2.0

// Package provider simulates a payment provider: a small HTTP service with its
// own ledger, which counts the real charges.
//
//	POST /charges                       books a charge; needs an Idempotency-Key
//	GET  /charges                       the ledger, as a JSON array
//	GET  /charges?idempotency_key=KEY   the charge that was booked under a key
//	GET  /charges/{id}                  one charge
//
// A repeated key with the same parameters gets the charge that was booked the
// first time, even for simultaneous requests and after any number of crashes. A
// repeated key with other parameters is refused with 422. A charge is on disk
// before the answer is sent.
//
// Two customers are special: "cus_declined" has a card that is always declined,
// which books nothing; for "cus_slow" the charge is booked first, and the
// answer is delayed.
package provider
