package idempotent

import (
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// This file is the only place where a record's state is judged. Its functions
// are pure: they read a record and a time and say what follows. Nobody
// executes on their word alone; a write of our own has to succeed first.

// verdict is the answer to a request that met an existing record.
type verdict uint8

const (
	verdictReplay       verdict = iota + 1 // return the stored outcome
	verdictInProgress                      // refuse; the owner may be running
	verdictMismatch                        // refuse; the key belongs to another request
	verdictIncomparable                    // refuse; the fingerprint's version is not ours
	verdictReinsert                        // the record counts as absent: insert again
	verdictTakeOver                        // become the owner, if the write succeeds
	verdictMarkUnknown                     // write that the outcome is unknown, then refuse
	verdictUnresolved                      // refuse; the outcome is unknown
	verdictUnreadable                      // refuse; the state is none of ours
)

// decide answers a request of fingerprint fp that met record r at now, the
// time its insert was tried with. The fingerprint comes before the state: a
// mismatch is one also while the first request is running.
func decide(r *driver.Record, fp Fingerprint, now time.Time) verdict {
	switch {
	case pastRetention(r, now):
		return verdictReinsert
	case r.Fingerprint.Version() != fp.Version():
		return verdictIncomparable
	case r.Fingerprint != fp:
		return verdictMismatch
	}
	switch r.State {
	case driver.StateCompleted:
		return verdictReplay
	case driver.StateRetryable:
		return verdictTakeOver
	case driver.StateUnknown:
		return verdictUnresolved
	case driver.StateInProgress:
		switch {
		case !leaseEnded(r, now):
			return verdictInProgress
		case runsAgain(r):
			return verdictTakeOver
		default:
			return verdictMarkUnknown
		}
	default:
		return verdictUnreadable
	}
}

// lateVerdict is the answer to an owner whose outcome met another write.
type lateVerdict uint8

const (
	lateWrite      lateVerdict = iota + 1 // still ours: write on the version that stands
	lateContradict                        // as lateWrite, against a resolution of somebody else
	lateAgreed                            // the record says what we would have written
	lateStanding                          // completed by somebody: their outcome is the outcome
	lateLost                              // not ours any more
)

// decideLate answers the owner of an attempt that wants to settle its record
// in state want and finds r instead. While the owner token is still its own,
// the owner is the best witness there is: nobody else has executed since. It
// completes what others hold for unknown or not executed, and where it cannot
// know the outcome it withdraws a "not executed" to unknown. What is completed
// stays.
func decideLate(r *driver.Record, owner driver.Owner, fp Fingerprint, want driver.State, now time.Time) lateVerdict {
	switch {
	case r.State == driver.StateCompleted && r.Fingerprint == fp && !pastRetention(r, now):
		return lateStanding
	case r.State == driver.StateCompleted || r.Owner != owner:
		return lateLost
	case r.State == want:
		return lateAgreed
	case r.State == driver.StateRetryable:
		return lateContradict
	default:
		return lateWrite
	}
}

// resolveVerdict is the answer to evidence about a record.
type resolveVerdict uint8

const (
	resolveWrite      resolveVerdict = iota + 1 // write what the evidence says
	resolveContradict                           // as resolveWrite, against a "not executed"
	resolveCompare                              // completed already: is it the same outcome?
	resolveAgreed                               // the record says so already
	resolveSettled                              // completed: it stays
	resolveTooEarly                             // "not executed" while the owner, or a later one, may be executing
	resolveGone                                 // past retention: counts as absent
)

// decideResolution answers evidence about the work of the owner about that
// wants to settle r in state want, completed or retryable. A success may be
// told of a running record too (a webhook is often faster than the handler).
// That nothing happened can only be known once the owner's lease has ended,
// and says nothing of another owner who has run since.
func decideResolution(r *driver.Record, about driver.Owner, want driver.State, now time.Time) resolveVerdict {
	switch {
	case pastRetention(r, now):
		return resolveGone
	case want == driver.StateCompleted && r.State == driver.StateCompleted:
		return resolveCompare
	case want == driver.StateCompleted && r.State == driver.StateRetryable:
		return resolveContradict
	case want == driver.StateCompleted:
		return resolveWrite
	case r.State == driver.StateCompleted:
		return resolveSettled
	case r.State == driver.StateRetryable:
		return resolveAgreed
	case !leaseEnded(r, now) || r.Owner != about:
		return resolveTooEarly
	default:
		return resolveWrite
	}
}

// sweepVerdict is what reconciliation makes of a record that was listed as due.
type sweepVerdict uint8

const (
	sweepStale       sweepVerdict = iota + 1 // not due any more: somebody was quicker
	sweepMarkUnknown                         // its owner never reported, and an effect may have happened
	sweepRelease                             // its owner never reported, and it may run again
	sweepResolve                             // ask what became of it
)

// decideSweep judges a record that was listed as due. The list is a hint: it
// may be older than the record.
func decideSweep(r *driver.Record, now time.Time) sweepVerdict {
	switch {
	case r.Due.IsZero() || r.Due.After(now) || r.Exhausted || pastRetention(r, now):
		return sweepStale
	case r.State == driver.StateUnknown || r.State == driver.StateRetryable:
		return sweepResolve
	case r.State != driver.StateInProgress || !leaseEnded(r, now):
		return sweepStale
	case runsAgain(r):
		return sweepRelease
	default:
		return sweepMarkUnknown
	}
}

// mayCheckpoint reports whether the owner of an attempt that wants to write a
// step, and finds r instead, may write it on r. Once somebody else has judged
// the record, work in it does not go on: only its outcome may still be told.
func mayCheckpoint(r *driver.Record, owner driver.Owner) bool {
	return r.State == driver.StateInProgress && r.Owner == owner
}
