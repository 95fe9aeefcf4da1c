// SPDX-License-Identifier: Apache-2.0

package idempotent

import "github.com/once-lambda/once/idempotent/driver"

// RecordID names the record of a key in every store:
//
//	operation + "#" + base64url(SHA-256(version, operation, scope, id))
//
// Each part is hashed with its length before it, so different combinations of
// scope and id cannot produce the same input.
type RecordID = driver.RecordID

// Fingerprint identifies the content of a request: a version byte and a SHA-256
// sum. A request that reuses a key with another fingerprint is refused with
// [*MismatchError], whatever the state of the record. The zero value means that
// there is no fingerprint.
//
// Build one with [FingerprintOf], [FingerprintJSON] or [FingerprintBytes]. To
// bind only some fields of a request to the key, pass only those fields.
//
// A record stores the version and an HMAC-SHA-256 of the fingerprint, keyed by the
// operation, scope and id of the key. So a reader of the store can neither see
// that two requests were equal nor test guesses of their content, if the ids have
// at least 64 random bits. An id that can be guessed, such as an order number or
// the payload itself, gives no such protection.
type Fingerprint = driver.Fingerprint

// Recovery is the promise an operation declares: what may happen to a key whose
// handler failed, panicked, timed out or never reported an outcome. It is stored
// in the record, so that a sweeper or a later deployment follows the promise that
// was made when the run began.
//
// Single errors override it: [NotExecuted], [Final] and [Unknown].
type Recovery = driver.Recovery

const (
	// Reconcile declares "an effect may have happened". After an error, a panic or a
	// lease that ended without an outcome, the record is unknown: it does not run
	// again until evidence shows that nothing happened. This is the default.
	Reconcile = driver.Reconcile
	// Resume declares "every external effect is inside a [Step]". After an error or
	// a panic, or once the lease has ended, the next request runs, and finished
	// steps return their recorded results. An interrupted step that declares
	// [StepOptions.AtMostOnce] still makes the record unknown. Requires
	// [Operation.Steps].
	Resume = driver.Resume
	// Rerun declares "running again is harmless". After an error or a panic, or once
	// the lease has ended, the next request runs from the start.
	Rerun = driver.Rerun
)

// Transaction writes next over the record whose Version is was, atomically with
// other writes of the caller. See [driver.Transaction].
type Transaction = driver.Transaction

var (
	// ErrNoRecord reports that no record with the given id exists. Stores and
	// [Guard.Resolve] return it.
	ErrNoRecord = driver.ErrNoRecord
	// ErrNotApplied reports that a transaction was refused as a whole and wrote
	// nothing. A [Transaction] returns an error that matches it.
	ErrNotApplied = driver.ErrNotApplied
)
