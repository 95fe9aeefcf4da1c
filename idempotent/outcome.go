package idempotent

import (
	"bytes"
	"fmt"

	"github.com/once-lambda/once/idempotent/driver"
)

// NotExecutedError declares that no side effect happened. Build it with
// [NotExecuted].
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

// FinalError is a business outcome that is an error: a declined card, an order
// that is closed. It is stored, and every replay returns an equal one. Build
// it with [Final].
type FinalError struct {
	Code    string `json:"code"`    // for programs
	Message string `json:"message"` // for people; it is stored, so no secrets
}

func (e *FinalError) Error() string { return fmt.Sprintf("%s: %s", e.Code, e.Message) }

// NotExecuted wraps the error of a handler that has proof that no side effect
// happened: the key may run again, whatever the operation's [Recovery]. A
// handler that has begun a [Step] has no such proof, and there it counts as any
// other error; returned by the step itself it says that the step did nothing.
//
// Like [Final] and [Unknown] it counts only as the outermost error a handler
// returns (or panics with): the handler declares for the whole operation, a
// helper deep inside cannot.
func NotExecuted(err error) error { return &NotExecutedError{Err: err} }

// Final returns the error for a business outcome that stands: it is stored and
// replayed like a result. It counts only as the outermost error.
func Final(code, message string) error { return &FinalError{Code: code, Message: message} }

// Unknown wraps the error of a handler that cannot know whether its effect
// happened: the record becomes unknown, whatever the operation's [Recovery].
// It counts only as the outermost error.
func Unknown(err error) error { return &UnknownError{Err: err} }

// outcome is what an attempt has to report about its work.
type outcome struct {
	state    driver.State
	reason   driver.Reason
	encoding string
	result   []byte
	chunks   driver.Chunks // where result is, if the store keeps it beside the record
	version  string        // Options.ResultVersion
	err      error         // what went wrong, for events
}

// setOutcome puts the result of out, or the lack of one, into r.
func setOutcome(r *driver.Record, out outcome) {
	r.Encoding, r.Result, r.Chunks, r.ResultVersion = out.encoding, out.result, out.chunks, out.version
	if out.chunks.Count > 0 {
		r.Result = nil
	}
}

// equals reports whether r holds this very outcome.
func (o outcome) equals(r *driver.Record) bool {
	if o.state != r.State || o.encoding != r.Encoding || o.version != r.ResultVersion {
		return false
	}
	if r.Chunks.Count > 0 {
		return matches(r.Chunks, o.result)
	}
	return bytes.Equal(o.result, r.Result)
}

// outcomeOf judges what a handler returned as its error, or panicked with,
// after the work w. Only the outermost error may declare, so there is no
// errors.As here.
func outcomeOf(err error, w *work, reason driver.Reason) outcome {
	switch e := err.(type) {
	case *NotExecutedError:
		if !w.began() {
			return outcome{state: driver.StateRetryable, reason: driver.ReasonNotExecuted, err: err}
		}
	case *UnknownError:
		return outcome{state: driver.StateUnknown, reason: driver.ReasonUnknown, err: err}
	case *FinalError:
		if reason == driver.ReasonHandlerError && w.doubted() == nil {
			return outcome{state: driver.StateCompleted, reason: driver.ReasonFinal, encoding: driver.EncodingFinal, result: encodeFinal(e)}
		}
	}
	return w.failed(err, reason)
}

// failed returns the outcome of work that ended with an error that declares
// nothing.
func (w *work) failed(err error, reason driver.Reason) outcome {
	switch {
	case runsAgain(w.held):
		return outcome{state: driver.StateRetryable, reason: reason, err: err}
	case w.held.Recovery != Reconcile:
		reason = driver.ReasonInterrupted
	}
	return outcome{state: driver.StateUnknown, reason: reason, err: err}
}
