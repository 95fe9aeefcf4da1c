// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/once-lambda/once/internal/timing"
)

// window is the time available to one attempt.
//
//	now ── handler runs ── handlerEnd ── outcome is written ── answerBy ── deadline ── margin ── leaseEnd
//
// The platform kills at the deadline, to within the margin. The next request may
// start at the end of the lease.
type window struct {
	began      time.Time
	handlerEnd time.Time
	answerBy   time.Time // the end of all waits, so that the answer leaves before the deadline
	deadline   time.Time
	leaseEnd   time.Time
	// bounded reports whether the answer has a deadline. If not, answerBy is the
	// deadline that follows from DefaultLease.
	bounded bool
}

// windowOf returns the window that ctx leaves at now. DefaultLease applies if ctx
// has no deadline. An adapter can have set an earlier deadline for the answer.
func (o *Options) windowOf(ctx context.Context, now time.Time) window {
	deadline, bounded := ctx.Deadline()
	if !bounded {
		deadline = now.Add(o.DefaultLease - o.LeaseMargin)
	}
	end, by := deadline.Sub(now), time.Duration(math.MaxInt64) // from now
	t, within := timing.From(ctx)
	if within = within && now.Before(t.Deadline); within {
		end, by = min(end, t.Deadline.Sub(now)), t.By.Sub(now)
	}
	reserve, margin := timing.Reserve(o.DeadlineReserve, end), time.Duration(0)
	if bounded || within {
		margin = timing.Margin(reserve)
	}
	by = min(by, end-margin)
	return window{
		began:      now,
		handlerEnd: now.Add(by + margin - reserve),
		answerBy:   now.Add(by),
		deadline:   deadline,
		leaseEnd:   deadline.Add(o.LeaseMargin).UTC().Truncate(time.Millisecond),
		bounded:    bounded || within,
	}
}

// timeToEnter returns the minimum time that must be left for the handler after
// the claim: 100 ms or twice the duration of the last store call, whichever is
// longer, but at most a fifth of the time that the request had. The limit lets
// requests run although the first call of a cold start is slow.
func (w window) timeToEnter(lastCall time.Duration) time.Duration {
	return max(min(max(100*time.Millisecond, 2*lastCall), w.deadline.Sub(w.began)/5), time.Millisecond)
}

// errTimeUp is the cause of the end of a context that the guard has limited.
var errTimeUp = errors.New("the time for the claim is up")

// claimContext returns the context for the claim of a key, and for the replay of its
// outcome. It ends with the handler's time, because no handler could begin afterwards:
// the rest is for the release of the claim and for the answer.
func (w window) claimContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if !w.bounded {
		return ctx, func() {}
	}
	// A duration, because the clock of the guard can be another than that of package context.
	return context.WithTimeoutCause(ctx, w.handlerEnd.Sub(w.began), errTimeUp)
}

// timeUp reports whether ctx, of claimContext, has ended and the caller's has not.
func timeUp(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errTimeUp) }

// announceContext returns the context for the announcement of a run. It has half of what is
// left until the deadline, and ends at answerBy.
func (o *Options) announceContext(ctx context.Context, w window) (context.Context, context.CancelFunc) {
	now := o.Now()
	left := min(w.deadline.Sub(now)/2, w.answerBy.Sub(now))
	return context.WithTimeout(context.WithoutCancel(ctx), o.lasts(w, now, left))
}

// stepContext returns the context for a write of a handler that is running. It ends with
// the handler's time, or after half of the time until answerBy, whichever is later, so that
// a write that hangs leaves time for the outcome. It does not end with the request's own
// context, which a client can cancel.
func (o *Options) stepContext(ctx context.Context, w window) (context.Context, context.CancelFunc) {
	now := o.Now()
	left := max(w.handlerEnd.Sub(now), w.answerBy.Sub(now)/2)
	return context.WithTimeout(context.WithoutCancel(ctx), o.lasts(w, now, left))
}

// transactionContext is stepContext for a transaction, whose result must not stay open if it
// can be known: it ends in the middle between the end of the handler's time and answerBy.
// The rest is for the announcement of the run, if it is about to be killed.
func (o *Options) transactionContext(ctx context.Context, w window) (context.Context, context.CancelFunc) {
	w.handlerEnd = w.handlerEnd.Add(w.answerBy.Sub(w.handlerEnd) / 2)
	return o.stepContext(ctx, w)
}

// outcomeContext returns the context for a write that must be tried even if the
// request's own context has ended. It ends at answerBy.
func (o *Options) outcomeContext(ctx context.Context, w window) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), o.untilAnswer(w))
}

// untilAnswer returns how long a call lasts that begins now and ends at answerBy.
func (o *Options) untilAnswer(w window) time.Duration {
	now := o.Now()
	return o.lasts(w, now, w.answerBy.Sub(now))
}

// releaseTime returns how long the answer waits for a write that releases the claim of a
// handler that was not entered: LeaseMargin, but at most half of the time until the answer
// is due.
func (o *Options) releaseTime(w window) time.Duration {
	if !w.bounded {
		return o.LeaseMargin
	}
	now := o.Now()
	return min(o.LeaseMargin, o.lasts(w, now, w.answerBy.Sub(now)/2))
}

// lasts returns how long a call lasts that begins now and has the time left. If no time
// is left, it is half of what is left until the deadline. After the deadline, if the
// platform has not killed the process, it is LeaseMargin: a late write is safe because it
// is conditional.
func (o *Options) lasts(w window, now time.Time, left time.Duration) time.Duration {
	switch {
	case left > 0:
		return left
	case w.deadline.After(now):
		return w.deadline.Sub(now) / 2
	}
	return o.LeaseMargin
}
