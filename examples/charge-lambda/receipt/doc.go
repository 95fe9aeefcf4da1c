// SPDX-License-Identifier: Apache-2.0

// Package receipt simulates a service that mails receipts. It lists
// the real effects, as the provider does.
//
//	POST /receipts   mails a receipt; needs an Idempotency-Key
//	GET  /receipts   the mailed receipts, as a JSON array
//
// A repeated key gets the receipt that was mailed the first time. The receipts
// are stored in memory: the service has to outlive the function, but they do
// not survive its own restart.
package receipt
