// SPDX-License-Identifier: Apache-2.0

// Package idempotent runs a side effect once per idempotency key.
//
// A guard claims a key with one conditional write. The handler then runs under a
// lease that ends no earlier than the platform would kill it. Only the owner
// stores the outcome, with a compare-and-swap on the id of the last write. If the
// outcome cannot be known, the record becomes unknown, and evidence settles it.
//
//	event ─► Key {Operation, Scope, ID, Fingerprint}
//	      ─► Store.Insert    one conditional write; a conflict returns the record
//	      ─► decide          a pure function of (record, fingerprint, now)
//	      ─► your function   only after the guard's own write succeeded
//	      ─► Store.Replace   with the outcome
//
// [Wrap] guards a Lambda handler, [Do] any function, and [DoOutcome] is for
// adapters. [Recovery] declares what may happen after an error or a crash;
// [NotExecuted], [Final] and [Unknown] override it for a single error.
// [Guard.Resolve] accepts evidence about an unknown outcome.
//
// The package does not depend on AWS, HTTP or event types. A [driver.Store] has
// three methods; memstore, dynamostore and boltstore implement them.
package idempotent

// Chapters, each of which refers only to those below it:
//
//	do.go                Lookup, Wrap and Do: one request
//	reconcile.go         Reconciler: the records that wait for evidence
//	due.go               the list of due records, and its workers
//	reconcile_record.go  one of these records: what is asked, and what is written
//	resolver.go          ResolveFunc, what it gets, and ReconcileOptions
//	report.go            how far runs have read a long list, what a run of a Reconciler did, and what waits
//	correct.go           Requeue and Forget: records that reconciliation gave up, and wrong outcomes
//	resolve.go           Guard.Resolve: evidence
//	commit.go            Commit and CommitStep: outcomes and steps in transactions
//	step.go              Step: one effect of a handler, and what a run writes before its end
//	predecessor.go       what another system did before the guard
//	shadow.go            a request that runs as if there were no guard
//	claim.go             the claim of a key, its release, and the wait for another request
//	settle.go            the outcome of a run
//	execution.go         what a handler can ask and set, what is known of its run, and warnings about its errors
//	change.go            the loop of every change after the claim, and large results
//	guard.go             New, and valid options
//	cache.go             completed records in memory
//	decide.go            every decision about a record, as a function
//	observe.go           events, and what they show of a request
//	options.go           Options and Operation
//	steps.go             recorded steps
//	key.go               how a request gets its key; keys, and the content of requests
//	result.go            what is stored of an outcome, its encryption, codecs, and compression
//	suspended.go         events of durable executions, which Wrap refuses
//	errors.go            what an error declares, and errors for callers
//	alias.go             names of package driver
