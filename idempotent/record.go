// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// declare stores in r the options that the operation declares for the run that
// begins. A default is stored as the zero value to keep the record small.
func (o *Options) declare(r *driver.Record) {
	r.Recovery = o.Recovery
	r.DeclareRetention(o.Retention)
	r.UnresolvedRetention = o.UnresolvedRetention
	r.DeclareCodec(o.Codec.Name(), o.Seal != nil)
	r.ResultVersion = o.ResultVersion
	r.StepNames = o.Steps
}

// inProgress returns the error for a caller that must wait for the owner of r. The
// longer a handler has been running, the longer the caller waits, so that a short
// run is not answered with the whole lease. If the outcome is already settled,
// only the end of the lease counts.
func inProgress(r *driver.Record, now time.Time) *InProgressError {
	wait := max(0, r.LeaseEnd.Sub(now))
	if r.State == driver.StateInProgress {
		wait = min(wait, max(time.Second, now.Sub(r.StateSince())))
	}
	return &InProgressError{RecordID: r.ID, RetryAfter: wait, Until: r.LeaseEnd, Ref: r.Ref, settled: r.State != driver.StateInProgress}
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
	next.Schedule(now, o.ReconcileAfter)
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
