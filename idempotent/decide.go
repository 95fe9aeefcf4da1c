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
	lateAgreed                            // the record says what we would have written, steps included
	lateStanding                          // completed by somebody: their outcome is the outcome
	lateLost                              // not ours any more
)

// decideLate answers the owner of an attempt that wants to settle its record as
// want says and finds r instead. While the owner token is still its own, the
// owner is the best witness there is: nothing else has executed since. It
// completes what others hold for unknown or not executed, and where it cannot
// know the outcome it withdraws a "not executed" to unknown. What is completed
// stays.
func decideLate(r *driver.Record, owner driver.Owner, fp Fingerprint, want *driver.Record, now time.Time) lateVerdict {
	switch {
	case r.State == driver.StateCompleted && r.Fingerprint == fp && !pastRetention(r, now):
		return lateStanding
	case r.State == driver.StateCompleted || r.Owner != owner:
		return lateLost
	case r.State == want.State && r.Ref == want.Ref && sameSteps(r.Steps, want.Steps):
		return lateAgreed
	case r.State == driver.StateRetryable && want.State != driver.StateRetryable:
		return lateContradict
	default:
		return lateWrite
	}
}

// claims is what a piece of evidence says about a record.
type claims uint8

const (
	claimsOutcome     claims = iota + 1 // the work was done, and this is its outcome
	claimsNotExecuted                   // one attempt had no effect, and will have none
	claimsStep                          // one step was done, and this is its result
	claimsCorrection                    // as claimsStep, against a result that is recorded
)

// resolveVerdict is the answer to evidence about a record.
type resolveVerdict uint8

const (
	resolveWrite      resolveVerdict = iota + 1 // write what the evidence says
	resolveContradict                           // as resolveWrite, against a "not executed"
	resolveCompare                              // completed already: is it the same outcome?
	resolveAgreed                               // the record says so already
	resolveSettled                              // completed: it stays
	resolveTooEarly                             // the owner may be executing
	resolveStale                                // the evidence is about another attempt
	resolveGone                                 // past retention: counts as absent
)

// decideResolution answers evidence that meets r; token names the attempt that a
// claimsNotExecuted is about. While the lease is live the handler may be at work:
// its outcome is its own to report, and only a step can be recorded. That nothing
// happened is said of one attempt and never of a later one.
func decideResolution(r *driver.Record, what claims, token string, now time.Time) resolveVerdict {
	switch {
	case pastRetention(r, now):
		return resolveGone
	case what == claimsOutcome && r.State == driver.StateCompleted:
		return resolveCompare
	case r.State == driver.StateCompleted:
		return resolveSettled
	case what == claimsNotExecuted && r.Token() != token:
		return resolveStale
	case what == claimsStep:
		return resolveWrite
	case what == claimsOutcome && r.State == driver.StateRetryable && !open(r):
		return resolveContradict
	case what == claimsNotExecuted && r.State == driver.StateRetryable && !open(r):
		return resolveAgreed
	case !leaseEnded(r, now) && (r.State == driver.StateInProgress || what == claimsNotExecuted):
		return resolveTooEarly
	default:
		return resolveWrite
	}
}

// stepVerdict is the answer to evidence about a step.
type stepVerdict uint8

const (
	stepWrite      stepVerdict = iota + 1 // record the result
	stepAgreed                            // it is recorded
	stepSettled                           // another result is recorded: it stays
	stepUndeclared                        // the operation declared no step of that name
)

// decideStep answers evidence that the step s.Name of r was done with the result
// in s. The first recorded result stays, unless the evidence corrects it.
func decideStep(r *driver.Record, s *driver.StepRecord, what claims) stepVerdict {
	recorded, _ := r.Step(s.Name)
	switch {
	case !declares(r.StepNames, s.Name):
		return stepUndeclared
	case !recorded.Finished:
		return stepWrite
	case resultEquals(recorded.Encoding, recorded.Result, s.Encoding, s.Result):
		return stepAgreed
	case what == claimsCorrection:
		return stepWrite
	default:
		return stepSettled
	}
}

// stateAfterStep returns the state of r once evidence has recorded a step of it
// at now: retryable, if its promise lets the next request continue, the owner's
// time is over, and no other step waits for evidence. Otherwise the state stays.
func stateAfterStep(r *driver.Record, now time.Time) driver.State {
	if leaseEnded(r, now) && runsAgain(r) {
		return driver.StateRetryable
	}
	return r.State
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
