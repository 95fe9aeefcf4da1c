package lambdahttp_test

import (
	"slices"

	"github.com/once-lambda/once/lambdahttp"
)

// row is one line of the table of responses: the requests to send, and what the
// last response must be. docs/http.md shows these rows, see TestDocs.
type row struct {
	id        string
	profile   string // a key of profiles; "": IETF
	situation string
	options   func(*lambdahttp.Options)
	play      func(*world) reply

	status     int
	base       string // of the problem's type; "": the default
	problem    string // suffix of the problem's type; "": not a problem
	title      string
	stripe     string            // type and code of an error in Stripe's form
	member     map[string]string // members besides the standard ones
	retryAfter string
	replayed   bool
	says       string            // Idempotency-Status
	header     map[string]string // further headers; "*" is any value
	runs       int               // of the handler, in total
	record     string            // its state afterwards; "": no record
}

var profiles = map[string]lambdahttp.Profile{"": {}, "Stripe": lambdahttp.Stripe, "UUID": lambdahttp.UUID}

// strict are headers that a response must not have unless its row names them.
var strict = []string{"Link", "Idempotency-Expires", "Access-Control-Expose-Headers", "Stripe-Should-Retry"}

const (
	titleMissing     = "Idempotency-Key is missing"
	titleInvalid     = "Idempotency-Key is invalid"
	titleReused      = "Idempotency-Key is already used"
	titleOutstanding = "A request is outstanding for this Idempotency-Key"
	titleUnknown     = "The outcome for this Idempotency-Key is unknown"
	titleUnavailable = "The response for this Idempotency-Key cannot be repeated"
	titleStore       = "Idempotency cannot be guaranteed at the moment"
)

var rows = slices.Concat(keyRows, answerRows, outcomeRows, optionRows)
