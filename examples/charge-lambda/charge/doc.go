// SPDX-License-Identifier: Apache-2.0

// Package charge is the Lambda function of the example: it charges a customer
// once per Idempotency-Key.
//
//	POST /charges       charges a customer             201, 402, 400
//	GET  /charges/{id}  asks the provider for a charge  200, 404
//
// Read its files in this order:
//
//	handler.go    how the API uses idempotency keys, and what routes and guards an event
//	charge.go     the work behind the guard: one call to the payment provider
//	request.go    reads and validates the body, before the key is claimed
//	client.go     the provider's API, and what its answers are evidence of
//	reconcile.go  settles an unknown outcome on a schedule
package charge
