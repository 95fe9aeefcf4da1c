// Package idempotent runs a side effect once per idempotency key.
//
// A key is claimed with one conditional write. The work runs under a lease
// that ends when the platform would kill it. The outcome is written by the
// owner alone, as a compare-and-swap on the id of the last write. When nobody
// can know the outcome, the record says so, and evidence resolves it.
//
//	event ─► Key {Operation, Scope, ID, Fingerprint}
//	      ─► Store.Insert    one conditional write; on conflict it brings the record
//	      ─► decide          a pure function of (record, fingerprint, now)
//	      ─► your function   only after a write of ours succeeded
//	      ─► Store.Replace   with the outcome
//
// [Wrap] guards a Lambda handler, [Do] any function, [DoOutcome] serves
// adapters. [Recovery] declares what may happen after an error or a crash;
// [NotExecuted], [Final] and [Unknown] declare it for a single one.
// [Guard.Resolve] brings evidence about an unknown outcome.
//
// The package knows no AWS, no HTTP and no event types: a [driver.Store] is three
// methods, and memstore, dynamostore and boltstore have them.
package idempotent
