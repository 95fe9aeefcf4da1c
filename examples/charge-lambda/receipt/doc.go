// Package receipt stands in for a service that mails receipts. Like the
// provider it lets anyone count what really happened.
//
//	POST /receipts   mails a receipt; needs an Idempotency-Key
//	GET  /receipts   what was mailed, as a JSON array
//
// A key that comes again gets the receipt that was mailed the first time. The
// receipts are in memory: the service has to outlive the function, not itself.
package receipt
