// SPDX-License-Identifier: Apache-2.0

// Package explore runs through every schedule of a few actors on one key, or on two
// records that a reconciler scans: the real guard over the real store in memory. Only
// the order of events, the faults and the time are simulated.
//
//	Scenario  the actors at one key, how far the clock goes, how many faults may happen
//	world     one key, its store, a provider, a clock, and the actors
//	actor     a request, a resolver or a reconciler: a coroutine that is suspended at every call
//	          to the store and in its handler
//	Pair      a scenario with two records: two abandoned runs of two operations, and the
//	          position of one scan wait in a table of dynamotest, with one fault
//	step      what may happen next: an actor continues, a call is served, a
//	          reply is lost, a process dies, an effect happens, time passes
//	Search    performs all steps in all orders, depth first
//
// A schedule is a list of steps and is replayed from the start, because a
// coroutine cannot be copied. Two schedules that lead to the same state have
// the same futures, so only the first of them continues; the replies that an
// actor got so far are part of the state. [Search] reports the number of
// schedules, and how many of them showed each fact: an invariant that holds
// because nothing happened would prove nothing.
//
// A table in several regions with strong consistency adds no step: its writes have one
// order. A region that is slow, is cut off or refuses a write is a call that is served
// late, whose reply is lost, or that is never served.
//
// The invariants INV-1 to INV-12 of the design are asserted after every step; those about
// a write are in package internal/invariant. Every write is also compared with the model
// of a key in package model.
package explore
