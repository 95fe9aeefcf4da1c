package idempotenttest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// Replace: only in place of the version that was read.
var replaceRequirements = []requirement{
	{
		name: "ReplaceWrites",
		rule: "Replace writes the whole record where the version is the one that was read, and what the new record does not have is gone.",
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			old := fullRecord()
			if err := insertNew(ctx, s, old); err != nil {
				return err
			}
			r := emptyRecord()
			r.ID = old.ID
			if met, err := s.Replace(ctx, r, old.Version); err != nil || met != nil {
				return fmt.Errorf("Replace of the version that stands: got %v, %w", describe(met), orNil(err))
			}
			return stands(ctx, s, r)
		},
	},
	{
		name: "ReplaceRefuses",
		rule: "Replace writes nothing where the version is another one, also if the owner is the same, and returns the record that stands.",
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
		rule: "A repeated Replace (the first reply was lost) returns the record that stands, which is the one it wrote.",
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
		rule: "Replace returns ErrNoRecord and writes nothing where there is no record: nothing is resurrected.",
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			r := fullRecord()
			if _, err := s.Replace(ctx, r, r.Version); !errors.Is(err, idempotent.ErrNoRecord) {
				return fmt.Errorf("Replace without a record: got error %v, want ErrNoRecord", err)
			}
			return absent(ctx, s, r.ID)
		},
	},
	{
		name: "ReplaceIgnoresExpiry",
		rule: "Replace asks for the version alone: an owner may still settle a record that has expired.",
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
