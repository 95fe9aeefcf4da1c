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

// RunFailureModesUnderFaults runs every row of [RunFailureModes] again and
// again while calls to the store go wrong: their requests or replies are lost,
// they are repeated, refused or slow. Each run has a seed, which says what goes
// wrong with which call: one call at least, and others by chance. If the
// fixture has a Wire, the rows run once with faults between the guard and the
// store, and once with faults between the client and its service.
//
// What is promised then:
//
//   - A fault that the guard does not feel changes nothing: where the store or
//     its client makes good for it, or where a call is merely repeated, the row
//     promises what it promises without faults.
//   - Whatever the guard feels, the invariants of the design hold throughout. A
//     handler is entered only under a claim that is known to be held, and one at
//     a time. Nobody is given an outcome that is not the stored one; a stored
//     outcome, once told, stays. An unknown outcome stays unknown until evidence
//     or its owner tells. A handler's answer reaches its caller. Everything else
//     is refused with an error that says so.
//   - The provider sees at most one effect for each life of a record, but for the
//     rows under Rerun and those whose evidence is false.
//   - When the faults are over, the key gets on: at the latest after the lease
//     has ended and evidence was given, there is a stored outcome, and it is
//     replayed.
//
// It fails too if it was put to no test: if faults were planned and did not
// happen. A failure names its seed and how to run that one alone. It happens
// again in the same way, unless requests race each other in the row.
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

// FaultOptions are given to [RunFailureModesUnderFaults].
type FaultOptions struct {
	// Seeds is how often each row runs, each time under another schedule of
	// faults. A row that moves megabytes, waits in real time or has many racers
	// runs less often. Default: 100.
	Seeds int

	// First is the seed of the first run; each later one has the next. Default: 0.
	First uint64
}

// seedVariable is the environment variable that runs one seed alone.
const seedVariable = "IDEMPOTENTTEST_SEED"

// faultOptions returns the options that were asked for, or the seed that is to
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
		return o, fmt.Errorf("%s is no seed: %w", seedVariable, err)
	}
	return FaultOptions{First: seed, Seeds: 1}, nil
}

// faultKind is where faults are injected, and which.
type faultKind struct {
	wire   bool
	faults []Fault
	// line puts the faults into a lab's line.
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

// chance is how likely a call meets a fault, besides the one that is certain.
const chance = 0.1

// schedule returns the faults of a seed for a row that makes so many calls. Each
// row has its own: a few seeds are many schedules.
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

// enough is how many runs there have to be for each fault to happen in one,
// and for a tenth of it to meet any.
const enough = 200

// atOnce is how many runs of a row there are at the same time: some wait.
const atOnce = 8

func runUnderFaults(t *testing.T, f Fixture, o FaultOptions, k faultKind) {
	t.Helper()
	total := newTally()
	t.Cleanup(func() { // when all rows are done
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
				t.Log("no call is made, and nothing can go wrong")
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
	// How many calls does it make when nothing goes wrong?
	calm := s.trial(t, f, k, nil, 0)
	calm.report(t, "without faults")
	if t.Failed() {
		return row
	}
	if calm.calls == 0 {
		return row // nothing can go wrong
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
		t.Errorf("faults were planned in %d runs, and none met one", row.runs)
	}
	return row
}

// repeat returns the command line that runs a test alone under a seed.
func repeat(name string, seed uint64) string {
	return fmt.Sprintf("%s=%d go test -run '^%s$'", seedVariable, seed, strings.ReplaceAll(name, "/", "$/^"))
}
