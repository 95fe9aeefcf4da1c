// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/logs"
)

// Options configure a guard: see [New]. The zero value of each field selects its
// documented default.
type Options struct {
	// Operation is what the guard's operations have in common: the default of each, which
	// [Wrap], [Do], [DoOutcome], [Lookup] and the adapters can change for one of them.
	Operation

	// Disabled runs every request unguarded, for example in a test of the handler
	// alone. Default: false.
	Disabled bool

	// CacheEntries is how many completed records the guard holds in memory, so that
	// repeated retries need no store call. A cached record is checked like one from
	// the store. Default: no cache.
	CacheEntries int

	// CacheBytes limits the size of the results in the cache. Default: 16 MiB.
	CacheBytes int

	// CacheAge is how long a record stays in the cache. Default: 1 min.
	CacheAge time.Duration

	// Observer receives every event. If it has a method Reconciled(context.Context,
	// Report), as the observers of package telemetry have, it also receives the report of
	// each run of [Reconciler]; so does each part of
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

// with returns a copy of o with optFns and defaults applied, validated.
func (o Options) with(optFns []func(*Options)) (*Options, error) {
	for _, f := range optFns {
		f(&o)
	}
	o.setDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	return &o, nil
}

func (o *Options) setDefaults() {
	o.Operation.setDefaults()
	if o.CacheAge == 0 {
		o.CacheAge = time.Minute
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 16 << 20
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

func (o *Options) validate() error {
	if o.CacheAge < time.Millisecond {
		return tooShort("Options.CacheAge", o.CacheAge, time.Millisecond)
	}
	if o.CacheEntries < 0 || o.CacheBytes < 0 {
		return errors.New("idempotent: Options.CacheEntries and CacheBytes must not be negative")
	}
	return o.Operation.validate()
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
