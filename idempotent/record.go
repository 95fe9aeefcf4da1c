// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// declare stores in r the options that the operation declares for the run that
// begins. A default is stored as the zero value to keep the record small.
func (o *Options) declare(r *driver.Record) {
	r.Recovery = o.Recovery
	r.Retention = storedRetention(o.Retention)
	r.UnresolvedRetention = o.UnresolvedRetention
	r.Codec = storedCodec(o.Codec.Name(), o.Seal != nil)
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

// storedCodec returns the declared codec of an operation as a record stores it.
func storedCodec(name string, seals bool) string {
	switch {
	case seals:
		return name + driver.EncodingSealed
	case name == jsonCodecName:
		return ""
	}
	return name
}

// codecOf returns the name of the codec that the operation of r declared, and
// whether it seals results.
func codecOf(r *driver.Record) (name string, seals bool) {
	name, seals = strings.CutSuffix(r.Codec, driver.EncodingSealed)
	return cmp.Or(name, jsonCodecName), seals
}

// pastRetention reports whether the record has expired at now and counts as
// absent.
func pastRetention(r *driver.Record, now time.Time) bool {
	return !r.Expires.IsZero() && !now.Before(r.Expires)
}

// leaseEnded reports whether the owner's lease has ended at now.
func leaseEnded(r *driver.Record, now time.Time) bool { return !now.Before(r.LeaseEnd) }

// inProgress returns the error for a caller that must wait for the owner of r. The
// longer a handler has been running, the longer the caller waits, so that a short
// run is not answered with the whole lease. If the outcome is already settled,
// only the end of the lease counts.
func inProgress(r *driver.Record, now time.Time) *InProgressError {
	wait := max(0, r.LeaseEnd.Sub(now))
	if r.State == driver.StateInProgress {
		began := r.Since // of a takeover
		if began.IsZero() {
			began = r.Created
		}
		wait = min(wait, max(time.Second, now.Sub(began)))
	}
	return &InProgressError{RecordID: r.ID, RetryAfter: wait, Until: r.LeaseEnd, Ref: r.Ref, settled: r.State != driver.StateInProgress}
}

// runsAgain reports whether a record whose owner failed, or never reported an
// outcome, may run again without evidence: its recovery allows it, and no
// interrupted AtMostOnce step prevents it.
func runsAgain(r *driver.Record) bool {
	return r.Recovery != driver.Reconcile && !interrupted(r.Steps)
}

// open reports whether an effect may have happened whose step is not recorded as
// finished.
func open(r *driver.Record) bool {
	return !r.OpenSince.IsZero() || slices.ContainsFunc(r.Steps, func(s driver.StepRecord) bool { return !s.Finished })
}

// resumable reports whether a retryable record may already have effects that a
// later run must continue or evidence must settle.
func resumable(r *driver.Record) bool {
	return r.State == driver.StateRetryable && r.Recovery == driver.Resume && (len(r.Steps) > 0 || open(r))
}

// schedule sets when the record expires and when reconciliation is due, from the
// record's state and its declared options. It is the only place that decides
// which records never expire: those whose effect may be unresolved, unless
// UnresolvedRetention sets a limit.
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

// unresolvedExpiry returns when a record that has waited for evidence since the
// given time expires: never, unless the operation declared a limit.
func unresolvedExpiry(r *driver.Record, since time.Time) time.Time {
	if r.UnresolvedRetention == 0 {
		return time.Time{}
	}
	return since.Add(r.UnresolvedRetention)
}

// keepUntilLeaseEnd extends the expiry of r to the end of its lease. A writer
// calls it if the handler may still be running: a short retention must not let a
// second request run at the same time.
func keepUntilLeaseEnd(r *driver.Record) {
	if !r.Expires.IsZero() && r.Expires.Before(r.LeaseEnd) {
		r.Expires = r.LeaseEnd
	}
}

// transition returns r in another state, as written at now. It resets the
// reconciliation counters.
func (o *Options) transition(r *driver.Record, state driver.State, reason driver.Reason, now time.Time) driver.Record {
	next := *r
	next.State, next.Reason = state, reason
	next.Since = now
	next.ReconcileAttempts, next.Exhausted = 0, false
	if state == driver.StateCompleted {
		next.Steps, next.OpenSince = nil, time.Time{}
	}
	schedule(&next, now, o)
	return next
}

// declares reports whether an operation that declared steps allows a step with
// that name.
func declares(steps []string, name string) bool {
	if len(steps) == 0 {
		return true
	}
	for _, declared := range steps {
		if rest, found := strings.CutPrefix(name, declared); found && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

// checkRecorded returns an error if r contains a step that this code does not
// declare. Continuing could repeat that step's effect under another name.
func (o *Options) checkRecorded(r *driver.Record) error {
	for _, s := range r.Steps {
		if !declares(o.Steps, s.Name) {
			return &StepError{Step: s.Name, Problem: "recorded but not declared in Options.Steps; deploy code that declares it, or resolve the record"}
		}
	}
	return nil
}
