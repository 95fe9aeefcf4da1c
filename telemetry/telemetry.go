// SPDX-License-Identifier: Apache-2.0

// Package telemetry names the metrics of package idempotent. Its observers are
// emf (CloudWatch's embedded metric format), otelonce (OpenTelemetry, a separate
// module) and audit (one line per settled operation).
//
// One rule names everything: each kind of event is counted by the metric
// "once." + kind, and is on a span as an event with that name. The only dimension
// of a metric is the operation, because each value of a dimension, such as a key
// or a tenant, would be a separate metric.
package telemetry

import (
	"slices"
	"time"

	"github.com/once-lambda/once/idempotent/event"
)

// Prefix begins each name that is shared with other programs: of metrics, of
// events on spans, and of span attributes.
const Prefix = "once."

// The gauges are set after every reconciliation that has read the whole list of
// waiting records. If the list fails, they have no value. The ages are in seconds
// and zero if there is no such record. ScanAge has no value either if the store needs
// no scans, or they are off.
const (
	UnknownRecords    = Prefix + "unknown.records"     // records whose outcome is unknown
	UnknownOldestAge  = Prefix + "unknown.oldest_age"  // how long the oldest of them has been unknown
	ReleasedRecords   = Prefix + "released.records"    // records released under idempotent.Resume that wait for a request
	ReleasedOldestAge = Prefix + "released.oldest_age" // how long the oldest of them has waited
	ScanAge           = Prefix + "scan.age"            // since the end of the last scan for abandoned runs, or since the first one began
)

// The histograms, in seconds: how long the phases of requests took, from
// [event.Durations].
const (
	ClaimDuration   = Prefix + "claim.duration"
	HandlerDuration = Prefix + "handler.duration"
	SettleDuration  = Prefix + "settle.duration"
)

// Metric is the count of one kind of event.
type Metric struct {
	Kind event.Kind
	Name string // Prefix and the kind
}

var metrics = func() (all []Metric) {
	for _, kind := range []event.Kind{
		event.RequestEnded, event.NoOutcome, event.Reserved, event.TakenOver, event.ExpiredReplaced, event.Replayed, event.ReplayFailed,
		event.InProgress, event.Mismatch, event.Unresolved, event.KeyMissing, event.Completed, event.CompletionFailed,
		event.LateCompletion, event.Contradicted, event.LeaseLost, event.Retryable, event.MarkedUnknown, event.StepDone,
		event.StepReplayed, event.StoreError, event.ReconcileScheduled, event.Resolved, event.Forgotten, event.ReconcileFailed,
		event.ReconcileExhausted, event.ReleasedGivenUp,
		event.ShadowRun, event.ShadowTakenOver, event.ShadowKilled, event.ShadowReplayed, event.ShadowDiffers, event.ShadowUncompared,
		event.ShadowInProgress, event.ShadowMismatch, event.ShadowUnresolved, event.ShadowNoKey, event.ShadowFailed,
	} {
		all = append(all, Metric{kind, Prefix + string(kind)})
	}
	return all
}()

// Metrics returns every kind of event with its metric, in a fixed order.
func Metrics() []Metric { return slices.Clone(metrics) }

// Index returns the index of a kind of event in [Metrics], or -1 for a kind that
// this version does not know.
func Index(kind event.Kind) int {
	for i := range metrics {
		if metrics[i].Kind == kind {
			return i
		}
	}
	return -1
}

// Age returns how long a record has waited at now, or 0 if since is zero.
func Age(since, now time.Time) time.Duration {
	if since.IsZero() {
		return 0
	}
	return max(now.Sub(since), 0)
}
