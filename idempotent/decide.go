package idempotent

import "time"

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
func decide(r *Record, fp Fingerprint, now time.Time) verdict {
	switch {
	case r.pastRetention(now):
		return verdictReinsert
	case r.Fingerprint.Version() != fp.Version():
		return verdictIncomparable
	case r.Fingerprint != fp:
		return verdictMismatch
	}
	switch r.State {
	case StateCompleted:
		return verdictReplay
	case StateRetryable:
		return verdictTakeOver
	case StateUnknown:
		return verdictUnresolved
	case StateInProgress:
		switch {
		case !r.leaseEnded(now):
			return verdictInProgress
		case r.runsAgain():
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
func decideLate(r *Record, owner Owner, fp Fingerprint, want State, now time.Time) lateVerdict {
	switch {
	case r.State == StateCompleted && r.Fingerprint == fp && !r.pastRetention(now):
		return lateStanding
	case r.State == StateCompleted || r.Owner != owner:
		return lateLost
	case r.State == want:
		return lateAgreed
	case r.State == StateRetryable:
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
func decideResolution(r *Record, about Owner, want State, now time.Time) resolveVerdict {
	switch {
	case r.pastRetention(now):
		return resolveGone
	case want == StateCompleted && r.State == StateCompleted:
		return resolveCompare
	case want == StateCompleted && r.State == StateRetryable:
		return resolveContradict
	case want == StateCompleted:
		return resolveWrite
	case r.State == StateCompleted:
		return resolveSettled
	case r.State == StateRetryable:
		return resolveAgreed
	case !r.leaseEnded(now) || r.Owner != about:
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
func decideSweep(r *Record, now time.Time) sweepVerdict {
	switch {
	case r.Due.IsZero() || r.Due.After(now) || r.Exhausted || r.pastRetention(now):
		return sweepStale
	case r.State == StateUnknown || r.State == StateRetryable:
		return sweepResolve
	case r.State != StateInProgress || !r.leaseEnded(now):
		return sweepStale
	case r.runsAgain():
		return sweepRelease
	default:
		return sweepMarkUnknown
	}
}

// mayCheckpoint reports whether the owner of an attempt that wants to write a
// step, and finds r instead, may write it on r. Once somebody else has judged
// the record, work in it does not go on: only its outcome may still be told.
func mayCheckpoint(r *Record, owner Owner) bool {
	return r.State == StateInProgress && r.Owner == owner
}
