// SPDX-License-Identifier: Apache-2.0

// Package idempotenttest contains what tests of guarded code use, and test suites
// for stores of package idempotent.
//
// # Test your handler
//
// [Explore] crashes a handler at every point, and reports the story of what went wrong.
//
// [Clock] is a clock that a test can advance, past a lease or a retention. It also
// returns the context of an invocation with a deadline. [Recorder] is an observer
// that stores all events.
//
// [Intercept] passes each call to a store through a function, which can stop a
// process before a call or after it, refuse a call, or lose its reply.
//
// # Test your store
//
// A store has three methods, and each is one atomic step. A [Fixture] opens the
// store for two suites, from the simplest to the strictest:
//
//	RunStore          the contract of driver.Store (and ChunkStore), a subtest per rule
//	RunFailureModes   a guard over the store, through crashes, races, clock skews and lost
//	                  replies (FM01, FM02, …), a subtest per row; on request also under
//	                  hundreds of seeded schedules of faults
//
// A failure of RunStore states which rule was broken. Each rule is itself tested
// against dozens of stores that break exactly one rule. In the rows, the test
// controls the clock, and A and B are the first and the second request with a
// key. Every row also checks the invariants of the design (INV-1, INV-2, …): no
// second handler runs while a lease is live; every result was returned by a
// handler or a resolver; no request changes a completed or unknown record; only
// its owner settles a record. Run the suites with the race detector.
package idempotenttest

// Chapters, each of which refers only to those below it:
//
//	store.go                  RunStore: the contract of a store
//	store_chunks.go           its rules for large results
//	store_lists.go            its rules for lists of due records
//	failuremodes.go           what a rule is; RunFailureModes: all rows
//	underfaults.go            a row under faults
//	failuremodes_claim.go     claims, waiting, and time
//	failuremodes_outcome.go   outcomes and results
//	failuremodes_evidence.go  steps and evidence
//	lab.go                    what a row works with: guards, handlers, crashes
//	history.go                what happened, and the invariants
//	fixture.go                Fixture: how the suites open a store
//	explore.go                Explore: crash a handler at every point
//	explore_driver.go         what happens in a schedule, one call at a time
//	explore_sql.go            World.Connector: statements of database/sql as points
//	explore_points.go         points: calls at which a process can be crashed
//	explore_judge.go          promises and stories
//	explore_rules.go          the rule that a story names
//	explore_world.go          World: what survives a process
//	explore_watch.go          schedules that do not go on
//	intercept.go              Intercept: a function in place of each call to a store
//	clock.go                  Recorder: an observer; Clock
