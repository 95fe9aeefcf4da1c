package idempotenttest

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// move checks that next may replace old within one life of a record. It
// implements the table of states in the design for writes: which state may
// follow which, written by which owner, and after which event.
func (h *history) move(old *driver.Record, next *write) error {
	r := &next.record
	illegal := func(rule, why string) error {
		return fmt.Errorf("%s: a record that was %s (%s) became %s (%s): %s", rule, old.State, old.Reason, r.State, r.Reason, why)
	}
	if r.ID != old.ID || r.Fingerprint != old.Fingerprint || !r.Created.Equal(old.Created) {
		return illegal("INV-5", "it belongs to another request")
	}
	if old.State == driver.StateCompleted {
		return illegal("INV-4", "completed is final")
	}
	if r.State != driver.StateCompleted {
		if lost := lostStep(old.Steps, r.Steps); lost != "" {
			return illegal("INV-11", "its step "+lost+" is missing or changed")
		}
	}
	if r.State == driver.StateInProgress {
		switch {
		case old.State == driver.StateInProgress && r.Owner == old.Owner: // a step
			if r.Attempt != old.Attempt || !r.LeaseEnd.Equal(old.LeaseEnd) || h.ownerOf(old.Owner) == nil || h.ownerOf(old.Owner).by != next.by {
				return illegal("INV-5", "a step write is allowed to the owner only, and changes nothing else")
			}
			return nil
		case old.State == driver.StateUnknown:
			return illegal("INV-8", "a request does not change an unknown record")
		case old.State == driver.StateInProgress && (!runsAgain(old) || !ended(old, next.at)):
			return illegal("INV-1", "a takeover is not allowed")
		case r.Owner == old.Owner || r.Attempt != old.Attempt+1:
			return illegal("INV-5", "another attempt needs another owner")
		}
		return nil
	}
	if r.Owner != old.Owner || r.Attempt != old.Attempt {
		return illegal("INV-5", "only a claim changes the owner")
	}
	switch r.Reason {
	case driver.ReasonResolved:
		if r.State == driver.StateUnknown || r.State == driver.StateRetryable && !ended(old, next.at) {
			return illegal("INV-2", "evidence is not allowed yet")
		}
		return nil
	case driver.ReasonLeaseEnded:
		if r.State != driver.StateUnknown || old.State != driver.StateInProgress || !ended(old, next.at) {
			return illegal("INV-9", "the lease has not ended")
		}
		return nil
	default: // the owner reports
	}
	owner := h.ownerOf(old.Owner)
	if owner == nil || owner.by != next.by {
		return illegal("INV-5", "only the owner may write this")
	}
	if !owner.reports(r) {
		return illegal("INV-2", "the handler ended differently")
	}
	return nil
}

// reports reports whether the ending of a run may be stored as the given
// record.
func (r *run) reports(as *driver.Record) bool {
	if !r.entered {
		return as.State == driver.StateRetryable && (as.Reason == driver.ReasonReleased || as.Reason == driver.ReasonNoTime)
	}
	if as.Reason == driver.ReasonCommitted {
		return as.State == driver.StateCompleted // by a transaction of the handler
	}
	if !r.left {
		return false
	}
	// A panic proves nothing, and is not a business outcome.
	notExecuted := idempotent.IsNotExecuted(r.end.err) && !r.end.panicked
	unknown := idempotent.IsUnknown(r.end.err)
	_, final := idempotent.AsFinal(r.end.err)
	final = final && !r.end.panicked
	switch as.State {
	case driver.StateCompleted:
		return r.end.err == nil || final
	case driver.StateRetryable:
		return notExecuted || r.end.err != nil && !unknown && !final && runsAgain(as)
	case driver.StateUnknown:
		return r.end.err != nil && (!notExecuted || len(as.Steps) > 0) && !final
	case driver.StateInProgress: // no ending
	}
	return false
}

// runsAgain reports whether a request may take r over once its lease has ended.
func runsAgain(r *driver.Record) bool {
	for _, s := range r.Steps {
		if !s.Finished && s.Mode == driver.AtMostOnce {
			return false
		}
	}
	return r.Recovery == idempotent.Rerun || r.Recovery == idempotent.Resume
}

// lostStep returns the name of a finished step that is missing or changed.
func lostStep(old, next []driver.StepRecord) string {
	for _, s := range old {
		if s.Finished && !slices.ContainsFunc(next, func(n driver.StepRecord) bool {
			return n.Name == s.Name && n.Finished && bytes.Equal(n.Result, s.Result)
		}) {
			return s.Name
		}
	}
	return ""
}

// ended reports whether the lease of r has ended at now.
func ended(r *driver.Record, now time.Time) bool { return !now.Before(r.LeaseEnd) }
