// SPDX-License-Identifier: Apache-2.0

package driver

import "fmt"

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
