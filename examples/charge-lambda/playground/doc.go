// SPDX-License-Identifier: Apache-2.0

// Package playground serves a page on which a newcomer sees what the example does:
// requests, the record of their key, the provider's ledger, and the answers, live.
//
//	GET  /                                      the page
//	GET  /playground/watch?idempotency_key=KEY  what the page shows, as server-sent events
//	POST /playground/kill {"idempotency_key":"KEY"}
//	                                            kills the worker that handles the key's request
//
// The page sends its requests to the API itself, and its buttons have no other
// means than the commands beside them. Requests from a terminal appear on the page
// too. All of it is for this machine only.
package playground
