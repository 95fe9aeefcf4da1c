// Package idempotent runs a side effect once per idempotency key.
//
// A guard claims a key with one conditional write. The handler then runs under a
// lease that ends no earlier than the platform would kill it. Only the owner
// stores the outcome, with a compare-and-swap on the id of the last write. If the
// outcome cannot be known, the record becomes unknown, and evidence resolves it.
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
// methods, and memstore, dynamostore and boltstore have them.
package idempotent
