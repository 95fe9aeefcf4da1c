// SPDX-License-Identifier: Apache-2.0

package timing

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Do is [Call] for a function that returns only an error.
func Do(ctx context.Context, now func() time.Time, f func(context.Context) error) error {
	_, err := Call(ctx, now, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

// Call calls f, a function of the user, with a context of [Half]. If f fails after that
// context has ended, and not the caller's, the error is a [*LateError].
func Call[T any](ctx context.Context, now func() time.Time, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := Half(ctx, now)
	defer cancel()
	v, err := f(ctx)
	if err != nil && Late(ctx) {
		err = &LateError{err}
	}
	return v, err
}

// Half returns a context for a function of the user, which ends when half of the time
// until the answer has passed. Another function, and what follows, have the other half.
func Half(ctx context.Context, now func() time.Time) (context.Context, context.CancelFunc) {
	t, ok := From(ctx)
	if !ok {
		return context.WithCancel(ctx)
	}
	left := t.By.Sub(now()) / 2
	if left <= 0 { // also if the deadline of ctx is not that of package context
		ended, end := context.WithCancelCause(ctx)
		end(errHalf)
		return ended, func() { end(nil) }
	}
	return context.WithTimeoutCause(ctx, left, errHalf)
}

var errHalf = errors.New("half of the time until the answer has passed")

// Late reports whether ctx, a context of [Half], has ended because its time has passed.
func Late(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errHalf) }

// LateError is the error of a function of the user that did not return in its time. It is
// a [context.DeadlineExceeded], whatever the function has returned.
type LateError struct{ Err error }

func (e *LateError) Error() string { return late + ": " + e.Err.Error() }

// LogValue returns the text without that of the function's own error, which can contain
// anything.
func (e *LateError) LogValue() slog.Value { return slog.StringValue(late) }

const late = "the function did not return in half of the time that was left"

// Unwrap returns the end of the time, and the error of the function.
func (e *LateError) Unwrap() []error { return []error{context.DeadlineExceeded, e.Err} }
