// Package telemetry names the metrics of package idempotent, for the observers
// below it: emf prints CloudWatch's embedded metric format, otel (a module of
// its own) goes through OpenTelemetry, audit writes a line per settled
// operation.
//
// Every metric is a count of one kind of fact. Its dimension is the operation
// and nothing else: a key or a tenant would make a metric of its own out of
// every value.
package telemetry

import (
	"time"

	"github.com/once-lambda/once/idempotent"
)

// The gauges, told after every reconciliation: the age in seconds of the oldest
// record whose outcome is unknown, and of the oldest that was released under
// idempotent.Resume and waits for a request to continue it. Each is zero if there
// is none.
const (
	OldestUnresolved = "api.idempotency.unknown.oldest_age"
	OldestReleased   = "api.idempotency.released.oldest_age"
)

// Metric is the count of one kind of fact.
type Metric struct {
	Kind idempotent.EventKind
	Name string
}

// metrics is every kind of fact there is.
var metrics = [...]Metric{
	{idempotent.EventReserved, "api.idempotency.reserve.created.count"},
	{idempotent.EventReplayed, "api.idempotency.reserve.replay.count"},
	{idempotent.EventReplayFailed, "api.idempotency.reserve.replay_failed.count"},
	{idempotent.EventInProgress, "api.idempotency.reserve.in_progress.count"},
	{idempotent.EventMismatch, "api.idempotency.reserve.key_misuse.count"},
	{idempotent.EventTakenOver, "api.idempotency.reserve.failed_retry.count"},
	{idempotent.EventUnresolved, "api.idempotency.reserve.unknown.count"},
	{idempotent.EventKeyMissing, "api.idempotency.reserve.key_missing.count"},
	{idempotent.EventExpiredReplaced, "api.idempotency.ttl_pruned.count"},
	{idempotent.EventCompleted, "api.idempotency.complete.count"},
	{idempotent.EventCompletionFailed, "api.idempotency.complete.failed.count"},
	{idempotent.EventLateCompletion, "api.idempotency.complete.late.count"},
	{idempotent.EventContradicted, "api.idempotency.complete.contradicted.count"},
	{idempotent.EventLeaseLost, "api.idempotency.complete.lease_lost.count"},
	{idempotent.EventRetryable, "api.idempotency.retryable.count"},
	{idempotent.EventMarkedUnknown, "api.idempotency.zombie_key.count"},
	{idempotent.EventStepDone, "api.idempotency.step.done.count"},
	{idempotent.EventStepReplayed, "api.idempotency.step.replay.count"},
	{idempotent.EventStoreError, "api.idempotency.store.error.count"},
	{idempotent.EventReconcileScheduled, "api.idempotency.reconcile.scheduled.count"},
	{idempotent.EventResolved, "api.idempotency.reconcile.resolved.count"},
	{idempotent.EventReconcileFailed, "api.idempotency.reconcile.failed.count"},
	{idempotent.EventReconcileExhausted, "api.idempotency.reconcile.exhausted.count"},
	{idempotent.EventReleasedGivenUp, "api.idempotency.released.given_up.count"},
}

// Metrics returns every kind of fact with its metric, in a fixed order.
func Metrics() []Metric { return append([]Metric{}, metrics[:]...) }

// Index returns the place of a kind of fact in [Metrics], or -1 for one that
// this version does not know.
func Index(kind idempotent.EventKind) int {
	for i := range metrics {
		if metrics[i].Kind == kind {
			return i
		}
	}
	return -1
}

// Age returns what a gauge tells of a record that was created then: its age at
// now, or 0 if there is no such record.
func Age(created, now time.Time) time.Duration {
	if created.IsZero() {
		return 0
	}
	return max(now.Sub(created), 0)
}
