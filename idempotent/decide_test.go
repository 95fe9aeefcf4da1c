// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// The tables below are those of the design, row by row. Each boundary is tested
// at its millisecond and one before.

var (
	at         = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	mine       = FingerprintBytes([]byte("mine"))
	others     = FingerprintBytes([]byte("others"))
	laterRule  = Fingerprint{fingerprintVersion + 1}
	ms         = time.Millisecond
	ended      = at          // a lease that ends at `at` has ended at `at`
	live       = at.Add(ms)  // one millisecond left
	past       = at          // a record that expires at `at` is past at `at`
	notPast    = at.Add(ms)  // one millisecond left
	never      = time.Time{} // no expiry
	ownerA     = driver.Owner{1}
	ownerB     = driver.Owner{2}
	allStates  = []driver.State{driver.StateInProgress, driver.StateCompleted, driver.StateRetryable, driver.StateUnknown}
	recoveries = []Recovery{Reconcile, Resume, Rerun}
	doneStep   = []driver.StepRecord{{Name: "a", Finished: true, Mode: driver.AtMostOnce}}
	begunStep  = []driver.StepRecord{{Name: "a", Mode: driver.AtLeastOnce}}
	cutStep    = []driver.StepRecord{{Name: "a", Finished: true, Mode: driver.AtMostOnce}, {Name: "b", Mode: driver.AtMostOnce}}
)

// decisions are the rows of the decision table: the record that a request finds,
// in words and as a value, and the verdict. docs/concepts.md shows them.
var decisions = []struct {
	meets string
	r     driver.Record
	want  verdict
}{
	{"completed", driver.Record{State: driver.StateCompleted, Expires: notPast}, verdictReplay},
	{"in progress, lease live, `Reconcile`", driver.Record{State: driver.StateInProgress, LeaseEnd: live}, verdictInProgress},
	{"in progress, lease live, `Resume` or `Rerun`", driver.Record{State: driver.StateInProgress, LeaseEnd: live, Recovery: Rerun}, verdictInProgress},
	{"in progress, lease ended, `Reconcile`", driver.Record{State: driver.StateInProgress, LeaseEnd: ended}, verdictMarkUnknown},
	{"in progress, lease ended, `Resume`", driver.Record{State: driver.StateInProgress, LeaseEnd: ended, Recovery: Resume, Steps: doneStep}, verdictTakeOver},
	{"in progress, lease ended, `Rerun`", driver.Record{State: driver.StateInProgress, LeaseEnd: ended, Recovery: Rerun}, verdictTakeOver},
	{"in progress, lease ended, an `AtMostOnce` step has begun and not finished", driver.Record{State: driver.StateInProgress, LeaseEnd: ended, Recovery: Resume, Steps: cutStep}, verdictMarkUnknown},
	{"retryable", driver.Record{State: driver.StateRetryable, LeaseEnd: live}, verdictTakeOver},
	{"unknown", driver.Record{State: driver.StateUnknown, LeaseEnd: ended}, verdictUnresolved},
	{"past its retention, in any state", driver.Record{State: driver.StateCompleted, Expires: past}, verdictReinsert},
	{"another fingerprint, in any state", driver.Record{State: driver.StateInProgress, LeaseEnd: live, Fingerprint: others}, verdictMismatch},
	{"another fingerprint version, in any state", driver.Record{State: driver.StateCompleted, Fingerprint: laterRule}, verdictIncomparable},
	{"a state that this code does not know", driver.Record{State: driver.StateUnknown + 1}, verdictUnreadable},
}

// F31, F32, F33, F36, F42: the decision table.
func TestDecide(t *testing.T) {
	t.Parallel()
	check := func(name string, r driver.Record, want verdict) {
		t.Helper()
		if r.Fingerprint == (Fingerprint{}) {
			r.Fingerprint = mine
		}
		if got := decide(&r, mine, at); got != want {
			t.Errorf("%s: got verdict %d, want %d", name, got, want)
		}
	}
	for _, row := range decisions {
		check(row.meets, row.r, row.want)
	}
	check("completed without expiry", driver.Record{State: driver.StateCompleted, Expires: never}, verdictReplay)
	check("retryable, Rerun", driver.Record{State: driver.StateRetryable, LeaseEnd: ended, Recovery: Rerun}, verdictTakeOver)
	check("unknown, Rerun", driver.Record{State: driver.StateUnknown, LeaseEnd: ended, Recovery: Rerun}, verdictUnresolved)
	check("no state", driver.Record{}, verdictUnreadable)
	for _, recovery := range recoveries {
		check("live, "+recovery.String(), driver.Record{State: driver.StateInProgress, LeaseEnd: live, Recovery: recovery, Steps: cutStep}, verdictInProgress)
		check("interrupted, "+recovery.String(), driver.Record{State: driver.StateInProgress, LeaseEnd: ended, Recovery: recovery, Steps: cutStep}, verdictMarkUnknown)
		check("retryable with steps, "+recovery.String(), driver.Record{State: driver.StateRetryable, Recovery: recovery, Steps: begunStep}, verdictTakeOver)
	}
	check("Resume, a step to be run again", driver.Record{State: driver.StateInProgress, LeaseEnd: ended, Recovery: Resume, Steps: begunStep}, verdictTakeOver)
	check("Reconcile, its step done", driver.Record{State: driver.StateInProgress, LeaseEnd: ended, Steps: doneStep}, verdictMarkUnknown)
}

// F24: checks that come before the state apply in every state.
func TestDecideBeforeTheState(t *testing.T) {
	t.Parallel()
	for _, state := range allStates {
		for _, recovery := range recoveries {
			for _, lease := range []time.Time{ended, live} {
				base := driver.Record{State: state, Recovery: recovery, LeaseEnd: lease, Fingerprint: mine}
				name := fmt.Sprintf("%s, %s, lease %v", state, recovery, lease)

				expired := base
				expired.Expires = past
				for _, fp := range []Fingerprint{mine, others, laterRule} {
					if got := decide(&expired, fp, at); got != verdictReinsert {
						t.Errorf("%s, past retention: got verdict %d, want Reinsert", name, got)
					}
				}
				for _, expires := range []time.Time{never, notPast} {
					r := base
					r.Expires = expires
					if got := decide(&r, others, at); got != verdictMismatch {
						t.Errorf("%s, other fingerprint: got verdict %d, want Mismatch", name, got)
					}
					if got := decide(&r, laterRule, at); got != verdictIncomparable {
						t.Errorf("%s, other fingerprint version: got verdict %d, want Incomparable", name, got)
					}
				}
			}
		}
	}
}

func TestDecideLate(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		stands driver.State
		owner  driver.Owner
		fp     Fingerprint
		past   bool
		want   driver.State
		answer lateVerdict
	}{
		// Still owned by this attempt.
		{driver.StateInProgress, ownerA, mine, false, driver.StateCompleted, lateWrite},
		{driver.StateInProgress, ownerA, mine, false, driver.StateRetryable, lateWrite},
		{driver.StateInProgress, ownerA, mine, false, driver.StateUnknown, lateWrite},
		{driver.StateUnknown, ownerA, mine, false, driver.StateCompleted, lateWrite},
		{driver.StateUnknown, ownerA, mine, false, driver.StateRetryable, lateWrite},
		{driver.StateUnknown, ownerA, mine, false, driver.StateUnknown, lateAgreed},
		{driver.StateRetryable, ownerA, mine, false, driver.StateCompleted, lateContradict},
		{driver.StateRetryable, ownerA, mine, false, driver.StateRetryable, lateAgreed},
		{driver.StateRetryable, ownerA, mine, false, driver.StateUnknown, lateContradict},
		{driver.StateCompleted, ownerA, mine, false, driver.StateCompleted, lateStanding},
		{driver.StateCompleted, ownerA, mine, false, driver.StateRetryable, lateStanding},
		{driver.StateCompleted, ownerA, mine, false, driver.StateUnknown, lateStanding},
		{driver.StateCompleted, ownerA, mine, true, driver.StateCompleted, lateLost},
		// Owned by another attempt.
		{driver.StateInProgress, ownerB, mine, false, driver.StateCompleted, lateLost},
		{driver.StateUnknown, ownerB, mine, false, driver.StateCompleted, lateLost},
		{driver.StateUnknown, ownerB, mine, false, driver.StateUnknown, lateLost},
		{driver.StateRetryable, ownerB, mine, false, driver.StateRetryable, lateLost},
		{driver.StateCompleted, ownerB, mine, false, driver.StateCompleted, lateStanding},
		{driver.StateCompleted, ownerB, mine, true, driver.StateCompleted, lateLost},
		{driver.StateCompleted, ownerB, others, false, driver.StateCompleted, lateLost}, // a later use of the key
	} {
		r := driver.Record{State: row.stands, Owner: row.owner, Fingerprint: row.fp, Expires: notPast}
		if row.past {
			r.Expires = past
		}
		if got := decideLate(&r, ownerA, mine, &driver.Record{State: row.want}, at); got != row.answer {
			t.Errorf("%+v: got verdict %d", row, got)
		}
	}
}

// A record in the same state agrees with its owner only if it has the steps and
// the reference that the owner knows. A release by another writer does not have
// them.
func TestDecideLate_AgreesAboutEverything(t *testing.T) {
	t.Parallel()
	step := func(change func(*driver.StepRecord)) func(*driver.Record) {
		return func(r *driver.Record) {
			r.Steps = slices.Clone(doneStep)
			change(&r.Steps[0])
		}
	}
	for _, state := range []driver.State{driver.StateRetryable, driver.StateUnknown} {
		stands := driver.Record{State: state, Owner: ownerA, Fingerprint: mine, Steps: doneStep, Ref: "order 7"}
		for _, row := range []struct {
			name   string
			change func(*driver.Record)
			want   lateVerdict
		}{
			{"equal", func(*driver.Record) {}, lateAgreed},
			{"a step more", func(r *driver.Record) {
				r.Steps = append(slices.Clone(doneStep), driver.StepRecord{Name: "ship", Mode: driver.AtMostOnce})
			}, lateWrite},
			{"a step less", func(r *driver.Record) { r.Steps = nil }, lateWrite},
			{"a step not finished", func(r *driver.Record) { r.Steps = begunStep }, lateWrite},
			{"a step that is only not finished", step(func(s *driver.StepRecord) { s.Finished = false }), lateWrite},
			{"another result of a step", step(func(s *driver.StepRecord) { s.Result = []byte("2") }), lateWrite},
			{"another encoding of a step", step(func(s *driver.StepRecord) { s.Encoding += "+br" }), lateWrite},
			{"another mode of a step", step(func(s *driver.StepRecord) { s.Mode = driver.AtLeastOnce }), lateWrite},
			{"another name of a step", step(func(s *driver.StepRecord) { s.Name = "ship" }), lateWrite},
			{"another reference", func(r *driver.Record) { r.Ref = "order 8" }, lateWrite},
		} {
			want := stands
			row.change(&want)
			if got := decideLate(&stands, ownerA, mine, &want, at); got != row.want {
				t.Errorf("%s, %s: got verdict %d, want %d", state, row.name, got, row.want)
			}
		}
	}
}

func TestDecideResolution(t *testing.T) {
	t.Parallel()
	opened := at.Add(-time.Hour)
	for _, row := range []struct {
		stands  driver.State
		lease   time.Time
		open    time.Time // OpenSince
		outcome resolveVerdict
		not     resolveVerdict // not executed
		step    resolveVerdict
		correct resolveVerdict
	}{
		{driver.StateInProgress, live, never, resolveTooEarly, resolveTooEarly, resolveWrite, resolveTooEarly},
		{driver.StateInProgress, ended, never, resolveWrite, resolveWrite, resolveWrite, resolveWrite},
		{driver.StateUnknown, live, never, resolveWrite, resolveTooEarly, resolveWrite, resolveWrite},
		{driver.StateUnknown, ended, never, resolveWrite, resolveWrite, resolveWrite, resolveWrite},
		{driver.StateRetryable, live, never, resolveContradict, resolveAgreed, resolveWrite, resolveWrite},
		{driver.StateRetryable, ended, never, resolveContradict, resolveAgreed, resolveWrite, resolveWrite},
		{driver.StateRetryable, live, opened, resolveWrite, resolveTooEarly, resolveWrite, resolveWrite},
		{driver.StateRetryable, ended, opened, resolveWrite, resolveWrite, resolveWrite, resolveWrite},
		{driver.StateCompleted, live, never, resolveCompare, resolveSettled, resolveSettled, resolveSettled},
		{driver.StateCompleted, ended, never, resolveCompare, resolveSettled, resolveSettled, resolveSettled},
	} {
		for what, want := range map[claims]resolveVerdict{
			claimsOutcome: row.outcome, claimsNotExecuted: row.not, claimsStep: row.step, claimsCorrection: row.correct,
		} {
			r := driver.Record{State: row.stands, LeaseEnd: row.lease, OpenSince: row.open, Owner: ownerA}
			for _, expires := range []time.Time{never, notPast} {
				r.Expires = expires
				if got := decideResolution(&r, what, r.Token(), at); got != want {
					t.Errorf("%s, evidence %d: got verdict %d, want %d", row.stands, what, got, want)
				}
				// Only "not executed" is about one attempt, and never about a later one.
				elsewhere := want
				if what == claimsNotExecuted && row.stands != driver.StateCompleted {
					elsewhere = resolveStale
				}
				if got := decideResolution(&r, what, (&driver.Record{Owner: ownerB}).Token(), at); got != elsewhere {
					t.Errorf("%s, evidence %d about another attempt: got verdict %d, want %d", row.stands, what, got, elsewhere)
				}
			}
			r.Expires = past
			if got := decideResolution(&r, what, r.Token(), at); got != resolveGone {
				t.Errorf("%s, evidence %d, past retention: got verdict %d", row.stands, what, got)
			}
		}
	}
	// A step that has begun is also open.
	r := driver.Record{State: driver.StateRetryable, LeaseEnd: ended, Steps: begunStep}
	if got := decideResolution(&r, claimsNotExecuted, r.Token(), at); got != resolveWrite {
		t.Errorf("retryable with an open step: got verdict %d", got)
	}
}

// A correction is about the stored outcome of one attempt, whose lease has ended. An equal
// outcome is agreed, whatever the token.
func TestDecideCorrection(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		stands  driver.State
		lease   time.Time
		owner   driver.Owner
		same    bool
		expires time.Time
		want    correctVerdict
	}{
		{driver.StateCompleted, ended, ownerA, false, notPast, correctWrite},
		{driver.StateCompleted, ended, ownerA, false, never, correctWrite},
		{driver.StateCompleted, live, ownerA, false, notPast, correctTooEarly},
		{driver.StateCompleted, ended, ownerB, false, notPast, correctStale},
		{driver.StateCompleted, live, ownerB, false, notPast, correctStale},
		{driver.StateCompleted, live, ownerB, true, notPast, correctAgreed},
		{driver.StateCompleted, ended, ownerA, true, past, correctGone},
		{driver.StateUnknown, ended, ownerA, false, never, correctNothing},
		{driver.StateRetryable, ended, ownerA, false, notPast, correctNothing},
		{driver.StateInProgress, live, ownerA, false, never, correctNothing},
	} {
		r := driver.Record{State: row.stands, LeaseEnd: row.lease, Owner: ownerA, Expires: row.expires}
		if got := decideCorrection(&r, (&driver.Record{Owner: row.owner}).Token(), row.same, at); got != row.want {
			t.Errorf("%+v: got verdict %d", row, got)
		}
	}
}

func TestDecideStep(t *testing.T) {
	t.Parallel()
	name := doneStep[0].Name
	for _, row := range []struct {
		name    string
		stands  []driver.StepRecord
		names   []string
		same    bool
		what    claims
		verdict stepVerdict
	}{
		{"not begun", nil, nil, false, claimsStep, stepWrite},
		{"begun", begunStep, nil, false, claimsStep, stepWrite},
		{"declared", begunStep, []string{"ship", name}, false, claimsStep, stepWrite},
		{"not declared", begunStep, []string{"ship"}, false, claimsStep, stepUndeclared},
		{"not declared, and the same", doneStep, []string{"ship"}, true, claimsStep, stepUndeclared},
		{"the same result", doneStep, nil, true, claimsStep, stepAgreed},
		{"another result", doneStep, nil, false, claimsStep, stepSettled},
		{"a correction", doneStep, nil, false, claimsCorrection, stepWrite},
		{"a correction by the same result", doneStep, nil, true, claimsCorrection, stepAgreed},
		{"a correction of nothing", nil, nil, false, claimsCorrection, stepWrite},
	} {
		r := driver.Record{Steps: row.stands, StepNames: row.names}
		if got := decideStep(&r, name, row.same, row.what); got != row.verdict {
			t.Errorf("%s: got verdict %d, want %d", row.name, got, row.verdict)
		}
	}
}

// Evidence about a step lets the next request continue only if the recovery
// allows it and no handler can be running.
func TestStateAfterStep(t *testing.T) {
	t.Parallel()
	openOnce := driver.StepRecord{Name: "a", Mode: driver.AtMostOnce}
	other := driver.StepRecord{Name: "b", Mode: driver.AtMostOnce}
	for _, state := range []driver.State{driver.StateInProgress, driver.StateUnknown, driver.StateRetryable} {
		for _, lease := range []time.Time{ended, live} {
			for _, row := range []struct {
				recovery Recovery
				steps    []driver.StepRecord // before the evidence about step a
				frees    bool                // an unknown record
			}{
				{Resume, []driver.StepRecord{openOnce}, true},
				{Rerun, []driver.StepRecord{openOnce}, true},
				{Reconcile, []driver.StepRecord{openOnce}, false},
				{Resume, begunStep, true},
				{Resume, doneStep, false},                             // a correction
				{Resume, nil, false},                                  // a step that never began
				{Resume, []driver.StepRecord{openOnce, other}, false}, // another step waits, too
			} {
				want := state
				if row.frees && state == driver.StateUnknown {
					want = driver.StateRetryable
				}
				r := driver.Record{State: state, Recovery: row.recovery, LeaseEnd: lease, Steps: row.steps}
				next := r
				next.Steps = withStep(r.Steps, doneStep[0])
				if got := stateAfterStep(&r, &next, "a"); got != want {
					t.Errorf("%s, lease %s, %+v: got %s", state, lease, row, got)
				}
			}
		}
	}
}

// F40, G03: the verdict of reconciliation about a listed record, in every state.
func TestDecideSweep(t *testing.T) {
	t.Parallel()
	due := at.Add(-time.Hour)
	for _, row := range []struct {
		name string
		r    driver.Record
		want sweepVerdict
	}{
		{"unknown", driver.Record{State: driver.StateUnknown, Due: due}, sweepResolve},
		{"unknown, due now", driver.Record{State: driver.StateUnknown, Due: at}, sweepResolve},
		{"unknown, due later", driver.Record{State: driver.StateUnknown, Due: at.Add(ms)}, sweepStale},
		{"unknown, not due at all", driver.Record{State: driver.StateUnknown}, sweepStale},
		{"unknown, given up", driver.Record{State: driver.StateUnknown, Due: due, Exhausted: true}, sweepStale},
		{"unknown, its retention over", driver.Record{State: driver.StateUnknown, Due: due, Expires: past}, sweepStale},
		{"unknown, its retention not over", driver.Record{State: driver.StateUnknown, Due: due, Expires: notPast}, sweepResolve},
		{"retryable with steps", driver.Record{State: driver.StateRetryable, Recovery: Resume, Due: due, Steps: doneStep}, sweepResolve},
		{"completed", driver.Record{State: driver.StateCompleted, Due: due}, sweepStale},
		{"a state of a later version", driver.Record{State: driver.StateUnknown + 1, Due: due}, sweepStale},
		{"live, Reconcile", driver.Record{State: driver.StateInProgress, LeaseEnd: live, Due: due}, sweepStale},
		{"ended, Reconcile", driver.Record{State: driver.StateInProgress, LeaseEnd: ended, Due: due}, sweepMarkUnknown},
		{"live, Resume", driver.Record{State: driver.StateInProgress, LeaseEnd: live, Due: due, Recovery: Resume}, sweepStale},
		{"ended, Resume", driver.Record{State: driver.StateInProgress, LeaseEnd: ended, Due: due, Recovery: Resume, Steps: doneStep}, sweepRelease},
		{"ended, interrupted", driver.Record{State: driver.StateInProgress, LeaseEnd: ended, Due: due, Recovery: Resume, Steps: cutStep}, sweepMarkUnknown},
	} {
		if got := decideSweep(&row.r, at); got != row.want {
			t.Errorf("%s: got verdict %d, want %d", row.name, got, row.want)
		}
	}
}

// Only a stored outcome of the named attempt can be discarded, after its lease.
func TestDecideForget(t *testing.T) {
	t.Parallel()
	mine := (&driver.Record{Owner: ownerA}).Token()
	for _, row := range []struct {
		name, token string
		r           driver.Record
		want        forgetVerdict
	}{
		{"completed", mine, driver.Record{State: driver.StateCompleted, LeaseEnd: ended}, forgetWrite},
		{"completed, not past its retention", mine, driver.Record{State: driver.StateCompleted, LeaseEnd: ended, Expires: notPast}, forgetWrite},
		{"completed, past its retention", mine, driver.Record{State: driver.StateCompleted, LeaseEnd: ended, Expires: past}, forgetGone},
		{"completed, lease live", mine, driver.Record{State: driver.StateCompleted, LeaseEnd: live}, forgetTooEarly},
		{"completed by another attempt", "00", driver.Record{State: driver.StateCompleted, LeaseEnd: ended}, forgetStale},
		{"no attempt", "", driver.Record{State: driver.StateCompleted, LeaseEnd: ended}, forgetStale},
		{"in progress", mine, driver.Record{State: driver.StateInProgress, LeaseEnd: live}, forgetTooEarly},
		{"in progress, lease ended", mine, driver.Record{State: driver.StateInProgress, LeaseEnd: ended}, forgetNothing},
		{"taken over", "00", driver.Record{State: driver.StateInProgress, LeaseEnd: live}, forgetStale},
		{"unknown", mine, driver.Record{State: driver.StateUnknown, LeaseEnd: live}, forgetNothing},
		{"retryable", mine, driver.Record{State: driver.StateRetryable, LeaseEnd: live}, forgetAgreed},
		{"a state of a later version", mine, driver.Record{State: driver.StateUnknown + 1, LeaseEnd: ended}, forgetNothing},
	} {
		row.r.Owner = ownerA
		if got := decideForget(&row.r, row.token, at); got != row.want {
			t.Errorf("%s: got verdict %d, want %d", row.name, got, row.want)
		}
	}
}

// Only the record's owner writes a step, and only until another party judges the
// record.
func TestMayCheckpoint(t *testing.T) {
	t.Parallel()
	for _, state := range allStates {
		for _, owner := range []driver.Owner{ownerA, ownerB} {
			want := state == driver.StateInProgress && owner == ownerA
			if got := mayCheckpoint(&driver.Record{State: state, Owner: owner}, ownerA); got != want {
				t.Errorf("%s, owner %x: %t", state, owner[:1], got)
			}
		}
	}
}

// The provider has forgotten the downstream keys at the end of its retention, and
// not before. Without an earlier open run there are no keys to forget.
func TestKeysForgotten(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		open time.Time
		now  time.Time
		want bool
	}{
		{at, at.Add(time.Hour - ms), false},
		{at, at.Add(time.Hour), true},
		{never, at, false},
	} {
		a := attempt{opts: &Options{Operation: Operation{DownstreamRetention: time.Hour}}, openBefore: row.open}
		if got := a.keysForgotten(row.now); got != row.want {
			t.Errorf("open since %v, at %v: got %t", row.open, row.now, got)
		}
	}
}

// answers is what a request gets for each verdict.
var answers = map[verdict]string{
	verdictReplay:       "the stored outcome; nothing runs",
	verdictInProgress:   "`*InProgressError`, with the time to wait and the end of the lease; or it waits (`WaitFor`)",
	verdictMismatch:     "`*MismatchError`",
	verdictIncomparable: "`*ReplayUnavailableError`: the fingerprints cannot be compared",
	verdictReinsert:     "the record counts as absent: it claims the key and runs",
	verdictTakeOver:     "it takes over the record and runs",
	verdictMarkUnknown:  "the record becomes unknown; `*UnresolvedError`",
	verdictUnresolved:   "`*UnresolvedError`, with the time of the next reconciliation",
	verdictUnreadable:   "`*StoreError`; nothing runs",
}

// DecisionTable returns the table of docs/concepts.md.
func DecisionTable() string {
	var table strings.Builder
	table.WriteString("| record of the key | answer to the request |\n| --- | --- |\n")
	for _, row := range decisions {
		fmt.Fprintf(&table, "| %s | %s |\n", row.meets, answers[row.want])
	}
	return table.String()
}

// The diagram of docs/concepts.md has the moves between states that the verdicts
// allow, and no others.
func TestDiagramOfStates(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/concepts.md")
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[string]bool{}
	for _, arrow := range regexp.MustCompile(`(?m)^ +(\w+) --> (\w+):`).FindAllStringSubmatch(string(page), -1) {
		if arrow[1] != arrow[2] {
			drawn[arrow[1]+" to "+arrow[2]] = true
		}
	}
	allowed := map[string]bool{}
	for _, state := range allStates {
		for _, recovery := range recoveries {
			for _, lease := range []time.Time{ended, live} {
				for _, steps := range [][]driver.StepRecord{nil, doneStep, begunStep, cutStep} {
					r := driver.Record{State: state, Recovery: recovery, LeaseEnd: lease, Steps: steps, Fingerprint: mine, Owner: ownerA, Due: at}
					for _, to := range following(&r) {
						if to != state {
							allowed[state.String()+" to "+to.String()] = true
						}
					}
				}
			}
		}
	}
	if !maps.Equal(drawn, allowed) {
		t.Errorf("docs/concepts.md draws %q, and the verdicts allow %q", slices.Sorted(maps.Keys(drawn)), slices.Sorted(maps.Keys(allowed)))
	}
}

// following returns the states that a request, a sweep, the owner or evidence can
// give to r.
func following(r *driver.Record) (states []driver.State) {
	switch decide(r, mine, at) {
	case verdictTakeOver:
		states = append(states, driver.StateInProgress)
	case verdictMarkUnknown:
		states = append(states, driver.StateUnknown)
	default: // nothing is written
	}
	switch decideSweep(r, at) {
	case sweepRelease:
		states = append(states, driver.StateRetryable)
	case sweepMarkUnknown:
		states = append(states, driver.StateUnknown)
	default: // nothing is written
	}
	for _, outcome := range allStates[1:] {
		late := decideLate(r, ownerA, mine, &driver.Record{State: outcome}, at)
		if r.State == driver.StateInProgress || late == lateWrite || late == lateContradict {
			states = append(states, outcome)
		}
	}
	if decideForget(r, r.Token(), at) == forgetWrite {
		states = append(states, driver.StateRetryable)
	}
	evidence := map[claims]driver.State{claimsOutcome: driver.StateCompleted, claimsNotExecuted: driver.StateRetryable, claimsStep: r.State}
	for _, s := range r.Steps {
		next := *r
		next.Steps = withStep(r.Steps, driver.StepRecord{Name: s.Name, Mode: s.Mode, Finished: true})
		if to := stateAfterStep(r, &next, s.Name); to != r.State {
			evidence[claimsStep] = to
		}
	}
	for what, to := range evidence {
		if v := decideResolution(r, what, r.Token(), at); v == resolveWrite || v == resolveContradict {
			states = append(states, to)
		}
	}
	return states
}
