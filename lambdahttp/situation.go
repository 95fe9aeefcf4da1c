package lambdahttp

import "fmt"

// Situation is the reason for a response that replaces the handler's. Its text
// is the suffix of the problem's type, for example "missing-key".
type Situation uint8

const (
	MissingKey        Situation = iota // no key, with Options.RequireKey
	InvalidKey                         // more than one key, wrong syntax or length
	KeyNotAllowed                      // a key on a method of Profile.ForbiddenMethods
	UnknownCaller                      // the scope is empty
	InvalidBody                        // the body cannot be compared
	BodyTooLarge                       // the body is longer than Options.MaxRequestBody
	InvalidDigest                      // Content-Digest is missing, malformed or wrong
	KeyReused                          // the key belongs to another request
	InProgress                         // the first request is running
	Accepted                           // the first request is running, with Options.Accepted
	OutcomeUnknown                     // the first request may have had its effect
	ReplayUnavailable                  // the outcome is stored but cannot be replayed
	StoreUnavailable                   // nothing was executed: the store failed
	NoTimeLeft                         // nothing was executed: the deadline is too near
	FinalOutcome                       // the outcome is an idempotent.FinalError
)

var situations = [...]string{
	MissingKey: "missing-key", InvalidKey: "invalid-key", KeyNotAllowed: "key-not-allowed",
	UnknownCaller: "unknown-caller", InvalidBody: "invalid-body", BodyTooLarge: "body-too-large", InvalidDigest: "invalid-digest",
	KeyReused: "key-reused", InProgress: "in-progress", Accepted: "accepted", OutcomeUnknown: "outcome-unknown",
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

// waits are the situations whose responses have a Retry-After header.
var waits = [len(situations)]bool{InProgress: true, Accepted: true, OutcomeUnknown: true, StoreUnavailable: true, NoTimeLeft: true}

// Answers has one Answer for each [Situation].
type Answers [len(situations)]Answer

// Answer is the fixed part of a response: its status, its texts and its own
// headers. The title is the same at every occurrence (RFC 9457, section 3.1.3).
type Answer struct {
	Status        int
	Title, Detail string
	Header        map[string]string
}
