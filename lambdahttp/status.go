package lambdahttp

// The values of Idempotency-Status. All but the last are sent with
// Profile.StatusHeader only.
const (
	statusCreated   = "created"    // the handler ran, and its response is stored
	statusReplayed  = "replayed"   // this is the stored response
	statusConflict  = "conflict"   // 409: the first request is running, or its response is gone
	statusMismatch  = "mismatch"   // the key belongs to another request
	statusUnknown   = "unknown"    // nobody knows the outcome
	statusIgnored   = "ignored"    // the request has a key, and this method is not guarded
	statusNotStored = "not-stored" // a retry will not get this response
)

// statusOf returns what a situation says about the key; empty where nothing is
// known about it.
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
