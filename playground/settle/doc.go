// SPDX-License-Identifier: Apache-2.0

// Package settle serves what settles a charge with an unknown outcome, besides the
// reconciler: the operator's endpoint, which asks the payment provider, and the
// provider's webhook.
//
//	POST /admin/resolve      {"idempotency_key":"8e03978e-40d5-43e8-bc93-6894a57f9324"}
//	POST /webhooks/provider  {"type":"charge.succeeded","charge":"ch_1"}
//
// The operator's endpoint has no authentication. Serve it on the loopback interface
// only, and refuse the requests of other sites' pages, as the playground does for
// all that it serves.
package settle
