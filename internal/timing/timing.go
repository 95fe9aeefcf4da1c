// SPDX-License-Identifier: Apache-2.0

// Package timing computes by when a request has to be answered. A platform kills a
// function at its deadline, so every wait of a request ends before that, and leaves time
// for the answer.
package timing

import (
	"context"
	"errors"
	"log/slog"
	"math"
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

// From returns the Time in ctx, if there is one.
func From(ctx context.Context) (t Time, ok bool) {
	t, ok = ctx.Value(timeKey{}).(Time)
	return t, ok
}

// Reserve returns how much of the time left is reserved for the outcome and the answer:
// reserve, and at most a fifth.
func Reserve(reserve, left time.Duration) time.Duration { return max(min(reserve, left/5), 0) }

// Margin returns how much of a reserve is for the answer alone: a fifth, at least 50 ms and
// at most 100 ms, and never more than half of the reserve.
func Margin(reserve time.Duration) time.Duration {
	return min(max(reserve/5, 50*time.Millisecond), 100*time.Millisecond, reserve/2)
}

// Limits are the options of an operation on which its windows depend, as package
// idempotent declares and documents them.
type Limits struct {
	DefaultLease, LeaseMargin, DeadlineReserve time.Duration

	Now func() time.Time
}

// Window is the time available to one attempt of a request.
//
//	now ── handler runs ── HandlerEnd ── outcome is written ── AnswerBy ── Deadline ── margin ── LeaseEnd
//
// The platform kills at the deadline, to within the margin. The next request may
// start at the end of the lease.
type Window struct {
	Limits

	Began      time.Time
	HandlerEnd time.Time
	AnswerBy   time.Time // the end of all waits, so that the answer leaves before the deadline
	Deadline   time.Time
	LeaseEnd   time.Time
	// Bounded reports whether the answer has a deadline. If not, AnswerBy is the
	// deadline that follows from DefaultLease.
	Bounded bool
}

// Window returns the window that ctx leaves at now. DefaultLease applies if ctx
// has no deadline. [Within] can have set an earlier deadline for the answer.
func (l Limits) Window(ctx context.Context, now time.Time) Window {
	deadline, bounded := ctx.Deadline()
	if !bounded {
		deadline = now.Add(l.DefaultLease - l.LeaseMargin)
	}
	end, by := deadline.Sub(now), time.Duration(math.MaxInt64) // from now
	t, within := From(ctx)
	if within = within && now.Before(t.Deadline); within {
		end, by = min(end, t.Deadline.Sub(now)), t.By.Sub(now)
	}
	reserve, margin := Reserve(l.DeadlineReserve, end), time.Duration(0)
	if bounded || within {
		margin = Margin(reserve)
	}
	by = min(by, end-margin)
	return Window{
		Limits:     l,
		Began:      now,
		HandlerEnd: now.Add(by + margin - reserve),
		AnswerBy:   now.Add(by),
		Deadline:   deadline,
		LeaseEnd:   deadline.Add(l.LeaseMargin).UTC().Truncate(time.Millisecond),
		Bounded:    bounded || within,
	}
}

// TimeToEnter returns the minimum time that must be left for the handler after
// the claim: 100 ms or twice the duration of the last store call, whichever is
// longer, but at most a fifth of the time that the request had. The limit lets
// requests run although the first call of a cold start is slow.
func (w *Window) TimeToEnter(lastCall time.Duration) time.Duration {
	return max(min(max(100*time.Millisecond, 2*lastCall), w.Deadline.Sub(w.Began)/5), time.Millisecond)
}

// errTimeUp is the cause of the end of a context that the guard has limited.
var errTimeUp = errors.New("the time for the claim is up")

// ClaimContext returns the context for the claim of a key, and for the replay of its
// outcome. It ends with the handler's time, because no handler could begin afterwards:
// the rest is for the release of the claim and for the answer.
func (w *Window) ClaimContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if !w.Bounded {
		return ctx, func() {}
	}
	// A duration, because the clock of the guard can be another than that of package context.
	return context.WithTimeoutCause(ctx, w.HandlerEnd.Sub(w.Began), errTimeUp)
}

// TimeUp reports whether ctx, of ClaimContext, has ended and the caller's has not.
func TimeUp(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errTimeUp) }

// AnnounceContext returns the context for the announcement of a run. It has two thirds of the
// time until AnswerBy, most of it because the handler is probably about to be killed. If it
// returns meanwhile, its outcome waits for the announcement, and needs the rest.
func (w *Window) AnnounceContext(ctx context.Context) (context.Context, context.CancelFunc) {
	now := w.Now()
	return context.WithTimeout(context.WithoutCancel(ctx), w.lasts(now, w.AnswerBy.Sub(now)*2/3))
}

// StepContext returns the context for a write of a handler that is running. It ends with
// the handler's time, or after half of the time until AnswerBy, whichever is later, so that
// a write that hangs leaves time for the outcome. It does not end with the request's own
// context, which a client can cancel.
func (w *Window) StepContext(ctx context.Context) (context.Context, context.CancelFunc) {
	now := w.Now()
	left := max(w.HandlerEnd.Sub(now), w.AnswerBy.Sub(now)/2)
	return context.WithTimeout(context.WithoutCancel(ctx), w.lasts(now, left))
}

// TransactionContext is StepContext for a transaction, whose result must not stay open if it
// can be known: it ends in the middle between the end of the handler's time and AnswerBy.
// The rest is for the announcement of the run, if it is about to be killed.
func (w *Window) TransactionContext(ctx context.Context) (context.Context, context.CancelFunc) {
	later := *w
	later.HandlerEnd = w.HandlerEnd.Add(w.AnswerBy.Sub(w.HandlerEnd) / 2)
	return later.StepContext(ctx)
}

// OutcomeContext returns the context for a write that must be tried even if the
// request's own context has ended. It ends at AnswerBy.
func (w *Window) OutcomeContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), w.UntilAnswer())
}

// UntilAnswer returns how long a call lasts that begins now and ends at AnswerBy.
func (w *Window) UntilAnswer() time.Duration {
	now := w.Now()
	return w.lasts(now, w.AnswerBy.Sub(now))
}

// ReleaseTime returns how long the answer waits for a write that releases the claim of a
// handler that was not entered: LeaseMargin, but at most half of the time until the answer
// is due.
func (w *Window) ReleaseTime() time.Duration {
	if !w.Bounded {
		return w.LeaseMargin
	}
	now := w.Now()
	return min(w.LeaseMargin, w.lasts(now, w.AnswerBy.Sub(now)/2))
}

// lasts returns how long a call lasts that begins now and has the time left. If no time
// is left, it is half of what is left until the deadline. After the deadline, if the
// platform has not killed the process, it is LeaseMargin: a late write is safe because it
// is conditional.
func (w *Window) lasts(now time.Time, left time.Duration) time.Duration {
	switch {
	case left > 0:
		return left
	case w.Deadline.After(now):
		return w.Deadline.Sub(now) / 2
	}
	return w.LeaseMargin
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
