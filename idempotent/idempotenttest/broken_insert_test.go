package idempotenttest

import (
	"errors"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// What can be wrong with Insert, and with what a loser is told.
var brokenInserts = []brokenStore{
	{name: "Insert ignores a live record", spoil: func(s *shelf) {
		s.stands = func(*driver.Record, driver.Record, time.Time) bool { return false }
	}, caught: []string{"InsertRefuses", "InsertReplacesExpired", "NoExpiryNeverExpires", "OneInserterWins"}},
	{name: "Insert never replaces", spoil: func(s *shelf) {
		s.stands = func(old *driver.Record, _ driver.Record, _ time.Time) bool { return old != nil }
	}, caught: []string{"InsertReplacesExpired", "OneInserterReplacesExpired"}},
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
	{name: "Insert judges the expiry by seconds", spoil: func(s *shelf) {
		s.stands = func(old *driver.Record, _ driver.Record, now time.Time) bool {
			return old != nil && (old.Expires.IsZero() || old.Expires.Unix() > now.Unix())
		}
	}, caught: []string{"InsertReplacesExpired"}},
	{name: "Insert judges the expiry by the wall clock", spoil: func(s *shelf) {
		s.stands = func(old *driver.Record, _ driver.Record, _ time.Time) bool {
			return old != nil && (old.Expires.IsZero() || old.Expires.After(time.Now()))
		}
	}, caught: []string{"InsertReplacesExpired"}},
	{name: "Insert compares the wrong way round", spoil: func(s *shelf) {
		s.stands = func(old *driver.Record, _ driver.Record, now time.Time) bool {
			return old != nil && (old.Expires.IsZero() || old.Expires.Before(now))
		}
	}, caught: []string{"InsertRefuses", "InsertReplacesExpired"}},
	{name: "Insert judges the new record's expiry", spoil: func(s *shelf) {
		s.stands = func(old *driver.Record, r driver.Record, now time.Time) bool {
			return old != nil && (r.Expires.IsZero() || r.Expires.After(now))
		}
	}, caught: []string{"InsertReplacesExpired"}},
	{name: "Insert takes a record without expiry for an expired one", spoil: func(s *shelf) {
		s.stands = func(old *driver.Record, _ driver.Record, now time.Time) bool {
			return old != nil && old.Expires.After(now)
		}
	}, caught: []string{"NoExpiryNeverExpires", "OneInserterWins"}},
	{name: "A record without expiry is kept for ten years", spoil: func(s *shelf) {
		s.stands = func(old *driver.Record, _ driver.Record, now time.Time) bool {
			return old != nil && (old.Expires.IsZero() && old.Created.AddDate(10, 0, 0).After(now) || old.Expires.After(now))
		}
	}, caught: []string{"NoExpiryNeverExpires"}},
	{name: "Insert takes over what is not completed", spoil: func(s *shelf) {
		right := s.stands
		s.stands = func(old *driver.Record, r driver.Record, now time.Time) bool {
			return right(old, r, now) && old.State == driver.StateCompleted
		}
	}, caught: []string{"OneInserterWins", "NoExpiryNeverExpires"}},
	{name: "A loser is given nothing", spoil: func(s *shelf) {
		s.loser = func(Op, *driver.Record, driver.Record) (*driver.Record, error) { return nil, nil }
	}, caught: []string{"InsertRefuses", "ReplaceRefuses", "OneInserterWins", "OneReplacerWins"}},
	{name: "A loser is given its own record", spoil: func(s *shelf) {
		s.loser = func(_ Op, _ *driver.Record, r driver.Record) (*driver.Record, error) {
			return r.Clone(), nil
		}
	}, caught: []string{"InsertRefuses", "ReplaceRefuses", "OneInserterWins", "OneReplacerWins"}},
	{name: "A loser is given an error", spoil: func(s *shelf) {
		s.loser = func(Op, *driver.Record, driver.Record) (*driver.Record, error) {
			return nil, errors.New("conditional check failed")
		}
	}, caught: []string{"InsertRefuses", "ReplaceRefuses", "OneInserterWins", "OneReplacerWins"}},
	{name: "A loser is given the record without its result", spoil: func(s *shelf) {
		s.loser = func(_ Op, old *driver.Record, _ driver.Record) (*driver.Record, error) {
			head := old.Clone()
			head.Result = nil
			return head, nil
		}
	}, caught: []string{"InsertRefuses", "ReplaceRefuses"}},
	{name: "The winner's retry is an error", spoil: func(s *shelf) {
		s.loser = func(_ Op, old *driver.Record, r driver.Record) (*driver.Record, error) {
			if old.Version == r.Version && old.Attempt == 1 {
				return nil, errors.New("duplicate write id")
			}
			return old.Clone(), nil
		}
	}, caught: []string{"InsertAgain"}},
	{name: "Insert checks and writes in two steps", spoil: func(s *shelf) {
		s.unsafely(func(op Op, old, r *driver.Record) bool {
			return op == OpInsert && old == nil && r.State == driver.StateInProgress
		})
	}, caught: []string{"OneInserterWins"}},
	{name: "Insert over an expired record checks and writes in two steps", spoil: func(s *shelf) {
		s.unsafely(func(op Op, old, _ *driver.Record) bool {
			return op == OpInsert && old != nil && old.State == driver.StateCompleted
		})
	}, caught: []string{"OneInserterReplacesExpired"}},
	{name: "Insert and Replace have a lock each", spoil: twoLocks, caught: []string{"OneWriterWins"}},
}
