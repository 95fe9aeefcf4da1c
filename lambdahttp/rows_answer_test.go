// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"context"
	"reflect"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// answerRows test the response to a request without a record, with a record in
// each of its states, and with a store that fails.
var answerRows = []row{
	{id: "HTTP-08", situation: "the first request: the handler's own response", play: func(w *fixture) reply {
		a := once()(w)
		own, _ := created(w.t.Context(), request{})
		if own, _ = w.on.carries(own); !reflect.DeepEqual(a, own) {
			w.t.Errorf("got the response %+v, want the handler's %+v", a, own)
		}
		return a
	}, status: 201, runs: 1, record: "completed"},
	{id: "HTTP-08", profile: "Stripe", situation: "the first request: the handler's own response", play: once(),
		status: 201, runs: 1, record: "completed"},
	{id: "HTTP-08", profile: "UUID", situation: "the first request", play: once(), status: 201, says: "created", runs: 1, record: "completed"},

	// F60, F65: status and body of the first response, 201 as 201.
	{id: "HTTP-09", situation: "completed, the same request: the stored response", play: twice(),
		status: 201, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-09", profile: "Stripe", situation: "completed, the same request: the stored response", play: twice(),
		status: 201, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-09", profile: "Stripe", situation: "the same after a 500", play: then(answers(500, nil)),
		status: 500, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-09", profile: "UUID", situation: "completed, the same request: the stored response", play: twice(),
		status: 201, replayed: true, says: "replayed", runs: 1, record: "completed"},

	// F20: the same key with another body.
	{id: "HTTP-10", situation: "completed, another request with the key", play: func(w *fixture) reply {
		w.post(charge())
		return w.post(charge(withBody(`{"amount":9999,"currency":"EUR"}`)))
	}, status: 422, problem: "key-reused", title: titleReused, runs: 1, record: "completed"},
	{id: "HTTP-10", profile: "Stripe", situation: "completed, another request with the key", play: func(w *fixture) reply {
		w.post(charge())
		return w.post(charge(withBody(`{"amount":9999}`)))
	}, status: 400, problem: "key-reused", stripe: "idempotency_error idempotency_key_reused", runs: 1, record: "completed"},
	{id: "HTTP-10", profile: "Stripe", situation: "completed, the same request at another endpoint", play: func(w *fixture) reply {
		w.post(charge())
		return w.post(charge(at("/refunds")))
	}, status: 400, problem: "key-reused", stripe: "idempotency_error idempotency_key_reused", runs: 1, record: "completed"},
	{id: "HTTP-10", profile: "UUID", situation: "completed, another request with the key", play: func(w *fixture) reply {
		w.post(charge())
		return w.post(charge(withBody(`{"amount":9999}`)))
	}, status: 422, problem: "key-reused", title: titleReused, says: "mismatch", runs: 1, record: "completed"},

	// F50: refused while the first one runs.
	{id: "HTTP-11", situation: "the first request is running", play: func(w *fixture) (second reply) {
		w.becomes(duringRun(func() {
			w.clock.Advance(10*time.Minute + 500*time.Millisecond)
			second = w.post(charge())
		}))
		w.post(charge())
		return second
	}, status: 409, problem: "in-progress", title: titleOutstanding, retryAfter: "300", runs: 1, record: "completed"},
	{id: "HTTP-11", situation: "the first request is running, with a reference from `SetRef`", options: resume, play: func(w *fixture) (second reply) {
		w.becomes(func(ctx context.Context, r request) (reply, error) {
			a, err := created(ctx, r) // sets the reference, which the step stores
			if err == nil {
				_, err = idempotent.Step(ctx, "charge", func(context.Context) (string, error) { return "ch_1", nil })
			}
			second = w.post(charge())
			return a, err
		})
		w.post(charge())
		return second
	}, status: 409, member: map[string]string{"resource": "/charges/ch_1"}, problem: "in-progress", title: titleOutstanding, retryAfter: "1", runs: 1, record: "completed"},
	{id: "HTTP-11", situation: "this request exceeded its lease, and the one that took over is running", options: rerun,
		play: func(w *fixture) reply {
			w.becomes(duringRun(func() {
				w.clock.Advance(16 * time.Minute)
				w.becomes(duringRun(func() { w.store.set(func(s *faultyStore) { s.replaceErr = errDown }) }))
				w.post(charge())
				w.store.set(func(s *faultyStore) { s.replaceErr = nil })
			}))
			return w.post(charge())
		}, status: 409, member: map[string]string{"until": ""}, problem: "in-progress", title: titleOutstanding, retryAfter: "1", runs: 2, record: "in_progress"},
	{id: "HTTP-11", situation: "this request exceeded its lease, and the one that took over has finished", options: rerun,
		play: func(w *fixture) reply {
			w.becomes(duringRun(func() {
				w.clock.Advance(16 * time.Minute)
				w.becomes(created)
				w.post(charge())
			}))
			return w.post(charge())
		}, status: 201, replayed: true, runs: 2, record: "completed"},
	{id: "HTTP-11", situation: "the same, and this request's handler fails", options: rerun, play: overtaken(func(s *faultyStore) { s.replaceErr = errDown }),
		status: 409, member: map[string]string{"until": ""}, problem: "in-progress", title: titleOutstanding, retryAfter: "1", runs: 2, record: "in_progress"},
	{id: "HTTP-18", situation: "this request exceeded its lease and failed, and the response of the one that took over could not be stored", options: rerun,
		play: overtaken(func(s *faultyStore) { s.noResults = true }), status: 409, problem: "replay-unavailable", title: titleUnavailable,
		member: map[string]string{"resource": "/charges/ch_1"}, runs: 2, record: "completed"},
	{id: "HTTP-11", profile: "Stripe", situation: "the first request is running", play: func(w *fixture) (second reply) {
		w.becomes(duringRun(func() {
			w.clock.Advance(10*time.Minute + 500*time.Millisecond)
			second = w.post(charge())
		}))
		w.post(charge())
		return second
	}, status: 409, problem: "in-progress", stripe: "invalid_request_error idempotency_key_in_use", retryAfter: "300", runs: 1, record: "completed"},
	{id: "HTTP-11", profile: "UUID", situation: "the first request is running", play: func(w *fixture) (second reply) {
		w.becomes(duringRun(func() {
			w.clock.Advance(10*time.Minute + 500*time.Millisecond)
			second = w.post(charge())
		}))
		w.post(charge())
		return second
	}, status: 409, problem: "in-progress", title: titleOutstanding, retryAfter: "300", says: "conflict", runs: 1, record: "completed"},

	// F24: a mismatch takes precedence over the state.
	{id: "HTTP-12", situation: "running, another request with the key", play: meanwhile(withBody(`{"amount":9999}`)),
		status: 422, problem: "key-reused", title: titleReused, runs: 1, record: "completed"},
	{id: "HTTP-12", profile: "Stripe", situation: "running, another request with the key", play: meanwhile(withBody(`{"amount":9999}`)),
		status: 400, problem: "key-reused", stripe: "idempotency_error idempotency_key_reused", runs: 1, record: "completed"},
	{id: "HTTP-12", profile: "UUID", situation: "running, another request with the key", play: meanwhile(withBody(`{"amount":9999}`)),
		status: 422, problem: "key-reused", title: titleReused, says: "mismatch", runs: 1, record: "completed"},

	{id: "HTTP-13", situation: "the first request never finished", play: vanished,
		status: 409, problem: "outcome-unknown", title: titleUnknown, retryAfter: "60", runs: 1, record: "unknown"},
	{id: "HTTP-13", profile: "Stripe", situation: "the first request never finished", play: vanished,
		status: 409, problem: "outcome-unknown", stripe: "invalid_request_error idempotency_outcome_unknown", retryAfter: "60",
		header: map[string]string{"Stripe-Should-Retry": "false"}, runs: 1, record: "unknown"},
	{id: "HTTP-13", profile: "UUID", situation: "the first request never finished", play: vanished,
		status: 409, problem: "outcome-unknown", title: titleUnknown, retryAfter: "60", says: "unknown", runs: 1, record: "unknown"},

	{id: "HTTP-14", situation: "the first request never finished, recovery `Rerun`: takes over", options: rerun, play: vanished,
		status: 201, runs: 2, record: "completed"},
	{id: "HTTP-14", profile: "Stripe", situation: "the same", options: rerun, play: vanished, status: 201, runs: 2, record: "completed"},
	{id: "HTTP-14", profile: "UUID", situation: "the same", options: rerun, play: vanished, status: 201, says: "created", runs: 2, record: "completed"},
	{id: "HTTP-14", situation: "the first request never finished, recovery `Resume`: continues after its last step", options: resume, play: resumed,
		status: 201, runs: 2, record: "completed"},
	{id: "HTTP-14", profile: "Stripe", situation: "the same", options: resume, play: resumed, status: 201, runs: 2, record: "completed"},
	{id: "HTTP-14", profile: "UUID", situation: "the same", options: resume, play: resumed, status: 201, says: "created", runs: 2, record: "completed"},

	{id: "HTTP-15", situation: "unknown, with a reference from `SetRef`", play: unheard,
		status: 409, problem: "outcome-unknown", title: titleUnknown, retryAfter: "40",
		member: map[string]string{"resource": "/charges/ch_1"}, runs: 1, record: "unknown"},
	{id: "HTTP-15", profile: "Stripe", situation: "unknown, with a reference from `SetRef`", play: unheard,
		status: 409, problem: "outcome-unknown", stripe: "invalid_request_error idempotency_outcome_unknown", retryAfter: "40",
		member: map[string]string{"resource": "/charges/ch_1"}, header: map[string]string{"Stripe-Should-Retry": "false"}, runs: 1, record: "unknown"},
	{id: "HTTP-15", profile: "UUID", situation: "unknown, with a reference from `SetRef`", play: unheard,
		status: 409, problem: "outcome-unknown", title: titleUnknown, retryAfter: "40", says: "unknown",
		member: map[string]string{"resource": "/charges/ch_1"}, runs: 1, record: "unknown"},

	{id: "HTTP-16", situation: "the first run was `NotExecuted`: runs again", play: then(answers(503, idempotent.NotExecuted(errDown))),
		status: 201, runs: 2, record: "completed"},
	{id: "HTTP-16", profile: "Stripe", situation: "the same", play: then(answers(503, idempotent.NotExecuted(errDown))),
		status: 201, runs: 2, record: "completed"},
	{id: "HTTP-16", profile: "UUID", situation: "the same", play: then(answers(503, idempotent.NotExecuted(errDown))),
		status: 201, says: "created", runs: 2, record: "completed"},

	{id: "HTTP-17", situation: "after the retention: a new request", play: func(w *fixture) reply {
		w.post(charge())
		w.clock.Advance(24 * time.Hour)
		return w.post(charge(withBody(`{"amount":9999}`)))
	}, status: 201, runs: 2, record: "completed"},
	{id: "HTTP-17", situation: "unknown, after the retention: an unknown outcome never expires", play: func(w *fixture) reply {
		w.becomes(answers(0, idempotent.Unknown(errDown)))
		w.send(w.t.Context(), charge())
		w.clock.Advance(1000 * time.Hour)
		return w.post(charge())
	}, status: 409, problem: "outcome-unknown", title: titleUnknown, retryAfter: "60",
		member: map[string]string{"resource": "/charges/ch_1"}, runs: 1, record: "unknown"},
	{id: "HTTP-17", profile: "Stripe", situation: "after the retention: a new request", play: func(w *fixture) reply {
		w.post(charge())
		w.clock.Advance(24 * time.Hour)
		return w.post(charge(at("/refunds")))
	}, status: 201, runs: 2, record: "completed"},

	// F63: a response that cannot be replayed is refused, with the reason.
	{id: "HTTP-18", situation: "completed, the response could not be stored", play: func(w *fixture) reply {
		w.store.set(func(s *faultyStore) { s.noResults = true })
		return twice()(w)
	}, status: 409, problem: "replay-unavailable", title: titleUnavailable,
		member: map[string]string{"resource": "/charges/ch_1"}, runs: 1, record: "completed"},
	{id: "HTTP-18", situation: "completed, the handler called `NoStore`: the client gets the hint", play: func(w *fixture) reply {
		w.becomes(secret("Roll the key to get a new secret."))
		return twice()(w)
	}, status: 409, problem: "replay-unavailable", title: titleUnavailable,
		member: map[string]string{"resource": "/charges/ch_1", "detail": "Roll the key to get a new secret."}, runs: 1, record: "completed"},
	{id: "HTTP-18", situation: "completed, `BeforeReplay` refuses because the resource has changed",
		options: refusing(lambdahttp.RefuseReplay("The charge was deleted.")), play: twice(),
		status: 409, problem: "replay-unavailable", title: titleUnavailable,
		member: map[string]string{"resource": "/charges/ch_1", "detail": "The charge was deleted."}, runs: 1, record: "completed"},
	{id: "HTTP-18", profile: "Stripe", situation: "completed, the response could not be stored", play: func(w *fixture) reply {
		w.store.set(func(s *faultyStore) { s.noResults = true })
		return twice()(w)
	}, status: 409, problem: "replay-unavailable", stripe: "invalid_request_error idempotency_replay_unavailable",
		member: map[string]string{"resource": "/charges/ch_1"}, header: map[string]string{"Stripe-Should-Retry": "false"}, runs: 1, record: "completed"},
	{id: "HTTP-18", profile: "UUID", situation: "completed, `BeforeReplay` refuses because the resource has changed",
		options: refusing(lambdahttp.RefuseReplay("")), play: twice(),
		status: 409, problem: "replay-unavailable", title: titleUnavailable, says: "conflict",
		member: map[string]string{"resource": "/charges/ch_1"}, runs: 1, record: "completed"},

	// F80: if the store fails, nothing runs.
	{id: "HTTP-19", situation: "the store fails before the handler", play: func(w *fixture) reply {
		w.store.set(func(s *faultyStore) { s.insertErr, s.replaceErr = errDown, errDown })
		return once()(w)
	}, status: 503, problem: "store-unavailable", title: titleStore, retryAfter: "1"},
	{id: "HTTP-19", situation: "too little time is left before the handler", play: func(w *fixture) reply {
		a, err := w.send(w.clock.Invocation(w.t.Context(), 0), charge())
		if err != nil {
			w.t.Error(err)
		}
		return a
	}, status: 503, problem: "no-time-left", title: "Too little time is left for this request", retryAfter: "1"},
	{id: "HTTP-19", profile: "Stripe", situation: "the store fails before the handler", play: func(w *fixture) reply {
		w.store.set(func(s *faultyStore) { s.insertErr, s.replaceErr = errDown, errDown })
		return once()(w)
	}, status: 503, problem: "store-unavailable", stripe: "api_error idempotency_store_unavailable", retryAfter: "1"},
	{id: "HTTP-19", profile: "UUID", situation: "the store fails before the handler", play: func(w *fixture) reply {
		w.store.set(func(s *faultyStore) { s.insertErr, s.replaceErr = errDown, errDown })
		return once()(w)
	}, status: 503, problem: "store-unavailable", title: titleStore, retryAfter: "1"},

	{id: "HTTP-20", situation: "the handler is done, but its response could not be stored", play: func(w *fixture) reply {
		w.store.set(func(s *faultyStore) { s.replaceErr = errDown })
		return once()(w)
	}, status: 201, says: "not-stored", runs: 1, record: "in_progress"},

	{id: "HTTP-20", situation: "the handler is done, but its response is too large to be stored", play: func(w *fixture) reply {
		w.store.set(func(s *faultyStore) { s.noResults = true })
		return once()(w)
	}, status: 201, says: "not-stored", runs: 1, record: "completed"},
	{id: "HTTP-20", situation: "the handler called `NoStore`: the caller gets the response", play: func(w *fixture) reply {
		w.becomes(secret(""))
		return once()(w)
	}, status: 201, says: "not-stored", runs: 1, record: "completed"},
	{id: "HTTP-20", profile: "Stripe", situation: "the handler is done, but its response could not be stored", play: func(w *fixture) reply {
		w.store.set(func(s *faultyStore) { s.replaceErr = errDown })
		return once()(w)
	}, status: 201, says: "not-stored", runs: 1, record: "in_progress"},
	{id: "HTTP-20", profile: "UUID", situation: "the handler is done, but its response could not be stored", play: func(w *fixture) reply {
		w.store.set(func(s *faultyStore) { s.replaceErr = errDown })
		return once()(w)
	}, status: 201, says: "not-stored", runs: 1, record: "in_progress"},
}
