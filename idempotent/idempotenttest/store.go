package idempotenttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// RunStore checks that a store satisfies the contract of [driver.Store], and
// those of [driver.ChunkStore] and [driver.DueLister] if it implements them:
// one subtest per requirement. Run it with the race detector, too.
func RunStore(t *testing.T, f Fixture) {
	t.Helper()
	probe := f.Open(t)
	for _, r := range requirements {
		if r.needs != nil && !r.needs(f, probe) {
			continue // a capability that the store does not declare
		}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			s := f.Open(t)
			if err := r.run(t.Context(), t, f, s); err != nil {
				t.Errorf("%v\n\tthe rule: %s", err, r.rule)
			}
		})
	}
}

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

// racers is the number of writers in a race.
const racers = 64

// requirements are all rules, in the order in which to read them.
var requirements = slices.Concat(insertRequirements, replaceRequirements, keepRequirements, raceRequirements, chunkRequirements, listRequirements)

func insertNew(ctx context.Context, s driver.Store, r driver.Record) error {
	met, err := s.Insert(ctx, r, now())
	if err != nil {
		return fmt.Errorf("Insert of a new record: %w", err)
	}
	if met != nil {
		return fmt.Errorf("Insert of a new record was refused for %s", describe(met))
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
