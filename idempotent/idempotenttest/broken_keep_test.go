package idempotenttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// brokenKeeping are faults in how a store holds records.
var brokenKeeping = []broken{
	{name: "Times are stored in seconds", spoil: everyTime(func(t time.Time) time.Time { return t.Truncate(time.Second) }), caught: []string{"EveryFieldIsKept"}},
	{name: "Times are returned in another zone", spoil: everyTime(func(t time.Time) time.Time {
		return t.In(time.FixedZone("CET", 3600))
	}), caught: []string{"EveryFieldIsKept"}},
	{name: "A missing time becomes the epoch", spoil: everyTime(func(t time.Time) time.Time {
		if t.IsZero() {
			return time.UnixMilli(0).UTC()
		}
		return t
	}), caught: []string{"EveryFieldIsKept"}},
	{name: "A missing result becomes an empty one", spoil: kept(func(r *driver.Record) {
		if r.Result == nil {
			r.Result = []byte{}
		}
	}), caught: []string{"EveryFieldIsKept"}},
	{name: "Text loses its non-ASCII characters", spoil: kept(func(r *driver.Record) {
		r.Ref = strings.ToValidUTF8(strings.Map(func(c rune) rune {
			if c > 127 {
				return '?'
			}
			return c
		}, r.Ref), "?")
	}), caught: []string{"EveryFieldIsKept"}},
	{name: "A result ends at its first zero byte", spoil: kept(func(r *driver.Record) {
		if i := bytes.IndexByte(r.Result, 0); i >= 0 {
			r.Result = r.Result[:i]
		}
	}), caught: []string{"EveryFieldIsKept", "FM34_ResultOf4KB"}},
	{name: "A retryable record loses its recovery", spoil: kept(func(r *driver.Record) {
		if r.State == driver.StateRetryable {
			r.Recovery = 0
		}
	}), caught: []string{"EveryFieldIsKept"}},
	{name: "Get returns the previous write", spoil: func(s *shelf) {
		before := map[string]*driver.Record{}
		s.write = func(_ Op, old *driver.Record, r driver.Record) *driver.Record {
			if old != nil {
				before[s.name(r.ID)] = old
			}
			return r.Clone()
		}
		right := s.read
		s.read = func(r *driver.Record) (*driver.Record, error) {
			if r != nil && before[s.name(r.ID)] != nil {
				r = before[s.name(r.ID)]
			}
			return right(r)
		}
	}, caught: []string{"ReplaceWrites", "InsertReplacesExpired", "OneReplacerWins", "FM31_PanicAfterTheEffect"}},
	{name: "Get hides expired records", spoil: func(s *shelf) {
		right := s.read
		s.read = func(r *driver.Record) (*driver.Record, error) {
			if r != nil && !r.Expires.IsZero() && r.Expires.Before(time.Now()) {
				return nil, idempotent.ErrNoRecord
			}
			return right(r)
		}
	}, caught: []string{"GetExpired"}},
	{name: "Get fails before the first write", spoil: func(s *shelf) {
		var table atomic.Bool
		s.begin = func(ctx context.Context, op Op) error {
			if op != OpGet {
				table.Store(true)
			}
			if !table.Load() {
				return errors.New("no such table")
			}
			return ctx.Err()
		}
	}, caught: []string{"GetNothing"}},
	{name: "Get returns neither a record nor an error", spoil: func(s *shelf) {
		s.read = func(r *driver.Record) (*driver.Record, error) {
			if r == nil {
				return nil, nil
			}
			return r.Clone(), nil
		}
	}, caught: []string{"GetNothing", "ReplaceNeverCreates"}},
	{name: "Keys are compared case-insensitively", spoil: func(s *shelf) {
		s.name = func(id idempotent.RecordID) string { return strings.ToLower(string(id)) }
	}, caught: []string{"KeysAreApart"}},
	{name: "Keys end at the first #", spoil: func(s *shelf) {
		s.name = func(id idempotent.RecordID) string { name, _, _ := strings.Cut(string(id), "#"); return name }
	}, caught: []string{"KeysAreApart", "EveryFieldIsKept"}},
	{name: "Keys are truncated to 200 characters", spoil: func(s *shelf) {
		s.name = func(id idempotent.RecordID) string { return string(id)[:min(200, len(id))] }
	}, caught: []string{"KeysAreApart"}},
	{name: "Insert retains the caller's record", spoil: func(s *shelf) {
		s.write = func(_ Op, _ *driver.Record, r driver.Record) *driver.Record { return &r }
	}, caught: []string{"RecordsAreCopies"}},
	{name: "Replace retains the caller's record", spoil: func(s *shelf) {
		s.write = func(op Op, _ *driver.Record, r driver.Record) *driver.Record {
			if op == OpInsert {
				return r.Clone()
			}
			return &r
		}
	}, caught: []string{"RecordsAreCopies"}},
	{name: "Get returns the stored record without a copy", spoil: func(s *shelf) {
		s.read = reading(func(r *driver.Record) *driver.Record { return r })
	}, caught: []string{"RecordsAreCopies"}},
	{name: "Get returns a copy that shares the result", spoil: func(s *shelf) {
		s.read = reading(func(r *driver.Record) *driver.Record { c := *r; return &c })
	}, caught: []string{"RecordsAreCopies"}},
	{name: "Insert returns the stored record without a copy", spoil: func(s *shelf) {
		s.loser = func(op Op, old *driver.Record, _ driver.Record) (*driver.Record, error) {
			if op == OpInsert {
				return old, nil
			}
			return old.Clone(), nil
		}
	}, caught: []string{"RecordsAreCopies"}},
	{name: "Replace returns the stored record without a copy", spoil: func(s *shelf) {
		s.loser = func(op Op, old *driver.Record, _ driver.Record) (*driver.Record, error) {
			if op == OpInsert {
				return old.Clone(), nil
			}
			return old, nil
		}
	}, caught: []string{"RecordsAreCopies"}},
	{name: "The context is ignored", spoil: func(s *shelf) { s.begin = ignoring() }, caught: []string{"ContextEnds"}},
	{name: "Insert ignores the context", spoil: func(s *shelf) { s.begin = ignoring(OpInsert) }, caught: []string{"ContextEnds"}},
	{name: "Replace ignores the context", spoil: func(s *shelf) { s.begin = ignoring(OpReplace) }, caught: []string{"ContextEnds"}},
	{name: "Get ignores the context", spoil: func(s *shelf) { s.begin = ignoring(OpGet) }, caught: []string{"ContextEnds"}},
	{name: "Insert checks the context after the write", spoil: func(s *shelf) {
		s.begin, s.end = ignoring(OpInsert), s.begin
	}, caught: []string{"ContextEnds"}},
	{name: "Errors contain the record", spoil: func(s *shelf) {
		s.tell = func(err error, r *driver.Record) error { return fmt.Errorf("%w: %+v", err, *r) }
	}, caught: []string{"ErrorsTellNothing"}},
	{name: "Errors contain the result", spoil: func(s *shelf) {
		s.tell = func(err error, r *driver.Record) error { return fmt.Errorf("%w: %q", err, r.Result) }
	}, caught: []string{"ErrorsTellNothing"}},
	{name: "A large result is truncated", spoil: kept(func(r *driver.Record) { r.Result = r.Result[:min(len(r.Result), 400<<10)] }),
		caught: []string{"WholeOrNotAtAll"}},
	{name: "A large result is dropped", spoil: kept(func(r *driver.Record) {
		if len(r.Result) > 400<<10 {
			r.Result = nil
		}
	}), caught: []string{"WholeOrNotAtAll"}},
	{name: "A record that is too large returns an error other than ErrTooLarge", spoil: func(s *shelf) {
		s.admit = func(r driver.Record) error {
			if len(r.Result) > 400<<10 {
				return errors.New("413")
			}
			return nil
		}
	}, caught: []string{"WholeOrNotAtAll"}},
	{name: "A record that is too large returns ErrTooLarge and is written", spoil: func(s *shelf) {
		s.admit = func(r driver.Record) error {
			if len(r.Result) > 400<<10 {
				s.records[s.name(r.ID)] = r.Clone()
				return driver.ErrTooLarge
			}
			return nil
		}
	}, caught: []string{"WholeOrNotAtAll"}},
	{name: "Records are lost when the process ends", spoil: func(s *shelf) {
		s.reopen = func() *shelf { return newShelf() }
	}, caught: []string{"Reopen"}},
	{name: "Replaces are lost when the process ends", spoil: func(s *shelf) {
		first := newShelf()
		s.write = func(_ Op, old *driver.Record, r driver.Record) *driver.Record {
			if old == nil {
				first.records[s.name(r.ID)] = r.Clone()
			}
			return r.Clone()
		}
		s.reopen = func() *shelf { return first }
	}, caught: []string{"Reopen"}},
}
