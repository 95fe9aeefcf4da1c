package idempotent

import (
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// encodingCompressed is appended to an encoding whose bytes are gzipped.
const encodingCompressed = "+gzip"

// pastRetention reports whether the record counts as absent at now.
func pastRetention(r *driver.Record, now time.Time) bool {
	return !r.Expires.IsZero() && !now.Before(r.Expires)
}

// leaseEnded reports whether the owner's time is over at now.
func leaseEnded(r *driver.Record, now time.Time) bool { return !now.Before(r.LeaseEnd) }

// runsAgain reports whether a record whose owner failed, or never reported,
// may run again without evidence: its promise says so, and no step forbids it.
func runsAgain(r *driver.Record) bool { return r.Recovery != Reconcile && !interrupted(r.Steps) }

// schedule sets when the record expires and when reconciliation is due, from
// its state. It is the one place that knows who never expires: what money may
// hang on, unless UnresolvedRetention bounds it. The lease end bounds every
// expiry, so that no retention, however short, can let a second request in
// beside a running one.
func schedule(r *driver.Record, now time.Time, o *Options) {
	r.Expires, r.Due = time.Time{}, time.Time{}
	switch {
	case r.State == driver.StateInProgress && r.Recovery == Rerun && runsAgain(r):
		r.Expires = r.LeaseEnd.Add(o.Retention)
	case r.State == driver.StateInProgress:
		r.Due = r.LeaseEnd
		r.Expires = o.unresolvedExpiry(r.LeaseEnd)
	case r.State == driver.StateUnknown, r.State == driver.StateRetryable && r.Recovery == Resume && len(r.Steps) > 0:
		r.Due = now.Add(o.ReconcileAfter)
		r.Expires = o.unresolvedExpiry(now)
	default:
		r.Expires = now.Add(o.Retention)
	}
	if !r.Expires.IsZero() && r.Expires.Before(r.LeaseEnd) {
		r.Expires = r.LeaseEnd
	}
}

// unresolvedExpiry returns when a record that waits for evidence since then
// expires: never, unless it was asked for.
func (o *Options) unresolvedExpiry(since time.Time) time.Time {
	if o.UnresolvedRetention == 0 {
		return time.Time{}
	}
	return since.Add(o.UnresolvedRetention)
}
