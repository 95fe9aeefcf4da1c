package lambdahttp

import "time"

// The profiles of this package. Treat them as constants: assign one to
// Options.Profile and change the copy.
//
// An append to a list of the copy does not change the original, because its
// slice has no spare capacity:
//
//	o.Profile = lambdahttp.UUID
//	o.Profile.Methods = append(o.Profile.Methods, "PUT", "DELETE")

// IETF is the profile of draft-ietf-httpapi-idempotency-key-header-07.
// docs/http.md describes the choices made where the draft leaves one or says
// nothing.
var IETF = Profile{
	Header:       "Idempotency-Key",
	Syntax:       QuotedKey,
	MinKeyLength: 16,
	MaxKeyLength: 255,
	Methods:      []string{"POST", "PATCH"},
	ServerErrors: FollowRecovery,
	MinRetention: leastRetention,
	Render:       ProblemJSON,
	Answers: Answers{
		MissingKey: {Status: 400, Title: "Idempotency-Key is missing",
			Detail: "This operation requires an Idempotency-Key header. Send a new random key, for example a UUID in double quotes."},
		InvalidKey: {Status: 400, Title: "Idempotency-Key is invalid",
			Detail: "The Idempotency-Key header cannot be used."},
		KeyNotAllowed: {Status: 400, Title: "Idempotency-Key is not allowed here",
			Detail: "A request of this method changes nothing, so it must not have an Idempotency-Key. Send it without one."},
		UnknownCaller: {Status: 403, Title: "The caller is not identified",
			Detail: "An Idempotency-Key is valid for one caller, and this request does not identify its caller."},
		InvalidBody: {Status: 400, Title: "The request body cannot be used",
			Detail: "The body cannot be bound to the Idempotency-Key."},
		BodyTooLarge: {Status: 413, Title: "The request body is too large",
			Detail: "The body is longer than this operation accepts with an Idempotency-Key. The request was not processed."},
		InvalidDigest: {Status: 400, Title: "Content-Digest is missing or wrong",
			Detail: "This operation requires a Content-Digest header that matches the body."},
		KeyReused: {Status: 422, Title: "Idempotency-Key is already used",
			Detail: "This Idempotency-Key was used for another request. Send a new key, or repeat the first request unchanged."},
		InProgress: {Status: 409, Title: "A request is outstanding for this Idempotency-Key",
			Detail: "A request with this Idempotency-Key is being processed. Repeat the request later, with the same key."},
		Accepted: {Status: 202, Title: "The request is being processed",
			Detail: "A request with this Idempotency-Key is being processed. Repeat the request later, with the same key, to get its response."},
		OutcomeUnknown: {Status: 409, Title: "The outcome for this Idempotency-Key is unknown",
			Detail: "A request with this Idempotency-Key may have had its effect. It is not run again before that is clear. Do not send it with a new key; repeat it later with the same one."},
		ReplayUnavailable: {Status: 409, Title: "The response for this Idempotency-Key cannot be repeated",
			Detail: "The request with this Idempotency-Key was processed, but its response is not available any more. Do not send it with a new key; look up the resource instead."},
		StoreUnavailable: {Status: 503, Title: "Idempotency cannot be guaranteed at the moment",
			Detail: "The request was not processed. Repeat it later, with the same key."},
		NoTimeLeft: {Status: 503, Title: "Too little time is left for this request",
			Detail: "The request was not processed. Repeat it, with the same key."},
		FinalOutcome: {Status: 422, Title: "The request has a final outcome",
			Detail: "The request was processed and refused. Repeating it gives the same answer."},
	},
}

// Stripe is a profile for APIs whose clients know Stripe's v1 API: opaque keys
// without quotes, valid for the whole API, errors in Stripe's form, and every
// response stored, also a 500. Stripe's own clients obey the
// Stripe-Should-Retry header, which this profile sets to false if a retry
// cannot succeed.
var Stripe = Profile{
	Header:       "Idempotency-Key",
	Syntax:       OpaqueKey,
	MinKeyLength: 1,
	MaxKeyLength: 255,
	Methods:      []string{"POST"},
	Operation:    "http",
	ServerErrors: StoreServerErrors,
	MinRetention: 24 * time.Hour,
	Render:       StripeError,
	Answers: Answers{
		MissingKey: {Status: 400, Detail: "This operation requires an Idempotency-Key header. Send a new random key, for example a UUID."},
		KeyReused: {Status: 400,
			Detail: "Keys for idempotent requests can only be used for the same endpoint and with the same parameters they were first used for. Send a new key, or repeat the first request unchanged."},
		OutcomeUnknown:    {Header: map[string]string{"Stripe-Should-Retry": "false"}},
		ReplayUnavailable: {Header: map[string]string{"Stripe-Should-Retry": "false"}},
		FinalOutcome:      {Status: 402},
	},
}

// UUID is the profile of an organisation that uses one format for all its APIs:
// keys are UUIDs of version 4 or 7, GET and HEAD refuse them, and every
// response to a request with a key has Idempotency-Status. PUT and DELETE may
// be added to its Methods.
var UUID = Profile{
	Header:           "Idempotency-Key",
	Syntax:           UUIDKey,
	MinKeyLength:     36,
	MaxKeyLength:     36,
	HeaderOnly:       true,
	Methods:          []string{"POST", "PATCH"},
	ForbiddenMethods: []string{"GET", "HEAD"},
	ServerErrors:     FollowRecovery,
	MinRetention:     leastRetention,
	StatusHeader:     true,
	Render:           ProblemJSON,
	Answers: Answers{
		MissingKey: {Detail: "This operation requires an Idempotency-Key header. Send a new UUID of version 4 or 7."},
	},
}
