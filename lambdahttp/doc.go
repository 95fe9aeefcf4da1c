// Package lambdahttp makes HTTP handlers idempotent: it speaks the
// Idempotency-Key header for API Gateway HTTP APIs ([APIGatewayV2]) and REST
// APIs ([APIGatewayV1]), Application Load Balancers ([ALB]), Lambda function
// URLs ([FunctionURL]), and any http.Handler ([Middleware]).
//
// A request takes this way, and whatever stops it before the store leaves
// nothing behind:
//
//	event ─► method       does the profile guard it? if not: the handler, as it is
//	      ─► key          one header line of the right syntax and length, else 400
//	      ─► scope        for whom: the authenticated caller, else 403
//	      ─► fingerprint  method, path, sorted query, body; or another rule
//	      ─► store        idempotent.DoOutcome claims the key, or knows its record
//	      ─► answer       the handler's own response, the stored one, or a problem
//
// The first caller gets exactly what the handler returned. A retry gets the
// stored status, body and listed headers with "Idempotent-Replayed: true". All
// other answers are problem documents (RFC 9457) whose types are described in
// docs/http.md.
//
// The rules stand once, in the engine. What differs between dialects of the
// header is data (a [Profile]: [IETF], [Stripe], [UUID] or yours), and what
// differs between events is one file of translation each.
//
// [NewPolicy] renders what clients have to know, from what the handler is built
// with.
//
// A response of 2xx to 4xx is the outcome of the key: it is stored and
// replayed, also a 404. What happens after a 5xx is declared by [ServerErrors].
// A handler can say more about its response with [NoStore] (it is a secret) and
// [NotExecuted] (it refuses, and nothing happened), and with the errors of
// package idempotent. What they declare, wrapped or joined, is decided as there:
// see [idempotent.IsNotExecuted], [idempotent.IsUnknown] and [idempotent.AsFinal].
//
//   - (response, idempotent.NotExecuted(err)): nothing happened; the key may run
//     again. The response, if it has a status, is the answer.
//   - (response, idempotent.Unknown(err)): the outcome is unknown. As above, but
//     the key is not run again before it is resolved.
//   - (_, idempotent.Final(code, message)): a business outcome; it is answered as
//     a problem document, stored, and replayed.
//   - any other error goes to Lambda as it is, and the operation's
//     [idempotent.Recovery] decides about the key.
//
// A response that is returned without an error although a transaction of the
// handler is in doubt (see [idempotent.Execution.Commit]) is not sent. The caller
// gets 409, outcome-unknown, and repeats the request. A response that was streamed
// cannot be taken back: look at the transaction's error before the first byte.
package lambdahttp
