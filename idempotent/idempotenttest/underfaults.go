// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/faults"
)

// faultKind is a place where faults are injected, and their kinds.
type faultKind struct {
	name   string
	wire   bool
	faults []faults.Fault
	// line adds the faults to the calls of a lab.
	line func(testing.TB, Fixture, driver.Store, *faults.Injector) driver.Store
}

var (
	storeFaults = faultKind{
		name:   "Store",
		faults: []faults.Fault{faults.LostRequest, faults.LostReply, faults.Repeated, faults.Throttled, faults.SlowRequest, faults.SlowReply},
		line:   func(_ testing.TB, _ Fixture, s driver.Store, in *faults.Injector) driver.Store { return faulty(s, in) },
	}
	wireFaults = faultKind{
		name: "Wire",
		wire: true,
		faults: []faults.Fault{faults.LostRequest, faults.LostReply, faults.Repeated, faults.Throttled, faults.ThroughputExceeded, faults.InternalError,
			faults.TransactionConflict, faults.ReplicatedWriteConflict, faults.SlowRequest, faults.SlowReply},
		line: func(t testing.TB, f Fixture, _ driver.Store, in *faults.Injector) driver.Store {
			return f.Wire(t, in.Transport(nil))
		},
	}
)

// chance is the probability of a fault in a call, besides the one call that
// always has a fault.
const chance = 0.1

// schedule returns the faults of a seed for a row that makes the given number of
// calls. Each row has its own schedules, so a few seeds give many schedules.
func (k faultKind) schedule(row string, seed uint64, calls int) faults.Plan {
	h := fnv.New64a()
	h.Write([]byte(row))
	r := rand.New(rand.NewPCG(seed, h.Sum64()))
	certain := faults.On("", k.faults[r.IntN(len(k.faults))], 1+r.IntN(calls))
	var odds []faults.Odds
	for _, fault := range k.faults {
		odds = append(odds, faults.Odds{Fault: fault, P: chance / float64(len(k.faults))})
	}
	return faults.FirstOf(certain, faults.Seeded(r.Uint64(), odds...))
}

// enough is the number of runs after which each fault must have happened, and nine
// tenths of the runs must have met one.
const enough = 200

// atOnce is the number of simultaneous runs of a row: some runs wait.
const atOnce = 8

// underFaults runs a row under the schedules of its seeds.
func (s scenario) underFaults(t *testing.T, f Fixture, seeds []uint64, k faultKind) *tally {
	t.Helper()
	row := newTally()
	// Count the calls without faults.
	calm := s.trial(t, f, k, nil, 0)
	calm.report(t, "without faults")
	if len(calm.broken) > 0 || calm.calls == 0 { // no calls, so no faults
		return row
	}
	queue := make(chan uint64)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for seed := range queue {
				trial := s.trial(t, f, k, k.schedule(s.name, seed, calm.calls), seed)
				trial.report(t, fmt.Sprintf("under the faults of seed %d (alone: %s)", seed, repeat(t.Name(), seed)))
				row.count(trial)
			}
		})
	}
	for _, seed := range seeds[:max(1, len(seeds)/promiseOf(s.name).cost)] {
		queue <- seed
	}
	close(queue)
	wg.Wait()
	return row
}

// seedVariable is the environment variable that runs one seed alone.
const seedVariable = "IDEMPOTENTTEST_SEED"

// repeat returns the command line that runs one test under one seed.
func repeat(name string, seed uint64) string {
	return fmt.Sprintf("%s=%d go test -run '^%s$'", seedVariable, seed, strings.ReplaceAll(name, "/", "$/^"))
}

// promise is what a row guarantees under faults, besides the invariants, and
// what a run of it costs.
type promise struct {
	// effects is the most that the provider may see, including a last request
	// after the faults. Zero: one, which is what Reconcile guarantees.
	effects int
	// cost is the cost of a run, relative to the usual one. Zero: the same.
	cost int
	// calm rows run without faults only. Under faults they would take long and
	// show nothing new.
	calm bool
}

func promiseOf(row string) promise {
	p := promises[row]
	p.effects, p.cost = max(p.effects, 1), max(p.cost, 1)
	return p
}

// promises lists the rows in which the provider may see more than one effect,
// and the expensive rows.
var promises = map[string]promise{
	// One effect for each life of the record. After an expiry or a deletion,
	// another life begins.
	"FM11_KilledAtItsDeadline":                    {calm: true},             // real time
	"FM18_ShortRetentionIsHonoured":               {effects: 2, calm: true}, // the clock decides
	"FM19_ExpiredButStillThere":                   {effects: 2},
	"FM20_RecordDeletedMeanwhile":                 {effects: 2},
	"FM21_SimultaneousReplacersOfAnExpiredRecord": {effects: 2, cost: racing},
	"FM38_CacheKnowsTheExpiry":                    {effects: 2},
	"FM66_ExpiryBetweenInsertAndJudgement":        {effects: 2},
	"FM66_ExpiryWhileTakingOver":                  {effects: 2},

	// Rerun guarantees at least one effect: those of the row, and one of
	// another run if the last outcome cannot be stored.
	"FM13_TakenOverAndCompleted":              {effects: 3},
	"FM13_TakenOverAndRunning":                {effects: 3},
	"FM31_PanicUnderRerun":                    {effects: 2},
	"FM60_OutcomeAgainstTakeover_Error":       {effects: 2},
	"FM60_OutcomeAgainstTakeover_NotExecuted": {effects: 2},

	// An operator discards an outcome although its effect happened.
	"FM68_WrongOutcomeForgotten":     {effects: 2},
	"FM68_ForgetWhileTheHandlerRuns": {effects: 2},

	// Resume guarantees one effect if the provider honours the downstream key.
	// This provider does not, and the last request, which has no steps, adds
	// its own effect.
	"FM28_ResumeAfterACrash":   {effects: 2},
	"FM60_StepAgainstTakeover": {effects: 2},

	// The handler reports NotExecuted although it had an effect.
	"FM32_LyingNotExecuted": {effects: 2},

	// The resolver reports NotExecuted although there was an effect. If its
	// better evidence, or the owner's report, does not reach the store, the key
	// runs again: here the guarantee depends on the evidence.
	"FM46_TheSameEvidenceTwice":             {effects: 2},
	"FM46_TwoReconcilers_NothingThenResult": {effects: 2},
	"FM61_NotExecutedButItWas":              {effects: 2},
	"FM61_NotExecutedButNobodyKnows":        {effects: 2},

	"FM05_SimultaneousRequests":              {cost: racing},
	"FM33_SimultaneousTakeovers":             {cost: racing},
	"FM51_ManyLoopsOneProcess":               {cost: racing},
	"FM51_ManyLoopsOneProcessWithACache":     {cost: racing},
	"FM34_ResultOf4KB":                       {cost: middling},
	"FM34_ResultOf4KBAndOneByte":             {cost: middling},
	"FM34_ResultOf399KB":                     {cost: large},
	"FM34_ResultOf400KB":                     {cost: large},
	"FM34_ResultOf401KB":                     {cost: large},
	"FM34_ResultOf1MB":                       {cost: 2 * large},
	"FM34_ResultOf6MB":                       {calm: true}, // as FM34_ResultOf1MB
	"FM34_NoTimeForAllOfIt":                  {cost: large},
	"FM35_ChunksWrittenAndTheCompletionLost": {cost: middling},
	"FM35_ChunkDeletedOrAltered":             {cost: middling},
	"FM35_PiecesOutliveTheRecord":            {cost: middling},
	"FM35_CommittedPiecesOutliveTheRecord":   {cost: middling},
	"FM35_ResolvedPiecesOutliveTheRecord":    {cost: middling},
	"FM63_LateChunksAgainstAResolution":      {cost: middling},
	"FM37_TwinCompletes":                     {cost: waiting},
	"FM37_TwinCrashes":                       {cost: waiting},
	"FM37_TwinLeavesNothing":                 {cost: waiting},
	"FM37_StoreFailsWhileWaiting":            {cost: waiting},
	"FM37_OwnDeadline":                       {cost: waiting},
	"FM37_CallerGoesAway":                    {cost: waiting},
}

// Relative costs of a run.
const (
	middling = 3  // tens of kilobytes
	racing   = 10 // dozens of requests
	waiting  = 10 // real time
	large    = 50 // hundreds of kilobytes
)

// trial is one run of a scenario, and a [testing.TB] for it. The scenario's
// expectations hold as long as the guard feels no fault. If an expectation fails
// after a felt fault, the scenario ends there, and only the invariants are checked.
type trial struct {
	testing.TB
	*lab
	lenient  atomic.Bool // deviations after a felt fault are excused
	scripted bool        // everything was as the scenario expects
	calls    int         // to the store, while the scenario ran

	mu     sync.Mutex
	strays []string // excused deviations from the scenario
	broken []string // failures that are not excused
}

// trial runs a scenario once, ends the faults, and judges the history.
func (s scenario) trial(t testing.TB, f Fixture, k faultKind, plan faults.Plan, seed uint64) *trial {
	tr := &trial{TB: t}
	if !tr.do(func() {
		tr.lab = newLab(tr, f)
		tr.weather = newWeather(plan, tr.clock, seed)
		tr.weather.wire = k.wire
		tr.line = k.line(tr, f, tr.store, tr.weather.Injector)
	}) {
		return tr
	}
	tr.lenient.Store(true)
	tr.scripted = tr.do(func() { s.run(tr.lab) }) && len(tr.strays) == 0
	tr.lenient.Store(false)
	tr.calls = tr.weather.Calls("")
	tr.weather.over.Store(true)
	tr.do(tr.getsOn)
	if tr.weather.Calls("") == 0 {
		tr.breaks("no call of the store passed through the transport that Fixture.Wire got")
	}
	if got, most := int(tr.effects.Load()), promiseOf(s.name).effects; got > most {
		tr.breaks(fmt.Sprintf("the provider saw %d effects, and %d are allowed", got, most))
	}
	tr.do(tr.judge)
	return tr
}

// alone runs a scenario once without faults, and returns its failures.
func (s scenario) alone(t testing.TB, f Fixture) []string {
	tr := &trial{TB: t}
	tr.do(func() {
		tr.lab = newLab(tr, f)
		s.run(tr.lab)
		tr.judge()
	})
	return tr.broken
}

// judge reports the invariants that the history breaks.
func (t *trial) judge() {
	for _, err := range t.history.judge(t.record()) {
		t.breaks(err.Error())
	}
}

// do calls f, which may end its goroutine, and reports whether f returned. A
// panic is reported like any other failure, with the seed that led to it.
func (t *trial) do(f func()) (returned bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				t.breaks(fmt.Sprintf("panic: %v\n%s", p, debug.Stack()))
			}
		}()
		f()
		returned = true
	}()
	<-done
	return returned
}

// report reports the failures that are not excused.
func (t *trial) report(to testing.TB, when string) {
	to.Helper()
	for _, what := range t.broken {
		to.Errorf("%s: %s", when, what)
	}
}

// breaks records a failure that is never excused.
func (t *trial) breaks(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.broken = append(t.broken, what)
}

// sees records a deviation from the scenario.
func (t *trial) sees(what string) {
	if !t.lenient.Load() || !t.weather.felt.Load() {
		t.breaks(where() + what)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.strays = append(t.strays, what)
}

// where returns the current line of a scenario.
func where() string {
	var callers [32]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers[:])])
	for {
		frame, more := frames.Next()
		if file := frame.File[strings.LastIndexByte(frame.File, '/')+1:]; strings.HasPrefix(file, "failuremodes_") {
			return fmt.Sprintf("%s:%d: ", file, frame.Line)
		}
		if !more {
			return ""
		}
	}
}

// These methods of testing.TB report failures. All others are those of the
// test.

func (t *trial) Helper() {}

func (t *trial) Error(args ...any) { t.sees(strings.TrimSpace(fmt.Sprintln(args...))) }

func (t *trial) Errorf(format string, args ...any) { t.sees(fmt.Sprintf(format, args...)) }

func (t *trial) Fatal(args ...any) {
	t.Error(args...)
	runtime.Goexit()
}

func (t *trial) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

// tally counts what happened under faults, because a test without any fault
// proves nothing.
type tally struct {
	mu     sync.Mutex
	runs   int // of rows under a schedule of faults
	struck int // in which a fault happened
	faults map[faults.Fault]int
	of     map[string]int // other runs and requests, as in covered
}

// covered is what runs and requests have to do under faults.
var covered = []string{"felt a fault", "did not feel theirs", "went on as without faults", "went on otherwise",
	"executed a request", "replayed an outcome", "refused a request", "refused a request while another one ran"}

func newTally() *tally { return &tally{faults: make(map[faults.Fault]int), of: make(map[string]int)} }

// count adds a run.
func (n *tally) count(t *trial) {
	if t.lab == nil {
		return // the store could not be opened
	}
	run := newTally()
	run.runs = 1
	for i, times := range t.weather.Injected() {
		run.struck = 1
		run.faults[i.Fault] += times
	}
	felt := one(t.weather.felt.Load())
	run.of["felt a fault"], run.of["did not feel theirs"] = felt, run.struck-felt
	run.of["went on as without faults"], run.of["went on otherwise"] = one(t.scripted), one(!t.scripted)
	for _, a := range t.history.answers {
		run.of["executed a request"] += one(a.run != nil)
		run.of["replayed an outcome"] += one(a.outcome.Replayed)
		run.of["refused a request"] += one(a.run == nil && !a.outcome.Replayed)
		run.of["refused a request while another one ran"] += one(errors.As(a.err, new(*idempotent.InProgressError)))
	}
	n.add(run)
}

// add adds the runs of a row.
func (n *tally) add(row *tally) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.runs += row.runs
	n.struck += row.struck
	for fault, times := range row.faults {
		n.faults[fault] += times
	}
	for what, times := range row.of {
		n.of[what] += times
	}
}

func (n *tally) String() string {
	return fmt.Sprintf("%d runs, of which %d met a fault: %v; %v", n.runs, n.struck, n.faults, n.of)
}

// check fails the test if the runs did not cover enough cases.
func (n *tally) check(t testing.TB, faults []faults.Fault) {
	t.Helper()
	for _, fault := range faults {
		if n.faults[fault] == 0 {
			t.Errorf("%s never happened in %d runs", fault, n.runs)
		}
	}
	if 10*n.struck < 9*n.runs {
		t.Errorf("faults were planned in %d runs, and only %d met one", n.runs, n.struck)
	}
	for _, what := range covered {
		if 50*n.of[what] < n.runs {
			t.Errorf("of %d runs only %d %s", n.runs, n.of[what], what)
		}
	}
}
