// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"context"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/kit/exchange"
	"github.com/once-lambda/once/lambdahttp"
)

// row is a situation that package exchange cannot have, because of the handler, the
// store or the options: the requests to send, and what the last response must be.
type row struct {
	id        string
	profiles  string // names; "": all
	situation string
	options   func(*lambdahttp.Options)
	play      func(*fixture) reply
	want      want
	runs      int    // of the handler, in total
	record    string // its state afterwards; "": no record
}

// F08, F51, F52, F61, F63, F64, F80, G07: every row, for each event type and profile.
func TestRows(t *testing.T) {
	t.Parallel()
	for _, r := range slices.Concat(keyRows, answerRows, outcomeRows, optionRows) {
		inEachProfile(t, r.id+"/"+r.situation, r.profiles, func(t *testing.T, p *exchange.Profile) {
			onEachWire(t, func(t *testing.T, on wire) {
				// In a bubble times are exact, and waiting takes no real time.
				synctest.Test(t, func(t *testing.T) { r.test(t, on, p) })
			})
		})
	}
}

func (r row) test(t *testing.T, on wire, p *exchange.Profile) {
	w := newFixture(t, on, func(o *lambdahttp.Options) { o.Profile = p.Value }, optionally(r.options))
	a := r.play(w)
	r.want.check(w, p, a)
	if exchange.Title(r.want.gets) == "" && a.body != `{"id":"ch_1"}` {
		t.Errorf("got the body %q, want the handler's", a.body)
	}
	w.wantRecord(r.runs, r.record)
}

// keyRows test the key: where it is and how it is written.
var keyRows = []row{
	{id: "HTTP-01", situation: "another name for the header",
		options: func(o *lambdahttp.Options) { o.Profile.Header = "X-Payout-Idempotency" },
		play:    twice(without("idempotency-key"), withHeader("x-payout-idempotency", `"`+keyA+`"`)),
		want:    want{gets: exchange.Replay}, runs: 1, record: "completed"},
	{id: "HTTP-01", profiles: "ietf stripe", situation: "the key in the body, `KeyFrom: BodyField(\"/idempotency_key\")`", options: bodyKey,
		play: twice(withBodyKey(`"` + keyA + `"`)), want: want{gets: exchange.Replay}, runs: 1, record: "completed"},
	{id: "HTTP-01", situation: "another name that Unicode folds to it",
		play: once(without("idempotency-key"), withHeader("idempotency-\u212aey", `"`+keyA+`"`)), want: want{gets: "missing-key"}},

	{id: "HTTP-02", profiles: "ietf", situation: "parameters after the key are ignored", play: both(charge(), charge(withKey(` "`+keyA+`"; v=1;w="x";q=?0 `))),
		want: want{gets: exchange.Replay}, runs: 1, record: "completed"},
	{id: "HTTP-02", profiles: "ietf", situation: "a key without quotes, with `QuotedOrBareKey`: the same key as the quoted one",
		options: func(o *lambdahttp.Options) { o.Profile.Syntax = lambdahttp.QuotedOrBareKey },
		play:    both(charge(), charge(withKey(keyA))), want: want{gets: exchange.Replay}, runs: 1, record: "completed"},
	{id: "HTTP-02", profiles: "stripe", situation: "quotes are part of the key: with and without them are two keys",
		play: both(charge(withKey(keyA)), charge()), runs: 2, record: "completed"},
	{id: "HTTP-02", profiles: "ietf", situation: "a UUID in the body, with `UUIDKey`: its capitals are the same key", options: func(o *lambdahttp.Options) {
		bodyKey(o)
		o.Profile.Syntax, o.Fingerprint = lambdahttp.UUIDKey, lambdahttp.Fields("/amount")
	}, play: both(charge(withBodyKey(`"`+keyA+`"`)), charge(withBodyKey(`"`+strings.ToUpper(keyA)+`"`))),
		want: want{gets: exchange.Replay}, runs: 1, record: "completed"},

	{id: "HTTP-03", profiles: "ietf", situation: "GET, or any other method: passes through, the header is ignored",
		play: twice(withMethod("GET"), withKey("not a key")), want: want{gets: exchange.Passed}, runs: 2},
	{id: "HTTP-03", situation: "OPTIONS with a key: passes through", play: twice(withMethod("OPTIONS")), want: want{gets: exchange.Passed}, runs: 2},
	{id: "HTTP-03", profiles: "uuid", situation: "GET without a key: passes through", play: once(withMethod("GET"), without("idempotency-key")),
		want: want{gets: exchange.Passed, says: none}, runs: 1},

	{id: "HTTP-04", profiles: "ietf stripe", situation: "no key in the body, `KeyFrom`", options: bodyKey, play: once(), want: want{gets: "missing-key"}},

	// F05, F06, F07: a key must have the length and the form of its profile.
	{id: "HTTP-07", profiles: "ietf", situation: "a malformed key", play: once(withKey(`"` + keyA)), want: want{gets: "invalid-key",
		member: map[string]string{"detail": "The Idempotency-Key header cannot be used: the closing double quote is missing."}}},
	{id: "HTTP-07", profiles: "ietf stripe", situation: "the key in the body is neither a string nor a number", options: bodyKey, play: once(withBodyKey("true")),
		want: want{gets: "invalid-key"}},
	{id: "HTTP-07", profiles: "ietf stripe", situation: "the body that should contain the key is not one JSON object", options: bodyKey, play: once(withBody("amount=1")),
		want: want{gets: "invalid-key"}},
}

// answerRows test the response to a request without a record, with a record in
// each of its states, and with a store that fails.
var answerRows = []row{
	{id: "HTTP-08", situation: "the first request: the handler's own response", play: func(w *fixture) reply {
		a := once()(w)
		own, _ := created(w.t.Context(), request{})
		if own, _ = w.on.carries(own); a.header["Idempotency-Status"] == "" && !reflect.DeepEqual(a, own) {
			w.t.Errorf("got the response %+v, want the handler's %+v", a, own)
		}
		return a
	}, runs: 1, record: "completed"},
	{id: "HTTP-09", profiles: "stripe", situation: "completed with a 500, the same request: the stored response", play: then(answers(500, nil)),
		want: want{gets: exchange.Replay, status: 500}, runs: 1, record: "completed"},

	{id: "HTTP-11", situation: "the first request is running", play: func(w *fixture) (second reply) {
		w.becomes(duringRun(func() {
			w.clock.Advance(10*time.Minute + 500*time.Millisecond)
			second = w.post(charge())
		}))
		w.post(charge())
		return second
	}, want: want{gets: "in-progress", retryAfter: "300"}, runs: 1, record: "completed"},
	{id: "HTTP-11", profiles: "ietf", situation: "the first request is running, with a reference from `SetRef`", options: resume, play: func(w *fixture) (second reply) {
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
	}, want: want{gets: "in-progress", member: aboutCharge, retryAfter: "1"}, runs: 1, record: "completed"},
	{id: "HTTP-11", profiles: "ietf", situation: "this request exceeded its lease, and the one that took over is running", options: rerun,
		play: func(w *fixture) reply {
			w.becomes(duringRun(func() {
				w.clock.Advance(16 * time.Minute)
				w.becomes(duringRun(func() { w.store.set(noWrites) }))
				w.post(charge())
				w.store.set(works)
			}))
			return w.post(charge())
		}, want: want{gets: "in-progress", member: map[string]string{"until": ""}, retryAfter: "1"}, runs: 2, record: "in_progress"},
	{id: "HTTP-11", profiles: "ietf", situation: "this request exceeded its lease, and the one that took over has finished", options: rerun,
		play: func(w *fixture) reply {
			w.becomes(duringRun(func() {
				w.clock.Advance(16 * time.Minute)
				w.becomes(created)
				w.post(charge())
			}))
			return w.post(charge())
		}, want: want{gets: exchange.Replay}, runs: 2, record: "completed"},
	{id: "HTTP-11", profiles: "ietf", situation: "the same, and this request's handler fails", options: rerun, play: overtaken(noWrites),
		want: want{gets: "in-progress", member: map[string]string{"until": ""}, retryAfter: "1"}, runs: 2, record: "in_progress"},
	{id: "HTTP-18", profiles: "ietf", situation: "this request exceeded its lease and failed, and the response of the one that took over could not be stored", options: rerun,
		play: overtaken(noResults), want: want{gets: "replay-unavailable", member: aboutCharge}, runs: 2, record: "completed"},

	{id: "HTTP-13", situation: "the first request never finished", play: vanished,
		want: want{gets: "outcome-unknown", retryAfter: "60"}, runs: 1, record: "unknown"},
	{id: "HTTP-14", situation: "the first request never finished, recovery `Rerun`: takes over", options: rerun, play: vanished,
		runs: 2, record: "completed"},
	{id: "HTTP-14", situation: "the first request never finished, recovery `Resume`: continues after its last step", options: resume, play: resumed,
		runs: 2, record: "completed"},
	{id: "HTTP-15", situation: "unknown, with a reference from `SetRef`", play: unheard,
		want: want{gets: "outcome-unknown", retryAfter: "40", member: aboutCharge}, runs: 1, record: "unknown"},
	{id: "HTTP-16", situation: "the first run was `NotExecuted`: runs again", play: then(answers(503, idempotent.NotExecuted(errDown))),
		runs: 2, record: "completed"},
	{id: "HTTP-17", situation: "unknown, after the retention: an unknown outcome never expires", play: func(w *fixture) reply {
		w.becomes(answers(0, idempotent.Unknown(errDown)))
		w.send(w.t.Context(), charge())
		w.clock.Advance(1000 * time.Hour)
		return w.post(charge())
	}, want: want{gets: "outcome-unknown", retryAfter: "60", member: aboutCharge}, runs: 1, record: "unknown"},

	{id: "HTTP-18", situation: "completed, the response could not be stored", play: over(noResults, twice()),
		want: want{gets: "replay-unavailable", member: aboutCharge}, runs: 1, record: "completed"},
	{id: "HTTP-18", situation: "completed, the handler called `NoStore`: the client gets the hint", play: with(secret("Roll the key to get a new secret."), twice()),
		want: want{gets: "replay-unavailable", member: map[string]string{"resource": "/charges/ch_1", "detail": "Roll the key to get a new secret."}}, runs: 1, record: "completed"},
	{id: "HTTP-18", situation: "completed, `BeforeReplay` refuses because the resource has changed",
		options: refusing(lambdahttp.RefuseReplay("The charge was deleted.")), play: twice(),
		want: want{gets: "replay-unavailable", member: map[string]string{"resource": "/charges/ch_1", "detail": "The charge was deleted."}}, runs: 1, record: "completed"},

	{id: "HTTP-19", situation: "the store fails before the handler", play: over(down, once()), want: want{gets: "store-unavailable", retryAfter: "1"}},
	{id: "HTTP-19", profiles: "ietf", situation: "too little time is left before the handler", play: func(w *fixture) reply {
		a, err := w.send(w.clock.Invocation(w.t.Context(), 0), charge())
		if err != nil {
			w.t.Error(err)
		}
		return a
	}, want: want{gets: "no-time-left", retryAfter: "1"}},

	{id: "HTTP-20", situation: "the handler is done, but its response could not be stored", play: over(noWrites, once()),
		want: want{says: "not-stored"}, runs: 1, record: "in_progress"},
	{id: "HTTP-20", situation: "the handler is done, but its response is too large to be stored", play: over(noResults, once()),
		want: want{says: "not-stored"}, runs: 1, record: "completed"},
	{id: "HTTP-20", profiles: "ietf stripe", situation: "the handler returned a `Final` error that could not be stored", play: over(noWrites, with(declined, once())),
		want: want{gets: "final", stripe: "card_declined", member: map[string]string{"code": "card_declined"}, says: "not-stored"}, runs: 1, record: "in_progress"},
	{id: "HTTP-20", situation: "the handler called `NoStore`: the caller gets the response", play: with(secret(""), once()),
		want: want{says: "not-stored"}, runs: 1, record: "completed"},
}

// outcomeRows test what is stored of a request, and what is not.
var outcomeRows = []row{
	{id: "HTTP-21", situation: "refused before the handler: nothing is stored, the key stays unused", play: func(w *fixture) reply {
		w.post(charge(withKey(`"sh,rt`)))
		w.post(charge(withCaller("")))
		if w.store.calls != 0 {
			w.t.Errorf("a refused request called the store %d times", w.store.calls)
		}
		return w.post(charge())
	}, runs: 1, record: "completed"},
	{id: "HTTP-21", profiles: "ietf", situation: "the body is marked as base64 but is invalid", play: once(func(r *request) { r.body, r.base64 = "%", true }),
		want: want{gets: "invalid-body"}},
	{id: "HTTP-21", situation: "`Content-Digest` does not match the body, `VerifiedDigest`",
		options: func(o *lambdahttp.Options) { o.Fingerprint = lambdahttp.VerifiedDigest },
		play:    once(withHeader("content-digest", "sha-256=:"+strings.Repeat("A", 43)+"=:")), want: want{gets: "invalid-digest"}},
	{id: "HTTP-21", situation: "the handler refuses with `NotExecuted`: the caller gets its response", play: with(refusal(400), once()),
		want: want{status: 400, says: "not-stored"}, runs: 1, record: "retryable"},
	{id: "HTTP-21", situation: "the same, repeated: runs again", play: then(refusal(400)), runs: 2, record: "completed"},

	{id: "HTTP-22", situation: "401, 403 or 429 in front of the guarded handler: nothing is stored, the key stays unused", play: inFront(429),
		runs: 1, record: "completed"},
	{id: "HTTP-22", situation: "429 by the handler itself, with `NotExecuted`, repeated: runs again", play: then(refusal(429)),
		runs: 2, record: "completed"},

	// F39, F65: a refusal is an outcome, and is replayed with its status.
	{id: "HTTP-23", situation: "the handler responded with 404: stored like a success", play: then(answers(404, nil)),
		want: want{gets: exchange.Replay, status: 404}, runs: 1, record: "completed"},
	{id: "HTTP-23", profiles: "ietf stripe", situation: "the handler returned a `Final` error", play: with(declined, once()),
		want: want{gets: "final", stripe: "card_declined", member: map[string]string{"code": "card_declined"}}, runs: 1, record: "completed"},
	{id: "HTTP-23", situation: "the same, repeated: `BeforeReplay` is not asked", options: refusing(errDown), play: then(declined),
		want: want{gets: "final", stripe: "card_declined", member: map[string]string{"code": "card_declined"}, replayed: true}, runs: 1, record: "completed"},

	{id: "HTTP-24", profiles: "ietf", situation: "the handler responds with 5xx: the caller gets that response", play: with(answers(502, nil), once()),
		want: want{status: 502}, runs: 1, record: "unknown"},
	{id: "HTTP-24", profiles: "uuid", situation: "the same, with `Idempotency-Status`", play: with(answers(502, nil), once()),
		want: want{status: 502, says: "not-stored"}, runs: 1, record: "unknown"},
	{id: "HTTP-24", profiles: "ietf uuid", situation: "5xx, repeated, recovery `Reconcile`", play: then(answers(502, nil)),
		want: want{gets: "outcome-unknown", retryAfter: "60", member: aboutCharge}, runs: 1, record: "unknown"},
	{id: "HTTP-24", profiles: "ietf uuid", situation: "5xx, repeated, recovery `Rerun`", options: rerun, play: then(answers(502, nil)),
		runs: 2, record: "completed"},
	{id: "HTTP-24", profiles: "stripe", situation: "5xx: stored", play: then(answers(502, nil)),
		want: want{gets: exchange.Replay, status: 502}, runs: 1, record: "completed"},
	{id: "HTTP-24", situation: "5xx, repeated, `FollowRecovery`", options: serverErrors(lambdahttp.FollowRecovery), play: then(answers(502, nil)),
		want: want{gets: "outcome-unknown", retryAfter: "60", member: aboutCharge}, runs: 1, record: "unknown"},
	{id: "HTTP-24", situation: "5xx, repeated, `StoreServerErrors`", options: serverErrors(lambdahttp.StoreServerErrors),
		play: then(answers(502, nil)), want: want{gets: exchange.Replay, status: 502}, runs: 1, record: "completed"},
	{id: "HTTP-24", situation: "5xx, repeated, `UnknownServerErrors`", options: serverErrors(lambdahttp.UnknownServerErrors, rerun),
		play: then(answers(502, nil)), want: want{gets: "outcome-unknown", retryAfter: "60", member: aboutCharge}, runs: 1, record: "unknown"},
	{id: "HTTP-24", situation: "5xx, repeated, `ReleaseServerErrors`", options: serverErrors(lambdahttp.ReleaseServerErrors),
		play: then(answers(502, nil)), runs: 2, record: "completed"},
	{id: "HTTP-24", profiles: "ietf uuid", situation: "501, repeated: stored, because the server does not support the request", play: then(answers(501, nil)),
		want: want{gets: exchange.Replay, status: 501}, runs: 1, record: "completed"},
	{id: "HTTP-24", profiles: "ietf uuid", situation: "505, repeated: stored too", play: then(answers(505, nil)),
		want: want{gets: exchange.Replay, status: 505}, runs: 1, record: "completed"},
	{id: "HTTP-24", situation: "501, repeated, `UnknownServerErrors`", options: serverErrors(lambdahttp.UnknownServerErrors), play: then(answers(501, nil)),
		want: want{gets: "outcome-unknown", member: aboutCharge}, runs: 1, record: "unknown"},
	{id: "HTTP-24", situation: "501, repeated, `ReleaseServerErrors`", options: serverErrors(lambdahttp.ReleaseServerErrors), play: then(answers(501, nil)),
		runs: 2, record: "completed"},
	{id: "HTTP-24", situation: "201 with `idempotent.NotExecuted`, repeated, `StoreServerErrors`", options: serverErrors(lambdahttp.StoreServerErrors),
		play: then(refusal(201)), runs: 2, record: "completed"},
	{id: "HTTP-24", situation: "201 with `idempotent.NotExecuted`, repeated, `UnknownServerErrors`", options: serverErrors(lambdahttp.UnknownServerErrors),
		play: then(refusal(201)), runs: 2, record: "completed"},
	{id: "HTTP-24", profiles: "ietf", situation: "5xx with `NoStore`, repeated", play: then(withheld(502, nil)),
		want: want{gets: "outcome-unknown", member: aboutCharge}, runs: 1, record: "unknown"},
	{id: "HTTP-24", situation: "`NotExecuted` with `NoStore`, repeated: runs again", play: then(withheld(422, idempotent.NotExecuted(errDown))),
		runs: 2, record: "completed"},
	{id: "HTTP-24", situation: "`Unknown` with `NoStore`, repeated", play: then(withheld(504, idempotent.Unknown(errDown))),
		want: want{gets: "outcome-unknown", member: aboutCharge}, runs: 1, record: "unknown"},
	{id: "HTTP-24", situation: "a response with `idempotent.NotExecuted`: the caller gets that response", play: with(refusal(503), once()),
		want: want{status: 503, says: "not-stored"}, runs: 1, record: "retryable"},
	{id: "HTTP-24", profiles: "ietf stripe", situation: "a response with `idempotent.Unknown`: the caller gets that response", options: rerun,
		play: with(answers(504, idempotent.Unknown(errDown)), once()), want: want{status: 504}, runs: 1, record: "unknown"},
	{id: "HTTP-24", situation: "a transaction is in doubt, but the handler responds with 201", play: func(w *fixture) reply {
		return with(w.careless(lost(w)), once())(w)
	}, want: want{gets: "outcome-unknown", retryAfter: "1"}, runs: 1, record: "unknown"},
	{id: "HTTP-24", situation: "the same, repeated, recovery `Rerun`", options: rerun, play: func(w *fixture) reply {
		return with(w.careless(lost(w)), twice())(w)
	}, runs: 2, record: "completed"},
}

// optionRows test waiting, the form of responses, and optional headers.
var optionRows = []row{
	{id: "HTTP-25", profiles: "ietf", situation: "`WaitFor`: the first request finishes in time", options: waitFor(10 * time.Second),
		play: waiting(3*time.Second, 3*time.Second, 5*time.Second), want: want{gets: exchange.Replay}, runs: 1, record: "completed"},
	{id: "HTTP-25", profiles: "ietf", situation: "`WaitFor` ends first", options: waitFor(10 * time.Second),
		play: waiting(time.Minute, 8*time.Second, 10*time.Second), want: want{gets: "in-progress"}, runs: 1, record: "completed"},
	{id: "HTTP-25", profiles: "ietf", situation: "the gateway's timeout comes first: 29 s minus the lease margin of 3 s", options: waitFor(time.Hour),
		play: waiting(time.Minute, 24*time.Second, 26*time.Second), want: want{gets: "in-progress"}, runs: 1, record: "completed"},
	{id: "HTTP-25", profiles: "ietf", situation: "another `GatewayTimeout`",
		options: func(o *lambdahttp.Options) { waitFor(time.Hour)(o); o.GatewayTimeout = 50 * time.Second },
		play:    waiting(40*time.Second, 40*time.Second, 42*time.Second), want: want{gets: exchange.Replay}, runs: 1, record: "completed"},
	{id: "HTTP-25", profiles: "ietf", situation: "its own deadline comes first", options: waitFor(time.Hour),
		play: func(w *fixture) reply { return w.waits(time.Minute, 5*time.Second, 3*time.Second, 5*time.Second) },
		want: want{gets: "in-progress"}, runs: 1, record: "completed"},

	{id: "HTTP-26", profiles: "ietf", situation: "running, another request with the key: `Accepted` changes nothing", options: accepting("/work"),
		play: meanwhile(withBody(`{"amount":9999}`)), want: want{gets: "key-reused"}, runs: 1, record: "completed"},
	{id: "HTTP-26", profiles: "ietf", situation: "running, with all headers that can be exposed",
		options: func(o *lambdahttp.Options) { accepting("/work")(o); telling(o); exposing(o) }, play: meanwhile(),
		want: want{gets: "accepted", says: "conflict",
			header: map[string]string{"Location": "/work/charges", "Access-Control-Expose-Headers": "Idempotency-Status, Retry-After, Location"}},
		runs: 1, record: "completed"},
	{id: "HTTP-26", profiles: "ietf", situation: "`Accepted` returns no address",
		options: func(o *lambdahttp.Options) { accepting("")(o); exposing(o) }, play: meanwhile(),
		want: want{gets: "accepted", header: map[string]string{"Location": "", "Access-Control-Expose-Headers": "Retry-After"}}, runs: 1, record: "completed"},

	{id: "HTTP-27", situation: "`DocsURL`: a link, and the base of problem types", options: documented, play: once(withKey("broken,")),
		want: want{gets: "invalid-key", base: "https://api.example.com/docs/keys#", header: docsLink}},

	{id: "HTTP-27", profiles: "ietf", situation: "a final outcome has no link", options: documented, play: with(declined, once()),
		want: want{gets: "final", base: "https://api.example.com/docs/keys#", member: map[string]string{"code": "card_declined"}}, runs: 1, record: "completed"},
	{id: "HTTP-27", situation: "nor has an answer that only asks to wait", options: documented, play: over(down, once()),
		want: want{gets: "store-unavailable", base: "https://api.example.com/docs/keys#"}},

	{id: "HTTP-28", profiles: "ietf stripe", situation: "every replay is marked", play: func(w *fixture) reply {
		twice()(w)
		return w.post(charge())
	}, want: want{gets: exchange.Replay}, runs: 1, record: "completed"},

	{id: "HTTP-29", situation: "`Idempotency-Status`: created", options: telling, play: once(), want: want{says: "created"}, runs: 1, record: "completed"},
	{id: "HTTP-29", situation: "replayed", options: telling, play: twice(), want: want{gets: exchange.Replay, says: "replayed"}, runs: 1, record: "completed"},
	{id: "HTTP-29", situation: "conflict", options: telling, play: meanwhile(), want: want{gets: "in-progress", says: "conflict"}, runs: 1, record: "completed"},
	{id: "HTTP-29", situation: "mismatch", options: telling, play: meanwhile(withBody("{}")), want: want{gets: "key-reused", says: "mismatch"}, runs: 1, record: "completed"},
	{id: "HTTP-29", situation: "unknown", options: telling, play: vanished, want: want{gets: "outcome-unknown", retryAfter: "60", says: "unknown"}, runs: 1, record: "unknown"},
	{id: "HTTP-29", situation: "ignored: a key on a method that is not guarded", options: telling, play: once(withMethod("PUT")),
		want: want{gets: exchange.Passed, says: "ignored"}, runs: 1},
	{id: "HTTP-29", situation: "not-stored: a retry will not get this response", options: telling, play: with(answers(504, idempotent.Unknown(errDown)), once()),
		want: want{status: 504, says: "not-stored"}, runs: 1, record: "unknown"},

	// F70: 24 h by default.
	{id: "HTTP-30", situation: "`Idempotency-Expires`: when the stored response expires", options: expiring, play: expiresIn(24 * time.Hour),
		want: want{header: map[string]string{"Idempotency-Expires": "*"}}, runs: 1, record: "completed"},
	{id: "HTTP-30", situation: "the same for a replay, with a retention of 48 h",
		options: func(o *lambdahttp.Options) {
			expiring(o)
			o.Guard = func(o *idempotent.Operation) { o.Retention = 48 * time.Hour }
		},
		play: func(w *fixture) reply {
			w.post(charge())
			w.clock.Advance(time.Hour)
			return expiresIn(47 * time.Hour)(w)
		},
		want: want{gets: exchange.Replay, header: map[string]string{"Idempotency-Expires": "*"}}, runs: 1, record: "completed"},

	{id: "HTTP-31", profiles: "ietf stripe", situation: "the key of one resource on another of the same operation", options: operation("capture"),
		play: both(charge(at("/charges/1/capture")), charge(at("/charges/2/capture"))), want: want{gets: "key-reused"}, runs: 1, record: "completed"},
	{id: "HTTP-31", profiles: "uuid", situation: "the same, where each path has its own keys", options: operation("capture"),
		play: both(charge(at("/charges/1/capture")), charge(at("/charges/2/capture"))), runs: 2, record: "completed"},
	{id: "HTTP-31", situation: "behind a route that matches every path, the same path in another percent-encoding, stage and base path: the same request",
		play: both(charge(to(catchAll, "/customers/caf%C3%A9%2F7/charges"), mounted("/v1")), charge(to(catchAll, "/customers/c%61f%c3%a9%2f7/charges"), mounted("/v2"))),
		want: want{gets: exchange.Replay}, runs: 1, record: "completed"},
	{id: "HTTP-31", situation: "behind no route, the same path in another percent-encoding: the same request",
		play: both(charge(to("", "/customers/caf%C3%A9/charges")), charge(to("", "/customers/c%61f%c3%a9/charges"))),
		want: want{gets: exchange.Replay}, runs: 1, record: "completed"},
	{id: "HTTP-31", situation: "behind a route, the same path in another percent-encoding, stage and base path: the same request",
		play: both(charge(to("/customers/{id}/charges", "/customers/caf%C3%A9/charges"), mounted("/v1")), charge(to("/customers/{id}/charges", "/customers/c%61f%c3%a9/charges"), mounted("/v2/eu"))),
		want: want{gets: exchange.Replay}, runs: 1, record: "completed"},
	{id: "HTTP-31", situation: "the same resource with another query: another request", play: both(charge(), charge(func(r *request) { r.query = "expand=refunds" })),
		want: want{gets: "key-reused"}, runs: 1, record: "completed"},

	{id: "HTTP-32", profiles: "ietf stripe", situation: "a replay has the headers of the response, except those of one exchange",
		play: twiceWith(map[string]string{"Content-Type": "application/json", "Location": "/charges/ch_1", "X-Charge-Id": "ch_1", "Idempotent-Replayed": "true"}),
		want: want{gets: exchange.Replay}, runs: 1, record: "completed"},
	{id: "HTTP-32", profiles: "ietf stripe", situation: "`ReplayHeaders`: these, and those that the body needs",
		options: func(o *lambdahttp.Options) { o.ReplayHeaders = []string{"X-Charge-Id"} },
		play:    twiceWith(map[string]string{"Content-Type": "application/json", "X-Charge-Id": "ch_1", "Idempotent-Replayed": "true"}),
		want:    want{gets: exchange.Replay}, runs: 1, record: "completed"},

	{id: "HTTP-33", profiles: "ietf stripe", situation: "`Access-Control-Expose-Headers`: a replay names the headers that scripts may read", options: exposing, play: twice(),
		want: want{gets: exchange.Replay, header: map[string]string{"Access-Control-Expose-Headers": "Idempotent-Replayed"}}, runs: 1, record: "completed"},
	{id: "HTTP-33", profiles: "ietf", situation: "the same for a problem", options: func(o *lambdahttp.Options) { exposing(o); documented(o) }, play: vanished,
		want: want{gets: "outcome-unknown", base: "https://api.example.com/docs/keys#", retryAfter: "60",
			header: map[string]string{"Access-Control-Expose-Headers": "Link, Retry-After", "Link": docsLink["Link"]}}, runs: 1, record: "unknown"},
	{id: "HTTP-33", profiles: "uuid", situation: "headers that the handler exposes itself stay exposed", options: exposing,
		play: with(func(ctx context.Context, r request) (reply, error) {
			a, err := created(ctx, r)
			a.header["access-control-expose-headers"] = "X-Charge-Id"
			return a, err
		}, once()), want: want{header: map[string]string{"Access-Control-Expose-Headers": "X-Charge-Id, Idempotency-Status"}}, runs: 1, record: "completed"},
}

// The options, handlers and sequences of requests that several rows share.

var aboutCharge = map[string]string{"resource": "/charges/ch_1"}

// The ways in which a store fails.
func noWrites(s *faultyStore)  { s.replaceErr = errDown }
func noResults(s *faultyStore) { s.noResults = true }
func down(s *faultyStore)      { s.insertErr, s.replaceErr = errDown, errDown }
func works(s *faultyStore)     { s.insertErr, s.replaceErr, s.noResults = nil, nil, false }

// once sends one request, twice sends the same request two times, and both sends two.
func once(mods ...func(*request)) func(*fixture) reply {
	return func(w *fixture) reply { return w.post(charge(mods...)) }
}

func twice(mods ...func(*request)) func(*fixture) reply {
	return both(charge(mods...), charge(mods...))
}

func both(first, second request) func(*fixture) reply {
	return func(w *fixture) reply {
		w.post(first)
		return w.post(second)
	}
}

// twiceWith is twice, with the headers that the replay must have.
func twiceWith(headers map[string]string) func(*fixture) reply {
	return func(w *fixture) reply {
		a := twice()(w)
		if !maps.Equal(a.header, headers) || len(a.cookies) != 0 {
			w.t.Errorf("the replay has the headers %v and the cookies %v, want %v", a.header, a.cookies, headers)
		}
		return a
	}
}

// with plays with another handler, and over with a store that fails.
func with(h handler, play func(*fixture) reply) func(*fixture) reply {
	return func(w *fixture) reply {
		w.becomes(h)
		return play(w)
	}
}

func over(set func(*faultyStore), play func(*fixture) reply) func(*fixture) reply {
	return func(w *fixture) reply {
		w.store.set(set)
		return play(w)
	}
}

// then sends a request to the handler h, and the same request again to a
// handler that succeeds.
func then(h handler) func(*fixture) reply {
	return func(w *fixture) reply {
		with(h, once())(w)
		return with(created, once())(w)
	}
}

// meanwhile sends a second request while the first one's handler runs.
func meanwhile(mods ...func(*request)) func(*fixture) reply {
	return func(w *fixture) (second reply) {
		with(duringRun(func() { second = w.post(charge(mods...)) }), once())(w)
		return second
	}
}

func bodyKey(o *lambdahttp.Options) { o.KeyFrom = lambdahttp.BodyField("/idempotency_key") }

func withBodyKey(member string) func(*request) {
	return withBody(`{"amount":1250,"idempotency_key":` + member + `}`)
}

func at(path string) func(*request) {
	return func(r *request) { r.path, r.route = path, path }
}

// to sends a request to a path that a route has matched, and mounted behind a
// stage or base path.
func to(route, path string) func(*request) {
	return func(r *request) { r.route, r.path = route, path }
}

func mounted(mount string) func(*request) { return func(r *request) { r.mount = mount } }

// vanished sends a request whose process ends before it reports its outcome,
// and the same request again after the lease.
func vanished(w *fixture) reply {
	w.store.set(noWrites)
	w.post(charge())
	w.store.set(works)
	w.clock.Advance(16 * time.Minute)
	return w.post(charge())
}

// overtaken sends a request whose handler fails after its lease, when another request
// has run over the store as set makes it.
func overtaken(set func(*faultyStore)) func(*fixture) reply {
	return func(w *fixture) reply {
		w.becomes(func(context.Context, request) (reply, error) {
			w.clock.Advance(16 * time.Minute)
			w.becomes(duringRun(func() { w.store.set(set) }))
			w.post(charge())
			w.store.set(works)
			return reply{}, errDown
		})
		return w.post(charge())
	}
}

// resumed sends a request that charges in a step and whose process ends after
// the step. It sends the same request again after the lease, which must not
// charge again.
func resumed(w *fixture) reply {
	charges := 0
	w.becomes(func(ctx context.Context, r request) (reply, error) {
		if _, err := idempotent.Step(ctx, "charge", func(context.Context) (string, error) {
			charges++
			return "ch_1", nil
		}); err != nil {
			return reply{}, err
		}
		if w.runs == 1 {
			w.store.set(noWrites)
		}
		return created(ctx, r)
	})
	w.post(charge())
	w.store.set(works)
	w.clock.Advance(16 * time.Minute)
	a := w.post(charge())
	if charges != 1 {
		w.t.Errorf("charged %d times, want once", charges)
	}
	return a
}

// unheard sends a request whose handler returns an unknown outcome, and the
// same request again 20 s later.
func unheard(w *fixture) reply {
	w.becomes(answers(0, idempotent.Unknown(errDown)))
	if _, err := w.send(w.t.Context(), charge()); err == nil {
		w.t.Error("the handler's error did not reach Lambda")
	}
	w.clock.Advance(20 * time.Second)
	return w.post(charge())
}

// secret is a handler whose response must not be stored.
func secret(hint string) handler {
	return func(ctx context.Context, r request) (reply, error) {
		lambdahttp.NoStore(ctx, hint)
		return created(ctx, r)
	}
}

// withheld is a handler whose response must not be stored, and that returns err.
func withheld(status int, err error) handler {
	return func(ctx context.Context, r request) (reply, error) {
		lambdahttp.NoStore(ctx, "")
		return answers(status, err)(ctx, r)
	}
}

// refusal is a handler that does nothing and declares NotExecuted.
func refusal(status int) handler {
	return answers(status, idempotent.NotExecuted(errDown))
}

func refusing(err error) func(*lambdahttp.Options) {
	return func(o *lambdahttp.Options) {
		o.BeforeReplay = func(context.Context, *lambdahttp.Request, lambdahttp.Response) error { return err }
	}
}

// inFront sends a request that a layer in front of the guarded handler refuses,
// and the same request again without that layer.
func inFront(status int) func(*fixture) reply {
	return func(w *fixture) reply {
		open := false
		front := func(r request) reply {
			if !open {
				return reply{status: status}
			}
			return w.post(r)
		}
		if a := front(charge()); a.status != status || w.runs != 0 || w.store.calls != 0 {
			w.t.Errorf("status %d after %d runs and %d calls of the store", a.status, w.runs, w.store.calls)
		}
		open = true
		return front(charge())
	}
}

func waitFor(d time.Duration) func(*lambdahttp.Options) {
	return guard(func(o *idempotent.Operation) { o.WaitFor = d })
}

// waiting sends a request that takes some time, and a second one at the same
// time that must get its response after least to most.
func waiting(takes, least, most time.Duration) func(*fixture) reply {
	return func(w *fixture) reply { return w.waits(takes, 0, least, most) }
}

// waits is waiting with a second request that has a deadline, unless it is 0.
func (w *fixture) waits(takes, deadline, least, most time.Duration) (second reply) {
	w.ticks = time.Now()
	ctx := w.t.Context()
	if deadline != 0 {
		ctx = w.clock.Invocation(ctx, deadline)
	}
	done := make(chan struct{})
	w.becomes(duringRun(func() {
		w.becomes(created)
		go func() {
			defer close(done)
			begun := time.Now()
			var err error
			if second, err = w.send(ctx, charge()); err != nil {
				w.t.Error(err)
			}
			if waited := time.Since(begun).Truncate(time.Millisecond); waited < least || waited > most {
				w.t.Errorf("the response took %s, want %s to %s", waited, least, most)
			}
		}()
		<-time.After(takes)
	}))
	w.post(charge())
	<-done
	return second
}

// The headers that a profile can add, in any letter case.
var (
	telling  = setting("idempotency-status")
	expiring = setting("Idempotency-Expires")
	exposing = setting("Access-Control-Expose-Headers")
)

func setting(name string) func(*lambdahttp.Options) {
	return func(o *lambdahttp.Options) { o.Profile.ResponseHeaders = append(o.Profile.ResponseHeaders, name) }
}

func documented(o *lambdahttp.Options) { o.DocsURL = "https://api.example.com/docs/keys" }

// expiresIn sends a request and checks that its outcome expires after d, within
// the second that an HTTP date rounds off.
func expiresIn(d time.Duration) func(*fixture) reply {
	return func(w *fixture) reply {
		a := w.post(charge())
		at, err := http.ParseTime(a.header["Idempotency-Expires"])
		if left := at.Sub(w.clock.Now()); err != nil || left > d || left < d-10*time.Second {
			w.t.Errorf("Idempotency-Expires %q is in %s (%v), want %s", a.header["Idempotency-Expires"], left, err, d)
		}
		return a
	}
}

// optional lets requests without a key run.
func optional(o *lambdahttp.Options) {
	o.Guard = func(g *idempotent.Operation) { g.AllowMissingKey = true }
}

func guard(f func(*idempotent.Operation)) func(*lambdahttp.Options) {
	return func(o *lambdahttp.Options) { o.Guard = f }
}

func serverErrors(p lambdahttp.ServerErrors, also ...func(*lambdahttp.Options)) func(*lambdahttp.Options) {
	return func(o *lambdahttp.Options) {
		o.ServerErrors = p
		for _, f := range also {
			f(o)
		}
	}
}

var rerun = guard(func(o *idempotent.Operation) { o.Recovery = idempotent.Rerun })

// resume declares the step that resumed takes.
var resume = guard(func(o *idempotent.Operation) { o.Recovery, o.Steps = idempotent.Resume, []string{"charge"} })

// declined is a handler that returns a final outcome.
var declined = answers(0, idempotent.Final("card_declined", "The card was declined."))

var docsLink = map[string]string{"Link": `<https://api.example.com/docs/keys>; rel="describedby"; type="text/html"`}

func operation(name string) func(*lambdahttp.Options) {
	return func(o *lambdahttp.Options) { o.Operation = func(*lambdahttp.Request) string { return name } }
}

// accepting sets the address of the progress, unless below is "".
func accepting(below string) func(*lambdahttp.Options) {
	return func(o *lambdahttp.Options) {
		o.Accepted = func(_ context.Context, r *lambdahttp.Request, _ idempotent.RecordID) string {
			if below == "" {
				return ""
			}
			return below + r.Path
		}
	}
}
