// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// This file is the only place that decides about a record, by its own judgements (see
// driver.Record). Its functions are pure: they take a record and a time and return a
// verdict. A verdict alone never permits execution; this attempt's own write has to
// succeed first.

// verdict is the decision about a request whose key has an existing record.
type verdict uint8

const (
	verdictReplay       verdict = iota + 1 // return the stored outcome
	verdictInProgress                      // refuse; the owner may be running
	verdictMismatch                        // refuse; the key belongs to a different request
	verdictIncomparable                    // refuse; the fingerprint has another version
	verdictReinsert                        // the record counts as absent: insert again
	verdictTakeOver                        // become the owner, if the write succeeds
	verdictMarkUnknown                     // write that the outcome is unknown, then refuse
	verdictUnresolved                      // refuse; the outcome is unknown
	verdictUnreadable                      // refuse; the state is unknown to this version
)

// decide returns the verdict for a request with fingerprint fp that found record
// r at now, the time of its insert. The fingerprint is compared before the state:
// a mismatch is reported even while the first request is running.
func decide(r *driver.Record, fp Fingerprint, now time.Time) verdict {
	switch {
	case r.Expired(now):
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
		case !r.LeaseEnded(now):
			return verdictInProgress
		case r.RunsAgain():
			return verdictTakeOver
		default:
			return verdictMarkUnknown
		}
	default:
		return verdictUnreadable
	}
}

// lateVerdict is the decision about an owner whose outcome conflicts with another
// write.
type lateVerdict uint8

const (
	lateWrite      lateVerdict = iota + 1 // still owned by this attempt: write over the current version
	lateContradict                        // as lateWrite, but contradicts a resolution by another party
	lateAgreed                            // the record already holds the same state and steps
	lateStanding                          // completed by another party: that outcome is final
	lateLost                              // no longer owned by this attempt
)

// decideLate returns the verdict for the owner of an attempt that wants to settle
// its record as want and finds r instead. While the owner token is still its own,
// nothing else has executed since, so the owner's information is the best there
// is. It completes a record that others marked unknown or not executed. If it
// cannot know the outcome, it changes "not executed" back to unknown. A completed
// record is not changed.
func decideLate(r *driver.Record, owner driver.Owner, fp Fingerprint, want *driver.Record, now time.Time) lateVerdict {
	switch {
	case r.State == driver.StateCompleted && r.Fingerprint == fp && !r.Expired(now):
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

// claims is the kind of statement that evidence makes about a record.
type claims uint8

const (
	claimsOutcome     claims = iota + 1 // the work was done, and this is its outcome
	claimsNotExecuted                   // one attempt had no effect and can have none later
	claimsStep                          // one step was done, and this is its result
	claimsCorrection                    // as claimsStep, but replaces a recorded result
	claimsInstead                       // as claimsOutcome, but replaces a stored outcome
	claimsNoOutcome                     // a correction by what is not about the outcome: refused
)

// resolveVerdict is the decision about evidence for a record.
type resolveVerdict uint8

const (
	resolveWrite      resolveVerdict = iota + 1 // write what the evidence says
	resolveContradict                           // as resolveWrite, but contradicts "not executed"
	resolveCompare                              // already completed: compare the outcomes
	resolveAgreed                               // the record already says so
	resolveSettled                              // completed: do not change it
	resolveTooEarly                             // the owner may be executing
	resolveStale                                // the evidence is about another attempt
	resolveGone                                 // past retention: counts as absent
)

// decideResolution returns the verdict for evidence about r; token identifies the
// attempt that a claimsNotExecuted is about. While the lease is live the handler
// may be running and will report its own outcome, so only a step can be recorded.
// Evidence that nothing happened applies to one attempt, never to a later one.
func decideResolution(r *driver.Record, what claims, token string, now time.Time) resolveVerdict {
	switch {
	case r.Expired(now):
		return resolveGone
	case what == claimsOutcome && r.State == driver.StateCompleted:
		return resolveCompare
	case r.State == driver.StateCompleted:
		return resolveSettled
	case what == claimsNotExecuted && r.Token() != token:
		return resolveStale
	case what == claimsStep:
		return resolveWrite
	case what == claimsOutcome && r.State == driver.StateRetryable && !r.Open():
		return resolveContradict
	case what == claimsNotExecuted && r.State == driver.StateRetryable && !r.Open():
		return resolveAgreed
	case !r.LeaseEnded(now) && (r.State == driver.StateInProgress || what == claimsNotExecuted):
		return resolveTooEarly
	default:
		return resolveWrite
	}
}

// correctVerdict is the decision about a correction of a stored outcome.
type correctVerdict uint8

const (
	correctWrite    correctVerdict = iota + 1 // replace the outcome
	correctAgreed                             // the record already says so
	correctNothing                            // there is no stored outcome
	correctTooEarly                           // the owner may be executing
	correctStale                              // the correction is about another attempt
	correctGone                               // past retention: counts as absent
)

// decideCorrection returns the verdict for a correction of the outcome that the attempt
// with this token left in r; same reports whether r holds the right one. A handler can run
// on after a transaction has stored its outcome, so the lease has to end first.
func decideCorrection(r *driver.Record, token string, same bool, now time.Time) correctVerdict {
	switch {
	case r.Expired(now):
		return correctGone
	case r.State != driver.StateCompleted:
		return correctNothing
	case same:
		return correctAgreed
	case r.Token() != token:
		return correctStale
	case !r.LeaseEnded(now):
		return correctTooEarly
	default:
		return correctWrite
	}
}

// stepVerdict is the decision about evidence for a step.
type stepVerdict uint8

const (
	stepWrite      stepVerdict = iota + 1 // record the result
	stepAgreed                            // the same result is already recorded
	stepSettled                           // another result is recorded: do not change it
	stepUndeclared                        // the operation did not declare a step with that name
)

// decideStep returns the verdict for evidence that the named step of r was done;
// same reports whether the step is recorded with the result of the evidence. The
// first recorded result stays, unless the evidence corrects it.
func decideStep(r *driver.Record, name string, same bool, what claims) stepVerdict {
	switch {
	case !declares(r.StepNames, name):
		return stepUndeclared
	case !finished(r.Steps, name):
		return stepWrite
	case same:
		return stepAgreed
	case what == claimsCorrection:
		return stepWrite
	default:
		return stepSettled
	}
}

// stateAfterStep returns the state of a record after evidence that its named step
// was done: r is the record before the evidence, and next is r with it. An unknown
// record becomes retryable if the evidence finishes a step that the record shows as
// begun, and if its recovery and its other steps then let the next request
// continue. Its lease need not have ended: a record becomes unknown only when its
// handler or its lease has ended. Any other evidence does not show what became of
// the effect that made the record unknown, so the state does not change.
func stateAfterStep(r, next *driver.Record, name string) driver.State {
	if s, begun := r.Step(name); r.State == driver.StateUnknown && begun && !s.Finished && next.RunsAgain() {
		return driver.StateRetryable
	}
	return r.State
}

// sweepVerdict is the decision of reconciliation about a record listed as due.
type sweepVerdict uint8

const (
	sweepStale       sweepVerdict = iota + 1 // no longer due: another writer was faster
	sweepMarkUnknown                         // no outcome was reported, and an effect may have happened
	sweepRelease                             // no outcome was reported, and it may run again
	sweepResolve                             // ask the resolver
)

// decideSweep returns the verdict for a record that was listed as due. The list
// is a hint: it may be older than the record.
func decideSweep(r *driver.Record, now time.Time) sweepVerdict {
	switch {
	case !r.DueBy(now) || r.Expired(now):
		return sweepStale
	case r.State == driver.StateUnknown || r.State == driver.StateRetryable:
		return sweepResolve
	case !r.Abandoned(now):
		return sweepStale
	default:
		return decideEnded(r)
	}
}

// decideEnded returns the verdict for a record in progress whose lease has ended.
func decideEnded(r *driver.Record) sweepVerdict {
	if r.RunsAgain() {
		return sweepRelease
	}
	return sweepMarkUnknown
}

// forgetVerdict is the decision about a request to discard a stored outcome.
type forgetVerdict uint8

const (
	forgetWrite    forgetVerdict = iota + 1 // discard it
	forgetAgreed                            // the next request runs anyway
	forgetNothing                           // no outcome is stored
	forgetTooEarly                          // the owner may be executing
	forgetStale                             // the outcome is another attempt's
	forgetGone                              // past retention: counts as absent
)

// decideForget returns the verdict for a request to discard the outcome that the
// attempt with this token left in r. A handler can run on after a transaction has
// stored its outcome, so the lease has to end first.
func decideForget(r *driver.Record, token string, now time.Time) forgetVerdict {
	switch {
	case r.Expired(now):
		return forgetGone
	case r.Token() != token:
		return forgetStale
	case r.State == driver.StateRetryable:
		return forgetAgreed
	case r.State != driver.StateUnknown && !r.LeaseEnded(now):
		return forgetTooEarly
	case r.State == driver.StateCompleted:
		return forgetWrite
	default:
		return forgetNothing
	}
}

// mayCheckpoint reports whether the owner of an attempt that wants to write a
// step, and finds r instead, may write it on r. Once another party has judged the
// record, the run must not write further steps; it may only report its outcome.
func mayCheckpoint(r *driver.Record, owner driver.Owner) bool {
	return r.State == driver.StateInProgress && r.Owner == owner
}
