// SPDX-License-Identifier: Apache-2.0

// Package outage names the errors of a reconciler that got no answers, apart from those
// of a store.
package outage

// Error reports that a resolver does not answer. A run of idempotent.Reconciler ends with
// it if a resolver kept failing or if every record failed; all else is in the report. A
// resolver that returns it has failed for a reason that is not in the record, so the record
// is not given up, however long its outcome has been unknown.
type Error struct{ Err error }

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }
