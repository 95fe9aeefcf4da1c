// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"iter"
	"math/bits"

	"github.com/once-lambda/once/idempotent/event"
)

// Facts are what a schedule has shown, one bit each. They prove that a search
// was not vacuous.
type facts uint64

const (
	factReserved facts = 1 << iota
	factTakenOver
	factReplayed
	factInProgress
	factMismatch
	factUnresolved
	factMarkedUnknown
	factCompleted
	factNotStored
	factLate
	factContradicted
	factLeaseLost
	factRetryable
	factResolved
	factStoreFailed
	factCrashed
	factGaveUp
	factReplyLost
	factSentTwice
	factClaimRecognised
	factOutcomeRecognised
	factUncertain
	factLateWrite
	factLateEffect
	factRefused
	factMetCompleted
	factNoRecord
	factNoTime
	factTooEarly
	factSettled
	factExpired
	factDeleted
	factSecondRun
	factOverlap
	factPromised
	factNeighbour
	factLeftOpen
	factStepDone
	factStepReplayed
	factReleased
	factCommitted
	factStale
	factStepProven
	factStepProvenAtWork
	factForeign
	factKeysForgotten
	factForgotten
	factRequeued
	factDenied
	factSecondCommit
	factEarlier
	factStepEnding
	factAnnounced
	factAnnouncementRefused
	factAnnouncedTooLate
	factWaited
	factAnnouncedSettled
	factAnnouncedFound
	factCount = iota
)

var factNames = [factCount]string{
	"reserved", "taken over", "replayed", "in progress", "mismatch", "unresolved", "marked unknown",
	"completed", "answer not stored", "late completion", "contradicted", "lease lost", "retryable", "resolved",
	"store failed", "crash", "request given up", "reply lost", "call sent twice",
	"own claim recognised", "own outcome recognised", "claim without reply", "write served late", "effect after its handler",
	"write refused", "write met a completed record", "write met no record", "no time left", "evidence too early", "evidence came second",
	"expired record replaced", "deleted", "second run", "two in their handlers", "came after an acknowledged outcome",
	"neighbour ran", "left open", "step done", "step replayed", "released by a reconciler",
	"committed", "evidence about an earlier attempt", "step recorded by evidence", "step recorded by evidence during its run",
	"written by another guard", "downstream key forgotten",
	"outcome forgotten", "requeued", "transaction refused", "first Commit found by a later write", "outcome of the predecessor",
	"settled in the end by evidence about the step",
	"announced", "announcement refused", "announcement after the handler returned", "the announcement or a write waited for the other",
	"announced record settled by its run", "announced record changed by others",
}

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

// String returns the fact's name.
func (f facts) String() string { return factNames[bits.TrailingZeros64(uint64(f))] }

var factOf = map[event.Kind]facts{
	event.Reserved:         factReserved,
	event.TakenOver:        factTakenOver,
	event.Replayed:         factReplayed,
	event.InProgress:       factInProgress,
	event.Mismatch:         factMismatch,
	event.Unresolved:       factUnresolved,
	event.MarkedUnknown:    factMarkedUnknown,
	event.Completed:        factCompleted,
	event.CompletionFailed: factNotStored,
	event.LateCompletion:   factLate,
	event.Contradicted:     factContradicted,
	event.LeaseLost:        factLeaseLost,
	event.Retryable:        factRetryable,
	event.Resolved:         factResolved,
	event.StepDone:         factStepDone,
	event.StepReplayed:     factStepReplayed,
}
