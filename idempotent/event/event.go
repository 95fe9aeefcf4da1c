// SPDX-License-Identifier: Apache-2.0

// Package event defines the events that a guard reports and the observers that
// receive them. Set idempotent.Options.Observer to receive events; package
// telemetry and its subpackages have observers for metrics, traces and audit
// logs.
package event

import (
	"context"
	"log/slog"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/logs"
)

// Kind names what an [Event] reports.
type Kind string

const (
	Reserved           Kind = "reserved"            // a new record was claimed
	TakenOver          Kind = "taken_over"          // an existing record was claimed for another attempt
	ExpiredReplaced    Kind = "expired_replaced"    // a claim found an expired record
	Replayed           Kind = "replayed"            // a stored outcome was returned
	ReplayFailed       Kind = "replay_failed"       // a stored outcome could not be returned
	InProgress         Kind = "in_progress"         // refused: another request is running
	Mismatch           Kind = "mismatch"            // refused: the key belongs to a different request
	Unresolved         Kind = "unresolved"          // refused: the outcome is unknown
	MarkedUnknown      Kind = "marked_unknown"      // a record became unknown
	Completed          Kind = "completed"           // an outcome was stored
	CompletionFailed   Kind = "completion_failed"   // an outcome, or its result, could not be stored
	LateCompletion     Kind = "late_completion"     // an owner stored its outcome after its lease had ended
	Contradicted       Kind = "contradicted"        // evidence contradicts the record
	LeaseLost          Kind = "lease_lost"          // the owner's record belongs to another request, or is gone
	Retryable          Kind = "retryable"           // a record may run again
	KeyMissing         Kind = "key_missing"         // a request without a key ran unguarded or was refused
	StoreError         Kind = "store_error"         // a store call failed
	Resolved           Kind = "resolved"            // external evidence settled a record, or one of its steps
	Forgotten          Kind = "forgotten"           // a stored outcome was discarded; the key may run again
	StepDone           Kind = "step_done"           // a step's result was recorded
	StepReplayed       Kind = "step_replayed"       // a step returned its recorded result
	ReconcileScheduled Kind = "reconcile_scheduled" // a record will be reconciled again later
	ReconcileFailed    Kind = "reconcile_failed"    // a resolver failed
	ReconcileExhausted Kind = "reconcile_exhausted" // reconciliation gave up; an operator must act
	ReleasedGivenUp    Kind = "released_given_up"   // a record released under Resume was not continued; a request with its key still can
	NoOutcome          Kind = "no_outcome"          // a request with a key ended without a run and without a replay, except for a mismatch; once per request
	RequestEnded       Kind = "request_ended"       // a request with a key ended, with or without an error; the event has its durations
)

// What a guard in shadow mode would have done with a request: one event for each. Its
// Recovery is what the operation declares. See idempotent.Options.Shadow.
const (
	ShadowRun        Kind = "shadow_run"         // in shadow mode: the guard would have run the handler, because the key is new
	ShadowTakenOver  Kind = "shadow_taken_over"  // in shadow mode: it would have run the handler again, because an earlier run failed
	ShadowKilled     Kind = "shadow_killed"      // in shadow mode: it would have run the handler again or refused, as the recovery says, because an earlier run was killed
	ShadowReplayed   Kind = "shadow_replayed"    // in shadow mode: it would have replayed an outcome, and the handler had the same one again
	ShadowDiffers    Kind = "shadow_differs"     // in shadow mode: it would have replayed an outcome, and the handler had another one
	ShadowUncompared Kind = "shadow_uncompared"  // in shadow mode: it would have replayed an outcome, or refused to; the results cannot be compared
	ShadowInProgress Kind = "shadow_in_progress" // in shadow mode: it would have refused, because another request with the key was running
	ShadowMismatch   Kind = "shadow_mismatch"    // in shadow mode: it would have refused, because the key belongs to a different request
	ShadowUnresolved Kind = "shadow_unresolved"  // in shadow mode: it would have refused, because the outcome of an earlier run is unknown
	ShadowNoKey      Kind = "shadow_no_key"      // in shadow mode: it would have refused, or run the handler unguarded, because the key is missing or invalid
	ShadowFailed     Kind = "shadow_failed"      // in shadow mode: what it would have done is not known, or was not recorded, because the store or the codec failed
)

// Event is one fact about a request or a record. It contains no key, no payload
// and no result.
type Event struct {
	Kind      Kind
	Time      time.Time
	Operation string
	KeyHash   string // first 12 characters of the key's hash; empty without a key
	RequestID string // from idempotent.Options.RequestID
	Attempt   int    // of the record; 0 if not known
	Recovery  driver.Recovery
	Reason    driver.Reason // of the transition, if any
	Step      string        // name of the step, if the event is about one
	// Actor and Note are set in a Forgotten event, and in a Resolved event of a stored
	// outcome that was corrected: who did that, and why, as they stated it.
	Actor, Note string
	// TraceParent is the W3C trace parent that the record stores, of the request that
	// ran or runs: see idempotent.Options.TraceParent.
	TraceParent string
	// Durations is only set in a RequestEnded event.
	Durations Durations
	// Err is the error, if any. It may be the handler's own error, whose text may
	// contain secrets.
	Err error
}

// Durations are how long the phases of a request took. A duration is zero if the
// request had no such phase.
type Durations struct {
	Claim   time.Duration // until the key was claimed, its outcome replayed, or the request refused
	Handler time.Duration // until the handler returned
	Settle  time.Duration // until its outcome was stored; zero if a Commit stored it before
}

// Observer receives every event, in the order in which they occur within one
// request. Observe is called on the request's own goroutine and concurrently for
// different requests: it must be fast and safe for concurrent use. A panic in it
// is recovered and logged; it cannot change an outcome.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// ObserverFunc is a function that implements [Observer].
type ObserverFunc func(ctx context.Context, e Event)

// Observe calls f.
func (f ObserverFunc) Observe(ctx context.Context, e Event) { f(ctx, e) }

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
