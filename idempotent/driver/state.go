// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// State is what is known about the execution of a record.
type State uint8

const (
	// StateInProgress means that one owner may be executing until the lease ends.
	StateInProgress State = iota + 1
	// StateCompleted means that the outcome is stored; it is replayed until the
	// record expires.
	StateCompleted
	// StateRetryable means that the work was proven not executed, or is declared
	// safe to run again. The next request takes over the record with its finished
	// steps.
	StateRetryable
	// StateUnknown means that the effect may or may not have happened. The record
	// leaves this state only through evidence, see idempotent.Guard.Resolve, or if
	// its owner finishes late.
	StateUnknown
)

var stateNames = [...]struct{ code, name string }{
	StateInProgress: {"I", "in_progress"},
	StateCompleted:  {"C", "completed"},
	StateRetryable:  {"R", "retryable"},
	StateUnknown:    {"U", "unknown"},
}

// String returns the state's name, for example "in_progress".
func (s State) String() string {
	if s < StateInProgress || int(s) >= len(stateNames) {
		return fmt.Sprintf("State(%d)", uint8(s))
	}
	return stateNames[s].name
}

// Code returns the letter that stores use for the state: I, C, R or U.
func (s State) Code() string {
	if s < StateInProgress || int(s) >= len(stateNames) {
		return "?"
	}
	return stateNames[s].code
}

// ParseState is the inverse of [State.Code]. A store must fail closed on its
// error.
func ParseState(code string) (State, error) {
	for s, state := range stateNames {
		if state.code == code && s > 0 {
			return State(s), nil
		}
	}
	return 0, fmt.Errorf("idempotent: unknown state %q in a record", code)
}

// Reason is the code of the transition that put a record into its state. It is
// for people; no logic depends on it.
type Reason string

const (
	ReasonClaimed       Reason = "claimed"        // a request began
	ReasonTakenOver     Reason = "taken_over"     // a later request took over the record
	ReasonResult        Reason = "result"         // the handler returned
	ReasonFinal         Reason = "final"          // the handler returned a Final error
	ReasonOmitted       Reason = "omitted"        // the handler returned, but its result could not be stored
	ReasonNotExecuted   Reason = "not_executed"   // the handler declared that nothing happened
	ReasonNoTime        Reason = "no_time"        // the claim left too little time to run the handler
	ReasonReleased      Reason = "released"       // a claim without a reply from the store was given up
	ReasonHandlerError  Reason = "handler_error"  // the handler returned an error
	ReasonPanic         Reason = "panic"          // the handler panicked or ended its goroutine
	ReasonUnknown       Reason = "unknown"        // the handler, or the resolver of a released record, returned an Unknown error
	ReasonLeaseEnded    Reason = "lease_ended"    // the owner did not report an outcome before its lease ended
	ReasonResolved      Reason = "resolved"       // external evidence
	ReasonCommitted     Reason = "committed"      // the handler's transaction stored the outcome
	ReasonKeysForgotten Reason = "keys_forgotten" // the provider may have forgotten the downstream key of an open step
	ReasonPredecessor   Reason = "predecessor"    // another system had done the work, or refused it
	ReasonForgotten     Reason = "forgotten"      // an operator discarded the stored outcome
	ReasonInterrupted   Reason = "interrupted"    // an AtMostOnce step began and did not finish
	ReasonShadow        Reason = "shadow"         // written in shadow mode: see idempotent.Options.Shadow
)

// Recovery is the promise an operation declares: what may happen to a key whose
// handler failed, panicked, timed out or never reported an outcome. It is stored
// in the record, so that a sweeper or a later deployment follows the promise that
// was made when the run began.
//
// Single errors override it: idempotent.NotExecuted, idempotent.Final and
// idempotent.Unknown.
type Recovery uint8

const (
	// Reconcile declares "an effect may have happened". After an error, a panic or a
	// lease that ended without an outcome, the record is unknown: it does not run
	// again until evidence shows that nothing happened. This is the default.
	Reconcile Recovery = iota
	// Resume declares "every external effect is inside an idempotent.Step". After
	// an error or a panic, or once the lease has ended, the next request runs, and
	// finished steps return their recorded results. An interrupted [AtMostOnce] step
	// still makes the record unknown. Requires idempotent.Operation.Steps.
	Resume
	// Rerun declares "running again is harmless". After an error or a panic, or once
	// the lease has ended, the next request runs from the start.
	Rerun
)

var recoveryNames = [...]string{Reconcile: "reconcile", Resume: "resume", Rerun: "rerun"}

// String returns "reconcile", "resume" or "rerun", the form that stores use.
func (r Recovery) String() string {
	if int(r) >= len(recoveryNames) {
		return fmt.Sprintf("Recovery(%d)", uint8(r))
	}
	return recoveryNames[r]
}

// ParseRecovery is the inverse of [Recovery.String]. A store must fail closed on
// its error: this version cannot honor a promise that it does not know.
func ParseRecovery(s string) (Recovery, error) {
	for i, name := range recoveryNames {
		if name == s {
			return Recovery(i), nil
		}
	}
	return 0, fmt.Errorf("idempotent: unknown recovery %q in a record", s)
}

// StepMode is how often a step may run.
type StepMode uint8

const (
	// AtLeastOnce runs the step again after an interruption, with the same
	// downstream key. The store is written once, after the effect. This is the
	// default.
	AtLeastOnce StepMode = iota
	// AtMostOnce never runs the step again. If the step is interrupted, or ends with
	// an error other than idempotent.NotExecuted, the record becomes unknown. The
	// store is written once before the effect and once after it.
	AtMostOnce
)

var stepModeCodes = [...]string{AtLeastOnce: "L", AtMostOnce: "M"}

// Code returns the letter that stores use for the mode: L or M.
func (m StepMode) Code() string {
	if int(m) >= len(stepModeCodes) {
		return "?"
	}
	return stepModeCodes[m]
}

// ParseStepMode is the inverse of [StepMode.Code]. A store must fail closed on
// its error.
func ParseStepMode(code string) (StepMode, error) {
	if i := slices.Index(stepModeCodes[:], code); i >= 0 {
		return StepMode(i), nil
	}
	return 0, fmt.Errorf("idempotent: unknown step mode %q in a record", code)
}

// StepRecord is the stored state of one step.
type StepRecord struct {
	Name string
	// Finished reports that Encoding and Result hold what the step returned. If it
	// is false, the step has begun and its effect may have happened.
	Finished bool
	Mode     StepMode
	Attempt  int       // the run that last changed the step
	At       time.Time // time of that change
	// By is the source of the result; zero if the step has not finished.
	By StepSource
	// Shape is a hash of the Go type that Result was encoded from; empty if the type
	// is not known, as for evidence. A step with another shape is not replayed.
	Shape    string
	Encoding string
	Result   []byte
}

// StepSource is who finished a step.
type StepSource uint8

const (
	// StepByRun means that the run that executed the step recorded its result.
	StepByRun StepSource = iota + 1
	// StepByTransaction means that a transaction of the run recorded the result
	// together with its own writes.
	StepByTransaction
	// StepByEvidence means external evidence, see idempotent.ResolvedStep.
	StepByEvidence
)

var stepSourceCodes = [...]string{StepByRun: "R", StepByTransaction: "T", StepByEvidence: "E"}

// Code returns the letter that stores use for the source: R, T or E.
func (s StepSource) Code() string {
	if s < StepByRun || s > StepByEvidence {
		return "?"
	}
	return stepSourceCodes[s]
}

// ParseStepSource is the inverse of [StepSource.Code]. A store must fail closed
// on its error.
func ParseStepSource(code string) (StepSource, error) {
	for s := StepByRun; s <= StepByEvidence; s++ {
		if stepSourceCodes[s] == code {
			return s, nil
		}
	}
	return 0, fmt.Errorf("idempotent: unknown source %q of a step in a record", code)
}

// Sealed reports whether only an idempotent.Sealer can read the result of s.
func (s *StepRecord) Sealed() bool { return strings.HasSuffix(s.Encoding, EncodingSealed) }

// Step returns the stored state of the named step.
func (r *Record) Step(name string) (StepRecord, bool) {
	if i, found := findStep(r.Steps, name); found {
		return r.Steps[i], true
	}
	return StepRecord{}, false
}

func findStep(steps []StepRecord, name string) (int, bool) {
	return slices.BinarySearchFunc(steps, name, func(s StepRecord, name string) int { return strings.Compare(s.Name, name) })
}
