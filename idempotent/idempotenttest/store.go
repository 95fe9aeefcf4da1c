package idempotenttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
)

// RunStore checks that a store keeps the contract of [idempotent.Store]: one
// subtest per requirement. It is meant to be run with the race detector too.
func RunStore(t *testing.T, f Fixture) {
	t.Helper()
	for _, r := range requirements {
		if r.needs != nil && !r.needs(f) {
			continue // a capability that the store does not declare
		}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			s := f.Open(t)
			reopen := func() idempotent.Store { return f.Reopen(t, s) }
			if err := r.check(t.Context(), s, reopen); err != nil {
				t.Errorf("%v\n\tthe rule: %s", err, r.rule)
			}
		})
	}
}

// requirement is one rule of the contract. Its check returns an error, so that
// the suite itself can be tested against broken stores.
type requirement struct {
	name, rule string
	needs      func(Fixture) bool
	check      func(ctx context.Context, s idempotent.Store, reopen func() idempotent.Store) error
}

// racers is how many writers race where a requirement is about races.
const racers = 64

var requirements = []requirement{
	{
		name: "InsertCreates",
		rule: "Insert writes a record of which there is none, and returns no record and no error.",
		check: func(ctx context.Context, s idempotent.Store, _ func() idempotent.Store) error {
			return insertNew(ctx, s, fullRecord())
		},
	},
	{
		name: "EveryFieldIsKept",
		rule: "A store keeps every field of a record exactly, times to the millisecond, and an absent one absent.",
		check: func(ctx context.Context, s idempotent.Store, _ func() idempotent.Store) error {
			for _, r := range []idempotent.Record{fullRecord(), emptyRecord()} {
				for state := idempotent.StateInProgress; state <= idempotent.StateUnknown; state++ {
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
		rule: "Insert writes nothing over a record that has not expired, and returns that record whole.",
		check: func(ctx context.Context, s idempotent.Store, _ func() idempotent.Store) error {
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
		check: func(ctx context.Context, s idempotent.Store, _ func() idempotent.Store) error {
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
		rule: "A record without Expires stands for ever: money may hang on it.",
		check: func(ctx context.Context, s idempotent.Store, _ func() idempotent.Store) error {
			old := fullRecord()
			old.State, old.Expires = idempotent.StateUnknown, time.Time{}
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
		rule: "A repeated Insert (the first reply was lost) returns the record that stands, which is the one it wrote; it writes nothing twice.",
		check: func(ctx context.Context, s idempotent.Store, _ func() idempotent.Store) error {
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
	{
		name: "ReplaceWrites",
		rule: "Replace writes the whole record where the version is the one that was read, and what the new record does not have is gone.",
		check: func(ctx context.Context, s idempotent.Store, _ func() idempotent.Store) error {
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
		check: func(ctx context.Context, s idempotent.Store, _ func() idempotent.Store) error {
			old := fullRecord()
			if err := insertNew(ctx, s, old); err != nil {
				return err
			}
			r := old
			r.State, r.Version = idempotent.StateUnknown, newVersion()
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
		check: func(ctx context.Context, s idempotent.Store, _ func() idempotent.Store) error {
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
		check: func(ctx context.Context, s idempotent.Store, _ func() idempotent.Store) error {
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
		check: func(ctx context.Context, s idempotent.Store, _ func() idempotent.Store) error {
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
	{
		name: "GetNothing",
		rule: "Get returns ErrNoRecord where there is no record.",
		check: func(ctx context.Context, s idempotent.Store, _ func() idempotent.Store) error {
			return absent(ctx, s, newKey().RecordID())
		},
	},
	{
		name: "GetExpired",
		rule: "Get returns a record that has expired like any other: the guard judges.",
		check: func(ctx context.Context, s idempotent.Store, _ func() idempotent.Store) error {
			r := fullRecord()
			r.Expires = now().Add(-time.Minute)
			return errors.Join(insertNew(ctx, s, r), stands(ctx, s, r))
		},
	},
	{
		name: "KeysAreApart",
		rule: "Records of different ids never meet, also if one id begins with the other or they differ in case.",
		check: func(ctx context.Context, s idempotent.Store, _ func() idempotent.Store) error {
			base := newKey()
			var all []idempotent.Record
			for _, operation := range []string{"charge", "charges", "Charge", "charge#", "chärge", "charge/{id}"} {
				r := fullRecord()
				base.Operation = operation
				r.ID = base.RecordID()
				if err := insertNew(ctx, s, r); err != nil {
					return fmt.Errorf("operation %q: %w", operation, err)
				}
				all = append(all, r)
			}
			for _, r := range all {
				if err := stands(ctx, s, r); err != nil {
					return fmt.Errorf("operation %q: %w", r.ID.Operation(), err)
				}
			}
			return nil
		},
	},
	{
		name: "RecordsAreCopies",
		rule: "What a store returns and is given shares no memory with what it keeps.",
		check: func(ctx context.Context, s idempotent.Store, _ func() idempotent.Store) error {
			want, given := fullRecord(), idempotent.Record{}
			given = want
			given.Result = bytes.Clone(want.Result)
			if err := insertNew(ctx, s, given); err != nil {
				return err
			}
			given.Result[0] ^= 0xff
			if err := stands(ctx, s, want); err != nil {
				return fmt.Errorf("after a change to the record that was given: %w", err)
			}
			got, err := s.Get(ctx, want.ID)
			if err != nil {
				return err
			}
			got.Result[0] ^= 0xff
			got.State = idempotent.StateUnknown
			if err := stands(ctx, s, want); err != nil {
				return fmt.Errorf("after a change to the record that Get returned: %w", err)
			}
			other := emptyRecord()
			other.ID = want.ID
			if got, err = s.Insert(ctx, other, now()); err != nil || got == nil {
				return fmt.Errorf("Insert over a live record: got %v, %w", describe(got), orNil(err))
			}
			got.Result[0] ^= 0xff
			if err := stands(ctx, s, want); err != nil {
				return fmt.Errorf("after a change to the record that Insert returned: %w", err)
			}
			return nil
		},
	},
	{
		name: "ContextEnds",
		rule: "A call under a context that has ended fails and writes nothing.",
		check: func(ctx context.Context, s idempotent.Store, _ func() idempotent.Store) error {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			r := fullRecord()
			if _, err := s.Insert(ended, r, now()); err == nil {
				return errors.New("Insert succeeded under a cancelled context")
			}
			if err := errors.Join(absent(ctx, s, r.ID), insertNew(ctx, s, r)); err != nil {
				return err
			}
			next := r
			next.Version = newVersion()
			if _, err := s.Replace(ended, next, r.Version); err == nil {
				return errors.New("Replace succeeded under a cancelled context")
			}
			if _, err := s.Get(ended, r.ID); err == nil {
				return errors.New("Get succeeded under a cancelled context")
			}
			return stands(ctx, s, r)
		},
	},
	{
		name: "WholeOrNotAtAll",
		rule: "A store keeps a large result whole, or returns ErrTooLarge and writes nothing.",
		check: func(ctx context.Context, s idempotent.Store, _ func() idempotent.Store) error {
			old := emptyRecord()
			if err := insertNew(ctx, s, old); err != nil {
				return err
			}
			large := fullRecord()
			large.ID = old.ID
			large.Result = bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
			_, err := s.Replace(ctx, large, old.Version)
			if errors.Is(err, idempotent.ErrTooLarge) {
				return stands(ctx, s, old)
			}
			if err != nil {
				return fmt.Errorf("Replace by a record of 1 MiB: got %w, want success or ErrTooLarge", err)
			}
			return stands(ctx, s, large)
		},
	},
	{
		name: "OneInserterWins",
		rule: fmt.Sprintf("Of %d simultaneous Inserts one wins, and all others are given the winner's record.", racers),
		check: func(ctx context.Context, s idempotent.Store, _ func() idempotent.Store) error {
			return oneInserterWins(ctx, s, newKey().RecordID())
		},
	},
	{
		name: "OneInserterReplacesExpired",
		rule: fmt.Sprintf("Of %d simultaneous Inserts over an expired record one wins, and all others are given the winner's record.", racers),
		check: func(ctx context.Context, s idempotent.Store, _ func() idempotent.Store) error {
			old := fullRecord()
			old.Expires = now().Add(-time.Minute)
			if err := insertNew(ctx, s, old); err != nil {
				return err
			}
			return oneInserterWins(ctx, s, old.ID)
		},
	},
	{
		name: "OneReplacerWins",
		rule: fmt.Sprintf("Of %d simultaneous Replaces of one version one wins, and all others are given the winner's record.", racers),
		check: func(ctx context.Context, s idempotent.Store, _ func() idempotent.Store) error {
			old := emptyRecord()
			if err := insertNew(ctx, s, old); err != nil {
				return err
			}
			return oneWins(ctx, s, old.ID, func(r idempotent.Record) (*idempotent.Record, error) {
				return s.Replace(ctx, r, old.Version)
			})
		},
	},
	{
		name:  "Reopen",
		rule:  "A write that was acknowledged is there for the next process.",
		needs: func(f Fixture) bool { return f.Reopen != nil },
		check: func(ctx context.Context, s idempotent.Store, reopen func() idempotent.Store) error {
			inserted, replaced := fullRecord(), fullRecord()
			first := emptyRecord()
			first.ID = replaced.ID
			if err := errors.Join(insertNew(ctx, s, inserted), insertNew(ctx, s, first)); err != nil {
				return err
			}
			if met, err := s.Replace(ctx, replaced, first.Version); err != nil || met != nil {
				return fmt.Errorf("Replace: got %v, %w", describe(met), orNil(err))
			}
			s = reopen()
			return errors.Join(stands(ctx, s, inserted), stands(ctx, s, replaced))
		},
	},
}

func insertNew(ctx context.Context, s idempotent.Store, r idempotent.Record) error {
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
func stands(ctx context.Context, s idempotent.Store, want idempotent.Record) error {
	got, err := s.Get(ctx, want.ID)
	if err != nil {
		return fmt.Errorf("Get: %w", err)
	}
	return sameRecord("Get returned", got, want)
}

func absent(ctx context.Context, s idempotent.Store, id idempotent.RecordID) error {
	got, err := s.Get(ctx, id)
	if !errors.Is(err, idempotent.ErrNoRecord) {
		return fmt.Errorf("Get where there should be no record: got %s and error %v, want ErrNoRecord", describe(got), err)
	}
	return nil
}

func oneInserterWins(ctx context.Context, s idempotent.Store, id idempotent.RecordID) error {
	at := now()
	return oneWins(ctx, s, id, func(r idempotent.Record) (*idempotent.Record, error) {
		return s.Insert(ctx, r, at)
	})
}

// oneWins races writers of different records for one id.
func oneWins(ctx context.Context, s idempotent.Store, id idempotent.RecordID, write func(idempotent.Record) (*idempotent.Record, error)) error {
	var (
		wg   sync.WaitGroup
		met  [racers]*idempotent.Record
		errs [racers]error
		mine [racers]idempotent.Record
	)
	start := make(chan struct{})
	for i := range racers {
		mine[i] = emptyRecord()
		mine[i].ID = id
		wg.Go(func() {
			<-start
			met[i], errs[i] = write(mine[i])
		})
	}
	close(start)
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	var winner *idempotent.Record
	for i := range racers {
		// A store that retries below itself may be given its own write.
		if met[i] == nil || met[i].Version == mine[i].Version {
			if winner != nil {
				return errors.New("two writers won")
			}
			winner = &mine[i]
		}
	}
	if winner == nil {
		return errors.New("no writer won")
	}
	for i := range racers {
		if met[i] != nil {
			if err := sameRecord("a loser was given", met[i], *winner); err != nil {
				return err
			}
		}
	}
	return stands(ctx, s, *winner)
}
