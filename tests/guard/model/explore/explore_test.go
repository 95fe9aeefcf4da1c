// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"flag"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

var moreFaults = flag.Int("faults", 0, "how many more faults to allow than the scenarios say; one makes a search ten times longer")

const (
	limit  = 5_000_000 // schedules of one scenario
	enough = 10_000    // schedules of all
	often  = 20        // minimum of schedules that show a fact, or the premise of an invariant
)

type clock = []time.Duration

var leastOnce, mostOnce = driver.AtLeastOnce, driver.AtMostOnce

// scenarios are the searches, and the facts that each has to show.
var scenarios = []struct {
	name string
	Scenario
	shows facts
}{
	{"reconcile, the whole cast",
		Scenario{Attempts: 2, Plans: []plan{succeed, fail}, Sweepers: 1, Resolvers: 1, Clock: clock{WholeLease}, Faults: 1},
		factReplayed | factInProgress | factUnresolved | factMarkedUnknown | factLate | factContradicted | factRetryable | factResolved |
			factTakenOver | factNotStored | factStoreFailed | factCrashed | factGaveUp | factReplyLost | factSentTwice | factLateWrite | factLateEffect |
			factUncertain | factClaimRecognised | factOutcomeRecognised | factRefused | factMetCompleted | factNoRecord | factNoTime | factTooEarly |
			factSettled | factSecondRun | factPromised | factLeftOpen | factStale},
	{"reconcile, the deadline and then the lease end",
		Scenario{Attempts: 1, Sweepers: 1, Resolvers: 1, Clock: clock{PastDeadline, PastLease}, Faults: 1},
		factMarkedUnknown | factLate | factRetryable | factResolved | factNoTime | factTooEarly | factLateEffect},
	{"reconcile, two faults",
		Scenario{Attempts: 1, Sweepers: 1, Resolvers: 1, Clock: clock{WholeLease}, Faults: 2},
		factUncertain | factMarkedUnknown | factLate | factNotStored | factLateWrite | factNoRecord},
	{"reconcile, two leases",
		Scenario{Attempts: 2, Plans: []plan{fail}, Resolvers: 1, Clock: clock{WholeLease, WholeLease}},
		factTakenOver | factResolved | factTooEarly | factSecondRun},
	{"reconcile, two resolvers",
		Scenario{Attempts: 1, Resolvers: 2, Clock: clock{WholeLease}, Faults: 1},
		factSettled | factContradicted | factResolved | factTooEarly},
	{"reconcile, a resolver that does not know who is alive",
		Scenario{Attempts: 1, Sweepers: 1, Resolvers: 1, Clock: clock{WholeLease}, Faults: 1, Rash: true, Ask: allBut("INV-2")},
		factLate | factContradicted | factResolved},
	{"reconcile, a resolver and retention",
		Scenario{Attempts: 1, Resolvers: 1, Clock: clock{WholeLease, PastRetention}, Faults: 1},
		factResolved | factDeleted},
	{"reconcile, a stranger",
		Scenario{Attempts: 1, Strangers: 1, Resolvers: 1, Clock: clock{WholeLease}, Faults: 1},
		factMismatch | factMarkedUnknown | factResolved},
	{"reconcile, retention",
		Scenario{Attempts: 2, Clock: clock{WholeLease, PastRetention}, Faults: 1},
		factExpired | factDeleted | factMarkedUnknown | factReplayed | factNoRecord},
	{"reconcile, redeployed as rerun",
		Scenario{Attempts: 1, Sweepers: 2, Clock: clock{WholeLease}, Faults: 1, Redeployed: true},
		factMarkedUnknown | factTakenOver | factUnresolved},
	{"rerun, two attempts and a resolver",
		Scenario{Recovery: idempotent.Rerun, Attempts: 2, Resolvers: 1, Clock: clock{WholeLease}},
		factTakenOver | factReplayed | factInProgress | factUnresolved | factLeaseLost | factResolved | factSecondRun},
	{"rerun, a crash or a lost reply",
		Scenario{Recovery: idempotent.Rerun, Attempts: 2, Clock: clock{WholeLease}, Faults: 1},
		factTakenOver | factReplayed | factCrashed | factGaveUp | factReplyLost | factSentTwice | factLateWrite | factUncertain | factOverlap},
	{"rerun, the deadline and then the lease end",
		Scenario{Recovery: idempotent.Rerun, Attempts: 1, Sweepers: 1, Resolvers: 1, Clock: clock{PastDeadline, PastLease}},
		factTakenOver | factResolved | factTooEarly | factContradicted | factOverlap},
	{"rerun, a stranger",
		Scenario{Recovery: idempotent.Rerun, Attempts: 2, Strangers: 1, Clock: clock{WholeLease}},
		factMismatch | factTakenOver},
	{"rerun, retention",
		Scenario{Recovery: idempotent.Rerun, Attempts: 2, Clock: clock{WholeLease, PastRetention}},
		factExpired | factDeleted | factTakenOver | factNoRecord},
	{"rerun, redeployed as reconcile",
		Scenario{Recovery: idempotent.Rerun, Attempts: 1, Sweepers: 1, Clock: clock{WholeLease}, Faults: 1, Redeployed: true},
		factTakenOver | factLeaseLost},
	{"reconcile, a reconciler",
		Scenario{Attempts: 1, Reapers: 2, Clock: clock{WholeLease}, Faults: 1},
		factMarkedUnknown | factLate | factRefused},
	{"resume, a step",
		Scenario{Recovery: idempotent.Resume, Step: &leastOnce, Attempts: 2, Plans: []plan{succeed, fail}, Clock: clock{WholeLease}, Faults: 1},
		factTakenOver | factStepDone | factStepReplayed | factLeaseLost | factCrashed | factSecondRun | factRetryable | factReplayed},
	{"resume, a step and a reconciler",
		Scenario{Recovery: idempotent.Resume, Step: &leastOnce, Attempts: 1, Plans: []plan{succeed, fail, refuse}, Reapers: 1, Resolvers: 1, Clock: clock{WholeLease}, Faults: 1},
		factReleased | factStepDone | factResolved | factRefused | factLate | factContradicted},
	{"resume, a step that runs at most once",
		Scenario{Recovery: idempotent.Resume, Step: &mostOnce, Attempts: 2, Plans: []plan{succeed, fail}, Clock: clock{WholeLease}, Faults: 1},
		factMarkedUnknown | factStepDone | factStepReplayed | factUnresolved | factTakenOver},
	{"resume, at most once, a reconciler and a resolver",
		Scenario{Recovery: idempotent.Resume, Step: &mostOnce, Attempts: 1, Plans: []plan{succeed, refuse, fail}, Reapers: 1, Resolvers: 1, Clock: clock{WholeLease}, Faults: 1},
		factMarkedUnknown | factReleased | factResolved},
	{"commit, the whole cast",
		Scenario{Commit: true, Attempts: 2, Sweepers: 1, Resolvers: 1, Clock: clock{WholeLease}, Faults: 1},
		factCommitted | factReplayed | factMarkedUnknown | factLate | factTakenOver | factLateWrite | factUnresolved | factRetryable},
	{"commit under rerun",
		Scenario{Recovery: idempotent.Rerun, Commit: true, Attempts: 2, Resolvers: 1, Clock: clock{WholeLease}, Faults: 1},
		factCommitted | factTakenOver | factLeaseLost | factSecondRun | factLateWrite | factReplayed},
	{"reconcile, evidence that comes late",
		Scenario{Attempts: 2, Plans: []plan{fail}, Resolvers: 1, Couriers: 1, Clock: clock{WholeLease, WholeLease}},
		factStale | factResolved | factTakenOver | factTooEarly | factSettled},
	{"reconcile, other guards submit evidence and reconcile",
		Scenario{Attempts: 1, Reapers: 1, Resolvers: 1, Clock: clock{WholeLease, PastRetention}, Faults: 1, Foreign: true},
		factForeign | factResolved | factMarkedUnknown},
	{"rerun, other guards submit evidence and reconcile",
		Scenario{Recovery: idempotent.Rerun, Attempts: 1, Reapers: 1, Resolvers: 1, Clock: clock{WholeLease, PastRetention}, Faults: 1, Foreign: true},
		factForeign | factResolved},
	{"resume, other guards submit evidence and reconcile",
		Scenario{Recovery: idempotent.Resume, Step: &leastOnce, Attempts: 1, Plans: []plan{succeed, stumble}, Reapers: 1, Couriers: 1, Clock: clock{WholeLease}, Faults: 1, Foreign: true},
		factForeign | factReleased | factResolved},
	{"resume, evidence about a step",
		Scenario{Recovery: idempotent.Resume, Step: &leastOnce, Attempts: 2, Plans: []plan{succeed, fail}, Witnesses: 1, Clock: clock{WholeLease}},
		factStepProven | factStepProvenAtWork | factStepReplayed},
	{"resume, evidence about a step, and a fault",
		Scenario{Recovery: idempotent.Resume, Step: &leastOnce, Attempts: 1, Plans: []plan{succeed, refuse, stumble}, Witnesses: 1, Clock: clock{WholeLease}, Faults: 1},
		factStepProven | factStepProvenAtWork | factStepReplayed | factUncertain},
	{"resume, evidence about a step that runs at most once",
		Scenario{Recovery: idempotent.Resume, Step: &mostOnce, Attempts: 1, Plans: []plan{succeed, fail, stumble}, Reapers: 1, Witnesses: 1, Clock: clock{WholeLease}, Faults: 1, Foreign: true},
		factStepProven | factStepProvenAtWork | factMarkedUnknown | factForeign},
	{"resume, a provider that forgets its keys",
		Scenario{Recovery: idempotent.Resume, Step: &leastOnce, Attempts: 1, Plans: []plan{succeed, fail}, Reapers: 1, Clock: clock{WholeLease, PastRetention}, Faults: 1},
		factKeysForgotten | factReleased | factTakenOver},
	{"resume, a step and then its transaction",
		Scenario{Recovery: idempotent.Resume, CommitStep: true, Attempts: 2, Plans: []plan{succeed, fail}, Clock: clock{WholeLease}, Faults: 1},
		factCommitted | factStepDone | factStepReplayed | factTakenOver},
	{"commit, a second one with the same result",
		Scenario{Commit: true, Second: sameResult, Attempts: 1, Sweepers: 1, Clock: clock{WholeLease}, Faults: 2},
		factCommitted | factSecondCommit | factDenied | factLate | factReplayed},
	{"commit, a second one with another result",
		Scenario{Commit: true, Second: otherResult, Attempts: 1, Resolvers: 1, Clock: clock{WholeLease}, Faults: 2},
		factCommitted | factSecondCommit | factDenied | factResolved | factReplayed},
	{"commit under rerun, a second one with another result",
		Scenario{Recovery: idempotent.Rerun, Commit: true, Second: otherResult, Attempts: 2, Clock: clock{WholeLease}, Faults: 1},
		factCommitted | factSecondCommit | factDenied | factTakenOver | factReplayed},
	{"resume, at most once, evidence about the step twice",
		Scenario{Recovery: idempotent.Resume, Step: &mostOnce, Attempts: 1, Plans: []plan{succeed, fail, unsure, stumble}, Reapers: 1, Witnesses: 2, Clock: clock{WholeLease}},
		factStepProven | factStepProvenAtWork | factMarkedUnknown | factStepReplayed},
	{"rerun, at most once, evidence about the step",
		Scenario{Recovery: idempotent.Rerun, Step: &mostOnce, Attempts: 2, Plans: []plan{fail, unsure}, Witnesses: 1, Clock: clock{WholeLease}, Faults: 1},
		factStepProven | factMarkedUnknown | factStepReplayed | factTakenOver | factStepEnding},
	{"reconcile, an operator discards the outcome",
		Scenario{Attempts: 2, Plans: []plan{succeed, fail}, Forgetters: 1, Resolvers: 1, Clock: clock{WholeLease}},
		factForgotten | factTakenOver | factReplayed | factResolved},
	{"resume, an operator discards the outcome",
		Scenario{Recovery: idempotent.Resume, Step: &leastOnce, Attempts: 2, Plans: []plan{succeed}, Forgetters: 1, Clock: clock{WholeLease}, Faults: 1},
		factForgotten | factTakenOver | factStepDone},
	{"reconcile, an operator discards the outcome of the predecessor",
		Scenario{Predecessor: true, Attempts: 2, Plans: []plan{succeed, fail}, Forgetters: 1, Resolvers: 1, Clock: clock{WholeLease}, Faults: 1},
		factEarlier | factForgotten | factTakenOver | factReplayed | factMarkedUnknown},
	{"reconcile, an operator requeues",
		Scenario{Attempts: 1, Plans: []plan{succeed, fail}, Requeuers: 1, Resolvers: 1, Clock: clock{WholeLease}},
		factRequeued | factMarkedUnknown | factResolved},
	{"resume, at most once, an operator requeues",
		Scenario{Recovery: idempotent.Resume, Step: &mostOnce, Attempts: 1, Plans: []plan{succeed, fail}, Requeuers: 1, Reapers: 1, Witnesses: 1, Clock: clock{WholeLease}},
		factRequeued | factMarkedUnknown | factReleased | factStepProven},
	{"two scopes",
		Scenario{Attempts: 1, Neighbours: 1, Clock: clock{WholeLease}, Faults: 1},
		factNeighbour},
	{"two operators correct, and one forgets",
		Scenario{Attempts: 2, Plans: []plan{succeed, fail}, Resolvers: 1, Correctors: 2, Forgetters: 1, Clock: clock{WholeLease}},
		factCorrected | factStaleCorrection | factForgotten | factReplayed | factResolved},
	{"an operator corrects, with a fault",
		Scenario{Attempts: 2, Plans: []plan{succeed}, Correctors: 1, Clock: clock{WholeLease}, Faults: 1},
		factCorrected | factReplayed | factReplyLost},
	{"an operator corrects what a transaction stored",
		Scenario{Commit: true, Attempts: 2, Correctors: 1, Clock: clock{WholeLease}, Faults: 1},
		factCorrected | factCommitted},
	{"announced, reconcile, the whole cast",
		Scenario{Announce: true, Attempts: 1, Plans: []plan{succeed, refuse}, Sweepers: 1, Resolvers: 1, Clock: clock{PastContext, RestOfLease}, Faults: 1},
		announcedFacts | factMarkedUnknown | factResolved | factCrashed | factSentTwice | factLate},
	{"announced, a reconciler and an operator",
		Scenario{Announce: true, Attempts: 1, Plans: []plan{succeed, fail}, Reapers: 1, Requeuers: 1, Forgetters: 1, Clock: clock{PastContext, RestOfLease}},
		announcedFacts | factMarkedUnknown | factRequeued | factForgotten},
	{"announced, before its time",
		Scenario{Announce: true, Attempts: 1, Plans: []plan{succeed}, Reapers: 1, Clock: clock{PastContext - 150*time.Millisecond, 150 * time.Millisecond, RestOfLease}, Faults: 1},
		announcedFacts | factMarkedUnknown},
	{"announced, resume, a step",
		Scenario{Announce: true, Recovery: idempotent.Resume, Step: &leastOnce, Attempts: 2, Plans: []plan{succeed}, Clock: clock{PastContext, RestOfLease}},
		announcedFacts | factWaited | factTakenOver | factStepReplayed},
	{"announced, resume, a step and a fault",
		Scenario{Announce: true, Recovery: idempotent.Resume, Step: &leastOnce, Attempts: 1, Plans: []plan{succeed, stumble}, Reapers: 1, Clock: clock{PastContext, RestOfLease}, Faults: 1},
		announcedFacts | factWaited | factReleased | factLateWrite},
	{"announced, a step that runs at most once",
		Scenario{Announce: true, Recovery: idempotent.Resume, Step: &mostOnce, Attempts: 1, Plans: []plan{fail}, Reapers: 1, Witnesses: 1, Clock: clock{PastContext, RestOfLease}},
		announcedFacts | factWaited | factMarkedUnknown | factStepProven},
	{"announced, rerun, a step that runs at most once",
		Scenario{Announce: true, Recovery: idempotent.Rerun, Step: &mostOnce, Attempts: 1, Plans: []plan{succeed}, Sweepers: 1, Clock: clock{PastContext, RestOfLease}, Faults: 1},
		announcedFacts | factWaited | factMarkedUnknown | factTakenOver},
	{"announced, commit",
		Scenario{Announce: true, Commit: true, Second: otherResult, Attempts: 1, Sweepers: 1, Clock: clock{PastContext, RestOfLease}, Faults: 1},
		announcedFacts&^factAnnouncedTooLate | factWaited | factCommitted | factMarkedUnknown | factSecondCommit},
	{"announced, a step and then its transaction",
		Scenario{Announce: true, Recovery: idempotent.Resume, CommitStep: true, Attempts: 1, Plans: []plan{succeed, fail}, Reapers: 1, Clock: clock{PastContext, RestOfLease}, Faults: 1},
		announcedFacts | factWaited | factCommitted | factReleased},
}

var announcedFacts = factAnnounced | factAnnouncementRefused | factAnnouncedTooLate | factAnnouncedSettled | factAnnouncedFound

// long are the searches that -short leaves out: each takes a second or more of processor time.
var long = []string{
	"two operators correct, and one forgets",
	"reconcile, evidence that comes late",
	"announced, rerun, a step that runs at most once",
	"announced, resume, a step and a fault",
	"announced, a step and then its transaction",
	"rerun, at most once, evidence about the step",
	"reconcile, the whole cast",
	"announced, a step that runs at most once",
	"commit, the whole cast",
	"rerun, a crash or a lost reply",
	"reconcile, retention",
	"resume, a step",
	"announced, resume, a step",
	"resume, evidence about a step",
	"announced, reconcile, the whole cast",
	"resume, other guards submit evidence and reconcile",
	"rerun, a stranger",
	"reconcile, other guards submit evidence and reconcile",
	"resume, at most once, an operator requeues",
	"rerun, retention",
	"reconcile, redeployed as rerun",
}

// INV-1, INV-2, INV-3, INV-4, INV-5, INV-6, INV-7, INV-8, INV-9, INV-10,
// INV-11, INV-12: every schedule of every scenario satisfies every invariant.
// INV-14: enough schedules show the facts that the scenario is for.
func TestInvariants(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	all := Report{Shown: map[string]int{}}
	t.Run("scenarios", func(t *testing.T) {
		left := slices.Clone(long)
		for _, s := range scenarios {
			if i := slices.Index(left, s.name); i >= 0 {
				if left = slices.Delete(left, i, i+1); testing.Short() {
					continue
				}
			}
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				s.Faults += *moreFaults
				r := explored(t, s.Announce, func() (Report, error) { return Search(s.Scenario, limit) })
				for f := range s.shows.names() {
					if n := r.Shown[f]; n < often {
						t.Errorf("%d schedules show %q, want %d", n, f, often)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				all.add(r)
			})
		}
		if len(left) > 0 {
			t.Errorf("no scenario is called %q", left)
		}
	})
	if testing.Short() {
		return // what all searches show together needs all of them
	}
	t.Logf("in all %d schedules, %d steps\n%s", all.Schedules, all.Steps, all.shown())
	if all.Schedules < enough {
		t.Errorf("%d schedules, want %d", all.Schedules, enough)
	}
	for _, name := range factNames {
		if all.Shown[name] == 0 {
			t.Errorf("no schedule shows %q", name)
		}
	}
	for _, i := range invariants {
		for premise := range i.premise.names() {
			n := all.Shown[premise]
			t.Logf("%s, %s: checked after %d steps; %d schedules show %q", i.name, i.says, all.Steps, n, premise)
			if n < often {
				t.Errorf("%s: want %d schedules", i.name, often)
			}
		}
	}
}

// explored returns the report of a search without a violation.
func explored(t *testing.T, bubble bool, search func() (Report, error)) (r Report) {
	t.Helper()
	start := time.Now()
	var err error
	if inBubble(t, bubble, func() { r, err = search() }); err != nil {
		t.Fatal(err)
	}
	if r.Violation != nil {
		t.Fatal(r.Violation)
	}
	t.Logf("%d schedules, %d steps, %d states, %d records in the end, %d answers, in %s\n%s",
		r.Schedules, r.Steps, r.States, r.Ends, r.Answers, time.Since(start).Round(time.Millisecond), r.shown())
	return r
}

func inBubble(t *testing.T, needed bool, f func()) {
	if needed {
		synctest.Test(t, func(*testing.T) { f() })
	} else {
		f()
	}
}

var pairs = []struct {
	name string
	Pair
	shows string
}{
	{"a run of a reconciler for one operation, a handler for the other",
		Pair{actors: []pairRole{due("charge"), handler("refund")}, last: []pairRole{due("charge"), handler("refund")}},
		`found by the scan, marked unknown, processed for the other operation, position replaced, position taken by another,
		position lost while it read, killed with the position, record written by another, asked again after the pause, two read at the same time`},
	{"two handlers for one operation",
		Pair{done: true, actors: []pairRole{handler("refund"), handler("refund")}, last: []pairRole{due("charge"), handler("refund")}},
		`found by the scan, marked unknown, released, position replaced, position taken by another,
		position lost while it read, killed with the position, record written by another, asked again after the pause, two read at the same time`},
	{"a run that announced itself",
		Pair{herald: stored, actors: []pairRole{due("charge"), due("charge")}, last: []pairRole{due("charge"), handler("refund")}},
		"listed in progress, found by the scan, marked unknown, processed for the other operation, record written by another"},
	{"an announcement in transit",
		Pair{herald: inTransit, actors: []pairRole{due("charge"), requeue("charge"), arrives}, last: []pairRole{due("charge"), handler("refund")}},
		"announced, announced too late, listed in progress, found by the scan, marked unknown, record written by another"},
	{"an operator",
		Pair{actors: []pairRole{due("refund"), requeue("refund")}, last: []pairRole{due("charge"), due("refund")}},
		`found by the scan, marked unknown, requeued, requeued after its lease, position replaced, killed with the position,
		record written by another, asked again after the pause`},
}

// After one fault in any order of the calls, the end of each lease is processed,
// each record is asked about by the reconciler that has its resolver and by one at a
// time, and the evidence is written once.
func TestPairs(t *testing.T) {
	t.Parallel()
	for _, s := range pairs {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			r := explored(t, true, func() (Report, error) { return SearchPair(s.Pair, limit) })
			if r.Schedules < 1000 {
				t.Errorf("%d schedules, want at least 1000", r.Schedules)
			}
			for fact := range strings.SplitSeq(s.shows, ",") {
				if n := r.Shown[strings.TrimSpace(fact)]; n < 3 {
					t.Errorf("%d schedules show %q", n, fact)
				}
			}
		})
	}
}

// The same search runs the same schedules.
func TestSearchIsDeterministic(t *testing.T) {
	t.Parallel()
	resume := Scenario{Announce: true, Recovery: idempotent.Resume, Step: &leastOnce, Attempts: 2, Plans: []plan{succeed}, Clock: clock{PastContext, RestOfLease}}
	for name, search := range map[string]func() (Report, error){
		"one record": func() (Report, error) {
			return Search(Scenario{Attempts: 2, Resolvers: 1, Clock: clock{WholeLease}}, limit)
		},
		"announced": func() (Report, error) { return Search(resume, limit) },
		"two records": func() (Report, error) {
			return SearchPair(Pair{actors: []pairRole{handler("refund")}, last: []pairRole{due("charge"), handler("refund")}}, limit)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble := name != "one record"
			if got, want := explored(t, bubble, search), explored(t, bubble, search); !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// A search ends at its limit, with an error.
func TestLimit(t *testing.T) {
	t.Parallel()
	if r, err := Search(Scenario{Attempts: 2}, 10); err == nil || r.Schedules != 10 {
		t.Errorf("got %d schedules and error %v", r.Schedules, err)
	}
}

func allBut(name string) (names []string) {
	for _, i := range invariants {
		if i.name != name {
			names = append(names, i.name)
		}
	}
	return names
}

func (r *Report) add(other Report) {
	r.Schedules += other.Schedules
	r.Steps += other.Steps
	for name, n := range other.Shown {
		r.Shown[name] += n
	}
}

// shown lists the facts and the number of schedules that showed each.
func (r *Report) shown() string {
	var lines []string
	for _, fact := range slices.Sorted(maps.Keys(r.Shown)) {
		lines = append(lines, fmt.Sprintf("%s %d", fact, r.Shown[fact]))
	}
	return strings.Join(lines, ", ")
}

// A search that merges schedules with the same state finds the states, the
// ends, the answers and the facts of a search that follows each schedule.
// Schedules that are merged behave in the same way from there on, and break the
// same invariants, also if the store is broken.
func TestMergingLosesNothing(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		Scenario
	}{
		{"one attempt, two faults", Scenario{Attempts: 1, Clock: clock{WholeLease}, Faults: 2}},
		{"two attempts", Scenario{Attempts: 2}},
		{"a resolver", Scenario{Attempts: 1, Resolvers: 1, Clock: clock{WholeLease}, Faults: 1}},
		{"a stranger", Scenario{Attempts: 1, Strangers: 1, Clock: clock{PastRetention}}},
		{"an announcement", Scenario{Announce: true, Attempts: 1, Plans: []plan{succeed}, Reapers: 1, Clock: clock{PastContext, RestOfLease}}},
		{"rerun", Scenario{Recovery: idempotent.Rerun, Attempts: 1, Sweepers: 1, Clock: clock{WholeLease}}},
		{"inserts that do not check for a record", Scenario{Attempts: 2, Plans: []plan{fail}, Store: overwriting}},
		{"writes that do not check the write id", Scenario{Attempts: 1, Resolvers: 1, Clock: clock{WholeLease}, Faults: 1, Store: blind}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.Ask = []string{} // no invariant may end a search early; the twins are checked instead
			merged := search{setUp: row.setUp, limit: limit, allOrders: true, merge: true}
			all := search{setUp: row.setUp, limit: limit, allOrders: true}
			seen := watchTwins(t, &all)
			inBubble(t, row.Announce, func() {
				run(t, &merged)
				run(t, &all)
			})
			t.Logf("%d schedules, merged %d; %d states, %d steps taken again from the same state, %d of them broke an invariant",
				all.report.Schedules, merged.report.Schedules, len(all.fewest), seen.again, seen.broken)
			same(t, "states", all.fewest, merged.fewest)
			sameFindings(t, &all, &merged)
			if seen.again < 1000 || row.Store != nil && seen.broken < 100 {
				t.Error("too few of them")
			}
		})
	}
}

// twins counts the steps that were repeated from the same state.
type twins struct{ again, broken int }

// watchTwins fails the test if one step from the same state leads to two
// different states, in what may follow or in what they break: then the first
// states were not the same.
func watchTwins(t *testing.T, s *search) *twins {
	type from struct {
		state  state
		faults int
		step   step
	}
	type to struct{ state, steps, broken string }
	leads, seen := map[from]to{}, &twins{}
	s.saw = func(before state, faults int, next step, at stage) {
		w := at.(*world)
		after := to{steps: fmt.Sprint(w.steps())}
		if !w.ended {
			after.state = fmt.Sprint(w.state())
		}
		w.asked = invariants
		w.check()
		if w.broken != nil {
			after.broken = w.broken.Invariant
		}
		w.asked, w.broken = nil, nil
		f := from{before, faults, next}
		first, again := leads[f]
		if !again {
			leads[f] = after
			return
		}
		seen.again++
		if after.broken != "" {
			seen.broken++
		}
		if first != after && !t.Failed() {
			t.Errorf("%v leads from one state to two:\n%+v\n%+v", next, first, after)
		}
	}
	return seen
}

// A search in which actors take turns finds the ends, the answers and the facts
// of one that also tries the orders of commuting steps.
func TestTurnsLoseNothing(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		Scenario
	}{
		{"two attempts", Scenario{Attempts: 2, Clock: clock{WholeLease}, Faults: 1}},
		{"a sweeper and a resolver", Scenario{Attempts: 1, Sweepers: 1, Resolvers: 1, Clock: clock{WholeLease}, Faults: 1}},
		{"two resolvers", Scenario{Attempts: 1, Resolvers: 2, Clock: clock{PastDeadline, PastLease}}},
		{"a courier", Scenario{Attempts: 1, Couriers: 1, Clock: clock{WholeLease}, Faults: 1}},
		{"resume, evidence about a step", Scenario{Recovery: idempotent.Resume, Step: &leastOnce, Attempts: 1, Witnesses: 1, Clock: clock{WholeLease}}},
		{"a stranger", Scenario{Attempts: 1, Strangers: 1, Clock: clock{WholeLease, PastRetention}}},
		{"an announcement", Scenario{Announce: true, Recovery: idempotent.Resume, Step: &leastOnce, Attempts: 1, Reapers: 1, Clock: clock{PastContext, RestOfLease}}},
		{"rerun, a sweeper", Scenario{Recovery: idempotent.Rerun, Attempts: 1, Sweepers: 1, Clock: clock{WholeLease}, Faults: 1}},
		{"commit", Scenario{Commit: true, Attempts: 2, Clock: clock{WholeLease}, Faults: 1}},
		{"rerun, two attempts", Scenario{Recovery: idempotent.Rerun, Attempts: 2, Clock: clock{PastRetention}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			turns := search{setUp: row.setUp, limit: limit, merge: true}
			all := search{setUp: row.setUp, limit: limit, merge: true, allOrders: true}
			inBubble(t, row.Announce, func() {
				run(t, &turns)
				run(t, &all)
			})
			t.Logf("%d schedules, in turns %d", all.report.Schedules, turns.report.Schedules)
			sameFindings(t, &all, &turns)
		})
	}
}

func run(t *testing.T, s *search) {
	t.Helper()
	if r, err := s.run(); err != nil || r.Violation != nil {
		t.Fatal(err, r.Violation)
	}
}

func sameFindings(t *testing.T, all, fewer *search) {
	t.Helper()
	same(t, "ends", all.ends, fewer.ends)
	same(t, "answers", all.answers, fewer.answers)
	same(t, "facts", all.report.Shown, fewer.report.Shown)
}

// same compares the keys of two maps.
func same[K comparable, V any](t *testing.T, what string, all, fewer map[K]V) {
	t.Helper()
	lost := slices.DeleteFunc(slices.Collect(maps.Keys(all)), func(k K) bool { _, found := fewer[k]; return found })
	if len(lost) > 0 || len(fewer) > len(all) {
		t.Errorf("%d %s are lost of %d, among them %v; found %d", len(lost), what, len(all), lost[:min(3, len(lost))], len(fewer))
	}
}
