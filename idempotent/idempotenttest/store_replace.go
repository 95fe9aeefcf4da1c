package idempotenttest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// Replace: only if the version is the one that was read.
var replaceRequirements = []requirement{
	{
		name: "ReplaceWrites",
		rule: "Replace writes the whole record if the version is the one that was read, and removes fields that the new record does not have.",
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			old := fullRecord()
			if err := insertNew(ctx, s, old); err != nil {
				return err
			}
			r := emptyRecord()
			r.ID = old.ID
			if met, err := s.Replace(ctx, r, old.Version); err != nil || met != nil {
				return fmt.Errorf("Replace of the current version: got %v, %w", describe(met), orNil(err))
			}
			return stands(ctx, s, r)
		},
	},
	{
		name: "ReplaceRefuses",
		rule: "Replace writes nothing if the version is another one, even if the owner is the same, and returns the current record.",
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			old := fullRecord()
			if err := insertNew(ctx, s, old); err != nil {
				return err
			}
			r := old
			r.State, r.Version = driver.StateUnknown, newVersion()
			met, err := s.Replace(ctx, r, newVersion())
			if err != nil {
				return fmt.Errorf("Replace of another version: %w", err)
			}
			return errors.Join(sameRecord("Replace returned", met, old), stands(ctx, s, old))
		},
	},
	{
		name: "ReplaceAgain",
		rule: "A repeated Replace (the first reply was lost) returns the current record, which is the one it wrote.",
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			old := emptyRecord()
			if err := insertNew(ctx, s, old); err != nil {
				return err
			}
			r := fullRecord()
			r.ID = old.ID
			for range 2 {
				met, err := s.Replace(ctx, r, old.Version)
				if err != nil {
					return fmt.Errorf("Replace: %w", err)
				}
				if met != nil {
					if err := sameRecord("the repeated Replace returned", met, r); err != nil {
						return err
					}
				}
			}
			return stands(ctx, s, r)
		},
	},
	{
		name: "ReplaceNeverCreates",
		rule: "Replace of a missing record returns ErrNoRecord and writes nothing.",
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			r := fullRecord()
			if _, err := s.Replace(ctx, r, r.Version); !errors.Is(err, idempotent.ErrNoRecord) {
				return fmt.Errorf("Replace of a missing record: got error %v, want ErrNoRecord", err) //lint:ignore errorlint err can be nil
			}
			return absent(ctx, s, r.ID)
		},
	},
	{
		name: "ReplaceIgnoresExpiry",
		rule: "Replace compares only the version: an owner may still settle an expired record.",
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			old := fullRecord()
			old.Expires = now().Add(-time.Minute)
			if err := insertNew(ctx, s, old); err != nil {
				return err
			}
			r := fullRecord()
			r.ID = old.ID
			if met, err := s.Replace(ctx, r, old.Version); err != nil || met != nil {
				return fmt.Errorf("Replace of an expired record: got %v, %w", describe(met), orNil(err))
			}
			return stands(ctx, s, r)
		},
	},
}
