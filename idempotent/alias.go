package idempotent

import "github.com/once-lambda/once/idempotent/driver"

// RecordID names the record of a key in every store:
//
//	operation + "#" + base64url(SHA-256(version, operation, scope, id))
//
// Each part is hashed with its length before it, so that no choice of scope
// and id can be mistaken for another.
type RecordID = driver.RecordID

// Fingerprint stands for the content of a request: a version byte and a
// SHA-256 sum. A key that comes again with another fingerprint is refused with
// [*MismatchError], in every state of its record. The zero value is no
// fingerprint.
//
// Build one with [FingerprintOf], [FingerprintJSON] or [FingerprintBytes]; to
// bind only some fields of a request, hand those fields to one of them.
type Fingerprint = driver.Fingerprint

// Recovery is the promise an operation declares: what may happen to a key
// whose work failed, panicked, timed out or was never heard of again. It is
// stored in the record, so that a sweeper or a later deployment keeps the
// promise made when the work began.
//
// Single errors override it: [NotExecuted], [Final] and [Unknown].
type Recovery = driver.Recovery

const (
	// Reconcile declares "an effect may have happened". After an error, a panic
	// or a lease that ended without an outcome the record is unknown: it is not
	// run again until evidence says that nothing happened. The default.
	Reconcile = driver.Reconcile
	// Resume declares "every foreign effect is inside a [Step]". After an error
	// or a panic, or once the lease ended, the next request runs; the steps that
	// had finished give it their recorded results. An interrupted [AtMostOnce]
	// step makes the record unknown all the same. Needs [Options.Steps].
	Resume = driver.Resume
	// Rerun declares "running again is harmless". After an error or a panic, or
	// once the lease ended, the next request runs from the start.
	Rerun = driver.Rerun
)

// Transaction writes next in place of the record whose Version is was, and with
// it, all or nothing, writes of the caller's. See [driver.Transaction].
type Transaction = driver.Transaction

var (
	// ErrNoRecord: there is no record of that id. A store and [Guard.Resolve]
	// return it.
	ErrNoRecord = driver.ErrNoRecord
	// ErrNotApplied: a transaction was refused as a whole, so nothing was
	// written. A [Transaction] returns an error that matches it.
	ErrNotApplied = driver.ErrNotApplied
)
