package lambdahttp

import (
	"errors"
	"fmt"
)

// Profile is a dialect of the Idempotency-Key header, as plain data. The zero
// value of each field is that of [IETF], so a profile of your own names only
// what differs:
//
//	o.Profile.MinKeyLength = 24
//	o.Profile.Answers[lambdahttp.KeyReused].Status = 409
type Profile struct {
	// Header is the name of the request header that carries the key.
	Header string
	// Syntax reads the header's value.
	Syntax KeySyntax
	// MinKeyLength and MaxKeyLength bound the key that Syntax returns, in bytes.
	MinKeyLength, MaxKeyLength int
	// Methods are the request methods that are guarded; all others go to the
	// handler as they are. Methods are case-sensitive (RFC 9110, section 9.1).
	Methods []string
	// Answers are the statuses and texts of what is answered in place of the
	// handler.
	Answers Answers
	// Render writes such an answer.
	Render func(Problem) Response
}

// IETF is the profile of draft-ietf-httpapi-idempotency-key-header. Where the
// draft leaves a choice, or is silent, docs/http.md tells what was chosen.
// Treat it as a constant.
var IETF = Profile{
	Header:       "Idempotency-Key",
	Syntax:       QuotedKey,
	MinKeyLength: 16,
	MaxKeyLength: 255,
	Methods:      []string{"POST", "PATCH"},
	Render:       ProblemJSON,
	Answers: Answers{
		MissingKey: {400, "Idempotency-Key is missing",
			"This operation requires an Idempotency-Key header. Send a new random key, for example a UUID in double quotes."},
		InvalidKey: {400, "Idempotency-Key is invalid",
			"The Idempotency-Key header cannot be used."},
		UnknownCaller: {403, "The caller is not identified",
			"An Idempotency-Key is valid for one caller, and this request does not tell who that is."},
		InvalidBody: {400, "The request body cannot be decoded",
			"The body is incomplete, or not the base64 that it is announced as."},
		BodyTooLarge: {413, "The request body is too large",
			"The body is larger than this operation accepts, so the request was not processed."},
		KeyReused: {422, "Idempotency-Key is already used",
			"This Idempotency-Key was used for another request. Send a new key, or repeat the first request unchanged."},
		InProgress: {409, "A request is outstanding for this Idempotency-Key",
			"A request with this Idempotency-Key is being processed. Repeat the request later, with the same key."},
		OutcomeUnknown: {409, "The outcome for this Idempotency-Key is unknown",
			"An earlier request with this Idempotency-Key may have had its effect. It is not run again before that is clear. Do not send it with a new key; repeat it later with the same one."},
		ReplayUnavailable: {409, "The response for this Idempotency-Key cannot be repeated",
			"The request with this Idempotency-Key was processed, but its response is not available any more. Do not send it with a new key; look up the resource instead."},
		StoreUnavailable: {503, "Idempotency cannot be guaranteed at the moment",
			"The request was not processed. Repeat it later, with the same key."},
		NoTimeLeft: {503, "Too little time is left for this request",
			"The request was not processed. Repeat it, with the same key."},
		FinalOutcome: {422, "The request has a final outcome",
			"The request was processed and refused. Repeating it gives the same answer."},
	},
}

// Situation is a reason to answer in place of the handler. Its text is the
// suffix of the problem's type, for example "missing-key".
type Situation uint8

const (
	MissingKey        Situation = iota // no key, and Options.RequireKey
	InvalidKey                         // more than one key, wrong syntax or length
	UnknownCaller                      // the scope is empty
	InvalidBody                        // the body ended early, or is not the base64 it says it is
	BodyTooLarge                       // the body is longer than Options.MaxRequestBody
	KeyReused                          // the key belongs to another request
	InProgress                         // the first request is running
	OutcomeUnknown                     // the first request may have had its effect
	ReplayUnavailable                  // the outcome stands and cannot be returned
	StoreUnavailable                   // nothing was executed: the store failed
	NoTimeLeft                         // nothing was executed: the deadline is too near
	FinalOutcome                       // the outcome is an idempotent.FinalError
)

var situations = [...]string{
	MissingKey: "missing-key", InvalidKey: "invalid-key", UnknownCaller: "unknown-caller", InvalidBody: "invalid-body",
	BodyTooLarge: "body-too-large",
	KeyReused:    "key-reused", InProgress: "in-progress", OutcomeUnknown: "outcome-unknown",
	ReplayUnavailable: "replay-unavailable", StoreUnavailable: "store-unavailable", NoTimeLeft: "no-time-left",
	FinalOutcome: "final",
}

// String returns the suffix of the problem's type.
func (s Situation) String() string {
	if int(s) >= len(situations) {
		return fmt.Sprintf("situation-%d", uint8(s))
	}
	return situations[s]
}

// Answers has one Answer for each [Situation].
type Answers [len(situations)]Answer

// Answer is the fixed part of an answer: its status and its texts. The title
// is the same at every occurrence (RFC 9457, section 3.1.3).
type Answer struct {
	Status        int
	Title, Detail string
}

// withDefaults fills what is zero in p with what IETF has.
func (p Profile) withDefaults() Profile {
	if p.Header == "" {
		p.Header = IETF.Header
	}
	if p.Syntax == nil {
		p.Syntax = IETF.Syntax
	}
	if p.MinKeyLength == 0 {
		p.MinKeyLength = IETF.MinKeyLength
	}
	if p.MaxKeyLength == 0 {
		p.MaxKeyLength = IETF.MaxKeyLength
	}
	if p.Methods == nil {
		p.Methods = IETF.Methods
	}
	if p.Render == nil {
		p.Render = IETF.Render
	}
	for s, standard := range IETF.Answers {
		a := &p.Answers[s]
		if a.Status == 0 {
			a.Status = standard.Status
		}
		if a.Title == "" {
			a.Title = standard.Title
		}
		if a.Detail == "" {
			a.Detail = standard.Detail
		}
	}
	return p
}

func (p *Profile) validate() error {
	if !isToken(p.Header) {
		return fmt.Errorf("lambdahttp: Profile.Header %q is not the name of a header", p.Header)
	}
	if p.MinKeyLength < 1 || p.MaxKeyLength < p.MinKeyLength {
		return fmt.Errorf("lambdahttp: Profile.MinKeyLength (%d) must be at least 1 and at most Profile.MaxKeyLength (%d)", p.MinKeyLength, p.MaxKeyLength)
	}
	if len(p.Methods) == 0 {
		return errors.New("lambdahttp: Profile.Methods is empty, so nothing would be guarded; leave it nil for POST and PATCH")
	}
	for _, m := range p.Methods {
		if !isToken(m) {
			return fmt.Errorf("lambdahttp: Profile.Methods: %q is not a method", m)
		}
	}
	for s, a := range p.Answers {
		if a.Status < 400 || a.Status > 599 {
			return fmt.Errorf("lambdahttp: Profile.Answers[%s].Status is %d; it must be 400 to 599", Situation(s), a.Status)
		}
	}
	return nil
}
