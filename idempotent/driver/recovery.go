// SPDX-License-Identifier: Apache-2.0

package driver

import "fmt"

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
