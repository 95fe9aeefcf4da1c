// SPDX-License-Identifier: Apache-2.0

// Package timing computes by when a request has to be answered. A platform kills a
// function at its deadline, so every wait of a request ends before that, and leaves time
// for the answer.
package timing

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// DefaultReserve is the default of idempotent.Operation.DeadlineReserve.
const DefaultReserve = 500 * time.Millisecond

// Time is when a request has to be answered.
type Time struct {
	Deadline time.Time // of the answer, which can be earlier than that of the function
	By       time.Time // the end of all waits, before the deadline
}

type timeKey struct{}

// Within returns ctx with the [Time] of the invocation that begins now. Its deadline is
// that of ctx or, if it is not zero and earlier, gateway from now. Without either, nothing
// has to be answered by a time.
func Within(ctx context.Context, now func() time.Time, reserve, gateway time.Duration) context.Context {
	deadline, ok := ctx.Deadline()
	if !ok && gateway == 0 {
		return ctx
	}
	at, left := now(), gateway
	if ok {
		left = deadline.Sub(at)
		if gateway > 0 {
			left = min(left, gateway)
		}
	}
	return context.WithValue(ctx, timeKey{}, Time{at.Add(left), at.Add(left - Margin(Reserve(reserve, left)))})
}

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

// From returns the Time in ctx, if there is one.
func From(ctx context.Context) (t Time, ok bool) {
	t, ok = ctx.Value(timeKey{}).(Time)
	return t, ok
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

// Reserve returns how much of the time left is reserved for the outcome and the answer:
// reserve, and at most a fifth.
func Reserve(reserve, left time.Duration) time.Duration { return max(min(reserve, left/5), 0) }

// Margin returns how much of a reserve is for the answer alone: a fifth, at least 50 ms and
// at most 100 ms, and never more than half of the reserve.
func Margin(reserve time.Duration) time.Duration {
	return min(max(reserve/5, 50*time.Millisecond), 100*time.Millisecond, reserve/2)
}
