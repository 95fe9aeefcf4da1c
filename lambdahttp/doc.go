// SPDX-License-Identifier: Apache-2.0

// Package lambdahttp makes HTTP handlers idempotent: it implements the
// Idempotency-Key header for API Gateway HTTP APIs ([APIGatewayV2]) and REST
// APIs ([APIGatewayV1]), Application Load Balancers ([ALB]), Lambda function
// URLs ([FunctionURL]), and any http.Handler ([Middleware]).
//
// A request passes these steps. A request that is refused before the store
// leaves no record:
//
//	event ─► method       does the profile guard it? if not, run the handler unguarded
//	      ─► key          one header line of valid syntax and length, else 400
//	      ─► scope        the authenticated caller, else 403
//	      ─► fingerprint  method, path, sorted query, body; or another rule
//	      ─► store        idempotent.DoOutcome claims the key or finds its record
//	      ─► response     the handler's own, the stored one, or a problem document
//
// The first caller gets exactly what the handler returned. A retry gets the
// stored status, headers and body with "Idempotent-Replayed: true". All other
// responses are problem documents (RFC 9457) whose types are described in
// docs/http-answers.md.
//
// One engine applies the rules to every event type. A [Profile] declares how
// clients write keys and which answers they get: [IETF], [Stripe], [UUID],
// [Webhook] for senders of events, or a custom one. An event type is a translation of events and responses.
//
// Package lambdahttp/policy renders the rules for clients from the options of a
// handler.
//
// A response of 2xx to 4xx, including a 404, is the outcome of the key: it is
// stored and replayed. [ServerErrors] decides what happens after a 5xx. A
// handler can call [NoStore] if its response contains a secret or is streamed. A response
// of an event type that is longer than 6 MB as JSON (1 MB for [ALB]) cannot be delivered:
// the outcome is stored without it, and its caller gets [ReplayUnavailable]. A handler can also
// return the errors of package idempotent, wrapped or joined, which are
// classified by [idempotent.IsNotExecuted], [idempotent.IsUnknown] and
// [idempotent.AsFinal]. An http.Handler passes them to [SetError]:
//
//   - (response, idempotent.NotExecuted(err)): nothing happened; the key may
//     run again. The caller gets the response, if it has a status.
//   - (response, idempotent.Unknown(err)): the outcome is unknown. The caller
//     gets the response, if it has a status, but the key does not run again
//     before it is settled.
//   - (_, idempotent.Final(code, message)): a business outcome. It is sent as
//     a problem document, stored, and replayed.
//   - (_, an error that wraps an [*idempotent.InProgressError] about the
//     request's own record): the work continues elsewhere, for example in a
//     durable execution. The caller gets 409 or 202, as while another request
//     runs. Under [idempotent.Resume] the next request continues.
//   - any other error is returned to Lambda unchanged, and the operation's
//     [idempotent.Recovery] decides about the key.
//
// If a handler returns a response without an error although one of its
// transactions is in doubt (see [idempotent.Execution.Commit]), that response
// is not sent: the caller gets 409, outcome-unknown, and repeats the request. A
// response that was streamed cannot be withdrawn, so a handler has to check the
// transaction's error before it flushes for the first time.
package lambdahttp

// Chapters, each of which refers only to those below it:
//
//	json.go         handlers whose bodies are JSON, for all of the following
//	events.go       the event types: events in, responses out
//	middleware.go   the same for an http.Handler
//	recorder.go     the http.ResponseWriter that buffers what a handler writes
//	policy.go       what clients have to know, from the options
//	engine.go       one request: method, key, scope, fingerprint, core, response
//	answer.go       the responses that replace the handler's: replays and problems
//	outcome.go      what is stored of the handler's response
//	options.go      what a handler's author sets
//	key.go          where a request carries its key, and for which caller it is valid
//	profile.go      the profiles of the header
//	fingerprint.go  which requests are the same request, and what of a body is compared
//	request.go      the view of an event that the rules get
//	syntax.go       how a key is written
//	response.go     the reasons for a refusal, and their form; a response, and which of its headers are replayed
