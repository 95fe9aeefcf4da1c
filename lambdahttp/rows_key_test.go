// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"strings"

	"github.com/once-lambda/once/lambdahttp"
)

// keyRows test the key: where it is and how it is written.
var keyRows = []row{
	// F01: the key is in the header Idempotency-Key, or where the options say.
	{id: "HTTP-01", situation: "the header's name in any letter case", play: func(w *fixture) reply {
		w.post(charge())
		return w.post(charge(without("idempotency-key"), withHeader("IDEMPOTENCY-Key", `"`+keyA+`"`)))
	}, status: 201, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-01", situation: "another name for the header",
		options: func(o *lambdahttp.Options) { o.Profile.Header = "X-Payout-Idempotency" },
		play: func(w *fixture) reply {
			r := charge(without("idempotency-key"), withHeader("x-payout-idempotency", `"`+keyA+`"`))
			w.post(r)
			return w.post(r)
		}, status: 201, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-01", situation: "the key in the body, `KeyFrom: BodyField(\"idempotency_key\")`", options: bodyKey,
		play: twice(withBodyKey(`"` + keyA + `"`)), status: 201, replayed: true, runs: 1, record: "completed"},

	// F03: the syntax of the draft, of a provider, or both.
	{id: "HTTP-01", situation: "another name that Unicode folds to it",
		play:   once(without("idempotency-key"), withHeader("idempotency-\u212aey", `"`+keyA+`"`)),
		status: 400, problem: "missing-key", title: titleMissing},

	{id: "HTTP-02", situation: "a quoted key; parameters after it are ignored", play: func(w *fixture) reply {
		w.post(charge())
		return w.post(charge(withKey(` "` + keyA + `"; v=1;w="x";q=?0 `)))
	}, status: 201, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-02", situation: "a key without quotes", play: once(withKey(keyA)),
		status: 400, problem: "invalid-key", title: titleInvalid},
	{id: "HTTP-02", situation: "a key without quotes, with `QuotedOrBareKey`: the same key as the quoted one",
		options: func(o *lambdahttp.Options) { o.Profile.Syntax = lambdahttp.QuotedOrBareKey },
		play: func(w *fixture) reply {
			w.post(charge())
			return w.post(charge(withKey(keyA)))
		}, status: 201, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-02", profile: "Stripe", situation: "an opaque key of any length up to 255", play: twice(withKey("k")),
		status: 201, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-02", profile: "Stripe", situation: "quotes are part of the key: with and without them are two keys", play: func(w *fixture) reply {
		w.post(charge(withKey(keyA)))
		return w.post(charge(withKey(`"` + keyA + `"`)))
	}, status: 201, runs: 2, record: "completed"},
	{id: "HTTP-02", profile: "UUID", situation: "version 4, with or without quotes: one key", play: func(w *fixture) reply {
		w.post(charge(withKey(keyA)))
		return w.post(charge(withKey(`"` + keyA + `"`)))
	}, status: 201, replayed: true, says: "replayed", runs: 1, record: "completed"},
	{id: "HTTP-02", profile: "UUID", situation: "the same UUID in capitals: one key", play: func(w *fixture) reply {
		w.post(charge(withKey(keyA)))
		return w.post(charge(withKey(strings.ToUpper(keyA))))
	}, status: 201, replayed: true, says: "replayed", runs: 1, record: "completed"},
	{id: "HTTP-02", profile: "UUID", situation: "version 7", play: once(withKey("019a8f3e-5c1b-7d4a-9e2f-0123456789ab")),
		status: 201, says: "created", runs: 1, record: "completed"},

	{id: "HTTP-02", situation: "a UUID in the body, with `UUIDKey`: its capitals are the same key", options: func(o *lambdahttp.Options) {
		bodyKey(o)
		o.Profile.Syntax, o.Fingerprint = lambdahttp.UUIDKey, lambdahttp.Fields("/amount")
	}, play: func(w *fixture) reply {
		w.post(charge(withBodyKey(`"` + keyA + `"`)))
		return w.post(charge(withBodyKey(`"` + strings.ToUpper(keyA) + `"`)))
	}, status: 201, replayed: true, runs: 1, record: "completed"},

	// F13, F90: POST and PATCH are guarded; GET needs no key, and a profile may forbid one.
	{id: "HTTP-03", situation: "PATCH is guarded", play: twice(withMethod("PATCH")),
		status: 201, replayed: true, runs: 1, record: "completed"},
	{id: "HTTP-03", situation: "GET, or any other method: passes through, the header is ignored",
		play: twice(withMethod("GET"), withKey("not a key")), status: 201, runs: 2},
	{id: "HTTP-03", situation: "OPTIONS with a key: passes through", play: twice(withMethod("OPTIONS")), status: 201, runs: 2},
	{id: "HTTP-03", profile: "Stripe", situation: "OPTIONS with a key: passes through", play: twice(withMethod("OPTIONS")), status: 201, runs: 2},
	{id: "HTTP-03", profile: "UUID", situation: "OPTIONS with a key: passes through", play: twice(withMethod("OPTIONS")),
		status: 201, says: "ignored", runs: 2},
	{id: "HTTP-03", profile: "Stripe", situation: "PATCH, or any other method than POST: passes through", play: twice(withMethod("PATCH")),
		status: 201, runs: 2},
	{id: "HTTP-03", profile: "UUID", situation: "GET or HEAD with a key", play: once(withMethod("GET")),
		status: 400, problem: "key-not-allowed", title: "Idempotency-Key is not allowed here"},
	{id: "HTTP-03", profile: "UUID", situation: "GET without a key: passes through", play: once(withMethod("GET"), without("idempotency-key")),
		status: 201, runs: 1},
	{id: "HTTP-03", profile: "UUID", situation: "PUT or DELETE: passes through", play: twice(withMethod("PUT")),
		status: 201, says: "ignored", runs: 2},
	{id: "HTTP-03", profile: "UUID", situation: "PUT, added to `Methods`", play: twice(withMethod("PUT")),
		options: func(o *lambdahttp.Options) { o.Profile.Methods = append(o.Profile.Methods, "PUT") },
		status:  201, replayed: true, says: "replayed", runs: 1, record: "completed"},

	// F12: a key is required unless the guard allows requests without one.
	{id: "HTTP-04", situation: "no key", play: once(without("idempotency-key")),
		status: 400, problem: "missing-key", title: titleMissing},
	{id: "HTTP-04", profile: "Stripe", situation: "no key", play: once(without("idempotency-key")),
		status: 400, problem: "missing-key", stripe: "invalid_request_error idempotency_key_missing"},
	{id: "HTTP-04", profile: "UUID", situation: "no key", play: once(without("idempotency-key")),
		status: 400, problem: "missing-key", title: titleMissing},
	{id: "HTTP-04", situation: "no key in the body, `KeyFrom`",
		options: bodyKey, play: once(),
		status: 400, problem: "missing-key", title: titleMissing},

	// F12, G08: requests without a key share nothing.
	{id: "HTTP-05", situation: "no key, `AllowMissingKey`: runs each time", options: optional, play: twice(without("idempotency-key")),
		status: 201, runs: 2},
	{id: "HTTP-05", profile: "Stripe", situation: "no key, `AllowMissingKey`: runs each time", options: optional, play: twice(without("idempotency-key")),
		status: 201, runs: 2},
	{id: "HTTP-05", profile: "UUID", situation: "no key, `AllowMissingKey`: runs each time", options: optional, play: twice(without("idempotency-key")),
		status: 201, runs: 2},

	// F04: more than one key is invalid.
	{id: "HTTP-06", situation: "two header lines, or a list", play: once(withKey(`"` + keyA + `", "` + keyB + `"`)),
		status: 400, problem: "invalid-key", title: titleInvalid},
	{id: "HTTP-06", situation: "two header lines of different spelling", play: once(withHeader("Idempotency-Key", `"`+keyA+`"`)),
		status: 400, problem: "invalid-key", title: titleInvalid},
	{id: "HTTP-06", profile: "Stripe", situation: "two header lines, or a list", play: once(withKey(keyA + ", " + keyB)),
		status: 400, problem: "invalid-key", stripe: "invalid_request_error idempotency_key_invalid"},
	{id: "HTTP-06", profile: "UUID", situation: "two header lines, or a list", play: once(withKey(keyA + "," + keyA)),
		status: 400, problem: "invalid-key", title: titleInvalid},

	// F05, F06, F07: a key must have the length and the form of its profile.
	{id: "HTTP-07", situation: "an empty header", play: once(withKey("")),
		status: 400, problem: "invalid-key", title: titleInvalid},
	{id: "HTTP-07", situation: "a malformed key", play: once(withKey(`"` + keyA)), member: map[string]string{"detail": "The Idempotency-Key header cannot be used: the closing double quote is missing."},
		status: 400, problem: "invalid-key", title: titleInvalid},
	{id: "HTTP-07", situation: "a key of fewer than 16 characters", play: once(withKey(`"0123456789abcde"`)),
		status: 400, problem: "invalid-key", title: titleInvalid},
	{id: "HTTP-07", situation: "a key of 15 characters that are not spaces, and 9 spaces", play: once(withKey(`"    01234567     89abcde"`)),
		status: 400, problem: "invalid-key", title: titleInvalid},
	{id: "HTTP-07", situation: "a key of 16 characters that are not spaces: spaces in it are allowed", play: once(withKey(`"01234567 89abcdef"`)),
		status: 201, runs: 1, record: "completed"},
	{id: "HTTP-07", situation: "a key of more than 255 characters", play: once(withKey(`"` + strings.Repeat("k", 256) + `"`)),
		status: 400, problem: "invalid-key", title: titleInvalid},
	{id: "HTTP-07", profile: "Stripe", situation: "a key of more than 255 characters", play: once(withKey(strings.Repeat("k", 256))),
		status: 400, problem: "invalid-key", stripe: "invalid_request_error idempotency_key_invalid"},
	{id: "HTTP-07", profile: "UUID", situation: "not a UUID, or one of another version", play: once(withKey("8e03978e-40d5-13e8-bc93-6894a57f9324")),
		status: 400, problem: "invalid-key", title: titleInvalid},
	{id: "HTTP-07", situation: "the key in the body is not a string", options: bodyKey, play: once(withBodyKey("7")),
		status: 400, problem: "invalid-key", title: titleInvalid},
	{id: "HTTP-07", situation: "the body that should contain the key is not one JSON object", options: bodyKey, play: once(withBody("amount=1")),
		status: 400, problem: "invalid-key", title: titleInvalid},
}
