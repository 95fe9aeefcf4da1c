// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/once-lambda/once/internal/errtype"
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
