// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"context"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// optionRows test waiting, the form of responses, and optional headers.
var optionRows = []row{
	// F52: a retry waits for a limited time.
	{id: "HTTP-25", situation: "`WaitFor`: the first request finishes in time", options: waitFor(10 * time.Second),
		play: waiting(3*time.Second, 3*time.Second, 5*time.Second), status: 201, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-25", situation: "`WaitFor` ends first", options: waitFor(10 * time.Second),
		play: waiting(time.Minute, 8*time.Second, 10*time.Second), status: 409, problem: "in-progress", title: titleOutstanding,
		retryAfter: "*", runs: 1, record: "completed"},
	{id: "HTTP-25", situation: "the gateway's timeout comes first: 29 s minus the lease margin of 3 s", options: waitFor(time.Hour),
		play: waiting(time.Minute, 24*time.Second, 26*time.Second), status: 409, problem: "in-progress", title: titleOutstanding,
		retryAfter: "*", runs: 1, record: "completed"},
	{id: "HTTP-25", situation: "another `GatewayTimeout`",
		options: func(o *lambdahttp.Options) { waitFor(time.Hour)(o); o.GatewayTimeout = 50 * time.Second },
		play:    waiting(40*time.Second, 40*time.Second, 42*time.Second), status: 201, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-25", situation: "its own deadline comes first", options: waitFor(time.Hour),
		play:   func(w *fixture) reply { return w.waits(time.Minute, 5*time.Second, 3*time.Second, 5*time.Second) },
		status: 409, problem: "in-progress", title: titleOutstanding, retryAfter: "*", runs: 1, record: "completed"},

	// F51: 202 instead of 409.
	{id: "HTTP-26", situation: "the first request is running, `Accepted`", options: accepting, play: meanwhile(),
		status: 202, problem: "accepted", title: "The request is being processed", retryAfter: "*",
		header: map[string]string{"Location": "/work/charges"}, runs: 1, record: "completed"},
	{id: "HTTP-26", situation: "the same, with another request: `Accepted` changes nothing", options: accepting,
		play: meanwhile(withBody(`{"amount":9999}`)), status: 422, problem: "key-reused", title: titleReused, runs: 1, record: "completed"},

	{id: "HTTP-26", situation: "the same, with all headers that can be exposed",
		options: func(o *lambdahttp.Options) { accepting(o); telling(o); exposing(o) }, play: meanwhile(),
		status: 202, problem: "accepted", title: "The request is being processed", retryAfter: "*", says: "conflict",
		header: map[string]string{"Location": "/work/charges", "Access-Control-Expose-Headers": "Idempotency-Status, Retry-After, Location"},
		runs:   1, record: "completed"},
	{id: "HTTP-26", situation: "`Accepted` returns no address",
		options: func(o *lambdahttp.Options) {
			exposing(o)
			o.Accepted = func(*lambdahttp.Request, idempotent.RecordID) string { return "" }
		}, play: meanwhile(),
		status: 202, problem: "accepted", title: "The request is being processed", retryAfter: "*",
		header: map[string]string{"Location": "", "Access-Control-Expose-Headers": "Retry-After"}, runs: 1, record: "completed"},

	// F64: problems, with a link to the page that describes them.
	{id: "HTTP-27", situation: "a problem is `application/problem+json` in English, under `ProblemBase`",
		options: func(o *lambdahttp.Options) { o.ProblemBase = "https://api.example.com/problems" },
		play:    once(without("idempotency-key")), status: 400,
		base: "https://api.example.com/problems/", problem: "missing-key", title: titleMissing},
	{id: "HTTP-27", situation: "`DocsURL`: a link, and the base of problem types", options: documented, play: once(withKey("broken")), status: 400,
		base: "https://api.example.com/docs/keys#", problem: "invalid-key", title: titleInvalid, header: docsLink},
	{id: "HTTP-27", profile: "Stripe", situation: "an error is `{\"error\":{\"type\",\"code\",\"message\"}}`", options: documented,
		play: once(withKey("")), status: 400, problem: "invalid-key", stripe: "invalid_request_error idempotency_key_invalid", header: docsLink},

	{id: "HTTP-28", situation: "every replay is marked", play: func(w *fixture) reply {
		twice()(w)
		return w.post(charge())
	}, status: 201, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-28", profile: "Stripe", situation: "a replay is marked", play: twice(), status: 201, replayed: true, runs: 1, record: "completed"},

	{id: "HTTP-29", situation: "`Profile.StatusHeader`: created", options: telling, play: once(), status: 201, says: "created", runs: 1, record: "completed"},
	{id: "HTTP-29", situation: "replayed", options: telling, play: twice(), status: 201, replayed: true, says: "replayed", runs: 1, record: "completed"},
	{id: "HTTP-29", situation: "conflict", options: telling, play: meanwhile(), status: 409, problem: "in-progress", title: titleOutstanding,
		retryAfter: "*", says: "conflict", runs: 1, record: "completed"},
	{id: "HTTP-29", situation: "mismatch", options: telling, play: meanwhile(withBody("{}")), status: 422, problem: "key-reused", title: titleReused,
		says: "mismatch", runs: 1, record: "completed"},
	{id: "HTTP-29", situation: "unknown", options: telling, play: vanished, status: 409, problem: "outcome-unknown", title: titleUnknown,
		retryAfter: "60", says: "unknown", runs: 1, record: "unknown"},
	{id: "HTTP-29", situation: "ignored: a key on a method that is not guarded", options: telling, play: once(withMethod("PUT")),
		status: 201, says: "ignored", runs: 1},
	{id: "HTTP-29", situation: "not-stored: a retry will not get this response", options: telling, play: func(w *fixture) reply {
		w.becomes(answers(504, idempotent.Unknown(errDown)))
		return once()(w)
	}, status: 504, says: "not-stored", runs: 1, record: "unknown"},

	// F70: 24 h by default.
	{id: "HTTP-30", situation: "`ExpiresHeader`: when the stored response expires", options: expiring, play: expiresIn(24 * time.Hour),
		status: 201, header: map[string]string{"Idempotency-Expires": "*"}, runs: 1, record: "completed"},
	{id: "HTTP-30", situation: "the same for a replay, with a retention of 48 h",
		options: func(o *lambdahttp.Options) {
			expiring(o)
			o.Guard = func(o *idempotent.Options) { o.Retention = 48 * time.Hour }
		},
		play: func(w *fixture) reply {
			w.post(charge())
			w.clock.Advance(time.Hour)
			return expiresIn(47 * time.Hour)(w)
		},
		status: 201, replayed: true, header: map[string]string{"Idempotency-Expires": "*"}, runs: 1, record: "completed"},

	// F09, F10: a key belongs to one caller, and to a method and endpoint.
	{id: "HTTP-31", situation: "the key of one route on another: a separate request", play: func(w *fixture) reply {
		w.post(charge())
		return w.post(charge(at("/refunds")))
	}, status: 201, runs: 2, record: "completed"},
	{id: "HTTP-31", situation: "the key of one resource on another of the same operation",
		options: func(o *lambdahttp.Options) {
			o.Operation = func(*lambdahttp.Request) string { return "capture" }
		},
		play: func(w *fixture) reply {
			w.post(charge(at("/charges/1/capture")))
			return w.post(charge(at("/charges/2/capture")))
		}, status: 422, problem: "key-reused", title: titleReused, runs: 1, record: "completed"},
	{id: "HTTP-31", situation: "behind a route that matches every path, the key of one endpoint on another: a separate request", play: func(w *fixture) reply {
		w.post(charge(to(catchAll, "/orders")))
		return w.post(charge(to(catchAll, "/payments")))
	}, status: 201, runs: 2, record: "completed"},
	{id: "HTTP-31", situation: "behind such a route, the same path in another percent-encoding, stage and base path: the same request", play: func(w *fixture) reply {
		w.post(charge(to(catchAll, "/customers/caf%C3%A9%2F7/charges"), mounted("/v1")))
		return w.post(charge(to(catchAll, "/customers/c%61f%c3%a9%2f7/charges"), mounted("/v2")))
	}, status: 201, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-31", situation: "behind no route, the same path in another percent-encoding: the same request", play: func(w *fixture) reply {
		w.post(charge(to("", "/customers/caf%C3%A9/charges")))
		return w.post(charge(to("", "/customers/c%61f%c3%a9/charges")))
	}, status: 201, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-31", situation: "behind a route, the same path in another percent-encoding, stage and base path: the same request", play: func(w *fixture) reply {
		w.post(charge(to("/customers/{id}/charges", "/customers/caf%C3%A9/charges"), mounted("/v1")))
		return w.post(charge(to("/customers/{id}/charges", "/customers/c%61f%c3%a9/charges"), mounted("/v2/eu")))
	}, status: 201, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-31", situation: "the key of one caller from another: a separate request", play: func(w *fixture) reply {
		w.post(charge())
		return w.post(charge(withCaller("merchant-2")))
	}, status: 201, runs: 2, record: "completed"},
	{id: "HTTP-31", profile: "Stripe", situation: "the key of one endpoint on another", play: func(w *fixture) reply {
		w.post(charge())
		return w.post(charge(at("/refunds")))
	}, status: 400, problem: "key-reused", stripe: "idempotency_error idempotency_key_reused", runs: 1, record: "completed"},
	{id: "HTTP-31", profile: "Stripe", situation: "the key of one caller from another: a separate request", play: func(w *fixture) reply {
		w.post(charge())
		return w.post(charge(withCaller("merchant-2")))
	}, status: 201, runs: 2, record: "completed"},
	{id: "HTTP-31", profile: "UUID", situation: "the key of one endpoint or method on another: a separate request", play: func(w *fixture) reply {
		w.post(charge())
		return w.post(charge(withMethod("PATCH")))
	}, status: 201, says: "created", runs: 2, record: "completed"},
	{id: "HTTP-31", profile: "UUID", situation: "the key of one resource on another: a separate request", play: func(w *fixture) reply {
		w.post(charge(to("/orders/{id}/pay", "/orders/1/pay"), withKey(keyA)))
		return w.post(charge(to("/orders/{id}/pay", "/orders/2/pay"), withKey(keyA)))
	}, status: 201, says: "created", runs: 2, record: "completed"},
	{id: "HTTP-31", profile: "UUID", situation: "the same, with an `Operation` of its own",
		options: func(o *lambdahttp.Options) {
			o.Operation = func(*lambdahttp.Request) string { return "pay" }
		},
		play: func(w *fixture) reply {
			w.post(charge(to("/orders/{id}/pay", "/orders/1/pay"), withKey(keyA)))
			return w.post(charge(to("/orders/{id}/pay", "/orders/2/pay"), withKey(keyA)))
		}, status: 201, says: "created", runs: 2, record: "completed"},
	{id: "HTTP-31", profile: "UUID", situation: "the same resource in another percent-encoding, stage and base path: the same request", play: func(w *fixture) reply {
		w.post(charge(to("/orders/{id}/pay", "/orders/a%20b/pay"), mounted("/v1"), withKey(keyA)))
		return w.post(charge(to("/orders/{id}/pay", "/orders/%61%20b/pay"), mounted("/v2"), withKey(keyA)))
	}, status: 201, replayed: true, says: "replayed", runs: 1, record: "completed"},
	{id: "HTTP-31", profile: "UUID", situation: "the same resource with another query: another request", play: func(w *fixture) reply {
		w.post(charge(withKey(keyA)))
		return w.post(charge(func(r *request) { r.query = "expand=refunds" }, withKey(keyA)))
	}, status: 422, problem: "key-reused", title: titleReused, says: "mismatch", runs: 1, record: "completed"},

	// F61: the headers of the response, or those of a list.
	{id: "HTTP-32", situation: "a replay has the headers of the response, except those of one exchange",
		play:   twiceWith(map[string]string{"Content-Type": "application/json", "Location": "/charges/ch_1", "X-Charge-Id": "ch_1", "Idempotent-Replayed": "true"}),
		status: 201, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-32", situation: "`ReplayHeaders`: these, and those that the body needs",
		options: func(o *lambdahttp.Options) { o.ReplayHeaders = []string{"X-Charge-Id"} },
		play:    twiceWith(map[string]string{"Content-Type": "application/json", "X-Charge-Id": "ch_1", "Idempotent-Replayed": "true"}),
		status:  201, replayed: true, runs: 1, record: "completed"},

	{id: "HTTP-33", situation: "`ExposeHeaders`: a replay names the headers that scripts may read", options: exposing, play: twice(),
		status: 201, replayed: true, runs: 1, record: "completed",
		header: map[string]string{"Access-Control-Expose-Headers": "Idempotent-Replayed"}},
	{id: "HTTP-33", situation: "the same for a problem", options: func(o *lambdahttp.Options) { exposing(o); documented(o) }, play: vanished,
		status: 409, base: "https://api.example.com/docs/keys#", problem: "outcome-unknown", title: titleUnknown, retryAfter: "60",
		header: map[string]string{"Access-Control-Expose-Headers": "Link, Retry-After", "Link": docsLink["Link"]}, runs: 1, record: "unknown"},
	{id: "HTTP-33", profile: "UUID", situation: "headers that the handler exposes itself stay exposed", options: exposing, play: func(w *fixture) reply {
		w.becomes(func(ctx context.Context, r request) (reply, error) {
			a, err := created(ctx, r)
			a.header["access-control-expose-headers"] = "X-Charge-Id"
			return a, err
		})
		return once()(w)
	}, status: 201, says: "created", runs: 1, record: "completed",
		header: map[string]string{"Access-Control-Expose-Headers": "X-Charge-Id, Idempotency-Status"}},
}
