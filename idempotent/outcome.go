// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/once-lambda/once/idempotent/driver"
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

// innerError is an error of an inner guarded call, or of a step that returned
// NotExecuted. It declares nothing for the operation around it.
type innerError struct{ err error }

func (e *innerError) Error() string { return e.err.Error() }

func (e *innerError) Unwrap() error { return e.err }

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
	case *innerError:
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
	return finalIn(err)
}

// finalIn returns the FinalError that err wraps, each time with a single %w.
func finalIn(err error) (*FinalError, bool) {
	switch e := err.(type) { //lint:ignore errorlint it walks the tree itself
	case *FinalError:
		return e, e != nil
	case *innerError:
		return nil, false
	case interface{ Unwrap() error }:
		return finalIn(e.Unwrap())
	}
	return nil, false
}

func isFinal(err error) bool {
	_, ok := AsFinal(err)
	return ok
}

// bare returns err without the wrapper that an inner call or a step added.
func bare(err error) error {
	if inner, ok := err.(*innerError); ok { //lint:ignore errorlint only the outermost wrapper is removed
		return inner.err
	}
	return err
}

// reachesNotExecuted reports whether the tree of err contains a NotExecutedError,
// even one that declares nothing.
func reachesNotExecuted(err error) bool {
	declared := (*NotExecutedError)(nil)
	return errors.As(err, &declared)
}

// outcome is the outcome of an attempt, as it is to be stored. It is sealed just
// before it is written, so that it can be compared until then.
type outcome struct {
	state driver.State
	// failed is set if the handler returned err, or panicked with it, and outcomeOf
	// judged that.
	failed, panicked bool
	// sealed is set if encoding and result are as the Sealer returned them, if any.
	sealed bool

	reason   driver.Reason
	encoding string
	result   []byte
	chunks   driver.Chunks // set if result is stored beside the record
	err      error         // what went wrong
}

// stored returns the outcome that the completed record r holds.
func stored(r *driver.Record) outcome {
	return outcome{state: r.State, reason: r.Reason, encoding: r.Encoding, result: r.Result, chunks: r.Chunks}
}

// setOutcome sets the result of r to that of out, or clears it.
func setOutcome(r *driver.Record, out outcome) {
	r.Encoding, r.Result, r.Chunks = out.encoding, out.result, out.chunks
	if out.chunks.Count > 0 {
		r.Result = nil
	}
}

// equals reports whether the completed record r, which is not sealed, holds the
// same outcome.
func (o outcome) equals(r *driver.Record) bool {
	switch {
	case o.state != r.State:
		return false
	case r.Chunks.Count > 0:
		return o.encoding == r.Encoding && matches(r.Chunks, o.result)
	}
	return resultEquals(o.encoding, o.result, r.Encoding, r.Result)
}

// omitted returns the outcome without its result.
func (o outcome) omitted(err error) outcome {
	return outcome{state: o.state, reason: driver.ReasonOmitted, encoding: driver.EncodingOmitted, err: err}
}

// decodeResult decodes the result of a completed record into the value that v
// points to. The error is a [*FinalError] if that is the outcome, a
// [*ReplayUnavailableError] if the result cannot be read, and a [*StoreError] if
// a later try may succeed.
func decodeResult(ctx context.Context, o *Options, r *driver.Record, v any) error {
	unavailable := func(reason string) error {
		return &ReplayUnavailableError{RecordID: r.ID, Reason: reason, Ref: r.Ref}
	}
	if r.Encoding == driver.EncodingOmitted {
		return unavailable("the result could not be stored")
	}
	encoding, data, err := unseal(ctx, o.Seal, site{record: r.ID}, r.Encoding, r.Result)
	switch {
	case errors.As(err, new(*StoreError)):
		return err
	case err != nil:
		return unavailable(err.Error())
	case encoding == driver.EncodingFinal:
		final, err := decodeFinal(data)
		if err != nil {
			return unavailable("the stored Final error is damaged")
		}
		return final
	case r.ResultVersion != o.ResultVersion:
		return unavailable(fmt.Sprintf("it has version %q but this code reads version %q", r.ResultVersion, o.ResultVersion))
	}
	data, err = unpack(encoding, o.Codec.Name(), data)
	if err != nil {
		return unavailable(err.Error())
	}
	if err := decode(o.Codec, data, v); err != nil {
		return unavailable(fmt.Sprintf("the stored result does not decode into a %T", v))
	}
	return nil
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
