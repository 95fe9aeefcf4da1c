package idempotent

import (
	"context"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// EventKind names a fact that an [Observer] is told.
type EventKind string

const (
	EventReserved           EventKind = "reserved"            // a new record was claimed
	EventTakenOver          EventKind = "taken_over"          // an existing record was claimed for another run
	EventExpiredReplaced    EventKind = "expired_replaced"    // a claim found that the record it met has expired
	EventReplayed           EventKind = "replayed"            // a stored outcome was returned
	EventReplayFailed       EventKind = "replay_failed"       // a stored outcome could not be returned
	EventInProgress         EventKind = "in_progress"         // refused: another request is running
	EventMismatch           EventKind = "mismatch"            // refused: the key belongs to another request
	EventUnresolved         EventKind = "unresolved"          // refused: the outcome is unknown
	EventMarkedUnknown      EventKind = "marked_unknown"      // a record became unknown
	EventCompleted          EventKind = "completed"           // an outcome was stored
	EventCompletionFailed   EventKind = "completion_failed"   // an outcome, or its result, could not be stored
	EventLateCompletion     EventKind = "late_completion"     // an owner past its lease stored its outcome after all
	EventContradicted       EventKind = "contradicted"        // evidence met a record that says otherwise
	EventLeaseLost          EventKind = "lease_lost"          // an owner found its record taken over
	EventRetryable          EventKind = "retryable"           // a record became free to run again
	EventKeyMissing         EventKind = "key_missing"         // a request without a key ran unguarded or was refused
	EventStoreError         EventKind = "store_error"         // the store failed
	EventResolved           EventKind = "resolved"            // evidence from outside settled a record, or one step of it
	EventStepDone           EventKind = "step_done"           // a step's result was recorded
	EventStepReplayed       EventKind = "step_replayed"       // a step gave its recorded result
	EventReconcileScheduled EventKind = "reconcile_scheduled" // a record is to be looked at again later
	EventReconcileFailed    EventKind = "reconcile_failed"    // a resolver failed
	EventReconcileExhausted EventKind = "reconcile_exhausted" // a record waits for a person now
	EventReleasedGivenUp    EventKind = "released_given_up"   // a record released under Resume was continued by nobody; its key still may
)

// Event is one fact. It carries no key, no payload and no result.
type Event struct {
	Kind      EventKind
	Time      time.Time
	Operation string
	KeyHash   string // first 12 characters of the key's hash; empty without a key
	RequestID string // from Options.RequestID
	Attempt   int    // of the record; 0 where none is known
	Recovery  Recovery
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
