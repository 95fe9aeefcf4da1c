package idempotenttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

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
			if met, err := s.Replace(ctx, *given, was); err != nil || met != nil {
				return fmt.Errorf("Replace of the current version: got %v, %w", describe(met), orNil(err))
			}
			scribble(given)
			if err := stands(ctx, s, want); err != nil {
				return fmt.Errorf("after a change to the record that was passed to Replace: %w", err)
			}
			return nil
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

// similarIDs returns valid record ids that a careless store could confuse.
func similarIDs() []idempotent.RecordID {
	key := newKey()
	var ids []idempotent.RecordID
	long := strings.Repeat("o", 255) // an operation has at most 256 bytes
	for _, operation := range []string{"charge", "charges", "Charge", "charge#", "chärge", "charge/{id}", long, long + "a", long + "b"} {
		key.Operation = operation
		ids = append(ids, key.RecordID())
	}
	key = newKey()
	key.Operation = "charge"
	id := key.RecordID()
	// The hash is case-sensitive. Its last character stays, because not every
	// value is valid there.
	hash := len(id) - 43
	i := hash + strings.IndexFunc(string(id[hash:len(id)-1]), unicode.IsLetter)
	return append(ids, id, id[:i]+idempotent.RecordID(swapCase(id[i]))+id[i+1:])
}

func swapCase(letter byte) string { return string(letter ^ ('a' ^ 'A')) }

// scribble changes a record in place.
func scribble(r *driver.Record) {
	r.Result[0] ^= 0xff
	r.Steps[0].Result[0] ^= 0xff
	r.Steps[1].Name = ""
	r.StepNames[0] = ""
	r.State = driver.StateUnknown
}
