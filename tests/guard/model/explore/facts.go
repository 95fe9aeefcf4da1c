// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"iter"

	"github.com/once-lambda/once/idempotent/event"
)

// Facts are what a schedule has shown, one bit each. They prove that a search
// was not vacuous.
type facts uint64

var (
	factNames []string
	factOf    = map[event.Kind]facts{}
)

// fact returns another fact.
func fact(name string) facts {
	factNames = append(factNames, name)
	return 1 << (len(factNames) - 1)
}

// reported returns the fact that a guard reports an event.
func reported(kind event.Kind) facts {
	factOf[kind] = fact(string(kind))
	return factOf[kind]
}

var (
	_                       = reported(event.Reserved)
	factTakenOver           = reported(event.TakenOver)
	factReplayed            = reported(event.Replayed)
	factInProgress          = reported(event.InProgress)
	factMismatch            = reported(event.Mismatch)
	factUnresolved          = reported(event.Unresolved)
	factMarkedUnknown       = reported(event.MarkedUnknown)
	_                       = reported(event.Completed)
	factNotStored           = reported(event.CompletionFailed)
	factLate                = reported(event.LateCompletion)
	factContradicted        = reported(event.Contradicted)
	factLeaseLost           = reported(event.LeaseLost)
	factRetryable           = reported(event.Retryable)
	factResolved            = reported(event.Resolved)
	factStoreFailed         = fact("store failed")
	factCrashed             = fact("crash")
	factGaveUp              = fact("request given up")
	factReplyLost           = fact("reply lost")
	factSentTwice           = fact("call sent twice")
	factClaimRecognised     = fact("own claim recognised")
	factOutcomeRecognised   = fact("own outcome recognised")
	factUncertain           = fact("claim without reply")
	factLateWrite           = fact("write served late")
	factLateEffect          = fact("effect after its handler")
	factRefused             = fact("write refused")
	factMetCompleted        = fact("write met a completed record")
	factNoRecord            = fact("write met no record")
	factNoTime              = fact("no time left")
	factTooEarly            = fact("evidence too early")
	factSettled             = fact("evidence came second")
	factExpired             = fact("expired record replaced")
	factDeleted             = fact("deleted")
	factSecondRun           = fact("second run")
	factOverlap             = fact("two in their handlers")
	factPromised            = fact("came after an acknowledged outcome")
	factNeighbour           = fact("neighbour ran")
	factLeftOpen            = fact("left open")
	factStepDone            = reported(event.StepDone)
	factStepReplayed        = reported(event.StepReplayed)
	factReleased            = fact("released by a reconciler")
	factCommitted           = fact("committed")
	factStale               = fact("evidence about an earlier attempt")
	factStepProven          = fact("step recorded by evidence")
	factStepProvenAtWork    = fact("step recorded by evidence during its run")
	factForeign             = fact("written by another guard")
	factKeysForgotten       = fact("downstream key forgotten")
	factForgotten           = fact("outcome forgotten")
	factRequeued            = fact("requeued")
	factDenied              = fact("transaction refused")
	factSecondCommit        = fact("first Commit found by a later write")
	factEarlier             = fact("outcome of the predecessor")
	factStepEnding          = fact("settled in the end by evidence about the step")
	factCorrected           = fact("outcome corrected")
	factStaleCorrection     = fact("correction with an old token")
	factAnnounced           = fact("announced")
	factAnnouncementRefused = fact("announcement refused")
	factAnnouncedTooLate    = fact("announcement after the handler returned")
	factWaited              = fact("the announcement or a write waited for the other")
	factAnnouncedSettled    = fact("announced record settled by its run")
	factAnnouncedFound      = fact("announced record changed by others")
)

// names returns the names of facts.
func (f facts) names() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i, name := range factNames {
			if f&(1<<i) != 0 && !yield(name) {
				return
			}
		}
	}
}
