package idempotent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// ErrExecutionEnded is returned by the methods of an [Execution], and by [Step],
// once the outcome of the handler has been decided.
var ErrExecutionEnded = errors.New("idempotent: the execution has ended")

// short names a record in an error text: its operation and the first
// characters of its hash, never its key.
func short(id RecordID) string { return id.Operation() + "#" + id.KeyHash() }

// InProgressError says how long the running request may still take.
type InProgressError struct {
	RecordID   RecordID
	RetryAfter time.Duration // until the running request's lease ends
	Ref        string        // what its handler set as resource reference, if anything
}

func (e *InProgressError) Error() string {
	return fmt.Sprintf("idempotent: %s: another request with this key is in progress; retry after %s", short(e.RecordID), e.RetryAfter.Round(time.Millisecond))
}

// MismatchError says that the key belongs to a request of other content.
type MismatchError struct{ RecordID RecordID }

func (e *MismatchError) Error() string {
	return fmt.Sprintf("idempotent: %s: this key was used for another request; send a new key, or the first request unchanged", short(e.RecordID))
}

// UnresolvedError says that an earlier request may have had its effect. The
// key is not run again before [Guard.Resolve] brings evidence.
type UnresolvedError struct {
	RecordID   RecordID
	RetryAfter time.Duration // until the next reconciliation
	Ref        string        // what the handler set as resource reference, if anything
	Err        error         // a [*StepError] if this code does not know a step that was recorded
}

func (e *UnresolvedError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("idempotent: %s: an earlier request cannot be continued: %v", short(e.RecordID), e.Err)
	}
	return fmt.Sprintf("idempotent: %s: the outcome of an earlier request is unknown; it is not run again before it is resolved", short(e.RecordID))
}
func (e *UnresolvedError) Unwrap() error { return e.Err }

// NoKeyError says that the request names no key.
type NoKeyError struct{ Operation string }

func (e *NoKeyError) Error() string {
	return fmt.Sprintf("idempotent: %s: the request has no idempotency key; send one, or set Options.AllowMissingKey to run such requests unguarded", e.Operation)
}

// InvalidKeyError says which part of the key cannot be used.
type InvalidKeyError struct {
	Field   string // "Operation", "Scope", "Fingerprint" or "RecordID"
	Problem string // for the developer: what is wrong and what to do; never the value
	Err     error  // the cause, if there is one
}

func (e *InvalidKeyError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("idempotent: the key's %s %s: %v", e.Field, e.Problem, e.Err)
	}
	return fmt.Sprintf("idempotent: the key's %s %s", e.Field, e.Problem)
}
func (e *InvalidKeyError) Unwrap() error { return e.Err }

// LeaseLostError says that this handler ran past its lease and another request
// took its record over. Its result is not the stored one.
type LeaseLostError struct {
	RecordID RecordID
	Err      error // what the handler returned, if it was an error
}

func (e *LeaseLostError) Error() string {
	return fmt.Sprintf("idempotent: %s: the handler outlived its lease and another request took the record over; its outcome is not stored", short(e.RecordID))
}
func (e *LeaseLostError) Unwrap() error { return e.Err }

// ReplayUnavailableError says why a completed request has no result to return.
type ReplayUnavailableError struct {
	RecordID RecordID
	Reason   string // for people: what is wrong with the stored result
	Ref      string // what the handler set as resource reference, if anything
	// Uncompared: the record's fingerprint is of another version, so that nobody
	// can tell whether this is the request that was done, or whether it is done.
	Uncompared bool
}

func (e *ReplayUnavailableError) Error() string {
	return fmt.Sprintf("idempotent: %s: the work was done, but its result cannot be replayed: %s", short(e.RecordID), e.Reason)
}

// NoTimeError says that nothing was executed because the deadline is too near,
// has passed, or the context was cancelled. It is safe to retry.
type NoTimeError struct {
	Remaining time.Duration // until the deadline; negative when it has passed
	Err       error         // the context's error, or context.DeadlineExceeded
}

func (e *NoTimeError) Error() string {
	return fmt.Sprintf("idempotent: the handler was not entered: %s left before the deadline (%v); retrying is safe", e.Remaining.Round(time.Millisecond), e.Err)
}
func (e *NoTimeError) Unwrap() error { return e.Err }

// StoreError reports a call of the store that failed. Retrying with the same key
// is safe.
type StoreError struct {
	RecordID RecordID
	Op       driver.Op
	// Entered reports whether the handler had been entered. If not, nothing was
	// executed. If so, the outcome may not be stored: a retry gets what stands.
	Entered bool
	Err     error // what the store returned
}

func (e *StoreError) Error() string {
	then := "nothing was executed, and retrying is safe"
	if e.Entered {
		then = "the handler was entered, and its outcome may not be stored"
	}
	return fmt.Sprintf("idempotent: %s: store: %s failed: %v; %s", short(e.RecordID), e.Op, e.Err, then)
}
func (e *StoreError) Unwrap() error { return e.Err }

// SettledError reports that the record holds another outcome already, or the step
// another result. Nothing was written.
type SettledError struct {
	RecordID RecordID
	State    driver.State
	Step     string // empty: the outcome
}

func (e *SettledError) Error() string {
	if e.Step != "" {
		return fmt.Sprintf("idempotent: %s: the step %q is recorded with another result, which stays; use CorrectedStep if it is wrong", short(e.RecordID), e.Step)
	}
	return fmt.Sprintf("idempotent: %s: the record is %s with another outcome, which stays", short(e.RecordID), e.State)
}

// StaleEvidenceError reports evidence about an attempt that is not the record's
// current one. Nothing was written.
type StaleEvidenceError struct {
	RecordID RecordID
	Attempt  int // number of the current attempt
}

func (e *StaleEvidenceError) Error() string {
	return fmt.Sprintf("idempotent: %s: the evidence names another attempt than the current one (attempt %d); read the record again before you ask the provider", short(e.RecordID), e.Attempt)
}

// StepError says which step the code asked for in a way that cannot be.
type StepError struct {
	Step    string
	Problem string // for the developer: what is wrong and what to do
}

func (e *StepError) Error() string {
	return fmt.Sprintf("idempotent: the step %q %s", e.Step, e.Problem)
}

// noTime returns the error for a request that is not begun.
func noTime(ctx context.Context, remaining time.Duration) error {
	err := ctx.Err()
	if err == nil {
		err = context.DeadlineExceeded
	}
	return &NoTimeError{Remaining: remaining, Err: err}
}
