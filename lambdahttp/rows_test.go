package lambdahttp_test

import (
	"errors"
	"maps"
	"reflect"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// row is one line of the table of answers: what is played, and what is wanted
// of the last answer. docs/http.md prints these rows, see TestDocs.
type row struct {
	id, situation string
	options       func(*lambdahttp.Options)
	play          func(*world) reply

	status     int
	base       string // of the problem's type; "": the default
	problem    string // suffix of the problem's type; "": not a problem
	title      string
	member     map[string]string // members besides the standard ones
	retryAfter string
	replayed   bool
	notStored  bool
	runs       int    // of the handler, in all
	record     string // its state afterwards; "": none
}

const (
	titleMissing     = "Idempotency-Key is missing"
	titleInvalid     = "Idempotency-Key is invalid"
	titleReused      = "Idempotency-Key is already used"
	titleOutstanding = "A request is outstanding for this Idempotency-Key"
	titleUnknown     = "The outcome for this Idempotency-Key is unknown"
	titleUnavailable = "The response for this Idempotency-Key cannot be repeated"
	titleStore       = "Idempotency cannot be guaranteed at the moment"
)

var rows = []row{
	{id: "HTTP-01", situation: "the header's name in any case", play: func(w *world) reply {
		w.post(charge())
		return w.post(charge(without("idempotency-key"), withHeader("IDEMPOTENCY-Key", `"`+keyA+`"`)))
	}, status: 201, replayed: true, runs: 1, record: "completed"},

	{id: "HTTP-02", situation: "a quoted key; parameters behind it are ignored", play: func(w *world) reply {
		w.post(charge())
		return w.post(charge(withKey(` "` + keyA + `"; v=1;w="x";q=?0 `)))
	}, status: 201, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-02", situation: "a key without quotes", play: once(withKey(keyA)),
		status: 400, problem: "invalid-key", title: titleInvalid},
	{id: "HTTP-02", situation: "a key without quotes, with `QuotedOrBareKey`: the same key as the quoted one",
		options: func(o *lambdahttp.Options) { o.Profile.Syntax = lambdahttp.QuotedOrBareKey },
		play: func(w *world) reply {
			w.post(charge())
			return w.post(charge(withKey(keyA)))
		}, status: 201, replayed: true, runs: 1, record: "completed"},

	{id: "HTTP-03", situation: "PATCH is guarded", play: twice(withMethod("PATCH")),
		status: 201, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-03", situation: "GET, or any other method: passes through, the header is ignored",
		options: required, play: twice(withMethod("GET"), withKey("not a key")), status: 201, runs: 2},

	{id: "HTTP-04", situation: "no key, `RequireKey`", options: required, play: once(without("idempotency-key")),
		status: 400, problem: "missing-key", title: titleMissing},
	{id: "HTTP-05", situation: "no key, optional: runs each time", play: twice(without("idempotency-key")),
		status: 201, runs: 2},

	{id: "HTTP-06", situation: "two header lines, or a list", play: once(withKey(`"` + keyA + `", "` + keyB + `"`)),
		status: 400, problem: "invalid-key", title: titleInvalid},
	{id: "HTTP-06", situation: "two header lines of different spelling", play: once(withHeader("Idempotency-Key", `"`+keyA+`"`)),
		status: 400, problem: "invalid-key", title: titleInvalid},

	{id: "HTTP-07", situation: "an empty header", play: once(withKey("")),
		status: 400, problem: "invalid-key", title: titleInvalid},
	{id: "HTTP-07", situation: "a malformed key", play: once(withKey(`"` + keyA)),
		status: 400, problem: "invalid-key", title: titleInvalid},
	{id: "HTTP-07", situation: "a key of fewer than 16 characters", play: once(withKey(`"0123456789abcde"`)),
		status: 400, problem: "invalid-key", title: titleInvalid},
	{id: "HTTP-07", situation: "a key of more than 255 characters", play: once(withKey(`"` + strings.Repeat("k", 256) + `"`)),
		status: 400, problem: "invalid-key", title: titleInvalid},

	{id: "HTTP-08", situation: "the first request: the handler's own response", play: func(w *world) reply {
		a := once()(w)
		own, _ := created(w.t.Context(), request{})
		if own, _ = w.on.carries(own); !reflect.DeepEqual(a, own) {
			w.t.Errorf("the answer is %+v, want the handler's %+v", a, own)
		}
		return a
	}, status: 201, runs: 1, record: "completed"},
	{id: "HTTP-09", situation: "completed, the same request: the stored response", play: twice(),
		status: 201, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-10", situation: "completed, another request with the key", play: func(w *world) reply {
		w.post(charge())
		return w.post(charge(withBody(`{"amount":9999,"currency":"EUR"}`)))
	}, status: 422, problem: "key-reused", title: titleReused, runs: 1, record: "completed"},

	{id: "HTTP-11", situation: "the first request is running", play: func(w *world) (second reply) {
		w.becomes(duringRun(func() {
			w.clock.Advance(10*time.Minute + 500*time.Millisecond)
			second = w.post(charge())
		}))
		w.post(charge())
		return second
	}, status: 409, problem: "in-progress", title: titleOutstanding, retryAfter: "300", runs: 1, record: "completed"},
	{id: "HTTP-11", situation: "this request outlived its lease, and the one that took over is running", options: rerun,
		play: func(w *world) reply {
			w.becomes(duringRun(func() {
				w.clock.Advance(16 * time.Minute)
				w.becomes(duringRun(func() { w.store.set(func(s *faultyStore) { s.replaceErr = errDown }) }))
				w.post(charge())
				w.store.set(func(s *faultyStore) { s.replaceErr = nil })
			}))
			return w.post(charge())
		}, status: 409, problem: "in-progress", title: titleOutstanding, retryAfter: "1", runs: 2, record: "in_progress"},
	{id: "HTTP-11", situation: "this request outlived its lease, and the one that took over has finished", options: rerun,
		play: func(w *world) reply {
			w.becomes(duringRun(func() {
				w.clock.Advance(16 * time.Minute)
				w.becomes(created)
				w.post(charge())
			}))
			return w.post(charge())
		}, status: 201, replayed: true, runs: 2, record: "completed"},
	{id: "HTTP-12", situation: "running, another request with the key", play: meanwhile(withBody(`{"amount":9999}`)),
		status: 422, problem: "key-reused", title: titleReused, runs: 1, record: "completed"},

	{id: "HTTP-13", situation: "the first request was never heard of again", play: func(w *world) reply {
		w.store.set(func(s *faultyStore) { s.replaceErr = errDown })
		w.post(charge())
		w.store.set(func(s *faultyStore) { s.replaceErr = nil })
		w.clock.Advance(16 * time.Minute)
		return w.post(charge())
	}, status: 409, problem: "outcome-unknown", title: titleUnknown, retryAfter: "60", runs: 1, record: "unknown"},
	{id: "HTTP-15", situation: "unknown, with a reference from `SetRef`", play: func(w *world) reply {
		w.becomes(answers(0, errors.New("the provider timed out")))
		if _, err := w.send(w.t.Context(), charge()); err == nil {
			w.t.Error("the handler's error did not reach Lambda")
		}
		w.clock.Advance(20 * time.Second)
		return w.post(charge())
	}, status: 409, problem: "outcome-unknown", title: titleUnknown, retryAfter: "40",
		member: map[string]string{"resource": "/charges/ch_1"}, runs: 1, record: "unknown"},
	{id: "HTTP-16", situation: "the first run was `NotExecuted`: runs again", play: then(answers(503, idempotent.NotExecuted(errDown))),
		status: 201, runs: 2, record: "completed"},
	{id: "HTTP-17", situation: "past the retention: a new request", play: func(w *world) reply {
		w.post(charge())
		w.clock.Advance(24 * time.Hour)
		return w.post(charge(withBody(`{"amount":9999}`)))
	}, status: 201, runs: 2, record: "completed"},
	{id: "HTTP-18", situation: "completed, the response could not be stored", play: func(w *world) reply {
		w.store.set(func(s *faultyStore) { s.noResults = true })
		return twice()(w)
	}, status: 409, problem: "replay-unavailable", title: titleUnavailable,
		member: map[string]string{"resource": "/charges/ch_1"}, runs: 1, record: "completed"},

	{id: "HTTP-19", situation: "the store fails before the handler", play: func(w *world) reply {
		w.store.set(func(s *faultyStore) { s.insertErr, s.replaceErr = errDown, errDown })
		return once()(w)
	}, status: 503, problem: "store-unavailable", title: titleStore, retryAfter: "1"},
	{id: "HTTP-19", situation: "too little time is left before the handler", play: func(w *world) reply {
		a, err := w.send(w.clock.Invocation(w.t.Context(), 0), charge())
		if err != nil {
			w.t.Error(err)
		}
		return a
	}, status: 503, problem: "no-time-left", title: "Too little time is left for this request", retryAfter: "1"},
	{id: "HTTP-20", situation: "the handler is done, and its response could not be stored", play: func(w *world) reply {
		w.store.set(func(s *faultyStore) { s.replaceErr = errDown })
		return once()(w)
	}, status: 201, notStored: true, runs: 1, record: "in_progress"},

	{id: "HTTP-20", situation: "the handler is done, and its response is too large to be stored", play: func(w *world) reply {
		w.store.set(func(s *faultyStore) { s.noResults = true })
		return once()(w)
	}, status: 201, notStored: true, runs: 1, record: "completed"},

	{id: "HTTP-21", situation: "refused before the handler: nothing is stored, the key stays unused", play: func(w *world) reply {
		w.post(charge(withKey(`"short"`)))
		w.post(charge(withCaller("")))
		if w.store.calls != 0 {
			w.t.Errorf("a refused request called the store %d times", w.store.calls)
		}
		return w.post(charge())
	}, status: 201, runs: 1, record: "completed"},
	{id: "HTTP-21", situation: "the scope is empty: nobody knows the caller", play: once(withCaller("")),
		status: 403, problem: "unknown-caller", title: "The caller is not identified"},
	{id: "HTTP-21", situation: "the body is not the base64 it says it is", play: once(func(r *request) { r.body, r.base64 = "%", true }),
		status: 400, problem: "invalid-body", title: "The request body cannot be decoded"},

	{id: "HTTP-23", situation: "the handler answered 404: stored like a success", play: then(answers(404, nil)),
		status: 404, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-23", situation: "the handler returned a `Final` error", play: func(w *world) reply {
		w.becomes(answers(0, idempotent.Final("card_declined", "The card was declined.")))
		return once()(w)
	}, status: 422, problem: "final", title: "The request has a final outcome",
		member: map[string]string{"code": "card_declined"}, runs: 1, record: "completed"},
	{id: "HTTP-23", situation: "the same, repeated", play: then(answers(0, idempotent.Final("card_declined", "The card was declined."))),
		status: 422, problem: "final", title: "The request has a final outcome",
		member: map[string]string{"code": "card_declined"}, replayed: true, runs: 1, record: "completed"},

	{id: "HTTP-24", situation: "the handler answers 5xx: the caller gets it", play: func(w *world) reply {
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
	{id: "HTTP-24", situation: "a response with `NotExecuted`: the caller gets it", play: func(w *world) reply {
		w.becomes(answers(503, idempotent.NotExecuted(errDown)))
		return once()(w)
	}, status: 503, runs: 1, record: "retryable"},
	{id: "HTTP-24", situation: "a response with `Unknown`: the caller gets it", options: rerun, play: func(w *world) reply {
		w.becomes(answers(504, idempotent.Unknown(errDown)))
		return once()(w)
	}, status: 504, runs: 1, record: "unknown"},

	{id: "HTTP-27", situation: "a problem is `application/problem+json` in English, under `ProblemBase`",
		options: func(o *lambdahttp.Options) { o.RequireKey, o.ProblemBase = true, "https://api.example.com/problems" },
		play:    once(without("idempotency-key")), status: 400,
		base: "https://api.example.com/problems/", problem: "missing-key", title: titleMissing},
	{id: "HTTP-28", situation: "a replay says so, each time", play: func(w *world) reply {
		twice()(w)
		return w.post(charge())
	}, status: 201, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-32", situation: "a replay has the listed headers, and no cookies",
		options: func(o *lambdahttp.Options) { o.ReplayHeaders = []string{"X-Charge-Id"} },
		play: func(w *world) reply {
			a := twice()(w)
			want := map[string]string{"Content-Type": "application/json", "Location": "/charges/ch_1", "X-Charge-Id": "ch_1", "Idempotent-Replayed": "true"}
			if !maps.Equal(a.header, want) {
				w.t.Errorf("replayed headers are %v, want %v", a.header, want)
			}
			if len(a.cookies) != 0 {
				w.t.Errorf("cookies were replayed: %v", a.cookies)
			}
			return a
		}, status: 201, replayed: true, runs: 1, record: "completed"},
}
