// SPDX-License-Identifier: Apache-2.0

// Package telemetry has the names of the metrics of package idempotent. Its
// observers are emf (CloudWatch's embedded metric format), otel (OpenTelemetry, a
// separate module) and audit (one line per settled operation).
//
// Every metric counts one kind of fact. Its only dimension is the operation,
// because each value of a dimension, such as a key or a tenant, would be a
// separate metric.
package telemetry

import (
	"time"

	"github.com/once-lambda/once/idempotent/event"
)

// The gauges, set after every reconciliation: the age in seconds of the oldest
// record whose outcome is unknown, and of the oldest record that was released
// under idempotent.Resume and waits for a request to continue it. A gauge is zero
// if there is no such record.
const (
	OldestUnresolved = "api.idempotency.unknown.oldest_age"
	OldestReleased   = "api.idempotency.released.oldest_age"
)

// Metric is the count of one kind of fact.
type Metric struct {
	Kind event.Kind
	Name string
}

// metrics has every kind of fact.
var metrics = [...]Metric{
	{event.Reserved, "api.idempotency.reserve.created.count"},
	{event.Replayed, "api.idempotency.reserve.replay.count"},
	{event.ReplayFailed, "api.idempotency.reserve.replay_failed.count"},
	{event.InProgress, "api.idempotency.reserve.in_progress.count"},
	{event.Mismatch, "api.idempotency.reserve.key_misuse.count"},
	{event.TakenOver, "api.idempotency.reserve.failed_retry.count"},
	{event.Unresolved, "api.idempotency.reserve.unknown.count"},
	{event.KeyMissing, "api.idempotency.reserve.key_missing.count"},
	{event.ExpiredReplaced, "api.idempotency.ttl_pruned.count"},
	{event.Completed, "api.idempotency.complete.count"},
	{event.CompletionFailed, "api.idempotency.complete.failed.count"},
	{event.LateCompletion, "api.idempotency.complete.late.count"},
	{event.Contradicted, "api.idempotency.complete.contradicted.count"},
	{event.LeaseLost, "api.idempotency.complete.lease_lost.count"},
	{event.Retryable, "api.idempotency.retryable.count"},
	{event.MarkedUnknown, "api.idempotency.zombie_key.count"},
	{event.StepDone, "api.idempotency.step.done.count"},
	{event.StepReplayed, "api.idempotency.step.replay.count"},
	{event.StoreError, "api.idempotency.store.error.count"},
	{event.ReconcileScheduled, "api.idempotency.reconcile.scheduled.count"},
	{event.Resolved, "api.idempotency.reconcile.resolved.count"},
	{event.ReconcileFailed, "api.idempotency.reconcile.failed.count"},
	{event.ReconcileExhausted, "api.idempotency.reconcile.exhausted.count"},
	{event.ReleasedGivenUp, "api.idempotency.released.given_up.count"},
}

// Metrics returns every kind of fact with its metric, in a fixed order.
func Metrics() []Metric { return append([]Metric{}, metrics[:]...) }

// Index returns the index of a kind of fact in [Metrics], or -1 for a kind that
// this version does not know.
func Index(kind event.Kind) int {
	for i := range metrics {
		if metrics[i].Kind == kind {
			return i
		}
	}
	return -1
}

// Age returns the value of a gauge for a record with that creation time: its age
// at now, or 0 if there is no such record.
func Age(created, now time.Time) time.Duration {
	if created.IsZero() {
		return 0
	}
	return max(now.Sub(created), 0)
}
