// SPDX-License-Identifier: Apache-2.0

// Package web serves a page that shows, live, what the example does with once
// and without: requests, the record of their key, the provider's ledgers, and the answers.
//
//	GET  /                                      the page
//	GET  /playground/watch?idempotency_key=KEY  what the page shows, as server-sent events
//	POST /playground/kill {"idempotency_key":"KEY"}
//	                                            kills the worker that handles the key's request
//	POST /without-once/kill                     the same for the half without once
//
// The half without once is the same function with its guard disabled, below the path
// /without-once. It has separate worker processes, and charges at a separate provider.
// The page sends each request to both halves, and each button does what the curl
// commands below it do. Requests from a terminal appear on the page too. It refuses
// no request by itself: it belongs behind [page.Guard], with all that listens there.
package web
