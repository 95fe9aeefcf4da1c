// SPDX-License-Identifier: Apache-2.0

// Package playground serves a page that shows, live, what the example does:
// requests, the record of their key, the provider's ledger, and the answers.
//
//	GET  /                                      the page
//	GET  /playground/watch?idempotency_key=KEY  what the page shows, as server-sent events
//	POST /playground/kill {"idempotency_key":"KEY"}
//	                                            kills the worker that handles the key's request
//
// The page sends its requests to the API itself, and each button does what the curl
// command below it does. Requests from a terminal appear on the page too. It refuses
// no request by itself: it belongs behind [page.Guard], with all that listens there.
package playground
