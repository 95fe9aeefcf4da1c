package main

import (
	"errors"
	"fmt"

	"github.com/alecthomas/kong"

	"github.com/once-lambda/once/idempotent"
)

// The exit codes. exitCodes describes them for users.
const (
	exitOK       = 0
	exitFailure  = 1
	exitUsage    = 2
	exitNotFound = 3
	exitRefused  = 4
)

// exitCodes is the description of the exit codes in the help. A test compares it
// with the table in docs/operate.md.
const exitCodes = `Exit codes:

    0  done
    1  failed: the store, the table's schema, or a part of the work
    2  invalid command line; nothing was done
    3  record not found
    4  refused: other outcome, live lease, stale token, wrong form, unconfirmed`

// errRefused matches the error of a command that was not allowed or not confirmed.
var errRefused = errors.New("refused")

// refusal is an error that matches errRefused.
type refusal struct{ text string }

func (e *refusal) Error() string        { return e.text }
func (e *refusal) Is(target error) bool { return target == errRefused }

func refuse(format string, args ...any) error { return &refusal{fmt.Sprintf(format, args...)} }

// usageError reports an invalid command line.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usage(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// exitCode returns the exit code for the error of a command.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[*kong.ParseError](err); ok {
		return exitUsage
	}
	switch {
	case errors.Is(err, idempotent.ErrNoRecord):
		return exitNotFound
	case errors.Is(err, errRefused), errors.As(err, new(*idempotent.SettledError)), errors.As(err, new(*idempotent.InProgressError)),
		errors.As(err, new(*idempotent.StaleEvidenceError)), errors.As(err, new(*idempotent.StepError)):
		return exitRefused
	}
	return exitFailure
}
