// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/once-lambda/once/internal/sfv"
)

// Profile declares the form of the Idempotency-Key header and of the answers, as
// plain data: [IETF], [Stripe], [UUID], [Webhook] or a custom one. A zero field has the value
// of [IETF], so a custom profile sets only the differences:
//
//	o.Profile.MinKeyLength = 24
//	o.Profile.Answers[lambdahttp.KeyReused].Status = 409
type Profile struct {
	// Header is the name of the request header that carries the key.
	Header string
	// Syntax defines how a key is written.
	Syntax KeySyntax
	// MinKeyLength and MaxKeyLength bound the key itself, without quotes and
	// escapes, in bytes. Spaces do not count toward the minimum, which exists so
	// that keys are hard to guess.
	MinKeyLength, MaxKeyLength int
	// HeaderOnly forbids other sources of the key: with [Options.KeyFrom]
	// construction fails.
	HeaderOnly bool

	// Methods are the request methods that are guarded; requests of all others
	// reach the handler unguarded. Methods are case-sensitive (RFC 9110,
	// section 9.1).
	Methods []string
	// ForbiddenMethods are methods whose requests must not have a key: such a
	// request is refused with 400. A method must not be in both lists.
	ForbiddenMethods []string

	// Operation is one operation name for all endpoints, see
	// [Options.Operation]. A key then belongs to one request of the whole API,
	// and using it at another endpoint is [KeyReused]. Empty: each method and
	// endpoint has its own keys.
	Operation string
	// PerResource gives each path its own keys: the key that was used for
	// "/orders/1/pay" is another key at "/orders/2/pay". The path is compared
	// without the stage and base path of API Gateway, in any percent-encoding,
	// and without the query. Otherwise using a key at another path of its
	// endpoint is [KeyReused].
	PerResource bool
	// Fingerprint is the default of [Options.Fingerprint].
	Fingerprint FingerprintRule
	// ServerErrors is the default of [Options.ServerErrors].
	ServerErrors ServerErrors
	// MinRetention is the shortest allowed [idempotent.Operation.Retention]. It
	// must be at least an hour. If the guard's is shorter, this is the default.
	MinRetention time.Duration
	// ResponseHeaders are the names of the headers that this package sets besides
	// Idempotent-Replayed, which every replay has:
	//
	//   - Idempotency-Status, on every response to a request that has a key: how the
	//     key was handled.
	//   - Idempotency-Expires, an HTTP date: until then a retry gets the response.
	//   - Access-Control-Expose-Headers: the names of the headers that this package
	//     set on the response, so that scripts in a browser can read them.
	ResponseHeaders []string

	// Answers are the statuses and texts of the responses that replace the
	// handler's.
	Answers Answers
	// Render renders such a response.
	Render func(Problem) Response
}

// ServerErrors determines what happens to a key if the handler responds with a
// status of 5xx and no error. A response that no gateway can deliver (its
// status is not 200 to 599, or its base64 is broken) counts as a 5xx. The
// caller gets the response unchanged in each case.
type ServerErrors uint8

const (
	// ServerErrorsByProfile uses the profile's setting. The default.
	ServerErrorsByProfile ServerErrors = iota
	// FollowRecovery treats the response like an error of the handler:
	// depending on the operation's [idempotent.Recovery], the outcome becomes
	// unknown or the key may run again. A response of 501 or 505 is stored: these
	// mean that the server does not support the request (RFC 9110, sections 15.6.2
	// and 15.6.6), so nothing happened and a retry has the same result.
	FollowRecovery
	// StoreServerErrors stores and replays the response like any other.
	StoreServerErrors
	// UnknownServerErrors makes the outcome unknown, whatever the recovery is.
	UnknownServerErrors
	// ReleaseServerErrors declares that this handler responds with 5xx only if
	// no side effect has happened: the key may run again.
	ReleaseServerErrors
)

// stores reports whether a response of that status, a 5xx, is stored.
func (s ServerErrors) stores(status int) bool {
	unsupported := status == http.StatusNotImplemented || status == http.StatusHTTPVersionNotSupported
	return s == StoreServerErrors || s == FollowRecovery && unsupported
}

// The profiles of this package. Treat them as constants: assign one to
// Options.Profile and change the copy.
//
// An append to a list of the copy does not change the original, because its
// slice has no spare capacity:
//
//	o.Profile = lambdahttp.UUID
//	o.Profile.Methods = append(o.Profile.Methods, "PUT", "DELETE")

// IETF is the profile of draft-ietf-httpapi-idempotency-key-header-07.
// docs/http-keys.md describes the choices made where the draft leaves one or says
// nothing.
var IETF = Profile{
	Header:       "Idempotency-Key",
	Syntax:       QuotedKey,
	MinKeyLength: 16,
	MaxKeyLength: 255,
	Methods:      []string{"POST", "PATCH"},
	Fingerprint:  WholeRequest,
	ServerErrors: FollowRecovery,
	MinRetention: leastRetention,
	Render:       ProblemJSON,
	Answers: Answers{
		MissingKey: {Status: 400, Title: "Idempotency-Key is missing",
			Detail: "This operation requires the {key}. Send a new random key, for example a UUID in double quotes."},
		InvalidKey: {Status: 400, Title: "Idempotency-Key is invalid",
			Detail: "The {key} cannot be used."},
		KeyNotAllowed: {Status: 400, Title: "Idempotency-Key is not allowed here",
			Detail: "A request of this method changes nothing, so it must not have an Idempotency-Key. Send it without one."},
		UnknownCaller: {Status: 403, Title: "The caller is not identified",
			Detail: "An Idempotency-Key is valid for one caller, and this request does not identify its caller."},
		InvalidBody: {Status: 400, Title: "The request body cannot be used",
			Detail: "The body cannot be bound to the Idempotency-Key."},
		LengthRequired: {Status: 411, Title: "The length of the request body is required",
			Detail: "The body is empty, and its length was not declared. Send a Content-Length header."},
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
	Render:       StripeJSON,
	Answers: Answers{ //lint:ignore exhaustive the others are the defaults
		MissingKey: {Status: 400, Detail: "This operation requires the {key}. Send a new random key, for example a UUID."},
		KeyReused: {Status: 400,
			Detail: "Keys for idempotent requests can only be used for the same endpoint and with the same parameters they were first used for. Send a new key, or repeat the first request unchanged."},
		OutcomeUnknown:    {Header: map[string]string{"Stripe-Should-Retry": "false"}},
		ReplayUnavailable: {Header: map[string]string{"Stripe-Should-Retry": "false"}},
		FinalOutcome:      {Status: 402},
	},
}

// UUID is the profile of an organisation that uses one format for all its APIs:
// keys are UUIDs of version 4 or 7, each resource has its own keys, GET and HEAD
// refuse them, and every response to a request with a key has
// Idempotency-Status. PUT and DELETE may
// be added to its Methods.
var UUID = Profile{
	Header:           "Idempotency-Key",
	Syntax:           UUIDKey,
	MinKeyLength:     36,
	MaxKeyLength:     36,
	HeaderOnly:       true,
	PerResource:      true,
	Methods:          []string{"POST", "PATCH"},
	ForbiddenMethods: []string{"GET", "HEAD"},
	ServerErrors:     FollowRecovery,
	MinRetention:     leastRetention,
	ResponseHeaders:  []string{nameStatus},
	Render:           ProblemJSON,
	Answers: Answers{ //lint:ignore exhaustive the others are the defaults
		MissingKey: {Detail: "This operation requires the {key}. Send a new UUID of version 4 or 7."},
	},
}

// Webhook is the profile of receivers of webhooks, whose senders repeat a delivery
// until they get a 2xx. The key is the id that the sender gives to the event: in the
// header Webhook-Id of Standard Webhooks, in another header, or in the body, see
// [BodyField]. Each path has its own keys. Nothing but the key is compared, because a
// sender changes counters, times and signatures when it repeats a delivery. Until the
// outcome is known the sender gets a 5xx, so that it repeats the delivery.
// docs/webhooks.md describes what single senders need.
//
// The profile does not verify who sends: let a layer around the guard do that.
var Webhook = Profile{
	Header:       "Webhook-Id",
	Syntax:       OpaqueKey,
	MinKeyLength: 1,
	MaxKeyLength: 255,
	PerResource:  true,
	Methods:      []string{"POST"},
	Fingerprint:  onlyKey,
	ServerErrors: FollowRecovery,
	MinRetention: 72 * time.Hour,
	Render:       ProblemJSON,
	Answers: Answers{ //lint:ignore exhaustive the others are the defaults
		MissingKey: {Title: "The delivery has no id",
			Detail: "The id of the event is missing: the {key}. The event was not processed."},
		InvalidKey: {Title: "The id of the delivery is invalid",
			Detail: "The event was not processed, because the {key} cannot be used."},
		UnknownCaller: {Title: "The sender is not identified",
			Detail: "The event was not processed."},
		InvalidBody:  {Detail: "The event was not processed."},
		BodyTooLarge: {Detail: "The body is longer than this endpoint accepts. The event was not processed."},
		KeyReused: {Title: "The id belongs to another event",
			Detail: "Another event with this id was delivered before. This one was not processed."},
		InProgress: {Status: 503, Title: "The event is being processed",
			Detail: "An earlier delivery of this event is being processed. Repeat the delivery later."},
		Accepted: {Title: "The event is being processed",
			Detail: "An earlier delivery of this event is being processed."},
		OutcomeUnknown: {Status: 500, Title: "The outcome of the event is unknown",
			Detail: "The event may have been processed. It is not processed again before that is clear. Repeat the delivery later."},
		ReplayUnavailable: {Status: 200, Title: "The event was processed",
			Detail: "The event was processed, but that response is not available any more."},
		StoreUnavailable: {Title: "The event cannot be processed at the moment",
			Detail: "The event was not processed. Repeat the delivery later."},
		NoTimeLeft: {Detail: "The event was not processed. Repeat the delivery later."},
	},
}

// leastRetention is the lower limit of MinRetention: clients may retry for at
// least that long with every profile.
const leastRetention = time.Hour

// bounded replaces {min,max} in a pattern by the profile's bounds.
func (p *Profile) bounded(pattern string) string {
	bounds := "{" + strconv.Itoa(p.MinKeyLength) + "," + strconv.Itoa(p.MaxKeyLength) + "}"
	return strings.ReplaceAll(pattern, "{min,max}", bounds)
}

// withDefaults replaces the zero fields of p by those of IETF.
func (p Profile) withDefaults() Profile {
	p.Header = cmp.Or(p.Header, IETF.Header)
	if p.Syntax.Parse == nil {
		p.Syntax = IETF.Syntax
	}
	p.MinKeyLength = cmp.Or(p.MinKeyLength, IETF.MinKeyLength)
	p.MaxKeyLength = cmp.Or(p.MaxKeyLength, IETF.MaxKeyLength)
	if p.Methods == nil {
		p.Methods = IETF.Methods
	}
	if p.Fingerprint.Of == nil {
		p.Fingerprint = IETF.Fingerprint
	}
	p.ServerErrors = cmp.Or(p.ServerErrors, IETF.ServerErrors)
	p.MinRetention = cmp.Or(p.MinRetention, IETF.MinRetention)
	if p.Render == nil {
		p.Render = IETF.Render
	}
	for s, standard := range IETF.Answers {
		a := &p.Answers[s]
		a.Status = cmp.Or(a.Status, standard.Status)
		a.Title = cmp.Or(a.Title, standard.Title)
		a.Detail = cmp.Or(a.Detail, standard.Detail)
	}
	return p
}

// sets reports whether ResponseHeaders has the name, which is canonical.
func (p *Profile) sets(name string) bool {
	return slices.ContainsFunc(p.ResponseHeaders, func(n string) bool { return strings.EqualFold(n, name) })
}

func (p *Profile) validate() error {
	if !sfv.IsHTTPToken(p.Header) {
		return fmt.Errorf("lambdahttp: Profile.Header %q is not a valid header name", p.Header)
	}
	if p.MinKeyLength < 1 || p.MaxKeyLength < p.MinKeyLength {
		return fmt.Errorf("lambdahttp: Profile.MinKeyLength (%d) must be at least 1 and at most Profile.MaxKeyLength (%d)", p.MinKeyLength, p.MaxKeyLength)
	}
	if p.ServerErrors > ReleaseServerErrors {
		return fmt.Errorf("lambdahttp: Profile.ServerErrors is %d; use FollowRecovery, StoreServerErrors, UnknownServerErrors or ReleaseServerErrors", p.ServerErrors)
	}
	if p.MinRetention < leastRetention {
		return fmt.Errorf("lambdahttp: Profile.MinRetention is %s; it must be at least an hour, because clients may retry for that long", p.MinRetention)
	}
	if err := p.validateMethods(); err != nil {
		return err
	}
	for _, name := range p.ResponseHeaders {
		if !slices.Contains(optionalHeaders, http.CanonicalHeaderKey(name)) {
			return fmt.Errorf("lambdahttp: Profile.ResponseHeaders: %q is not an optional header; use %s", name, strings.Join(optionalHeaders, ", "))
		}
	}
	for s, a := range p.Answers {
		least, most := 400, 599
		switch Situation(s) { //lint:ignore exhaustive the others refuse the request
		case Accepted:
			least, most = 200, 299
		case ReplayUnavailable: // what was asked for is done
			least = 200
		}
		if a.Status < least || a.Status > most {
			return fmt.Errorf("lambdahttp: Profile.Answers[%s].Status is %d; it must be %d to %d", Situation(s), a.Status, least, most)
		}
		for name := range a.Header {
			if !sfv.IsHTTPToken(name) {
				return fmt.Errorf("lambdahttp: Profile.Answers[%s].Header: %q is not a valid header name", Situation(s), name)
			}
		}
	}
	return nil
}

func (p *Profile) validateMethods() error {
	if len(p.Methods) == 0 {
		return errors.New("lambdahttp: Profile.Methods is empty, so nothing would be guarded; leave it nil for POST and PATCH")
	}
	guarded := map[string]bool{}
	for _, m := range p.Methods {
		if !sfv.IsHTTPToken(m) {
			return fmt.Errorf("lambdahttp: Profile.Methods: %q is not a valid method", m)
		}
		guarded[m] = true
	}
	for _, m := range p.ForbiddenMethods {
		if !sfv.IsHTTPToken(m) {
			return fmt.Errorf("lambdahttp: Profile.ForbiddenMethods: %q is not a valid method", m)
		}
		if guarded[m] {
			return fmt.Errorf("lambdahttp: Profile.ForbiddenMethods contains %s, which is also in Profile.Methods", m)
		}
	}
	return nil
}
