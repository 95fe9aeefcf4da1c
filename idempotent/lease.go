package idempotent

import (
	"context"
	"time"
)

// window is the time one attempt has.
//
//	now ── handler runs ── handlerEnd ── outcome is written ── deadline ── margin ── leaseEnd
//
// The platform kills at the deadline, give or take the margin; the next
// request may come in at the end of the lease.
type window struct {
	began      time.Time
	handlerEnd time.Time
	deadline   time.Time
	leaseEnd   time.Time
}

// windowOf returns the time that ctx leaves at now. Without a deadline
// DefaultLease takes its place.
func (o *Options) windowOf(ctx context.Context, now time.Time) window {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = now.Add(o.DefaultLease - o.LeaseMargin)
	}
	reserve := min(o.DeadlineReserve, deadline.Sub(now)/5)
	return window{
		began:      now,
		handlerEnd: deadline.Add(-max(reserve, 0)),
		deadline:   deadline,
		leaseEnd:   deadline.Add(o.LeaseMargin).UTC().Truncate(time.Millisecond),
	}
}

// timeToEnter is the least time that the handler must have, after the claim, to be
// entered: 100 ms or twice what the last call of the store took, whichever is more,
// but never more than a fifth of the time that the request had. The first call of
// a cold start is slow, and must not keep a request with time enough out.
func (w window) timeToEnter(lastCall time.Duration) time.Duration {
	return max(min(max(100*time.Millisecond, 2*lastCall), w.deadline.Sub(w.began)/5), time.Millisecond)
}

// stepContext returns the context for the write of a step. It ends with the
// handler's time, so that a write that hangs leaves the reserve to the outcome,
// and not with the request's own context, which a client can cancel. In the
// reserve it has half of what is left, and past the deadline LeaseMargin, as the
// outcome does.
func (o *Options) stepContext(ctx context.Context, w window) (context.Context, context.CancelFunc) {
	now := o.Now()
	left := w.handlerEnd.Sub(now)
	switch {
	case left > 0:
	case w.deadline.After(now):
		left = w.deadline.Sub(now) / 2
	default:
		left = o.LeaseMargin
	}
	return context.WithTimeout(context.WithoutCancel(ctx), left)
}

// releaseContext returns the context for a write that frees the key of a handler
// that was not entered. It has LeaseMargin, also past the deadline: no handler is
// at work.
func (o *Options) releaseContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), o.LeaseMargin)
}

// outcomeContext returns the context for a write that has to be tried although
// the request's own context may have ended. It ends at the real deadline. A
// worker that is past it, because the platform does not kill or not yet, gets
// one more LeaseMargin: a late write is safe, its condition is the fence.
func (o *Options) outcomeContext(ctx context.Context, w window) (context.Context, context.CancelFunc) {
	left := w.deadline.Sub(o.Now())
	if left <= 0 {
		left = o.LeaseMargin
	}
	return context.WithTimeout(context.WithoutCancel(ctx), left)
}
