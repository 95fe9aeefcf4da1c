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

// What a store keeps, for whom and for how long.
var keepRequirements = []requirement{
	{
		name: "GetNothing",
		rule: "Get returns ErrNoRecord where there is no record.",
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			return absent(ctx, s, newKey().RecordID())
		},
	},
	{
		name: "GetExpired",
		rule: "Get returns a record that has expired like any other: the guard judges.",
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			r := fullRecord()
			r.Expires = now().Add(-time.Minute)
			return errors.Join(insertNew(ctx, s, r), stands(ctx, s, r))
		},
	},
	{
		name: "KeysAreApart",
		rule: "Records of different ids never meet: neither if one id begins with the other, nor if they differ in case alone, nor if they are as long as ids may be.",
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
		rule: "What a store returns and is given shares no memory with what it keeps.",
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			want := fullRecord()
			given := want.Clone()
			if err := insertNew(ctx, s, *given); err != nil {
				return err
			}
			scribble(given)
			if err := stands(ctx, s, want); err != nil {
				return fmt.Errorf("after a change to the record that Insert was given: %w", err)
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
				return fmt.Errorf("Replace of the version that stands: got %v, %w", describe(met), orNil(err))
			}
			scribble(given)
			if err := stands(ctx, s, want); err != nil {
				return fmt.Errorf("after a change to the record that Replace was given: %w", err)
			}
			return nil
		},
	},
	{
		name: "ContextEnds",
		rule: "A call under a context that has ended fails and writes nothing.",
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
		rule: "The errors of a store hold no result, and nothing else of a record that people wrote.",
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
					return errors.New("an error holds a part of the record")
				}
			}
			return nil
		},
	},
	{
		name: "WholeOrNotAtAll",
		rule: "A store keeps a large result whole, or returns ErrTooLarge and writes nothing.",
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
		rule:  "A write that was acknowledged is there for the next process.",
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

// similarIDs returns valid record ids that a careless store takes for each
// other.
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
	// The hash tells upper and lower case apart. Its last character is left
	// alone, it does not have all values.
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
