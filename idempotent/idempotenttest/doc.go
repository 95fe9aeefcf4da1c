// Package idempotenttest holds what every store of package idempotent has to
// pass, and what tests of guarded code need.
//
// # For who writes a store
//
// A store is three methods, and each is one atomic step. Three suites ask more
// and more of it; a [Fixture] tells them how to get at it:
//
//	RunStore                     the contract of driver.Store (and ChunkStore), a subtest per rule
//	RunFailureModes              a guard over the store, through the crashes, races, clock skews and
//	                             lost replies of the design (FM01, FM02, …), a subtest per row
//	RunFailureModesUnderFaults   every row again, under hundreds of seeded schedules of faults
//
// A failure of RunStore says which rule was broken, and the rules are tested
// themselves: against dozens of stores that break one each. In the rows the
// clock is under the test's control, A and B are the first and the second
// request with a key, and the invariants of the design (INV-1, INV-2, …) are
// checked whatever the row is about: no second handler while a lease is live, no
// result that nobody returned, no way out of completed or unknown, a record
// that only its owner settles. Run them with the race detector.
//
// # For who tests guarded code
//
// [Faults] make calls go wrong: those to a store ([Faults.Store]), or those of
// the real AWS SDK, on the wire ([Faults.Transport]). A [Plan] says which: the
// n-th call of a kind ([On]), or by chance ([Seeded]). It counts what it did.
//
//	lost request ✗──────▶ store        nothing happened, and the caller fails
//	lost reply    ──────▶ store ──✗    it happened, and the caller fails
//	repeated      ══════▶ store ──▶    it happened, and the caller is given the second reply
//	refused       ──▶ Throttled, TransactionConflict, …, or whatever you name
//	slow          ── · · ▶ store · · ▶ it happened late, or is heard of late
//
// [Clock] is a clock that moves when told to, [Recorder] an observer that
// remembers.
package idempotenttest
