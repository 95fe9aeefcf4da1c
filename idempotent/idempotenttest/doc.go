// Package idempotenttest contains test suites for stores of package idempotent,
// and fault injection for tests of guarded code.
//
// # Test your store
//
// A store has three methods, and each is one atomic step. A [Fixture] opens the
// store for three suites, from the simplest to the strictest:
//
//	RunStore                     the contract of driver.Store (and ChunkStore), a subtest per rule
//	RunFailureModes              a guard over the store, through the crashes, races, clock skews and
//	                             lost replies of the design (FM01, FM02, …), a subtest per row
//	RunFailureModesUnderFaults   every row again, under hundreds of seeded schedules of faults
//
// A failure of RunStore states which rule was broken. Each rule is itself tested
// against dozens of stores that break exactly one rule. In the rows, the test
// controls the clock, and A and B are the first and the second request with a
// key. Every row also checks the invariants of the design (INV-1, INV-2, …): no
// second handler runs while a lease is live; every result was returned by a
// handler or a resolver; no request changes a completed or unknown record; only
// its owner settles a record. Run the suites with the race detector.
//
// # Test your handler
//
// [Faults] make calls fail: calls to a store ([Faults.Store]), or HTTP requests
// of the AWS SDK ([Faults.Transport]). A [Plan] selects the calls: the n-th of a
// kind ([On]), or random ones ([Seeded]). Faults counts what it injected.
//
//	lost request ✗──────▶ store        no effect, and the caller gets an error
//	lost reply    ──────▶ store ──✗    the call has its effect, and the caller gets an error
//	repeated      ══════▶ store ──▶    the call is sent twice, and the caller gets the second reply
//	refused       ──▶ Throttled, TransactionConflict, …, or any other name
//	slow          ── · · ▶ store · · ▶ the call has its effect late, or its reply comes late
//
// [Clock] is a clock that a test can advance. [Recorder] is an observer that
// stores all events.
package idempotenttest
