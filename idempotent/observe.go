// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/logs"
)

// now returns the current time as records store it.
func (o *Options) now() time.Time { return storedTime(o.Now()) }

// storedTime returns t as records store it: UTC, in whole milliseconds.
func storedTime(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// observe reports an event about the record id to the observer. Without one, it logs the
// failure of a store, of which the caller gets only a 503, and a contradiction, of which the
// caller gets nothing. r is that record, if it was read; id may be empty.
func (o *Options) observe(ctx context.Context, kind event.Kind, id RecordID, r *driver.Record, err error) {
	switch {
	case o.Observer != nil:
		o.emit(ctx, o.event(ctx, kind, id, r, err))
	case kind == event.StoreError, kind == event.CompletionFailed, kind == event.Contradicted:
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

// emit passes e to the observer.
func (o *Options) emit(ctx context.Context, e event.Event) {
	if o.Observer != nil {
		logs.Shield(ctx, o.logger(), "idempotent: the observer", func() { o.Observer.Observe(ctx, e) },
			slog.String("event", string(e.Kind)), slog.String("operation", e.Operation))
	}
}

func (o *Options) logger() *slog.Logger {
	if o.Logger != nil {
		return o.Logger
	}
	return slog.Default()
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
