// SPDX-License-Identifier: Apache-2.0

package event

import (
	"context"
	"log/slog"
	"time"

	"github.com/once-lambda/once/internal/logs"
)

// LogObserver returns an [Observer] that logs every event: as a warning or an
// error if it may need an operator's attention, at info level if it is of shadow mode,
// otherwise at debug level. For an
// error it logs the type, and the text if the error implements slog.LogValuer, as
// errors of this toolkit do: the text of another may contain secrets. If l is nil,
// it logs to slog.Default.
//
// The event's context is passed to the handler of l, so that lambdacontext's
// NewLogHandler adds the id of the invocation to each line.
func LogObserver(l *slog.Logger) Observer {
	return ObserverFunc(func(ctx context.Context, e Event) {
		logger := l
		if logger == nil {
			logger = slog.Default()
		}
		level := levelOf(e.Kind)
		if !logger.Enabled(ctx, level) {
			return
		}
		attrs := []slog.Attr{slog.String("event", string(e.Kind)), slog.String("operation", e.Operation)}
		for _, a := range []struct{ name, value string }{
			{"key_hash", e.KeyHash}, {"request_id", e.RequestID}, {"reason", string(e.Reason)}, {"step", e.Step},
		} {
			if a.value != "" {
				attrs = append(attrs, slog.String(a.name, a.value))
			}
		}
		if e.Attempt > 0 {
			attrs = append(attrs, slog.Int("attempt", e.Attempt), slog.String("recovery", e.Recovery.String()))
		}
		if e.Err != nil {
			attrs = append(attrs, logs.OfError(e.Err)...)
		}
		for _, phase := range [...]struct {
			name string
			took time.Duration
		}{{"claim_duration", e.Durations.Claim}, {"handler_duration", e.Durations.Handler}, {"settle_duration", e.Durations.Settle}} {
			if phase.took > 0 {
				attrs = append(attrs, slog.Float64(phase.name, phase.took.Seconds()))
			}
		}
		logger.LogAttrs(ctx, level, "once: "+string(e.Kind), attrs...)
	})
}

// Observers returns an [Observer] that passes every event to each of the given
// observers in order. Nil observers are skipped.
func Observers(all ...Observer) Observer {
	var list []Observer
	for _, o := range all {
		if o != nil {
			list = append(list, o)
		}
	}
	return observers(list)
}

type observers []Observer

// Observe passes e to each observer.
func (all observers) Observe(ctx context.Context, e Event) {
	for _, o := range all {
		o.Observe(ctx, e)
	}
}

// Unwrap returns the observers, for optional methods that they have.
func (all observers) Unwrap() []Observer { return all }

// levelOf returns the log level of an event kind.
func levelOf(kind Kind) slog.Level {
	switch kind {
	case StoreError, CompletionFailed, Contradicted, ReconcileExhausted:
		return slog.LevelError
	case Mismatch, MarkedUnknown, Unresolved, LateCompletion, LeaseLost, Forgotten,
		ReplayFailed, KeyMissing, ReconcileFailed:
		return slog.LevelWarn
	case Reserved, TakenOver, ExpiredReplaced, Replayed, InProgress, Completed, Retryable, Resolved,
		StepDone, StepReplayed, ReconcileScheduled, ReleasedGivenUp, NoOutcome, RequestEnded:
	case ShadowRun, ShadowTakenOver, ShadowKilled, ShadowReplayed, ShadowDiffers, ShadowUncompared, ShadowInProgress, ShadowMismatch,
		ShadowUnresolved, ShadowNoKey, ShadowFailed:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}
