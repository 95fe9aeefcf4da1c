package idempotent

import (
	"cmp"
	"slices"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// encodingCompressed is appended to an encoding whose bytes are gzipped.
const encodingCompressed = "+gzip"

// defaultRetention is what an absent Retention in a record stands for.
const defaultRetention = 24 * time.Hour

// declare stores in r what the operation promises for the run that begins. A
// default is stored as the zero value, so that a record stays small.
func (o *Options) declare(r *driver.Record) {
	r.Recovery = o.Recovery
	r.Retention = storedRetention(o.Retention)
	r.UnresolvedRetention = o.UnresolvedRetention
	r.Codec = o.Codec.Name()
	if r.Codec == jsonCodecName {
		r.Codec = ""
	}
	r.ResultVersion = o.ResultVersion
	r.StepNames = o.Steps
}

func storedRetention(d time.Duration) time.Duration {
	if d == defaultRetention {
		return 0
	}
	return d
}

func retentionOf(r *driver.Record) time.Duration { return cmp.Or(r.Retention, defaultRetention) }

func codecOf(r *driver.Record) string { return cmp.Or(r.Codec, jsonCodecName) }

// pastRetention reports whether the record counts as absent at now.
func pastRetention(r *driver.Record, now time.Time) bool {
	return !r.Expires.IsZero() && !now.Before(r.Expires)
}

// leaseEnded reports whether the owner's time is over at now.
func leaseEnded(r *driver.Record, now time.Time) bool { return !now.Before(r.LeaseEnd) }

// runsAgain reports whether a record whose owner failed, or never reported,
// may run again without evidence: its promise says so, and no step forbids it.
func runsAgain(r *driver.Record) bool {
	return r.Recovery != driver.Reconcile && !interrupted(r.Steps)
}

// open reports whether an effect may have happened whose step is not recorded
// as finished.
func open(r *driver.Record) bool {
	return !r.OpenSince.IsZero() || slices.ContainsFunc(r.Steps, func(s driver.StepRecord) bool { return !s.Finished })
}

// resumable reports whether a retryable record has effects behind it that a
// later run, or evidence, must continue.
func resumable(r *driver.Record) bool {
	return r.State == driver.StateRetryable && r.Recovery == driver.Resume && (len(r.Steps) > 0 || open(r))
}

// schedule sets when the record expires and when reconciliation is due, from
// its state and from what its operation declared. It is the only place that
// decides which records never expire: those whose effect may be unresolved,
// unless UnresolvedRetention bounds it.
func schedule(r *driver.Record, now time.Time, o *Options) {
	r.Expires, r.Due = time.Time{}, time.Time{}
	switch {
	case r.State == driver.StateInProgress && r.Recovery == driver.Rerun && runsAgain(r):
		r.Expires = r.LeaseEnd.Add(retentionOf(r))
	case r.State == driver.StateInProgress:
		r.Due = r.LeaseEnd
		r.Expires = unresolvedExpiry(r, r.LeaseEnd)
	case r.State == driver.StateUnknown, resumable(r):
		r.Due = now.Add(o.ReconcileAfter)
		r.Expires = unresolvedExpiry(r, now)
	default:
		r.Expires = now.Add(retentionOf(r))
	}
}

// unresolvedExpiry returns when a record that waits for evidence since then
// expires: never, unless the operation declared a bound.
func unresolvedExpiry(r *driver.Record, since time.Time) time.Time {
	if r.UnresolvedRetention == 0 {
		return time.Time{}
	}
	return since.Add(r.UnresolvedRetention)
}

// keepUntilLeaseEnd extends the expiry of r to the end of its lease. A writer
// calls it while the handler may still be at work: no retention, however short,
// lets a second request in beside it.
func keepUntilLeaseEnd(r *driver.Record) {
	if !r.Expires.IsZero() && r.Expires.Before(r.LeaseEnd) {
		r.Expires = r.LeaseEnd
	}
}

// transition returns r in another state, as a write at now makes it.
// Reconciliation begins anew with it.
func (o *Options) transition(r *driver.Record, state driver.State, reason driver.Reason, now time.Time) driver.Record {
	next := *r
	next.State, next.Reason = state, reason
	next.Settled = now
	next.ReconcileAttempts, next.Exhausted = 0, false
	if state == driver.StateCompleted {
		next.Steps, next.OpenSince = nil, time.Time{}
	}
	schedule(&next, now, o)
	return next
}
