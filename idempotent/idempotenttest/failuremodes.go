// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// requirement is one rule of the contract. Its check returns an error, so that
// tests can run it against broken stores.
type requirement struct {
	name, rule string
	needs      func(Fixture, driver.Store) bool // nil: no capability
	check      func(ctx context.Context, s driver.Store, reopen func() driver.Store) error
	checkWith  func(ctx context.Context, f Fixture, s driver.Store) error // in place of check
}

func (r *requirement) run(ctx context.Context, t testing.TB, f Fixture, s driver.Store) error {
	if r.checkWith != nil {
		return r.checkWith(ctx, f, s)
	}
	return r.check(ctx, s, func() driver.Store { return f.Reopen(t, s) })
}

func insertNew(ctx context.Context, s driver.Store, r driver.Record) error {
	met, err := s.Insert(ctx, r, now())
	return accepted("Insert of a new record", met, err)
}

func replaceCurrent(ctx context.Context, s driver.Store, r driver.Record, was driver.Version) error {
	met, err := s.Replace(ctx, r, was)
	return accepted("Replace of the current version", met, err)
}

// accepted checks the reply to a write whose condition holds.
func accepted(what string, met *driver.Record, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if met != nil {
		return fmt.Errorf("%s was refused for %s", what, describe(met))
	}
	return nil
}

// stands checks that the store holds exactly want.
func stands(ctx context.Context, s driver.Store, want driver.Record) error {
	got, err := s.Get(ctx, want.ID)
	if err != nil {
		return fmt.Errorf("Get: %w", err)
	}
	return sameRecord("Get returned", got, want)
}

func absent(ctx context.Context, s driver.Store, id idempotent.RecordID) error {
	got, err := s.Get(ctx, id)
	if !errors.Is(err, idempotent.ErrNoRecord) {
		return fmt.Errorf("Get of a missing record: got %s and error %v, want ErrNoRecord", describe(got), err) //lint:ignore errorlint err can be nil
	}
	return nil
}

// scribble changes a record in place.
func scribble(r *driver.Record) {
	r.Result[0] ^= 0xff
	r.Steps[0].Result[0] ^= 0xff
	r.Steps[1].Name = ""
	r.StepNames[0] = ""
}

// RunFailureModes drives a guard over the store through the failure modes of
// the design, with one subtest per row, named after it. A and B are the first
// and the second request with one key. Every row also checks the invariants of
// the design on all writes, handler calls and answers.
//
// With [FailureModesOptions.Seeds], each row then runs many times with faults in
// the calls to the store: requests or replies are lost, repeated, refused or slow.
// A seed decides the fault of each call: at least one call gets a fault, and others
// may. If the fixture has a Wire, each row also runs with faults between the client
// and its service. Under faults, the suite checks:
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
func RunFailureModes(t *testing.T, f Fixture, optFns ...func(*FailureModesOptions)) {
	t.Helper()
	seeds, err := seedsOf(os.Getenv(seedVariable), optFns)
	if err != nil {
		t.Fatal(err)
	}
	kinds, total := []faultKind{storeFaults, wireFaults}, []*tally{newTally(), newTally()}
	if f.Wire == nil {
		kinds = kinds[:1]
	}
	t.Cleanup(func() { // after all rows
		for i, k := range kinds {
			t.Logf("%s, all rows: %s", k.name, total[i])
			if total[i].runs >= enough {
				total[i].check(t, k.faults)
			}
		}
	})
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for _, what := range s.alone(t, f) {
				t.Error(what)
			}
			if t.Failed() || promiseOf(s.name).calm || seeds == nil {
				return
			}
			for i, k := range kinds {
				t.Run(k.name, func(t *testing.T) { total[i].add(s.underFaults(t, f, seeds, k)) })
			}
		})
	}
}

// FailureModesOptions are options of [RunFailureModes].
type FailureModesOptions struct {
	// Seeds is how many times each row runs with faults, each time under another
	// schedule of them. A row that moves megabytes, waits in real time or has many
	// racers runs less often. Default: 0, which tests without faults.
	Seeds int
}

// seedsOf returns the seeds after optFns, or the one that is to run alone.
func seedsOf(alone string, optFns []func(*FailureModesOptions)) (seeds []uint64, err error) {
	var o FailureModesOptions
	for _, fn := range optFns {
		fn(&o)
	}
	for seed := range o.Seeds {
		seeds = append(seeds, uint64(seed))
	}
	if alone == "" || seeds == nil {
		return seeds, nil
	}
	seed, err := strconv.ParseUint(alone, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("invalid %s: %w", seedVariable, err)
	}
	return []uint64{seed}, nil
}

// scenarios are all rows.
var scenarios = slices.Concat(claimScenarios, outcomeScenarios, timeScenarios, stepScenarios, evidenceScenarios, resultScenarios, waitScenarios)
