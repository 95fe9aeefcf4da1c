// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"log/slog"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/logs"
)

// release releases the claim of a handler that was not entered.
func (a *attempt) release(ctx context.Context, reason driver.Reason, err error) {
	a.letGo(ctx, reason, err, a.released)
}

// letGo writes the claim of a handler that was not entered as next returns it. The answer
// waits for half of the time that is left until it is due, and at most for LeaseMargin.
// A write that does not end by then is tried once more, beside the answer: that succeeds if
// the platform lets the process run.
func (a *attempt) letGo(ctx context.Context, reason driver.Reason, err error, next func(*driver.Record, driver.Reason, time.Time) driver.Record) {
	c := change{
		opts:   a.opts,
		out:    outcome{state: driver.StateRetryable, reason: reason, err: err},
		rounds: 1, // if another write came first, it decided about this claim
		by: judgeFunc(func(current *driver.Record, now time.Time) judgement {
			return judgement{next: next(current, reason, now)}
		}),
	}
	ctx = context.WithoutCancel(ctx)
	limited, cancel := context.WithTimeout(ctx, a.window.ReleaseTime())
	defer cancel()
	r := a.guard.apply(limited, &a.mine, &c)
	if a.window.Bounded && r.end == endFailed && limited.Err() != nil {
		go a.letGoBeside(ctx, &c)
	}
	if r.end == endWritten {
		a.observe(ctx, event.Retryable, r.record, err)
	} else if reason == driver.ReasonNoTime {
		a.observe(ctx, event.CompletionFailed, r.record, storeError(a.id, driver.OpReplace, r.err))
	}
}

// letGoBeside applies c, which releases the claim of this attempt. The answer does not wait
// for it, so its end is no event.
func (a *attempt) letGoBeside(ctx context.Context, c *change) {
	ctx, cancel := context.WithTimeout(ctx, a.opts.LeaseMargin)
	defer cancel()
	logs.Shield(ctx, a.opts.logger(), "idempotent: the store", func() { a.guard.apply(ctx, &a.mine, c) }, slog.String("operation", a.id.Operation()))
}

// released returns the claim r of this attempt, whose handler was not entered,
// such that the next request can take it over. OpenSince has its value from before
// the claim.
func (a *attempt) released(r *driver.Record, reason driver.Reason, now time.Time) driver.Record {
	next := *r
	next.OpenSince = a.openBefore
	return a.opts.transition(&next, driver.StateRetryable, reason, now)
}

// undone is released for a claim that must leave no trace. The record of a new key
// has expired, by every clock that agrees with this one to within LeaseMargin, so
// that it does not bind the key to this request.
func (a *attempt) undone(r *driver.Record, reason driver.Reason, now time.Time) driver.Record {
	next := a.released(r, reason, now)
	if r.Attempt == 1 {
		next.Expires = now.Add(-a.opts.LeaseMargin)
	}
	return next
}
