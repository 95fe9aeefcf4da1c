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
		handlerEnd: deadline.Add(-max(reserve, 0)),
		deadline:   deadline,
		leaseEnd:   deadline.Add(o.LeaseMargin).UTC().Truncate(time.Millisecond),
	}
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
