// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"strings"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// outcomeRows test what is stored of a request, and what is not.
var outcomeRows = []row{
	// F08: a key is checked before any record is read.
	{id: "HTTP-21", situation: "refused before the handler: nothing is stored, the key stays unused", play: func(w *fixture) reply {
		w.post(charge(withKey(`"short"`)))
		w.post(charge(withCaller("")))
		if w.store.calls != 0 {
			w.t.Errorf("a refused request called the store %d times", w.store.calls)
		}
		return w.post(charge())
	}, status: 201, runs: 1, record: "completed"},
	{id: "HTTP-21", situation: "the scope is empty: the caller is not identified", play: once(withCaller("")),
		status: 403, problem: "unknown-caller", title: "The caller is not identified"},
	{id: "HTTP-21", situation: "the body is marked as base64 but is invalid", play: once(func(r *request) { r.body, r.base64 = "%", true }),
		status: 400, problem: "invalid-body", title: "The request body cannot be used"},
	{id: "HTTP-21", situation: "`Content-Digest` does not match the body, `VerifiedDigest`",
		options: func(o *lambdahttp.Options) { o.Fingerprint = lambdahttp.VerifiedDigest },
		play:    once(withHeader("content-digest", "sha-256=:"+strings.Repeat("A", 43)+"=:")),
		status:  400, problem: "invalid-digest", title: "Content-Digest is missing or wrong"},
	{id: "HTTP-21", situation: "the handler refuses with `NotExecuted`: the caller gets its response", play: func(w *fixture) reply {
		w.becomes(refusal(400))
		return once()(w)
	}, status: 400, says: "not-stored", runs: 1, record: "retryable"},
	{id: "HTTP-21", situation: "the same, repeated: runs again", play: then(refusal(400)), status: 201, runs: 2, record: "completed"},
	{id: "HTTP-21", profile: "Stripe", situation: "the handler refuses with `NotExecuted`, repeated: runs again", play: then(refusal(400)),
		status: 201, runs: 2, record: "completed"},
	{id: "HTTP-21", profile: "UUID", situation: "the handler refuses with `NotExecuted`, repeated: runs again", play: then(refusal(400)),
		status: 201, says: "created", runs: 2, record: "completed"},

	{id: "HTTP-22", situation: "401, 403 or 429 in front of the guarded handler: nothing is stored, the key stays unused", play: inFront(429),
		status: 201, runs: 1, record: "completed"},
	{id: "HTTP-22", profile: "Stripe", situation: "the same", play: inFront(401), status: 201, runs: 1, record: "completed"},
	{id: "HTTP-22", profile: "UUID", situation: "the same", play: inFront(403), status: 201, says: "created", runs: 1, record: "completed"},
	{id: "HTTP-22", situation: "429 by the handler itself, with `NotExecuted`, repeated: runs again", play: then(refusal(429)),
		status: 201, runs: 2, record: "completed"},

	// F39, F65: a refusal is an outcome, and is replayed with its status.
	{id: "HTTP-23", situation: "the handler responded with 404: stored like a success", play: then(answers(404, nil)),
		status: 404, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-23", situation: "the handler returned a `Final` error", play: func(w *fixture) reply {
		w.becomes(answers(0, idempotent.Final("card_declined", "The card was declined.")))
		return once()(w)
	}, status: 422, problem: "final", title: "The request has a final outcome",
		member: map[string]string{"code": "card_declined"}, runs: 1, record: "completed"},
	{id: "HTTP-23", situation: "the same, repeated", play: then(answers(0, idempotent.Final("card_declined", "The card was declined."))),
		status: 422, problem: "final", title: "The request has a final outcome",
		member: map[string]string{"code": "card_declined"}, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-23", profile: "Stripe", situation: "the handler responded with 404: stored like a success", play: then(answers(404, nil)),
		status: 404, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-23", profile: "Stripe", situation: "the handler returned a `Final` error", play: func(w *fixture) reply {
		w.becomes(answers(0, idempotent.Final("card_declined", "The card was declined.")))
		return once()(w)
	}, status: 402, problem: "final", stripe: "invalid_request_error card_declined", runs: 1, record: "completed"},
	{id: "HTTP-23", profile: "UUID", situation: "the handler responded with 404: stored like a success", play: then(answers(404, nil)),
		status: 404, replayed: true, says: "replayed", runs: 1, record: "completed"},

	{id: "HTTP-24", situation: "the handler responds with 5xx: the caller gets that response", play: func(w *fixture) reply {
		w.becomes(answers(502, nil))
		return once()(w)
	}, status: 502, runs: 1, record: "unknown"},
	{id: "HTTP-24", situation: "5xx, repeated, recovery `Reconcile`", play: then(answers(502, nil)),
		status: 409, problem: "outcome-unknown", title: titleUnknown, retryAfter: "60",
		member: map[string]string{"resource": "/charges/ch_1"}, runs: 1, record: "unknown"},
	{id: "HTTP-24", situation: "5xx, repeated, recovery `Rerun`", options: rerun, play: then(answers(502, nil)),
		status: 201, runs: 2, record: "completed"},
	{id: "HTTP-24", situation: "5xx, repeated, `StoreServerErrors`", options: serverErrors(lambdahttp.StoreServerErrors),
		play: then(answers(502, nil)), status: 502, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-24", situation: "5xx, repeated, `UnknownServerErrors`", options: serverErrors(lambdahttp.UnknownServerErrors, rerun),
		play: then(answers(502, nil)), status: 409, problem: "outcome-unknown", title: titleUnknown, retryAfter: "60",
		member: map[string]string{"resource": "/charges/ch_1"}, runs: 1, record: "unknown"},
	{id: "HTTP-24", situation: "5xx, repeated, `ReleaseServerErrors`", options: serverErrors(lambdahttp.ReleaseServerErrors),
		play: then(answers(502, nil)), status: 201, runs: 2, record: "completed"},
	{id: "HTTP-24", situation: "a response with `idempotent.NotExecuted`: the caller gets that response", play: func(w *fixture) reply {
		w.becomes(answers(503, idempotent.NotExecuted(errDown)))
		return once()(w)
	}, status: 503, says: "not-stored", runs: 1, record: "retryable"},
	{id: "HTTP-24", situation: "a response with `idempotent.Unknown`: the caller gets that response", options: rerun, play: func(w *fixture) reply {
		w.becomes(answers(504, idempotent.Unknown(errDown)))
		return once()(w)
	}, status: 504, runs: 1, record: "unknown"},
	{id: "HTTP-24", situation: "a transaction is in doubt, but the handler responds with 201", play: func(w *fixture) reply {
		w.becomes(w.careless(lost(w)))
		return w.post(charge())
	}, status: 409, problem: "outcome-unknown", title: titleUnknown, retryAfter: "1", runs: 1, record: "unknown"},
	{id: "HTTP-24", situation: "the same, repeated, recovery `Rerun`", options: rerun, play: func(w *fixture) reply {
		w.becomes(w.careless(lost(w)))
		return twice()(w)
	}, status: 201, runs: 2, record: "completed"},
	{id: "HTTP-24", profile: "Stripe", situation: "5xx: stored", play: then(answers(502, nil)),
		status: 502, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-24", profile: "Stripe", situation: "5xx, `FollowRecovery`", options: serverErrors(lambdahttp.FollowRecovery), play: then(answers(502, nil)),
		status: 409, problem: "outcome-unknown", stripe: "invalid_request_error idempotency_outcome_unknown", retryAfter: "60",
		member: map[string]string{"resource": "/charges/ch_1"}, header: map[string]string{"Stripe-Should-Retry": "false"}, runs: 1, record: "unknown"},
	{id: "HTTP-24", profile: "UUID", situation: "the handler responds with 5xx: the caller gets that response", play: func(w *fixture) reply {
		w.becomes(answers(502, nil))
		return once()(w)
	}, status: 502, says: "not-stored", runs: 1, record: "unknown"},
}
