package lambdahttp

// The values of Idempotency-Status. All but the last are sent with
// Profile.StatusHeader only.
const (
	statusCreated   = "created"
	statusReplayed  = "replayed"
	statusConflict  = "conflict"
	statusMismatch  = "mismatch"
	statusUnknown   = "unknown"
	statusIgnored   = "ignored"
	statusNotStored = "not-stored"
)

// statuses describes each value.
var statuses = []struct{ value, meaning string }{
	{statusCreated, "the request was executed, and its response is stored"},
	{statusReplayed, "this is the stored response"},
	{statusConflict, "the first request is running, or its response is gone"},
	{statusMismatch, "the key belongs to another request"},
	{statusUnknown, "the outcome is unknown"},
	{statusIgnored, "the request has a key, but its method is not guarded"},
	{statusNotStored, "a retry will not get this response"},
}

// statusOf returns the status of the key in a situation, or "" if it is not
// known.
func statusOf(s Situation) string {
	switch s {
	case InProgress, Accepted, ReplayUnavailable:
		return statusConflict
	case KeyReused:
		return statusMismatch
	case OutcomeUnknown:
		return statusUnknown
	}
	return ""
}
