// SPDX-License-Identifier: Apache-2.0

package idempotencyclient

import "fmt"

// Error reports that a request has no complete response. http.Client wraps it in a
// *url.Error, so use errors.As.
type Error struct {
	Method, Host string
	// Attempts counts the times that the request was given to [Options.Base], which
	// can repeat it. It is 0 if the request was refused before.
	Attempts int
	// Sent reports that the server may have received the request, so that its effect
	// may have happened. It is false only if the request was refused, or if it was
	// written to no connection, neither by an attempt nor by a repetition of
	// http.Transport. It says nothing about earlier requests with the same key.
	Sent bool
	// Err is the cause: the error of the last attempt, or the cause of the context's
	// end.
	Err error

	hint string
}

// Error returns what failed, why, and what to do.
func (e *Error) Error() string {
	failed := fmt.Sprintf("no complete response after %d attempts", e.Attempts)
	switch e.Attempts {
	case 0:
		failed = "the request was not sent"
	case 1:
		failed = "no complete response"
	}
	text := fmt.Sprintf("idempotencyclient: %s %s: %s: %v", e.Method, e.Host, failed, e.Err)
	if e.hint != "" {
		text += "; " + e.hint
	}
	return text
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }
