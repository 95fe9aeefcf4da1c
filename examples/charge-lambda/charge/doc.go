// SPDX-License-Identifier: Apache-2.0

// Package charge is the Lambda function of the example: it charges a customer
// once per Idempotency-Key.
//
//	POST /charges       charges a customer            201, 402, 400
//	GET  /charges/{id}  asks the provider for a charge 200, 404
//
// [New] returns the handler: routes, validation of the request, and behind the
// guard of package lambdahttp the one call to the payment provider.
//
// An invalid request gets 400 before it reaches the guard, so its key can be
// used again for the corrected request. Behind the guard, the result of the call
// to the provider decides:
//
//	charged          201  stored and replayed
//	declined         402  stored and replayed
//	never reached    503  idempotent.NotExecuted: the key may run again
//	no clear answer  502  idempotent.Unknown: refused until it is settled
//	ran out of time  504  idempotent.Unknown as well
//
// [Resolver] asks the provider for evidence about an unknown outcome. [Webhook]
// settles a record when the provider reports a charge.
package charge
