package idempotent

import (
	"context"
	"time"
)

// window is the time available to one attempt.
//
//	now ── handler runs ── handlerEnd ── outcome is written ── deadline ── margin ── leaseEnd
//
// The platform kills at the deadline, to within the margin. The next request may
// start at the end of the lease.
type window struct {
	began      time.Time
	handlerEnd time.Time
	deadline   time.Time
	leaseEnd   time.Time
}

// windowOf returns the window that ctx leaves at now. DefaultLease applies if ctx
// has no deadline.
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

// timeToEnter returns the minimum time that must be left for the handler after
// the claim: 100 ms or twice the duration of the last store call, whichever is
// longer, but at most a fifth of the time that the request had. The limit lets
// requests run although the first call of a cold start is slow.
func (w window) timeToEnter(lastCall time.Duration) time.Duration {
	return max(min(max(100*time.Millisecond, 2*lastCall), w.deadline.Sub(w.began)/5), time.Millisecond)
}

// stepContext returns the context for the write of a step. It ends with the
// handler's time, so that a write that hangs leaves the reserve for the outcome.
// It does not end with the request's own context, which a client can cancel.
// After the handler's time it has half of what is left until the deadline, and
// after the deadline LeaseMargin, like the write of the outcome.
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

// releaseContext returns the context for a write that releases the claim of a
// handler that was not entered. It lasts LeaseMargin, even past the deadline,
// because no handler is running.
func (o *Options) releaseContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), o.LeaseMargin)
}

// outcomeContext returns the context for a write that must be tried even if the
// request's own context has ended. It ends at the real deadline. After the
// deadline, if the platform has not killed the process, it lasts LeaseMargin: a
// late write is safe because it is conditional.
func (o *Options) outcomeContext(ctx context.Context, w window) (context.Context, context.CancelFunc) {
	left := w.deadline.Sub(o.Now())
	if left <= 0 {
		left = o.LeaseMargin
	}
	return context.WithTimeout(context.WithoutCancel(ctx), left)
}
