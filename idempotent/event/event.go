// Package event is for code that watches guarded handlers: the facts that a guard
// reports, and the observers that receive them. Set idempotent.Options.Observer;
// package telemetry and its subpackages have observers for metrics, traces and
// audit logs.
package event

import (
	"context"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// EventKind names a fact that an [Observer] is told.
type Kind string

const (
	Reserved           Kind = "reserved"            // a new record was claimed
	TakenOver          Kind = "taken_over"          // an existing record was claimed for another run
	ExpiredReplaced    Kind = "expired_replaced"    // a claim found that the record it met has expired
	Replayed           Kind = "replayed"            // a stored outcome was returned
	ReplayFailed       Kind = "replay_failed"       // a stored outcome could not be returned
	InProgress         Kind = "in_progress"         // refused: another request is running
	Mismatch           Kind = "mismatch"            // refused: the key belongs to another request
	Unresolved         Kind = "unresolved"          // refused: the outcome is unknown
	MarkedUnknown      Kind = "marked_unknown"      // a record became unknown
	Completed          Kind = "completed"           // an outcome was stored
	CompletionFailed   Kind = "completion_failed"   // an outcome, or its result, could not be stored
	LateCompletion     Kind = "late_completion"     // an owner past its lease stored its outcome after all
	Contradicted       Kind = "contradicted"        // evidence met a record that says otherwise
	LeaseLost          Kind = "lease_lost"          // an owner found its record taken over
	Retryable          Kind = "retryable"           // a record became free to run again
	KeyMissing         Kind = "key_missing"         // a request without a key ran unguarded or was refused
	StoreError         Kind = "store_error"         // the store failed
	Resolved           Kind = "resolved"            // evidence from outside settled a record, or one step of it
	StepDone           Kind = "step_done"           // a step's result was recorded
	StepReplayed       Kind = "step_replayed"       // a step gave its recorded result
	ReconcileScheduled Kind = "reconcile_scheduled" // a record is to be looked at again later
	ReconcileFailed    Kind = "reconcile_failed"    // a resolver failed
	ReconcileExhausted Kind = "reconcile_exhausted" // a record waits for a person now
	ReleasedGivenUp    Kind = "released_given_up"   // a record released under Resume was continued by nobody; its key still may
)

// Event is one fact. It carries no key, no payload and no result.
type Event struct {
	Kind      Kind
	Time      time.Time
	Operation string
	KeyHash   string // first 12 characters of the key's hash; empty without a key
	RequestID string // from Options.RequestID
	Attempt   int    // of the record; 0 where none is known
	Recovery  driver.Recovery
	Reason    driver.Reason // of the transition, where there was one
	Step      string        // name of the step, where it is about one
	// Err is what went wrong. It may be the handler's own error, whose text this
	// package does not know to be free of secrets.
	Err error
}

// Observer is told every fact, in the order in which one request meets them.
// Observe is called on the request's own goroutine and by many requests at
// once: it must be quick and safe for concurrent use. A panic in it is caught
// and logged; it cannot change an outcome.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// ObserverFunc is a function that observes.
type ObserverFunc func(ctx context.Context, e Event)

// Observe calls f.
func (f ObserverFunc) Observe(ctx context.Context, e Event) { f(ctx, e) }
