// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// RunStore checks that a store satisfies the contract of [driver.Store], and
// those of [driver.ChunkStore], [driver.DueLister] and the list Running of
// [driver.AbandonedLister] if it implements them: one subtest per requirement. Run it
// with the race detector, too.
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

// requirements are all rules, in the order in which to read them.
var requirements = slices.Concat(insertRequirements, replaceRequirements, keepRequirements, raceRequirements, chunkRequirements, listRequirements)

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
			announced := announcedRecord()
			if err := errors.Join(insertNew(ctx, s, announced), stands(ctx, s, announced)); err != nil {
				return err
			}
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
			for _, old := range []driver.Record{fullRecord(), announcedRecord()} {
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
				met, err = s.Insert(ctx, r, old.Expires)
				if err := errors.Join(accepted("at the millisecond of the expiry, Insert", met, err), stands(ctx, s, r)); err != nil {
					return err
				}
			}
			return nil
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

// Replace: only if the version is the one that was read.
var replaceRequirements = []requirement{
	{
		name: "ReplaceWrites",
		rule: "Replace writes the whole record if the version is the one that was read, and removes fields that the new record does not have.",
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			for _, old := range []driver.Record{fullRecord(), announcedRecord()} {
				if err := insertNew(ctx, s, old); err != nil {
					return err
				}
				r := emptyRecord()
				r.ID = old.ID
				if err := errors.Join(replaceCurrent(ctx, s, r, old.Version), stands(ctx, s, r)); err != nil {
					return err
				}
			}
			return nil
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
			return errors.Join(replaceCurrent(ctx, s, r, old.Version), stands(ctx, s, r))
		},
	},
}

// Records: how a store holds them, which ids it separates, and what it shares
// with its callers.
var keepRequirements = []requirement{
	{
		name: "GetNothing",
		rule: "Get returns ErrNoRecord if there is no record.",
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			return absent(ctx, s, newKey().RecordID())
		},
	},
	{
		name: "GetExpired",
		rule: "Get returns an expired record like any other: the guard checks the expiry.",
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			r := fullRecord()
			r.Expires = now().Add(-time.Minute)
			return errors.Join(insertNew(ctx, s, r), stands(ctx, s, r))
		},
	},
	{
		name: "KeysAreApart",
		rule: "Records of different ids are separate, also if one id begins with the other, if they differ only in case, or if they have the maximum length.",
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			var all []driver.Record
			for _, id := range similarIDs() {
				r := fullRecord()
				r.ID = id
				if err := insertNew(ctx, s, r); err != nil {
					return fmt.Errorf("id %q: %w", id, err)
				}
				all = append(all, r)
			}
			for _, r := range all {
				if err := stands(ctx, s, r); err != nil {
					return fmt.Errorf("id %q: %w", r.ID, err)
				}
			}
			return nil
		},
	},
	{
		name: "RecordsAreCopies",
		rule: "The records that a store gets and returns share no memory with what it stores.",
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			want := fullRecord()
			given := want.Clone()
			if err := insertNew(ctx, s, *given); err != nil {
				return err
			}
			scribble(given)
			if err := stands(ctx, s, want); err != nil {
				return fmt.Errorf("after a change to the record that was passed to Insert: %w", err)
			}
			other := emptyRecord()
			other.ID = want.ID
			for _, returned := range []struct {
				by   string
				call func() (*driver.Record, error)
			}{
				{"Get", func() (*driver.Record, error) { return s.Get(ctx, want.ID) }},
				{"Insert", func() (*driver.Record, error) { return s.Insert(ctx, other, now()) }},
				{"Replace", func() (*driver.Record, error) { return s.Replace(ctx, other, newVersion()) }},
			} {
				got, err := returned.call()
				if err != nil {
					return fmt.Errorf("%s: %w", returned.by, err)
				}
				if err := sameRecord(returned.by+" returned", got, want); err != nil {
					return err
				}
				scribble(got)
				if err := stands(ctx, s, want); err != nil {
					return fmt.Errorf("after a change to the record that %s returned: %w", returned.by, err)
				}
			}
			was := want.Version
			want.Version = newVersion()
			given = want.Clone()
			if err := replaceCurrent(ctx, s, *given, was); err != nil {
				return err
			}
			scribble(given)
			if err := stands(ctx, s, want); err != nil {
				return fmt.Errorf("after a change to the record that was passed to Replace: %w", err)
			}
			return nil
		},
	},
	{
		name: "LaterAttributesAreKept",
		rule: "A store keeps the attributes of a record and its steps that it does not know, in Record.Extra, until a write is without them: a later version may have written them.",
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			r, other := fullRecord(), emptyRecord()
			other.ID = r.ID
			r.SetExtra(laterAttributes(&r))
			if err := errors.Join(insertNew(ctx, s, r), stands(ctx, s, r)); err != nil {
				return err
			}
			for _, state := range []driver.State{driver.StateInProgress, driver.StateUnknown, driver.StateCompleted} { // a takeover, a sweep, evidence
				refusedInsert, insertErr := s.Insert(ctx, other, now())
				refusedReplace, replaceErr := s.Replace(ctx, other, newVersion())
				if err := errors.Join(insertErr, replaceErr, sameRecord("Insert returned", refusedInsert, r), sameRecord("Replace returned", refusedReplace, r)); err != nil {
					return err
				}
				r = *refusedInsert
				was := r.Version
				r.State, r.Version = state, newVersion()
				if err := errors.Join(replaceCurrent(ctx, s, r, was), stands(ctx, s, r)); err != nil {
					return err
				}
			}
			met, err := s.Insert(ctx, other, r.Expires)
			return errors.Join(accepted("Insert over an expired record", met, err), stands(ctx, s, other))
		},
	},
	{
		name: "ContextEnds",
		rule: "A call under a cancelled context fails and writes nothing.",
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
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
		name: "ErrorsTellNothing",
		rule: "The errors of a store contain no result, and no other text of a record that an application wrote.",
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			r := fullRecord()
			r.Result = []byte("secret-result")
			r.Ref = "secret-ref"
			r.Steps[0].Result = []byte("secret-result of a step")
			if err := insertNew(ctx, s, r); err != nil {
				return err
			}
			next := r
			next.Version = newVersion()
			_, insertErr := s.Insert(ended, r, now())
			_, replaceErr := s.Replace(ended, next, r.Version)
			next.Result = bytes.Repeat(r.Result, 1<<16)
			_, largeErr := s.Replace(ctx, next, r.Version)
			for _, err := range []error{insertErr, replaceErr, largeErr} {
				if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "115 101 99 114 101 116")) {
					return errors.New("an error contains a part of the record")
				}
			}
			return nil
		},
	},
	{
		name: "WholeOrNotAtAll",
		rule: "A store stores a large result completely, or returns ErrTooLarge and writes nothing.",
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			old := emptyRecord()
			if err := insertNew(ctx, s, old); err != nil {
				return err
			}
			large := fullRecord()
			large.ID = old.ID
			large.Result = bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
			_, err := s.Replace(ctx, large, old.Version)
			if errors.Is(err, driver.ErrTooLarge) {
				return stands(ctx, s, old)
			}
			if err != nil {
				return fmt.Errorf("Replace by a record of 1 MiB: got %w, want success or ErrTooLarge", err)
			}
			return stands(ctx, s, large)
		},
	},
	{
		name:  "Reopen",
		rule:  "The next process finds every acknowledged write.",
		needs: func(f Fixture, _ driver.Store) bool { return f.Reopen != nil },
		check: func(ctx context.Context, s driver.Store, reopen func() driver.Store) error {
			inserted, replaced := fullRecord(), fullRecord()
			first := emptyRecord()
			first.ID = replaced.ID
			if err := errors.Join(insertNew(ctx, s, inserted), insertNew(ctx, s, first), replaceCurrent(ctx, s, replaced, first.Version)); err != nil {
				return err
			}
			s = reopen()
			return errors.Join(stands(ctx, s, inserted), stands(ctx, s, replaced))
		},
	},
}

// similarIDs returns valid record ids that a careless store could confuse.
func similarIDs() []idempotent.RecordID {
	key := newKey()
	var ids []idempotent.RecordID
	long := strings.Repeat("o", 255) // an operation has at most 256 bytes
	for _, operation := range []string{"charge", "charges", "Charge", "charge#", "chärge", "charge/{id}", long, long + "a", long + "b"} {
		key.Operation = operation
		ids = append(ids, key.RecordID())
	}
	// The hash is case-sensitive.
	operation, hash, _ := strings.Cut(string(newKey().RecordID()), "#")
	i := strings.IndexFunc(hash, unicode.IsLetter)
	for _, letter := range []string{hash[i : i+1], swapCase(hash[i])} {
		ids = append(ids, idempotent.RecordID(operation+"#"+hash[:i]+letter+hash[i+1:]))
	}
	return ids
}

func swapCase(letter byte) string { return string(letter ^ ('a' ^ 'A')) }

// Races: each write is one atomic step.
var raceRequirements = []requirement{
	{
		name: "OneInserterWins",
		rule: fmt.Sprintf("Of %d simultaneous Inserts one wins, and all others get the winner's record.", racers),
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			return oneInserterWins(ctx, s, newKey().RecordID())
		},
	},
	{
		name: "OneInserterReplacesExpired",
		rule: fmt.Sprintf("Of %d simultaneous Inserts over an expired record one wins, and all others get the winner's record.", racers),
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
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
		rule: fmt.Sprintf("Of %d simultaneous Replaces of one version one wins, and all others get the winner's record.", racers),
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			old := emptyRecord()
			if err := insertNew(ctx, s, old); err != nil {
				return err
			}
			return oneWins(ctx, s, old.ID, func(r driver.Record) (*driver.Record, error) {
				return s.Replace(ctx, r, old.Version)
			})
		},
	},
	{
		name: "OneWriterWins",
		rule: fmt.Sprintf("Of %d simultaneous writers of an expired record, half of them with Insert and half with Replace, one wins, and all others get the winner's record.", racers),
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			old := emptyRecord()
			old.Expires = now().Add(-time.Minute)
			if err := insertNew(ctx, s, old); err != nil {
				return err
			}
			var turn atomic.Int32
			return oneWins(ctx, s, old.ID, func(r driver.Record) (*driver.Record, error) {
				if turn.Add(1)%2 == 0 {
					return s.Insert(ctx, r, now())
				}
				return s.Replace(ctx, r, old.Version)
			})
		},
	},
}

func oneInserterWins(ctx context.Context, s driver.Store, id idempotent.RecordID) error {
	at := now()
	return oneWins(ctx, s, id, func(r driver.Record) (*driver.Record, error) {
		return s.Insert(ctx, r, at)
	})
}

// oneWins races writers of different records for one id.
func oneWins(ctx context.Context, s driver.Store, id idempotent.RecordID, write func(driver.Record) (*driver.Record, error)) error {
	var (
		wg   sync.WaitGroup
		met  [racers]*driver.Record
		errs [racers]error
		mine [racers]driver.Record
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
	winner, err := s.Get(ctx, id)
	if err := errors.Join(append(errs[:], err)...); err != nil {
		return err
	}
	if !slices.ContainsFunc(mine[:], func(r driver.Record) bool { return r.Version == winner.Version }) {
		return errors.New("no writer won")
	}
	for i := range racers {
		// A store with internal retries may return the winner its own record.
		if err := sameRecord("a writer won with, or got,", cmp.Or(met[i], &mine[i]), *winner); err != nil {
			return err
		}
	}
	return nil
}
