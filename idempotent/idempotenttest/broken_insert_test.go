package idempotenttest

import (
	"context"
	"errors"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// brokenInserts are faults in Insert, and in what it returns to a caller that
// did not win.
var brokenInserts = []broken{
	{name: "Insert fails after its write", spoil: func(s *shelf) {
		s.end = func(_ context.Context, op Op) error {
			if op == OpInsert {
				return errors.New("connection reset")
			}
			return nil
		}
	}, caught: []string{"InsertCreates"}},
	{name: "Insert ignores a live record", spoil: func(s *shelf) {
		s.stands = func(*driver.Record, driver.Record, time.Time) bool { return false }
	}, caught: []string{"InsertRefuses", "InsertReplacesExpired", "NoExpiryNeverExpires", "OneInserterWins", "FM01_InsertReplyLost", "FM02_InsertGivenUp_NotReleased", "FM37_TwinLeavesNothing"}},
	{name: "Insert never replaces", spoil: func(s *shelf) {
		s.stands = func(old *driver.Record, _ driver.Record, _ time.Time) bool { return old != nil }
	}, caught: []string{"InsertReplacesExpired", "OneInserterReplacesExpired", "FM19_ExpiredButStillThere"}},
	{name: "Insert replaces only after the millisecond of the expiry", spoil: func(s *shelf) {
		s.stands = func(old *driver.Record, _ driver.Record, now time.Time) bool {
			return old != nil && (old.Expires.IsZero() || !old.Expires.Before(now))
		}
	}, caught: []string{"InsertReplacesExpired"}},
	{name: "Insert replaces a millisecond too early", spoil: func(s *shelf) {
		s.stands = func(old *driver.Record, _ driver.Record, now time.Time) bool {
			return old != nil && (old.Expires.IsZero() || old.Expires.After(now.Add(time.Millisecond)))
		}
	}, caught: []string{"InsertReplacesExpired"}},
	{name: "Insert compares the expiry in seconds", spoil: func(s *shelf) {
		s.stands = func(old *driver.Record, _ driver.Record, now time.Time) bool {
			return old != nil && (old.Expires.IsZero() || old.Expires.Unix() > now.Unix())
		}
	}, caught: []string{"InsertReplacesExpired"}},
	{name: "Insert compares the expiry with the wall clock", spoil: func(s *shelf) {
		s.stands = func(old *driver.Record, _ driver.Record, _ time.Time) bool {
			return old != nil && (old.Expires.IsZero() || old.Expires.After(time.Now()))
		}
	}, caught: []string{"InsertReplacesExpired", "FM19_ExpiredButStillThere"}},
	{name: "Insert compares in the wrong direction", spoil: func(s *shelf) {
		s.stands = func(old *driver.Record, _ driver.Record, now time.Time) bool {
			return old != nil && (old.Expires.IsZero() || old.Expires.Before(now))
		}
	}, caught: []string{"InsertRefuses", "InsertReplacesExpired"}},
	{name: "Insert checks the new record's expiry", spoil: func(s *shelf) {
		s.stands = func(old *driver.Record, r driver.Record, now time.Time) bool {
			return old != nil && (r.Expires.IsZero() || r.Expires.After(now))
		}
	}, caught: []string{"InsertReplacesExpired"}},
	{name: "Insert treats a record without expiry as expired", spoil: func(s *shelf) {
		s.stands = func(old *driver.Record, _ driver.Record, now time.Time) bool {
			return old != nil && old.Expires.After(now)
		}
	}, caught: []string{"NoExpiryNeverExpires", "OneInserterWins", "FM59_CrashedNeverExpires"}},
	{name: "A record without expiry expires after ten years", spoil: func(s *shelf) {
		s.stands = func(old *driver.Record, _ driver.Record, now time.Time) bool {
			return old != nil && (old.Expires.IsZero() && old.Created.AddDate(10, 0, 0).After(now) || old.Expires.After(now))
		}
	}, caught: []string{"NoExpiryNeverExpires"}},
	{name: "Insert takes over any record that is not completed", spoil: func(s *shelf) {
		right := s.stands
		s.stands = func(old *driver.Record, r driver.Record, now time.Time) bool {
			return right(old, r, now) && old.State == driver.StateCompleted
		}
	}, caught: []string{"OneInserterWins", "NoExpiryNeverExpires", "FM01_TakeoverReplyLost"}},
	{name: "A refused Insert returns no record", spoil: func(s *shelf) {
		s.loser = func(Op, *driver.Record, driver.Record) (*driver.Record, error) { return nil, nil }
	}, caught: []string{"InsertRefuses", "ReplaceRefuses", "OneInserterWins", "OneReplacerWins"}},
	{name: "A refused Insert returns its own record", spoil: func(s *shelf) {
		s.loser = func(_ Op, _ *driver.Record, r driver.Record) (*driver.Record, error) {
			return r.Clone(), nil
		}
	}, caught: []string{"InsertRefuses", "ReplaceRefuses", "OneInserterWins", "OneReplacerWins", "FM10_CrashBeforeCompletion"}},
	{name: "A refused Insert returns an error", spoil: func(s *shelf) {
		s.loser = func(Op, *driver.Record, driver.Record) (*driver.Record, error) {
			return nil, errors.New("conditional check failed")
		}
	}, caught: []string{"InsertRefuses", "ReplaceRefuses", "OneInserterWins", "OneReplacerWins"}},
	{name: "A refused Insert returns the record without its result", spoil: func(s *shelf) {
		s.loser = func(_ Op, old *driver.Record, _ driver.Record) (*driver.Record, error) {
			head := old.Clone()
			head.Result = nil
			return head, nil
		}
	}, caught: []string{"InsertRefuses", "ReplaceRefuses"}},
	{name: "A repeated Insert returns an error", spoil: func(s *shelf) {
		s.loser = func(_ Op, old *driver.Record, r driver.Record) (*driver.Record, error) {
			if old.Version == r.Version && old.Attempt == 1 {
				return nil, errors.New("duplicate write id")
			}
			return old.Clone(), nil
		}
	}, caught: []string{"InsertAgain", "FM01_InsertReplyLost"}},
	{name: "Insert checks and writes in two steps", spoil: func(s *shelf) {
		s.unsafely(func(op Op, old, r *driver.Record) bool {
			return op == OpInsert && old == nil && r.State == driver.StateInProgress
		})
	}, caught: []string{"OneInserterWins", "FM05_SimultaneousRequests", "FM51_ManyLoopsOneProcess", "FM51_ManyLoopsOneProcessWithACache"}},
	{name: "Insert over an expired record checks and writes in two steps", spoil: func(s *shelf) {
		s.unsafely(func(op Op, old, _ *driver.Record) bool {
			return op == OpInsert && old != nil && old.State == driver.StateCompleted
		})
	}, caught: []string{"OneInserterReplacesExpired", "FM21_SimultaneousReplacersOfAnExpiredRecord"}},
	{name: "Insert and Replace have separate locks", spoil: twoLocks, caught: []string{"OneWriterWins"}},
}
