// Package provider stands in for a payment provider: a small HTTP service with
// a ledger of its own, so that anyone can count what really happened.
//
//	POST /charges                       books a charge; needs an Idempotency-Key
//	GET  /charges                       the ledger, as a JSON array
//	GET  /charges?idempotency_key=KEY   the charge that was booked under a key
//	GET  /charges/{id}                  one charge
//
// A key that comes again with the same parameters gets the charge that was
// booked the first time, however many requests come at once and however often
// the process was killed; with other parameters it is refused with 422. A
// charge is on the disk before it is answered.
//
// Two customers behave in a special way: "cus_declined" has a card that is
// declined, which books nothing and stays so; for "cus_slow" the charge is
// booked first and the answer takes its time after that.
package provider
