// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/errtype"
	"github.com/once-lambda/once/internal/logs"
)

// NotExecutedError declares that no side effect happened. Build it with
// [NotExecuted], and ask [IsNotExecuted] whether an error declares it: errors.As
// also finds one that does not count. Lambda reports the name of the type as the
// errorType of a failed invocation.
type NotExecutedError struct{ Err error }

func (e *NotExecutedError) Error() string { return text(e.Err, "not executed") }

func (e *NotExecutedError) Unwrap() error { return e.Err }

// UnknownError declares that the outcome cannot be known. Build it with
// [Unknown].
type UnknownError struct{ Err error }

func (e *UnknownError) Error() string { return text(e.Err, "outcome unknown") }

func (e *UnknownError) Unwrap() error { return e.Err }

func text(err error, otherwise string) string {
	if err == nil {
		return "idempotent: " + otherwise
	}
	return err.Error()
}

// FinalError is a business outcome that is an error, such as a declined card or a
// closed order. It is stored, and every replay returns an equal error. Build it
// with [Final].
type FinalError struct {
	Code    string `json:"code"`    // for programs
	Message string `json:"message"` // for people; stored, so it must not contain secrets
}

func (e *FinalError) Error() string { return fmt.Sprintf("%s: %s", e.Code, e.Message) }

// NotExecuted wraps the error of a handler that can prove that no side effect
// happened: the key may run again, whatever the operation's [Recovery].
//
// It counts only as the outermost error that the handler itself returns, and only
// if the handler has begun no step. The guard ignores it, and logs that, if it is
// wrapped in or joined with another error, or returned from an inner [Do], [Wrap]
// or [Step]. As a panic's value it declares nothing either. Returned by the
// function of a step, it declares that this step had no effect.
func NotExecuted(err error) error { return &NotExecutedError{Err: err} }

// Final returns the error for a business outcome, which is stored and replayed
// like a result. Invalid UTF-8 is replaced by U+FFFD. An error that wraps it with
// a single %w preserves it; an error that joins several errors does not.
func Final(code, message string) error { return newFinal(code, message) }

func newFinal(code, message string) *FinalError {
	return &FinalError{Code: strings.ToValidUTF8(code, "\uFFFD"), Message: strings.ToValidUTF8(message, "\uFFFD")}
}

// Unknown wraps the error of a handler that cannot know whether its effect
// happened: the record becomes unknown, whatever the operation's [Recovery]. It
// counts anywhere in the tree of wrapped and joined errors.
func Unknown(err error) error { return &UnknownError{Err: err} }

// IsNotExecuted reports whether err, as returned by a handler, declares that no
// effect happened. See [NotExecuted].
func IsNotExecuted(err error) bool {
	_, ok := err.(*NotExecutedError) //lint:ignore errorlint only the outermost error declares it
	return ok && !IsUnknown(err)
}

// IsUnknown reports whether err, as returned by a handler, declares that the
// outcome is unknown. See [Unknown].
func IsUnknown(err error) bool {
	switch e := err.(type) { //lint:ignore errorlint it walks the tree itself
	case *UnknownError:
		return true
	case *errtype.InnerError:
		return false
	case interface{ Unwrap() error }:
		return IsUnknown(e.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), IsUnknown)
	}
	return false
}

// AsFinal returns the business outcome that err, as returned by a handler,
// declares. See [Final].
func AsFinal(err error) (*FinalError, bool) {
	if IsUnknown(err) || IsNotExecuted(err) {
		return nil, false
	}
	final, _ := errtype.Declared[*FinalError](err)
	return final, final != nil
}

func isFinal(err error) bool {
	_, ok := AsFinal(err)
	return ok
}

// bare returns err without the wrapper that an inner call or a step added.
func bare(err error) error {
	if inner, ok := err.(*errtype.InnerError); ok { //lint:ignore errorlint only the outermost wrapper is removed
		return inner.Err
	}
	return err
}

// reachesNotExecuted reports whether the tree of err contains a NotExecutedError,
// even one that declares nothing.
func reachesNotExecuted(err error) bool {
	declared := (*NotExecutedError)(nil)
	return errors.As(err, &declared)
}

// encodeFinal cannot fail, because a struct of two strings always encodes.
func encodeFinal(e *FinalError) []byte {
	data, _ := json.Marshal(e)
	return data
}

func decodeFinal(data []byte) (*FinalError, error) {
	var e FinalError
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, err
	}
	return &e, nil
}

// ErrExecutionEnded is returned by the methods of an [Execution], and by [Step],
// after the outcome of the handler has been decided.
var ErrExecutionEnded error = logs.Error("idempotent: the execution has ended: its handler has returned, or its Commit has stored the outcome")

// short returns the name of a record for error texts: its operation and the first
// characters of its hash, never its key.
func short(id RecordID) string { return id.Operation() + "#" + id.KeyHash() }

// InProgressError reports that another request with the same key is running, or, to
// evidence and [Guard.Forget], that the handler of a settled record may still be.
type InProgressError struct {
	RecordID RecordID
	// RetryAfter is how long to wait before the next try: as long as the request has
	// been running, at least a second, and never past Until. It is an estimate.
	RetryAfter time.Duration
	// Until is the end of the running request's lease. From then on that request no
	// longer runs.
	Until time.Time
	Ref   string // resource reference set by its handler, if any

	settled bool // the record is not in progress, but its lease has not ended
}

func (e *InProgressError) Error() string {
	what := "a request with this key is in progress"
	if e.settled {
		what = "its handler may still be running"
	}
	return fmt.Sprintf("idempotent: %s: %s; retry after %s; its lease ends at %s",
		short(e.RecordID), what, e.RetryAfter.Round(time.Millisecond), e.Until.UTC().Format(time.RFC3339))
}

// MismatchError reports that the key belongs to a request with other content.
type MismatchError struct{ RecordID RecordID }

func (e *MismatchError) Error() string {
	return fmt.Sprintf("idempotent: %s: the key was used for a different request; send a new key, or repeat the first request unchanged", short(e.RecordID))
}

// UnresolvedError reports that an earlier request may have had its effect. The
// key does not run again until [Guard.Resolve] receives evidence.
type UnresolvedError struct {
	RecordID   RecordID
	RetryAfter time.Duration // time until the next reconciliation
	Ref        string        // resource reference set by the handler, if any
	Err        error         // a [*StepError] if a recorded step is not declared by this code
}

func (e *UnresolvedError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("idempotent: %s: an earlier request cannot be continued: %v", short(e.RecordID), e.Err)
	}
	return fmt.Sprintf("idempotent: %s: the outcome of an earlier request is unknown; the key does not run again until evidence settles the outcome", short(e.RecordID))
}

func (e *UnresolvedError) Unwrap() error { return e.Err }

// InvalidKeyError reports which part of a key is invalid or missing. If it is the ID, the
// request has no idempotency key.
type InvalidKeyError struct {
	Field   string // "Operation", "Scope", "ID", "Fingerprint" or "RecordID"
	Problem string // what is wrong and what to do; does not contain the value
	Err     error  // the cause, if any
}

func (e *InvalidKeyError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("idempotent: invalid %s: %s: %v", e.Field, e.Problem, e.Err)
	}
	return fmt.Sprintf("idempotent: invalid %s: %s", e.Field, e.Problem)
}

func (e *InvalidKeyError) Unwrap() error { return e.Err }

// LeaseLostError reports that this run no longer owns its record: another request
// took it over, another party settled it, or it has expired or was deleted. The
// outcome, or the step that the error is about, is not stored.
type LeaseLostError struct {
	RecordID RecordID
	Err      error // the handler's error, if it returned one
}

func (e *LeaseLostError) Error() string {
	return fmt.Sprintf("idempotent: %s: this run no longer owns the record: it was taken over, settled by another party, or removed; this result is not stored", short(e.RecordID))
}

func (e *LeaseLostError) Unwrap() error { return e.Err }

// ReplayUnavailableError reports why a key that was used before has no result to
// return. Nothing was executed.
type ReplayUnavailableError struct {
	RecordID RecordID
	Reason   string // what is wrong with the stored result, for people
	Ref      string // resource reference set by the handler, if any
	// Uncompared reports that the record's fingerprint has another version. It
	// cannot be compared, so this may be a different request, and the work of this
	// request may not be done.
	Uncompared bool
}

func (e *ReplayUnavailableError) Error() string {
	if e.Uncompared {
		return fmt.Sprintf("idempotent: %s: the key was used before, and its record cannot be compared with this request: %s", short(e.RecordID), e.Reason)
	}
	return fmt.Sprintf("idempotent: %s: the request is completed, but its result cannot be replayed: %s", short(e.RecordID), e.Reason)
}

// NoTimeError reports that the handler was not executed because the deadline is
// too near, has passed, or the context was canceled. A retry is safe.
type NoTimeError struct {
	Remaining time.Duration // time until the deadline; negative if it has passed
	Err       error         // the context's error, or context.DeadlineExceeded
}

func (e *NoTimeError) Error() string {
	return fmt.Sprintf("idempotent: the handler was not executed: %s left before the deadline (%v); a retry is safe", e.Remaining.Round(time.Millisecond), e.Err)
}

func (e *NoTimeError) Unwrap() error { return e.Err }

// StoreError reports a failed call of the store, of [Operation.Seal] or of
// [Operation.Predecessor]. A retry with the same key is safe.
type StoreError struct {
	RecordID RecordID // empty if a list failed
	Op       driver.Op
	// Entered reports whether the handler had been entered. If false, nothing was
	// executed. If true, the outcome may not be stored, and a retry is answered from
	// the record as it is.
	Entered bool
	Err     error // what the store, the [Sealer] or the predecessor returned
}

func (e *StoreError) Error() string {
	if e.RecordID == "" {
		return fmt.Sprintf("idempotent: store: %s failed: %v", e.Op, e.Err)
	}
	then := "nothing was executed, and a retry is safe"
	if e.Entered {
		then = "the handler was entered, and its outcome may not be stored"
	}
	of := "store"
	if e.Op == driver.OpSeal || e.Op == driver.OpOpen {
		of = "Operation.Seal"
	} else if e.Op == driver.OpPredecessor {
		of = "Operation.Predecessor"
	}
	return fmt.Sprintf("idempotent: %s: %s: %s failed: %v; %s", short(e.RecordID), of, e.Op, e.Err, then)
}

func (e *StoreError) Unwrap() error { return e.Err }

// SettledError reports that the record already has another outcome, or the step
// another result. Nothing was written.
type SettledError struct {
	RecordID RecordID
	State    driver.State
	Step     string // empty if the error is about the outcome
}

func (e *SettledError) Error() string {
	if e.Step != "" {
		return fmt.Sprintf("idempotent: %s: step %q already has another recorded result; if that one is wrong, correct it with CorrectedStep (once resolve --correct-step)", short(e.RecordID), e.Step)
	}
	return fmt.Sprintf("idempotent: %s: the record is already %s with another outcome; if that one is wrong, correct it with InsteadOf (once resolve --instead-of), or discard it with Forget (once forget)", short(e.RecordID), e.State)
}

// StaleEvidenceError reports evidence about an attempt that is not the record's
// current attempt. Nothing was written.
type StaleEvidenceError struct {
	RecordID RecordID
	Attempt  int // number of the current attempt
}

func (e *StaleEvidenceError) Error() string {
	return fmt.Sprintf("idempotent: %s: the evidence is not about the current attempt (%d); read the record again before asking the provider", short(e.RecordID), e.Attempt)
}

// StepError reports an invalid use of a step.
type StepError struct {
	Step    string
	Problem string // what is wrong and what to do
	Err     error  // the encoder's error, if the result cannot be recorded
}

func (e *StepError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("idempotent: step %q: %s: %v", e.Step, e.Problem, e.Err)
	}
	return fmt.Sprintf("idempotent: step %q: %s", e.Step, e.Problem)
}

func (e *StepError) Unwrap() error { return e.Err }

// The methods LogValue return texts without a key, a payload or a result, so that
// logs can show them. They leave out the errors of handlers, their transactions,
// key functions and encoders.

func (e *InProgressError) LogValue() slog.Value        { return slog.StringValue(e.Error()) }
func (e *MismatchError) LogValue() slog.Value          { return slog.StringValue(e.Error()) }
func (e *UnresolvedError) LogValue() slog.Value        { return slog.StringValue(e.Error()) }
func (e *LeaseLostError) LogValue() slog.Value         { return slog.StringValue(e.Error()) }
func (e *ReplayUnavailableError) LogValue() slog.Value { return slog.StringValue(e.Error()) }
func (e *NoTimeError) LogValue() slog.Value            { return slog.StringValue(e.Error()) }
func (e *SettledError) LogValue() slog.Value           { return slog.StringValue(e.Error()) }
func (e *StaleEvidenceError) LogValue() slog.Value     { return slog.StringValue(e.Error()) }
func (e *StoreError) LogValue() slog.Value {
	if e.Op != driver.OpTransact && e.Op != driver.OpPredecessor {
		return slog.StringValue(e.Error()) // the errors of a driver.Store contain no key and no result
	}
	with := *e
	with.Err = fmt.Errorf("error of type %T", e.Err)
	return slog.StringValue(with.Error())
}
func (e *InvalidKeyError) LogValue() slog.Value {
	return slog.StringValue((&InvalidKeyError{Field: e.Field, Problem: e.Problem}).Error())
}
func (e *StepError) LogValue() slog.Value {
	return slog.StringValue((&StepError{Step: e.Step, Problem: e.Problem}).Error())
}

// noTime returns the error for a request that does not begin.
func noTime(ctx context.Context, remaining time.Duration) error {
	err := ctx.Err()
	if err == nil {
		err = context.DeadlineExceeded
	}
	return &NoTimeError{Remaining: remaining, Err: err}
}

// entered returns err, the error of a call after the handler was entered. A
// [*StoreError] then says so.
func entered(err error) error {
	failed := (*StoreError)(nil)
	if !errors.As(err, &failed) {
		return err
	}
	late := *failed
	late.Entered = true
	return &late
}

// storeError wraps an error of the store, once.
func storeError(id RecordID, op driver.Op, err error) error {
	if errors.As(err, new(*StoreError)) {
		return err
	}
	return &StoreError{RecordID: id, Op: op, Err: err}
}
