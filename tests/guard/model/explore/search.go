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

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// Report is the result of a search.
type Report struct {
	Schedules int // distinct ones that were run, to their end, or into a state that was seen before
	Steps     int // performed for the first time, in all schedules
	States    int // distinct
	Ends      int // distinct records in the end
	Answers   int // distinct answers to callers
	Shown     map[string]int
	Violation *Violation
}

// Violation is a schedule that breaks an invariant.
type Violation struct {
	Invariant string
	Wrong     string
	Schedule  []string // what happens, step by step
	steps     []step
}

func (v *Violation) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is broken: %s\n", v.Invariant, v.Wrong)
	for i, s := range v.Schedule {
		fmt.Fprintf(&b, "%3d  %s\n", i+1, s)
	}
	return b.String()
}

// stage is what a search plays on: a few actors and what they share, at one moment
// of a schedule.
type stage interface {
	steps() []step  // what may happen next
	perform(s step) // and checks the rules
	do(s step)      // performs a step that was checked before
	state() state   // all that the future depends on
	ending() string // what is left in the end
	shown() iter.Seq[string]
	abandon() // ends the actors that are still running
	so() *progress
}

// progress is what a search reads of a stage.
type progress struct {
	faults int
	ended  bool
	answer string // that a caller got by the last step
	broken *Violation

	allOrders bool // also offer the orders of steps that commute; see step.go
	tracing   bool
	trace     []string // what happened, in words
}

func (p *progress) so() *progress { return p }

// Search runs all schedules of a scenario, or those up to the first that breaks
// an invariant, which it returns shortened. It is an error if a scenario has
// more than limit schedules.
func Search(s Scenario, limit int) (Report, error) {
	return (&search{setUp: s.setUp, limit: limit, merge: true}).run()
}

// SearchPair is [Search] for two records. It must run in a bubble of synctest.
func SearchPair(s Pair, limit int) (Report, error) {
	return (&search{setUp: s.setUp(), limit: limit, merge: true}).run()
}

// search is one search, with switches for tests that it loses nothing.
type search struct {
	setUp     func(*fibers) stage
	limit     int
	merge     bool // a schedule ends in a state that another one has reached
	allOrders bool // also those of steps that commute

	// saw, if set, is called for every step that is performed for the first
	// time.
	saw func(before state, faults int, s step, after stage)

	report  Report
	fewest  map[state]int // the fewest faults with which a state was reached
	ends    map[string]bool
	answers map[string]bool
	open    [][]step // the beginnings of schedules that are still to be run
	fibers  fibers
}

func (s *search) run() (Report, error) {
	s.report.Shown = map[string]int{}
	s.fewest, s.ends, s.answers = map[state]int{}, map[string]bool{}, map[string]bool{}
	s.open = [][]step{nil}
	defer s.fibers.end()
	for len(s.open) > 0 && s.report.Violation == nil {
		if s.report.Schedules == s.limit {
			return s.report, fmt.Errorf("explore: the scenario has more than %d schedules", s.limit)
		}
		last := len(s.open) - 1
		schedule := s.open[last]
		s.open = s.open[:last]
		s.runOne(schedule)
	}
	s.report.States, s.report.Ends, s.report.Answers = len(s.fewest), len(s.ends), len(s.answers)
	return s.report, nil
}

// runOne runs the schedule with this beginning, and then takes the first step
// at every turn. It leaves the other steps for later runs.
func (s *search) runOne(schedule []step) {
	w := s.setUp(&s.fibers)
	w.so().allOrders = s.allOrders
	defer w.abandon()
	s.report.Schedules++
	if n := len(schedule); n > 0 {
		for _, step := range schedule[:n-1] {
			w.do(step) // the invariants were checked when it was performed for the first time
		}
		s.perform(w, schedule[n-1])
	}
	for s.goesOn(w, schedule) {
		next := w.steps()
		// Each schedule gets its own copy, because the slices share their
		// beginnings.
		for _, alternative := range slices.Backward(next[1:]) {
			s.open = append(s.open, append(slices.Clip(schedule), alternative))
		}
		schedule = append(slices.Clip(schedule), next[0])
		s.perform(w, next[0])
	}
	for fact := range w.shown() {
		s.report.Shown[fact]++
	}
}

func (s *search) perform(w stage, next step) {
	if s.saw == nil {
		w.perform(next)
	} else {
		before, faults := w.state(), w.so().faults
		w.perform(next)
		s.saw(before, faults, next, w)
	}
	s.report.Steps++
	if answer := w.so().answer; answer != "" {
		s.answers[answer] = true
	}
}

// goesOn reports whether to follow the schedule that led to w.
func (s *search) goesOn(w stage, schedule []step) bool {
	so := w.so()
	switch {
	case so.broken != nil:
		s.report.Violation = s.shorten(schedule)
		return false
	case so.ended:
		s.ends[w.ending()] = true
		return false
	}
	state := w.state()
	if fewest, seen := s.fewest[state]; !seen || so.faults < fewest {
		s.fewest[state] = so.faults
	} else if s.merge {
		return false
	}
	return true
}

// shorten removes steps from a schedule that are not needed to break an
// invariant, until no run of steps can be removed. It works without turns.
func (s *search) shorten(schedule []step) *Violation {
	v := s.retry(slices.DeleteFunc(slices.Clone(schedule), func(s step) bool { return s.what == stay }))
	for size := len(v.steps) / 2; size > 0; {
		shorter := (*Violation)(nil)
		for i := 0; i+size <= len(v.steps) && shorter == nil; i++ {
			shorter = s.retry(slices.Delete(slices.Clone(v.steps), i, i+size))
		}
		if shorter == nil {
			size /= 2
			continue
		}
		v = shorter
		size = min(size, len(v.steps)/2)
	}
	return v
}

// retry runs a schedule that may no longer be valid, up to where it breaks an
// invariant. It returns nil if it does not.
func (s *search) retry(schedule []step) *Violation {
	w := s.setUp(&s.fibers)
	so := w.so()
	so.allOrders, so.tracing = true, true
	defer w.abandon()
	for i, next := range schedule {
		if !slices.Contains(w.steps(), next) {
			return nil
		}
		w.perform(next)
		if v := so.broken; v != nil {
			v.Schedule, v.steps = so.trace, schedule[:i+1]
			return v
		}
	}
	return nil
}

// Facts are what a schedule has shown, one bit each. They prove that a search
// was not vacuous.
type facts uint64

var (
	factNames []string
	factOf    = map[event.Kind]facts{}
)

// fact returns another fact.
func fact(name string) facts {
	factNames = append(factNames, name)
	return 1 << (len(factNames) - 1)
}

// reported returns the fact that a guard reports an event.
func reported(kind event.Kind) facts {
	factOf[kind] = fact(string(kind))
	return factOf[kind]
}

var (
	_                       = reported(event.Reserved)
	factTakenOver           = reported(event.TakenOver)
	factReplayed            = reported(event.Replayed)
	factInProgress          = reported(event.InProgress)
	factMismatch            = reported(event.Mismatch)
	factUnresolved          = reported(event.Unresolved)
	factMarkedUnknown       = reported(event.MarkedUnknown)
	_                       = reported(event.Completed)
	factNotStored           = reported(event.CompletionFailed)
	factLate                = reported(event.LateCompletion)
	factContradicted        = reported(event.Contradicted)
	factLeaseLost           = reported(event.LeaseLost)
	factRetryable           = reported(event.Retryable)
	factResolved            = reported(event.Resolved)
	factStoreFailed         = fact("store failed")
	factCrashed             = fact("crash")
	factGaveUp              = fact("request given up")
	factReplyLost           = fact("reply lost")
	factSentTwice           = fact("call sent twice")
	factClaimRecognised     = fact("own claim recognised")
	factOutcomeRecognised   = fact("own outcome recognised")
	factUncertain           = fact("claim without reply")
	factLateWrite           = fact("write served late")
	factLateEffect          = fact("effect after its handler")
	factRefused             = fact("write refused")
	factMetCompleted        = fact("write met a completed record")
	factNoRecord            = fact("write met no record")
	factNoTime              = fact("no time left")
	factTooEarly            = fact("evidence too early")
	factSettled             = fact("evidence came second")
	factExpired             = fact("expired record replaced")
	factDeleted             = fact("deleted")
	factSecondRun           = fact("second run")
	factOverlap             = fact("two in their handlers")
	factPromised            = fact("came after an acknowledged outcome")
	factNeighbour           = fact("neighbour ran")
	factLeftOpen            = fact("left open")
	factStepDone            = reported(event.StepDone)
	factStepReplayed        = reported(event.StepReplayed)
	factReleased            = fact("released by a reconciler")
	factCommitted           = fact("committed")
	factStale               = fact("evidence about an earlier attempt")
	factStepProven          = fact("step recorded by evidence")
	factStepProvenAtWork    = fact("step recorded by evidence during its run")
	factForeign             = fact("written by another guard")
	factKeysForgotten       = fact("downstream key forgotten")
	factForgotten           = fact("outcome forgotten")
	factRequeued            = fact("requeued")
	factDenied              = fact("transaction refused")
	factSecondCommit        = fact("first Commit found by a later write")
	factEarlier             = fact("outcome of the predecessor")
	factStepEnding          = fact("settled in the end by evidence about the step")
	factCorrected           = fact("outcome corrected")
	factStaleCorrection     = fact("correction with an old token")
	factAnnounced           = fact("announced")
	factAnnouncementRefused = fact("announcement refused")
	factAnnouncedTooLate    = fact("announcement after the handler returned")
	factWaited              = fact("the announcement or a write waited for the other")
	factAnnouncedSettled    = fact("announced record settled by its run")
	factAnnouncedFound      = fact("announced record changed by others")
)

// names returns the names of facts.
func (f facts) names() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i, name := range factNames {
			if f&(1<<i) != 0 && !yield(name) {
				return
			}
		}
	}
}

// Scenario lists the actors of a search and the faults that may happen.
type Scenario struct {
	Recovery idempotent.Recovery

	Attempts   int // requests whose handler may end in any way, or in one of Plans
	Sweepers   int // come for a record whose lease has ended without an outcome
	Strangers  int // requests with another fingerprint under the same key
	Neighbours int // requests with the same key in another scope
	Resolvers  int // submit evidence, once each
	Couriers   int // like Resolvers, but time passes between the look and the evidence
	Witnesses  int // submit evidence about the step, while the handler runs or later
	Reapers    int // reconcile due records, without a resolver
	Forgetters int // discard the stored outcome, whose effect an operator has undone
	Correctors int // replace the stored outcome that they have read
	Requeuers  int // make the record due now

	// Step puts the effect of every handler into a step of this mode. The
	// provider honours the downstream key of a step that runs AtLeastOnce.
	Step *driver.StepMode

	// Commit puts the effect of every handler into the transaction that completes
	// its record.
	Commit bool

	// Second makes a handler whose Commit fails commit once more, with the same
	// result or with another one. If it then learns of another outcome, it returns its
	// own result nevertheless.
	Second second

	// Predecessor is another system that has done the work, with the result earlier.
	Predecessor bool

	// CommitStep makes every handler call the provider and then write an order
	// in the transaction that records its step.
	CommitStep bool

	// Announce lets a run whose handler is late announce itself, at any moment. The
	// search must run in a synctest bubble, whose clock starts the announcement.
	Announce bool

	Plans []plan

	// Clock lists the movements of the clock, which happen at any moments in
	// this order.
	Clock []time.Duration

	// Faults limits the number of faults in one schedule: a lost reply or
	// request, or a process that dies. A worker that stalls while the clock
	// advances is not a fault.
	Faults int

	// Redeployed lets the sweepers run code that declares the other recovery.
	Redeployed bool

	// Foreign makes actors without a request use a guard with other options:
	// the other recovery, and a retention that is shorter than the operation's.
	Foreign bool

	// The following fields break the world, to check that this is noticed.

	// Store breaks the store.
	Store func(driver.Store) driver.Store
	// Seen breaks the store for actors that submit evidence.
	Seen func(*actor, driver.Store) driver.Store
	// Torn lets a transaction have its effect although its record is refused.
	Torn bool
	// Liar lets the store refuse a transaction that it applies.
	Liar bool
	// Rash makes a resolver report "not executed" about a worker that is alive.
	Rash bool
	// Late lets a request see a deadline that is a second late.
	Late bool
	// Ask names the invariants to check. Default: all.
	Ask []string
}

// second is the result of a second Commit.
type second byte

const (
	noSecond second = iota
	sameResult
	otherResult
)

// The times of every scenario: an invocation has 10 s, its lease 12 s.
const (
	timeout        = 10 * time.Second
	margin         = 2 * time.Second
	retention      = 24 * time.Hour
	reconcileAfter = time.Minute
	grace          = time.Hour // an expired record is deleted this much later

	longRetention = 3 * retention
	// The provider recognises a downstream key for this long: the default of
	// Operation.DownstreamRetention.
	downstream = 24 * time.Hour
)

// The movements of the clock.
const (
	PastContext   = 9700 * time.Millisecond // of a handler, and past the time when its run announces itself
	PastDeadline  = 11 * time.Second        // of all requests in progress; their leases are live
	PastLease     = 2 * time.Second         // after PastDeadline
	WholeLease    = PastDeadline + PastLease
	RestOfLease   = WholeLease - PastContext
	PastRetention = 26 * time.Hour // and past the deletion of expired records
)
