package idempotenttest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// Insert: what it writes, what it replaces, and what it returns otherwise.
var insertRequirements = []requirement{
	{
		name: "InsertCreates",
		rule: "Insert writes a record under an unused id, and returns neither a record nor an error.",
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			return insertNew(ctx, s, fullRecord())
		},
	},
	{
		name: "EveryFieldIsKept",
		rule: "A store returns every field of a record exactly, times to the millisecond, and a missing field as missing.",
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			for _, r := range []driver.Record{fullRecord(), emptyRecord()} {
				for state := driver.StateInProgress; state <= driver.StateUnknown; state++ {
					r.ID, r.State, r.Version = newKey().RecordID(), state, newVersion()
					if err := errors.Join(insertNew(ctx, s, r), stands(ctx, s, r)); err != nil {
						return err
					}
				}
			}
			return nil
		},
	},
	{
		name: "InsertRefuses",
		rule: "Insert writes nothing over a record that has not expired, and returns that record with all fields.",
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			old := fullRecord()
			if err := insertNew(ctx, s, old); err != nil {
				return err
			}
			r := emptyRecord()
			r.ID = old.ID
			met, err := s.Insert(ctx, r, now())
			if err != nil {
				return fmt.Errorf("Insert over a live record: %w", err)
			}
			return errors.Join(sameRecord("Insert returned", met, old), stands(ctx, s, old))
		},
	},
	{
		name: "InsertReplacesExpired",
		rule: "Insert replaces a record exactly when Expires is not after now: at that millisecond, and not one earlier.",
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			old := fullRecord()
			if err := insertNew(ctx, s, old); err != nil {
				return err
			}
			r := emptyRecord()
			r.ID = old.ID
			met, err := s.Insert(ctx, r, old.Expires.Add(-time.Millisecond))
			if err != nil {
				return err
			}
			if err := sameRecord("one millisecond before its expiry, Insert returned", met, old); err != nil {
				return err
			}
			if met, err = s.Insert(ctx, r, old.Expires); err != nil || met != nil {
				return fmt.Errorf("at the millisecond of its expiry the record was not replaced: got %v, %w", describe(met), orNil(err))
			}
			return stands(ctx, s, r)
		},
	},
	{
		name: "NoExpiryNeverExpires",
		rule: "A record without Expires never expires: money may depend on it.",
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			old := fullRecord()
			old.State, old.Expires = driver.StateUnknown, time.Time{}
			if err := insertNew(ctx, s, old); err != nil {
				return err
			}
			r := emptyRecord()
			r.ID = old.ID
			met, err := s.Insert(ctx, r, now().AddDate(100, 0, 0))
			if err != nil {
				return err
			}
			return errors.Join(sameRecord("a hundred years later, Insert returned", met, old), stands(ctx, s, old))
		},
	},
	{
		name: "InsertAgain",
		rule: "A repeated Insert (the first reply was lost) returns the current record, which is the one it wrote, and does not write twice.",
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			r := emptyRecord()
			if err := insertNew(ctx, s, r); err != nil {
				return err
			}
			met, err := s.Insert(ctx, r, now())
			if err != nil {
				return fmt.Errorf("the repeated Insert: %w", err)
			}
			if met != nil {
				return sameRecord("the repeated Insert returned", met, r)
			}
			return stands(ctx, s, r)
		},
	},
}
