// Package charge is the Lambda function of the example: it charges a customer
// once per Idempotency-Key.
//
//	POST /charges       charges a customer            201, 402, 400
//	GET  /charges/{id}  asks the provider for a charge 200, 404
//
// [New] puts it together: routes, the check of the request, and behind the
// guard of package lambdahttp the one call to the payment provider.
//
// A request that cannot be a charge is answered with 400 before the guard sees
// it, so that its key is free for the corrected one. Behind the guard, what
// happened at the provider decides:
//
//	charged          201  stored and replayed
//	declined         402  stored and replayed
//	never reached    503  idempotent.NotExecuted: the key may run again
//	no clear answer  502  idempotent.Unknown: refused until it is resolved
//	ran out of time  504  idempotent.Unknown as well
//
// [Resolver] resolves what is unknown, by asking the provider. [Webhook] does it
// when the provider reports a charge.
package charge
