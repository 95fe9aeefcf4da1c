package idempotenttest

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/once-lambda/once/idempotent/driver"
)

// RunFailureModesUnderFaults runs every row of [RunFailureModes] many times with
// faults in the calls to the store: requests or replies are lost, repeated,
// refused or slow. Each run has a seed, which decides the fault of each call: at
// least one call gets a fault, and others may. If the fixture has a Wire, each
// row runs once with faults between the guard and the store, and once with faults
// between the client and its service.
//
// Under faults, the suite checks:
//
//   - A fault that the guard does not feel changes nothing: if the store or its
//     client recovers from it, or if a call is only repeated, the row behaves as
//     without faults.
//   - The invariants of the design hold, whatever the guard feels. A handler is
//     entered only under an acknowledged claim, and one at a time. Every request
//     that gets an outcome as stored gets the stored one, and that outcome does
//     not change. An unknown outcome stays unknown until evidence or its owner
//     resolves it. A handler's answer reaches its caller. Every other request is
//     refused with a known error.
//   - The provider sees at most one effect for each life of a record, except in
//     the rows under Rerun and those whose evidence is false.
//   - When the faults are over, the key recovers: at the latest after the lease
//     has ended and evidence was given, there is a stored outcome, and it is
//     replayed.
//
// The suite also fails if it tested nothing: if faults were planned and did not
// happen. A failure shows its seed and the command that runs this seed alone. The
// failure then repeats exactly, unless requests of the row race each other.
func RunFailureModesUnderFaults(t *testing.T, f Fixture, optFns ...func(*FaultOptions)) {
	t.Helper()
	o, err := faultOptions(os.Getenv(seedVariable), optFns)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("Store", func(t *testing.T) { runUnderFaults(t, f, o, storeFaults) })
	if f.Wire != nil {
		t.Run("Wire", func(t *testing.T) { runUnderFaults(t, f, o, wireFaults) })
	}
}

// FaultOptions are options of [RunFailureModesUnderFaults].
type FaultOptions struct {
	// Seeds is the number of runs of each row, each under another schedule of
	// faults. A row that moves megabytes, waits in real time or has many racers
	// runs less often. Default: 100.
	Seeds int

	// First is the seed of the first run. Each later run has the next seed.
	// Default: 0.
	First uint64
}

// seedVariable is the environment variable that runs one seed alone.
const seedVariable = "IDEMPOTENTTEST_SEED"

// faultOptions returns the options after optFns, or those for the seed that is to
// run alone.
func faultOptions(alone string, optFns []func(*FaultOptions)) (FaultOptions, error) {
	o := FaultOptions{Seeds: 100}
	for _, fn := range optFns {
		fn(&o)
	}
	if alone == "" {
		return o, nil
	}
	seed, err := strconv.ParseUint(alone, 10, 64)
	if err != nil {
		return o, fmt.Errorf("invalid %s: %w", seedVariable, err)
	}
	return FaultOptions{First: seed, Seeds: 1}, nil
}

// faultKind is a place where faults are injected, and their kinds.
type faultKind struct {
	wire   bool
	faults []Fault
	// line adds the faults to the calls of a lab.
	line func(t testing.TB, f Fixture, s driver.Store, faults *Faults) driver.Store
}

var (
	storeFaults = faultKind{
		faults: []Fault{LostRequest, LostReply, Repeated, Throttled, SlowRequest, SlowReply},
		line: func(_ testing.TB, _ Fixture, s driver.Store, faults *Faults) driver.Store {
			return faults.Store(s)
		},
	}
	wireFaults = faultKind{
		wire: true,
		faults: []Fault{LostRequest, LostReply, Repeated, Throttled, ThroughputExceeded, InternalError,
			TransactionConflict, ReplicatedWriteConflict, SlowRequest, SlowReply},
		line: func(t testing.TB, f Fixture, _ driver.Store, faults *Faults) driver.Store {
			return f.Wire(t, faults)
		},
	}
)

// chance is the probability of a fault in a call, besides the one call that
// always has a fault.
const chance = 0.1

// schedule returns the faults of a seed for a row that makes the given number of
// calls. Each row has its own schedules, so a few seeds give many schedules.
func (k faultKind) schedule(row string, seed uint64, calls int) Plan {
	h := fnv.New64a()
	h.Write([]byte(row))
	r := rand.New(rand.NewPCG(seed, h.Sum64()))
	certain := On("", k.faults[r.IntN(len(k.faults))], 1+r.IntN(calls))
	var odds []Odds
	for _, fault := range k.faults {
		odds = append(odds, Odds{Fault: fault, P: chance / float64(len(k.faults))})
	}
	return FirstOf(certain, Seeded(r.Uint64(), odds...))
}

// enough is the number of runs after which each fault must have happened, and a
// tenth of the runs must have met one.
const enough = 200

// atOnce is the number of simultaneous runs of a row: some runs wait.
const atOnce = 8

func runUnderFaults(t *testing.T, f Fixture, o FaultOptions, k faultKind) {
	t.Helper()
	total := newTally()
	t.Cleanup(func() { // after all rows
		t.Log("all rows:", total)
		if total.runs >= enough {
			total.check(t, k.faults)
		}
	})
	for _, s := range scenarios {
		if promiseOf(s.name).calm {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			row := s.underFaults(t, f, o, k)
			if row.runs == 0 {
				t.Log("the row makes no call, so no fault is possible")
				return
			}
			t.Log(row)
			total.add(row)
		})
	}
}

// underFaults runs a row under the schedules of its seeds.
func (s scenario) underFaults(t *testing.T, f Fixture, o FaultOptions, k faultKind) *tally {
	t.Helper()
	p := promiseOf(s.name)
	row := newTally()
	// Count the calls without faults.
	calm := s.trial(t, f, k, nil, 0)
	calm.report(t, "without faults")
	if t.Failed() {
		return row
	}
	if calm.calls == 0 {
		return row // no calls, so no faults
	}
	seeds := make(chan uint64)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for seed := range seeds {
				trial := s.trial(t, f, k, k.schedule(s.name, seed, calm.calls), seed)
				trial.report(t, fmt.Sprintf("under the faults of seed %d (alone: %s)", seed, repeat(t.Name(), seed)))
				row.count(trial)
			}
		})
	}
	for i := range max(1, o.Seeds/p.cost) {
		seeds <- o.First + uint64(i)
	}
	close(seeds)
	wg.Wait()
	if row.struck == 0 && row.runs >= enough/10 {
		t.Errorf("faults were planned in %d runs, but no run met one", row.runs)
	}
	return row
}

// repeat returns the command line that runs one test under one seed.
func repeat(name string, seed uint64) string {
	return fmt.Sprintf("%s=%d go test -run '^%s$'", seedVariable, seed, strings.ReplaceAll(name, "/", "$/^"))
}
