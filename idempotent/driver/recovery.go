package driver

import "fmt"

// Recovery is the promise an operation declares: what may happen to a key
// whose work failed, panicked, timed out or was never heard of again. It is
// stored in the record, so that a sweeper or a later deployment keeps the
// promise made when the work began.
//
// Single errors override it: [idempotent.NotExecuted], [idempotent.Final] and [idempotent.Unknown].
type Recovery uint8

const (
	// Reconcile declares "an effect may have happened". After an error, a panic
	// or a lease that ended without an outcome the record is unknown: it is not
	// run again until evidence says that nothing happened. The default.
	Reconcile Recovery = iota
	// Resume declares "every foreign effect is inside a [idempotent.Step]". After an error
	// or a panic, or once the lease ended, the next request runs; the steps that
	// had finished give it their recorded results. An interrupted [AtMostOnce]
	// step makes the record unknown all the same. Needs [idempotent.Options.Steps].
	Resume
	// Rerun declares "running again is harmless". After an error or a panic, or
	// once the lease ended, the next request runs from the start.
	Rerun
)

var recoveryNames = [...]string{Reconcile: "reconcile", Resume: "resume", Rerun: "rerun"}

// String returns "reconcile", "resume" or "rerun", the form that is stored.
func (r Recovery) String() string {
	if int(r) >= len(recoveryNames) {
		return fmt.Sprintf("Recovery(%d)", uint8(r))
	}
	return recoveryNames[r]
}

// ParseRecovery is the inverse of [Recovery.String]. A store fails closed on
// its error: a promise that this version does not know is not ours to break.
func ParseRecovery(s string) (Recovery, error) {
	for i, name := range recoveryNames {
		if name == s {
			return Recovery(i), nil
		}
	}
	return 0, fmt.Errorf("idempotent: unknown recovery %q in a record", s)
}
