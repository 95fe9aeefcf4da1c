package lambdahttp

import (
	"encoding/json"
	"net/http"
)

// stripeError is the error object of Stripe's v1 API.
type stripeError struct {
	Type     string `json:"type"`
	Code     string `json:"code"`
	Message  string `json:"message"`
	Resource string `json:"resource,omitempty"` // see Problem.Resource
}

// stripeCodes are the codes of the situations. Stripe itself defines
// idempotency_key_in_use; the others follow its style.
var stripeCodes = [len(situations)]string{
	MissingKey: "idempotency_key_missing", InvalidKey: "idempotency_key_invalid", KeyNotAllowed: "idempotency_key_not_allowed",
	UnknownCaller: "caller_unknown", InvalidBody: "body_invalid", BodyTooLarge: "body_too_large", InvalidDigest: "content_digest_invalid",
	KeyReused: "idempotency_key_reused", InProgress: "idempotency_key_in_use", Accepted: "idempotency_key_in_use",
	OutcomeUnknown: "idempotency_outcome_unknown", ReplayUnavailable: "idempotency_replay_unavailable",
	StoreUnavailable: "idempotency_store_unavailable", NoTimeLeft: "idempotency_no_time_left",
}

// StripeError renders p as {"error":{"type","code","message"}}. The type is
// idempotency_error for [KeyReused], api_error for 5xx, and otherwise
// invalid_request_error.
func StripeError(p Problem) Response {
	e := stripeError{Type: "invalid_request_error", Code: p.Code, Message: p.Detail, Resource: p.Resource}
	switch {
	case p.Situation == KeyReused:
		e.Type = "idempotency_error"
	case p.Status >= 500:
		e.Type = "api_error"
	}
	if e.Code == "" && int(p.Situation) < len(stripeCodes) {
		e.Code = stripeCodes[p.Situation]
	}
	body, _ := json.Marshal(map[string]stripeError{"error": e}) // strings always encode
	return Response{Status: p.Status, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
}
