// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/logs"
	"github.com/once-lambda/once/internal/timing"
)

// Options configure all operations of a guard if passed to [New], and one
// operation if passed to [Wrap], [Do] or [DoOutcome]. The zero value of each
// field selects its documented default.
type Options struct {
	// Recovery is the recovery promise of the operation. Default: Reconcile.
	Recovery Recovery

	// Steps lists the step names of the operation; it is required with [Resume]. A
	// record that contains an undeclared step is not continued, and an undeclared
	// step does not run. A name also covers names that extend it after a slash:
	// "ship" covers "ship/1" and "ship/2". All names together have at most 16 KB, because
	// each record stores them. Default: any step name is allowed.
	Steps []string

	// Retention is how long an outcome is stored and replayed, from the moment it is
	// stored. It must be longer than any client or event source retries. It does not
	// apply to records whose effect may be unresolved: unknown records, records in
	// progress under Reconcile or Resume, and records with steps that wait to be
	// resumed. Those never expire. Default: 24 h.
	Retention time.Duration

	// UnresolvedRetention limits how long a record is stored that Retention does not
	// apply to, from the end of its lease or from when it was settled. After that
	// the key counts as new, whatever happened to the effect. Default: no limit.
	UnresolvedRetention time.Duration

	// DownstreamRetention is how long a provider remembers a downstream key, counted
	// from the first attempt. After that time, a step under Resume that an earlier
	// run may have begun does not run again: the record becomes unknown instead.
	// Default: 24 h.
	DownstreamRetention time.Duration

	// WaitFor is the longest time that a request waits for the outcome of another
	// running request with its key, never past its own deadline. It polls the store
	// with one Get, first after 50 ms, then at growing intervals. At most 100 requests
	// of a guard wait for one key; the others get InProgressError at once. Default:
	// return InProgressError at once.
	WaitFor time.Duration

	// LeaseMargin is added to the context's deadline to get the end of the lease;
	// until then no other request can run the key. It covers a platform that kills
	// late and the difference between two clocks. Lambda has been observed to kill
	// 0.68 s after the deadline (aws-powertools/powertools-lambda-python#4759). With an
	// external extension it may take two seconds: so long is the shutdown phase (Lambda
	// developer guide, "Lambda execution environment lifecycle"). Default: 3 s.
	LeaseMargin time.Duration

	// DeadlineReserve is how long before its deadline the handler's context ends, so
	// that time remains to write the outcome and to answer. It is at most a fifth of
	// the time left, and must be at least 100 ms. A fifth of it, 50 to 100 ms, is for
	// the answer alone: no wait of a request lasts longer. Default: 500 ms.
	DeadlineReserve time.Duration

	// DefaultLease is the length of the lease, including the margin, if the context
	// has no deadline. The handler's context then ends LeaseMargin and
	// DeadlineReserve before the lease. Default: 15 min.
	DefaultLease time.Duration

	// ReconcileAfter is how long after a record became unknown its first
	// reconciliation is due. Callers receive it as the time to wait. Default: 1 min.
	ReconcileAfter time.Duration

	// Predecessor asks another system that did the work of these keys before this
	// guard, and may still do it, such as the one that package dynamostore/powertools
	// knows. The guard calls it after it has claimed a key and before the handler
	// runs. It must keep the other system from beginning the work from then on,
	// because the handler may run next, and it returns what that system has done:
	//   - found is false: it has not begun. The handler runs.
	//   - found is true: its result, or a [Final] error. The guard stores it as if the
	//     handler had returned it, and replays it. A [json.RawMessage] is a result
	//     that is encoded already. Whether it decodes into the handler's type is not
	//     proved, as it is for [Execution.Commit].
	//   - an [*InProgressError] or a [*MismatchError]: the caller gets the error, and
	//     the claim is undone, so that the key is bound to no request.
	//   - an error of [Unknown]: it began and was interrupted. The record becomes
	//     unknown, whatever the Recovery.
	//   - any other error: the caller gets [*StoreError], and the claim is undone.
	//
	// It is called again for every later attempt of the key, and must then return the
	// same. It is not called again for a record that has stored its answer, even after
	// [Guard.Forget]. Its context ends when the handler's does, and it must return then.
	// It must be safe for concurrent use. Default: there is no such system.
	Predecessor func(ctx context.Context, key Key) (result any, found bool, err error)

	// AllowMissingKey runs a request without a key unguarded instead of refusing it
	// with InvalidKeyError. Default: false.
	AllowMissingKey bool

	// Disabled runs every request unguarded, for example in a test of the handler
	// alone. Default: false.
	Disabled bool

	// Codec encodes and decodes results. Default: JSON.
	Codec Codec

	// Seal encrypts the results, Final errors and results of steps that are stored,
	// and decrypts them for a replay. Unencrypted in the store are the record id,
	// times, step names, references (see [Execution.SetRef]) and request ids, which
	// operators need. Results that were stored without Seal remain readable. A guard
	// without Seal does not replay a sealed result, and accepts no result as evidence
	// about a record whose operation has it. If sealing fails, the outcome is stored
	// without its result. Default: results are stored as encoded.
	Seal Sealer

	// ResultVersion names the shape of the result. It is stored with every result,
	// and a result of another version is not replayed, because a renamed field would
	// decode as its zero value. Change it when the shape changes. It has at most 1,024
	// bytes of valid UTF-8. Default: the empty version.
	ResultVersion string

	// CacheEntries is how many completed records the guard holds in memory, so that
	// repeated retries need no store call. A cached record is checked like one from
	// the store. The cache belongs to the guard: Wrap, Do, DoOutcome and Lookup refuse
	// an option that changes it. Default: no cache.
	CacheEntries int

	// CacheBytes limits the size of the results in the cache. Default: 16 MiB.
	CacheBytes int

	// CacheAge is how long a record stays in the cache. Default: 1 min.
	CacheAge time.Duration

	// Observer receives every event. If it has a method Reconciled(context.Context,
	// Report), as the observers of package telemetry have, it also receives the report of
	// each run of [Reconciler] and [ReconcileDue]; so does each part of
	// [event.Observers]. Default: none.
	Observer event.Observer

	// Logger receives warnings for developers, each logged once, and errors that are
	// not reported elsewhere: without an Observer, each failure of the store too.
	// Default: slog.Default at the time of the call.
	Logger *slog.Logger

	// RequestID returns an identifier of the request for events and records, for
	// people to read; at most 1,024 bytes of it are stored. A panic of it is logged.
	// Default: no identifier.
	RequestID func(context.Context) string

	// TraceParent returns the W3C trace parent of the request, such as
	// otelonce.TraceParent. It is stored in the record, which becomes 60 bytes larger,
	// and is in the events about it, so that a replay can be linked to the request
	// that ran. Text of another format than version 00 is not stored. A panic of it is
	// logged. Default: not stored.
	TraceParent func(context.Context) string

	// Now returns the current time. It must use the same clock as the context's
	// deadline, and the clocks of all machines must agree to within LeaseMargin.
	// Default: time.Now.
	Now func() time.Time
}

// now returns the current time as records store it.
func (o *Options) now() time.Time { return storedTime(o.Now()) }

// storedTime returns t as records store it: UTC, in whole milliseconds.
func storedTime(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

func (o *Options) logger() *slog.Logger {
	if o.Logger != nil {
		return o.Logger
	}
	return slog.Default()
}

// observe reports an event about the record id to the observer, or logs the failure of a
// store if there is no observer. r is that record, if it was read; id may be empty.
func (o *Options) observe(ctx context.Context, kind event.Kind, id RecordID, r *driver.Record, err error) {
	switch {
	case o.Observer != nil:
		o.emit(ctx, o.event(ctx, kind, id, r, err))
	case kind == event.StoreError, kind == event.CompletionFailed: // the caller gets only a 503
		event.LogObserver(o.Logger).Observe(ctx, o.event(ctx, kind, id, r, err))
	}
}

func (o *Options) event(ctx context.Context, kind event.Kind, id RecordID, r *driver.Record, err error) event.Event {
	e := event.Event{Kind: kind, Time: o.now(), Operation: id.Operation(), KeyHash: id.KeyHash(), Recovery: o.Recovery, Err: bare(err)}
	if r != nil {
		e.Attempt, e.Recovery, e.Reason, e.TraceParent = r.Attempt, r.Recovery, r.Reason, r.TraceParent
	}
	e.RequestID = o.requestID(ctx)
	return e
}

const (
	// maxRequestID is how much of a request id is stored, in bytes.
	maxRequestID = 1024
	// maxRef is the maximum length of a resource reference, in bytes.
	maxRef = 1024
)

func (o *Options) requestID(ctx context.Context) string {
	return cut(o.textOf(ctx, "Options.RequestID", o.RequestID), maxRequestID)
}

// textOf calls f, which returns text for people; nil returns none.
func (o *Options) textOf(ctx context.Context, name string, f func(context.Context) string) (text string) {
	if f != nil {
		logs.Shield(ctx, o.logger(), "idempotent: "+name, func() { text = f(ctx) })
	}
	return text
}

// cut returns the first bytes of text, at most limit, as valid UTF-8.
func cut(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	return strings.ToValidUTF8(text[:min(len(text), limit)], "") // without a part of a character
}

// traceParent returns the request's trace parent, or nothing if there is no valid
// one (W3C Trace Context, section 3.2).
func (o *Options) traceParent(ctx context.Context) string {
	text := o.textOf(ctx, "Options.TraceParent", o.TraceParent)
	if len(text) != len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01") || !strings.HasPrefix(text, "00-") ||
		strings.Trim(text, "0123456789abcdef-") != "" {
		return ""
	}
	return text
}

// emit passes e to the observer.
func (o *Options) emit(ctx context.Context, e event.Event) {
	if o.Observer != nil {
		logs.Shield(ctx, o.logger(), "idempotent: the observer", func() { o.Observer.Observe(ctx, e) },
			slog.String("event", string(e.Kind)), slog.String("operation", e.Operation))
	}
}

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
