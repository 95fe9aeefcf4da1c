// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"context"
	"errors"
	"fmt"
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

// scribble changes a record in place.
func scribble(r *driver.Record) {
	r.Result[0] ^= 0xff
	r.Steps[0].Result[0] ^= 0xff
	r.Steps[1].Name = ""
	r.StepNames[0] = ""
}
